// SPDX-License-Identifier: Apache-2.0
// Baseline: the cache as originally described, with a map per node behind a reader-writer lock, and
// a handle per access that is allocated and reference-counted in an allocated atomic. Not for use.
//
// Where the description is silent the cheapest choice is made: the policy is a plain function,
// submission costs only the allocation of its handlers, nothing is copied, and memory for copies is
// free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "headrace/base/atomic.hpp"

namespace headrace::bench {

/// Stands for the accelerator library's handle of a submitted copy; always complete here.
struct SeedHandler {
  std::uint64_t bytes_done = 0;
};

/// Threading: shared, but for init().
class SeedCacheData {
 public:
  using Handlers = std::vector<SeedHandler>;

  SeedCacheData(const std::byte* source, std::size_t byte_count)
      : source_(source),
        byte_count_(byte_count),
        active_(new Atomic<std::int32_t>(1)),
        copy_(new Atomic<const std::byte*>(source)),
        incomplete_copy_(new const std::byte*(nullptr)),
        handlers_(new Atomic<Handlers*>(nullptr)) {}
  SeedCacheData(const SeedCacheData& other)
      : source_(other.source_),
        byte_count_(other.byte_count_),
        active_(other.active_),
        copy_(other.copy_),
        incomplete_copy_(other.incomplete_copy_),
        handlers_(other.handlers_) {
    active_->fetch_add_acq_rel(1);
  }
  SeedCacheData& operator=(const SeedCacheData&) = delete;
  ~SeedCacheData() {
    if (active_->fetch_sub_acq_rel(1) != 1) return;
    wait_on_completion();
    delete active_;
    delete copy_;
    delete incomplete_copy_;
    delete handlers_;
  }

  /// Marks the copy as in flight.
  void init() { copy_->store_release(nullptr); }
  void set_task(const std::byte* copy, Handlers* handlers) {
    *incomplete_copy_ = copy;
    handlers_->store_release(handlers);
    handlers_->notify_one();
  }
  void wait_on_completion() {
    while (copy_->load_acquire() == nullptr) {
      handlers_->wait_acquire(nullptr);
      Handlers* const mine = handlers_->exchange_acq_rel(invalid());
      if (mine == invalid() || mine == nullptr) continue;
      copy_->store_release(*incomplete_copy_);
      delete mine;
      handlers_->notify_all();
    }
  }
  [[nodiscard]] const std::byte* data() const { return copy_->load_acquire(); }
  [[nodiscard]] std::size_t byte_count() const { return byte_count_; }

 private:
  /// A second invalid value besides null: wait(nullptr) returns only if the value is not null.
  static Handlers* invalid() { return reinterpret_cast<Handlers*>(~std::uintptr_t{0}); }

  const std::byte* source_;
  std::size_t byte_count_;
  Atomic<std::int32_t>* active_;
  Atomic<const std::byte*>* copy_;
  /// Shared: a waiting thread may hold a handle from before the submission.
  const std::byte** incomplete_copy_;
  Atomic<Handlers*>* handlers_;
};

/// Threading: shared.
class SeedCache {
 public:
  using CachePolicy = int (*)(int current_node, const std::byte* source, std::size_t byte_count);
  using CopyPolicy = std::vector<int> (*)(int target_node, int source_node, std::size_t byte_count);

  SeedCache(int node_count, CachePolicy cache_policy, CopyPolicy copy_policy)
      : cache_policy_(cache_policy), copy_policy_(copy_policy) {
    for (int node = 0; node < node_count; ++node) nodes_.try_emplace(node);
  }

  std::unique_ptr<SeedCacheData> access(const std::byte* source, std::size_t byte_count) {
    const int node = cache_policy_(0, source, byte_count);
    Node& place = nodes_.at(node);
    if (auto found = find(place, source, byte_count)) return found;
    auto task = std::make_unique<SeedCacheData>(source, byte_count);
    {
      const std::unique_lock lock(place.mutex);
      const auto [at, fresh] = place.entries.try_emplace(source, *task);
      if (!fresh) {
        if (at->second.byte_count() >= byte_count) {
          return std::make_unique<SeedCacheData>(at->second);
        }
        place.entries.erase(at);
        place.entries.emplace(source, *task);
      }
      task->init();
      place.entries.at(source).init();
    }
    submit(*task, source, node, byte_count);
    return task;
  }
  void invalidate(const std::byte* source) {
    for (auto& [node, place] : nodes_) {
      const std::unique_lock lock(place.mutex);
      place.entries.erase(source);
    }
  }

 private:
  struct Node {
    std::shared_mutex mutex;
    std::map<const std::byte*, SeedCacheData> entries;
  };

  static std::unique_ptr<SeedCacheData> find(Node& place, const std::byte* source,
                                             std::size_t byte_count) {
    const std::shared_lock lock(place.mutex);
    const auto found = place.entries.find(source);
    if (found == place.entries.end() || found->second.byte_count() < byte_count) return nullptr;
    return std::make_unique<SeedCacheData>(found->second);
  }
  void submit(SeedCacheData& task, const std::byte* source, int node, std::size_t byte_count) {
    const std::vector<int> executing = copy_policy_(node, 0, byte_count);
    auto handlers = std::make_unique<SeedCacheData::Handlers>();
    for (std::size_t i = 0; i < executing.size(); ++i) handlers->push_back({byte_count});
    task.set_task(source, handlers.release());
  }

  std::unordered_map<int, Node> nodes_;
  CachePolicy cache_policy_;
  CopyPolicy copy_policy_;
};

}  // namespace headrace::bench
