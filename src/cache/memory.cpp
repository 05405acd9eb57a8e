// SPDX-License-Identifier: Apache-2.0
// Where copies get their memory unless the user says otherwise: pages of the operating system.
#include "headrace/platform/memory.hpp"

#include "headrace/cache/cache.hpp"

namespace headrace::cache {
namespace {

/// Each allocation is a mapping of its own: simple, and gone from the node when it is freed. It
/// costs two system calls and the zeroing of the pages, and at least one page for the smallest
/// entry.
///
/// Threading: shared.
class Pages final : public MemorySource {
 public:
  Result<std::span<std::byte>> allocate(std::size_t byte_count, NodeId node) override {
    Result<std::span<std::byte>> pages = platform::allocate_pages(byte_count, node);
    if (!pages.has_value()) return pages;
    // Now, while a full node is still an answer; later it would be a signal in a mover's thread.
    const Result<void> present = platform::prefault_pages(*pages);
    if (!present.has_value()) {
      platform::free_pages(*pages);
      return fail(present.error());
    }
    return pages;
  }
  void free(std::span<std::byte> memory) noexcept override { platform::free_pages(memory); }
};

}  // namespace

std::shared_ptr<MemorySource> operating_system_pages() {
  return std::make_shared<Pages>();
}

}  // namespace headrace::cache
