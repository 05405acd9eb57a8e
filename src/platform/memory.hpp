// SPDX-License-Identifier: Apache-2.0
// Pages on a node: taken from and given back to the operating system.
// Not an allocator: sizes are rounded up to pages, each call is a system call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"

namespace headrace::platform {

[[nodiscard]] std::size_t page_bytes();
/// Memory that the kernel manages; nothing if it does not tell.
[[nodiscard]] std::optional<Bytes> system_memory();
/// Of the huge pages that memory can get without having been set aside; 0 if the kernel has none.
[[nodiscard]] std::size_t huge_page_bytes();

/// What kind of pages is wanted. huge: at least as long as a huge page, aligned to it, and the
/// kernel is asked to use them; it may have none free.
enum class Pages : std::uint8_t { plain, huge };

/// Maps at least `byte_count` bytes of zeroed, page-aligned memory whose pages will lie on `node`
/// when first touched, or wherever the system's policy puts them without a node. If others fill the
/// node in between, pages lie elsewhere: node_of_address tells.
///
/// Ownership: free with free_pages and the same span.
/// Threading: shared.
/// Fails: out_of_memory, also if the node has no room now; invalid_argument if the node does not
///        exist; unsupported for a node other than 0 in a build without libnuma.
[[nodiscard]] Result<std::span<std::byte>> allocate_pages(std::size_t byte_count,
                                                          std::optional<NodeId> node,
                                                          Pages pages = Pages::plain);
void free_pages(std::span<std::byte> pages) noexcept;

/// Makes every page present for writing, so that a full node is an error here and not a signal
/// later.
///
/// Fails: out_of_memory if the node ran out. Where the kernel cannot tell (before Linux 5.14),
/// pages are touched.
[[nodiscard]] Result<void> prefault_pages(std::span<std::byte> pages);

/// Makes the page of `first` present, for writing or for reading, and if possible those up to
/// `byte_count` bytes behind it. Changes no byte. Whatever the address is, nothing crashes.
///
/// Returns: bytes from `first` on that are present: all of them, or those of the first page, or 0,
///          which is to say that the page is not mapped or may not be accessed so. Memory of a
///          device, and any memory on kernels before 5.14, is brought in page by page.
/// Cost: a system call or two, three for such memory.
[[nodiscard]] std::size_t touch_pages(std::uintptr_t first, std::size_t byte_count,
                                      bool write) noexcept;

/// Asks the kernel where the pages are, which must be present: one whose preferred node is full
/// lies elsewhere.
///
/// Fails: out_of_memory if one is not on `node`. Where the kernel does not tell, all are believed
///        to be.
[[nodiscard]] Result<void> verify_pages(std::span<const std::byte> pages, NodeId node);

/// Makes every page of a shared mapping present, its contents as they are. Where the kernel cannot
/// do it for writing (before Linux 5.14), for reading.
void populate_pages(std::span<std::byte> pages) noexcept;

/// Writes the pages of a shared mapping that hold a byte of the range back to their file (msync).
///
/// Returns: 0, or the errno.
[[nodiscard]] int sync_pages(std::span<std::byte> range) noexcept;

/// False if some page of `bytes`, which must not be empty, is not mapped. Whether it may be read is
/// another question.
[[nodiscard]] bool is_mapped(std::span<const std::byte> bytes);

/// Memory of `node` that this process may still take: free, or given up by the page cache on
/// demand, and within the limit of its control group. Nothing if the kernel does not tell. A
/// snapshot.
[[nodiscard]] std::optional<Bytes> available_on_node(NodeId node);

/// The node that the page of `address` lies on; nothing if it is not present or the kernel does not
/// tell.
[[nodiscard]] std::optional<NodeId> node_of_address(const void* address);

}  // namespace headrace::platform
