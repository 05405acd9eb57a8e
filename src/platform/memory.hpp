// SPDX-License-Identifier: Apache-2.0
// Pages on a node: taken from and given back to the operating system.
// Not an allocator: sizes are rounded up to pages, each call is a system call.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"

namespace headrace::platform {

[[nodiscard]] std::size_t page_bytes();

/// Maps at least `byte_count` bytes of zeroed, page-aligned memory whose pages will lie on `node`
/// when first touched, or wherever the system's policy puts them without a node. If others fill the
/// node in between, pages lie elsewhere: node_of_address tells.
///
/// Ownership: free with free_pages and the same span.
/// Threading: shared.
/// Fails: out_of_memory, also if the node has no room now; invalid_argument if the node does not
///        exist; unsupported for a node other than 0 in a build without libnuma.
[[nodiscard]] Result<std::span<std::byte>> allocate_pages(std::size_t byte_count,
                                                          std::optional<NodeId> node);
void free_pages(std::span<std::byte> pages) noexcept;

/// Makes every page present for writing, so that a full node is an error here and not a signal
/// later.
///
/// Fails: out_of_memory if the node ran out. Where the kernel cannot tell (before Linux 5.14),
/// pages are touched.
[[nodiscard]] Result<void> prefault_pages(std::span<std::byte> pages);

/// Memory of `node` that this process may still take: free, or given up by the page cache on
/// demand, and within the limit of its control group. Nothing if the kernel does not tell. A
/// snapshot.
[[nodiscard]] std::optional<Bytes> available_on_node(NodeId node);

/// The node that the page of `address` lies on; nothing if it is not present or the kernel does not
/// tell.
[[nodiscard]] std::optional<NodeId> node_of_address(const void* address);

}  // namespace headrace::platform
