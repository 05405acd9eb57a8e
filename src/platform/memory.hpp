// SPDX-License-Identifier: Apache-2.0
// Pages on a node: mapped from and returned to the operating system.
// Not an allocator: sizes are rounded up to pages, each call is a system call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "headrace/base/owned.hpp"
#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"

namespace headrace::platform {

[[nodiscard]] std::size_t page_bytes();
/// Memory that the kernel manages; nothing if unknown.
[[nodiscard]] std::optional<Bytes> system_memory();
/// Size of a transparent huge page; 0 if the kernel has none.
[[nodiscard]] std::size_t huge_page_bytes();

/// Kind of pages. huge: memory of a huge page or more is aligned to one, and the kernel is asked to
/// use them; it may have none free.
enum class Pages : std::uint8_t { plain, huge };

/// Maps at least `byte_count` bytes of zeroed, page-aligned memory. Its pages are placed on `node`
/// when first touched; without a node, by the system's policy. If the node is full by then, pages
/// are placed elsewhere: see node_of_address.
///
/// Ownership: free with free_pages and the same span.
/// Threading: shared.
/// Fails: out_of_memory, also if the node is full now; invalid_argument if the node does not exist.
[[nodiscard]] Result<std::span<std::byte>> allocate_pages(std::size_t byte_count,
                                                          std::optional<NodeId> node,
                                                          Pages pages = Pages::plain);
void free_pages(std::span<std::byte> pages) noexcept;
using OwnedPages = Owned<std::span<std::byte>, free_pages>;

/// Makes every page present for writing, so that lack of memory is an error here and not a signal
/// later.
///
/// Fails: out_of_memory. Before Linux 5.14 it cannot fail: it touches the pages.
[[nodiscard]] Result<void> prefault_pages(std::span<std::byte> pages);

/// Makes the page of `first` present, for writing or for reading, and if possible the pages of all
/// `byte_count` bytes. Changes no byte. Safe for any address.
///
/// Returns: bytes from `first` on that are present: all of them, or those of the first page, or 0
///          if that page is not mapped or not accessible. Device memory, and any memory on kernels
///          before 5.14, is made present page by page.
/// Cost: a system call or two, three for such memory.
[[nodiscard]] std::size_t touch_pages(std::uintptr_t first, std::size_t byte_count,
                                      bool write) noexcept;

/// Checks that the pages, which must be present, are on `node`: if their preferred node was full,
/// they are elsewhere.
///
/// Fails: out_of_memory if one is not on `node`. Succeeds if the kernel cannot report it.
[[nodiscard]] Result<void> verify_pages(std::span<const std::byte> pages, NodeId node);

/// Makes every page of a shared mapping present for writing, without changing it. Before Linux 5.14
/// for reading.
void populate_pages(std::span<std::byte> pages) noexcept;

/// Writes the pages of a shared mapping that hold a byte of the range back to their file (msync).
///
/// Returns: 0, or the errno.
[[nodiscard]] int sync_pages(std::span<std::byte> range) noexcept;

/// False if some page of `bytes`, which must not be empty, is not mapped. Does not check access
/// permissions.
[[nodiscard]] bool is_mapped(std::span<const std::byte> bytes);

/// Memory of `node` that this process can still allocate: free or reclaimable, and within the limit
/// of its control group. Nothing if unknown. A snapshot.
[[nodiscard]] std::optional<Bytes> available_on_node(NodeId node);

/// The node of the page of `address`; nothing if the page is not present or the node is unknown.
[[nodiscard]] std::optional<NodeId> node_of_address(const void* address);

}  // namespace headrace::platform
