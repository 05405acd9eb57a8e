// SPDX-License-Identifier: Apache-2.0
// The built-in MemorySources: pages of the operating system, and recycled memory of freed copies.
#include "headrace/platform/memory.hpp"

#include <map>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "headrace/base/check.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/cache/cache.hpp"

namespace headrace::cache {
namespace {

/// Each allocation is a separate mapping: simple, and gone from the node when it is freed. It costs
/// two system calls, the zeroing of the pages, and at least one page.
///
/// Threading: shared.
class Pages final : public MemorySource {
 public:
  explicit Pages(platform::Pages kind) : kind_(kind) {}

  Result<std::span<std::byte>> allocate(std::size_t byte_count, NodeId node) override {
    Result<std::span<std::byte>> pages = platform::allocate_pages(byte_count, node, kind_);
    if (!pages.has_value()) return pages;
    // Now, while a full node is still an error; later it would be a signal in a mover's thread.
    Result<void> present = platform::prefault_pages(*pages);
    if (present.has_value()) present = platform::verify_pages(*pages, node);
    if (!present.has_value()) {
      platform::free_pages(*pages);
      return fail(present.error());
    }
    return pages;
  }
  void free(std::span<std::byte> memory) noexcept override { platform::free_pages(memory); }

 private:
  const platform::Pages kind_;
};

/// Memory allocated from upstream is either in use, and in node_of_, or free, and in kept_. Before
/// more is allocated, as many free bytes of that node are returned: the total on a node grows only
/// if the memory in use does.
///
/// Threading: shared. Upstream is called with no lock held.
class Recycled final : public MemorySource {
 public:
  explicit Recycled(std::shared_ptr<MemorySource> upstream) : upstream_(std::move(upstream)) {}
  ~Recycled() override {
    for (const auto& [key, memory] : kept_) upstream_->free(memory);
  }

  Result<std::span<std::byte>> allocate(std::size_t byte_count, NodeId node) override {
    std::vector<std::span<std::byte>> given_back;
    {
      const Lock lock(mutex_);
      if (const auto found = kept_.find({node, byte_count}); found != kept_.end()) {
        const std::span<std::byte> memory = found->second;
        node_of_.emplace(memory.data(), node);
        kept_.erase(found);
        return memory;
      }
      std::size_t byte_count_back = 0;
      given_back.reserve(kept_.size());
      auto place = kept_.lower_bound({node, 0});
      while (byte_count_back < byte_count && place != kept_.end() && place->first.first == node) {
        given_back.push_back(place->second);
        byte_count_back += place->second.size();
        place = kept_.erase(place);
      }
    }
    for (const std::span<std::byte> memory : given_back) upstream_->free(memory);
    Result<std::span<std::byte>> memory = upstream_->allocate(byte_count, node);
    if (!memory.has_value()) return memory;
    try {
      const Lock lock(mutex_);
      node_of_.emplace(memory->data(), node);
    } catch (...) {
      upstream_->free(*memory);
      throw;
    }
    return memory;
  }

  void free(std::span<std::byte> memory) noexcept override {
    {
      const Lock lock(mutex_);
      const auto found = node_of_.find(memory.data());
      HEADRACE_CHECK(found != node_of_.end(), "memory is freed once, where it came from");
      const NodeId node = found->second;
      node_of_.erase(found);
      if (try_keep(memory, node)) return;
    }
    upstream_->free(memory);
  }

 private:
  /// False if the bookkeeping cannot be allocated.
  bool try_keep(std::span<std::byte> memory, NodeId node) noexcept HEADRACE_REQUIRES(mutex_) {
    try {
      kept_.emplace(std::pair(node, memory.size()), memory);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  const std::shared_ptr<MemorySource> upstream_;
  Mutex mutex_;
  std::multimap<std::pair<NodeId, std::size_t>, std::span<std::byte>> kept_
      HEADRACE_GUARDED_BY(mutex_);
  std::unordered_map<const std::byte*, NodeId> node_of_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace

std::shared_ptr<MemorySource> recycled(std::shared_ptr<MemorySource> upstream) {
  HEADRACE_CHECK(upstream != nullptr, "recycled memory comes from somewhere");
  return std::make_shared<Recycled>(std::move(upstream));
}

std::shared_ptr<MemorySource> operating_system_pages() {
  return std::make_shared<Pages>(platform::Pages::plain);
}

std::shared_ptr<MemorySource> huge_pages() {
  return std::make_shared<Pages>(platform::Pages::huge);
}

}  // namespace headrace::cache
