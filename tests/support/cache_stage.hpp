// SPDX-License-Identifier: Apache-2.0
// Fixtures for cache tests: a hand-made machine, a mover that the test controls, and counted
// memory. The machine's nodes need not exist.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/base/check.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/engine/engine.hpp"

namespace headrace::test {

/// Two nodes with a processor and DDR (0, 1), and two of HBM without (8, 9), as on a Xeon Max.
inline topo::Machine hand_made_machine() {
  topo::Machine machine;
  machine.cpu_model = "hand-made";
  machine.origin = "hand-made";
  machine.page_bytes = kib(4);
  for (const std::uint32_t id : {0U, 1U, 8U, 9U}) {
    topo::Node node;
    node.id = NodeId(id);
    node.tier = id < 8 ? topo::Tier::ddr : topo::Tier::hbm;
    node.capacity = gib(1);
    if (id < 8) node.cpus.emplace_back(id);
    machine.nodes.push_back(node);
  }
  for (const std::uint32_t initiator : {0U, 1U}) {
    for (const std::uint32_t target : {0U, 1U, 8U, 9U}) {
      const bool near = target % 8 == initiator;
      topo::Access access;
      access.initiator = NodeId(initiator);
      access.target = NodeId(target);
      access.bandwidth = BytesPerSecond((target < 8 ? 60e9 : 200e9) * (near ? 1 : 0.25));
      access.distance = near ? 10 : 20;
      machine.accesses.push_back(access);
    }
  }
  return machine;
}

/// Moves at once, when polled, or on release().
///
/// Threading: shared.
class StagedMover final : public engine::Mover {
 public:
  enum class Mode : std::uint8_t { at_once, on_poll, held };

  explicit StagedMover(Mode mode, std::optional<NodeId> node = std::nullopt) : mode_(mode) {
    info_.name = "staged";
    info_.node = node;
    info_.polled = mode == Mode::on_poll;
  }

  /// Completes the held requests: moves them, or fails them with `cause`. Returns their number.
  std::size_t release(engine::Cause cause = engine::Cause::none) {
    std::vector<engine::Request*> requests;
    {
      const Lock lock(mutex_);
      requests.swap(held_);
    }
    for (engine::Request* request : requests) end(*request, cause);
    return requests.size();
  }
  /// From now on: return `full`, after `delay`.
  void refuse(bool refuses, std::chrono::nanoseconds delay = {}) {
    const Lock lock(mutex_);
    refuses_ = refuses;
    refusal_delay_ = delay;
  }
  /// From now on: complete new requests with `cause`.
  void fail_with(engine::Cause cause) {
    const Lock lock(mutex_);
    cause_ = cause;
  }
  /// From now on: report that a device may still write to the target, as after a device that was
  /// given up.
  void leave_late_writes(bool leaves) {
    const Lock lock(mutex_);
    leaves_late_writes_ = leaves;
  }
  [[nodiscard]] std::size_t accepted_count() const {
    const Lock lock(mutex_);
    return accepted_count_;
  }
  /// Copies into the processor's cache.
  [[nodiscard]] std::size_t into_cache_count() const {
    const Lock lock(mutex_);
    return into_cache_count_;
  }

  [[nodiscard]] const engine::MoverInfo& info() const override { return info_; }
  [[nodiscard]] engine::Submit post(engine::Request& request) noexcept override {
    engine::Cause cause{};
    std::chrono::nanoseconds delay{};
    {
      const Lock lock(mutex_);
      delay = refuses_ ? refusal_delay_ : delay;
    }
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    {
      const Lock lock(mutex_);
      if (stopped_) return engine::Submit::closed;
      if (refuses_) return engine::Submit::full;
      ++accepted_count_;
      if (request.operation().is_into_cache()) ++into_cache_count_;
      if (mode_ != Mode::at_once) {
        held_.push_back(&request);
        return engine::Submit::accepted;
      }
      cause = cause_;
    }
    end(request, cause);
    return engine::Submit::accepted;
  }
  void reap() noexcept override {
    if (mode_ != Mode::on_poll) return;
    engine::Cause cause{};
    {
      const Lock lock(mutex_);
      cause = cause_;
    }
    release(cause);
  }
  void stop() noexcept override {
    std::vector<engine::Request*> requests;
    {
      const Lock lock(mutex_);
      stopped_ = true;
      requests.swap(held_);
    }
    for (engine::Request* request : requests)
      request->complete({.state = engine::JobState::stopped});
  }

 private:
  void end(engine::Request& request, engine::Cause cause) noexcept {
    const bool late = [&] {
      const Lock lock(mutex_);
      return leaves_late_writes_;
    }();
    if (cause != engine::Cause::none) return request.complete({.cause = cause});
    if (request.stop_requested()) return request.complete({.state = engine::JobState::stopped});
    std::memcpy(request.target().data(), request.source().data(), request.byte_count());
    request.complete(
        {.fell_back = late, .late_write_possible = late, .bytes_done = request.byte_count()});
  }

  const Mode mode_;
  engine::MoverInfo info_;
  mutable Mutex mutex_;
  std::vector<engine::Request*> held_ HEADRACE_GUARDED_BY(mutex_);
  std::size_t accepted_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::size_t into_cache_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool refuses_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::chrono::nanoseconds refusal_delay_ HEADRACE_GUARDED_BY(mutex_){};
  bool stopped_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool leaves_late_writes_ HEADRACE_GUARDED_BY(mutex_) = false;
  engine::Cause cause_ HEADRACE_GUARDED_BY(mutex_) = engine::Cause::none;
};

/// Memory on any node, real or not; fails on request, and aborts if destroyed while memory is
/// allocated.
///
/// Threading: shared.
class CountedMemory final : public cache::MemorySource {
 public:
  ~CountedMemory() override { HEADRACE_CHECK(live_.empty(), "every copy was freed"); }

  Result<std::span<std::byte>> allocate(std::size_t byte_count, NodeId node) override {
    if (delay_) delay_();
    const Lock lock(mutex_);
    if (full_node_ == node) {
      return fail(Code::out_of_memory, "allocate", "the test says so", "ask the test");
    }
    if (broken_) return fail(Code::unsupported, "allocate", "the test says so", "ask the test");
    std::unique_ptr<std::byte, decltype(&std::free)> owned(
        static_cast<std::byte*>(std::malloc(byte_count)), &std::free);
    live_.emplace(owned.get(), node);
    std::byte* const memory = owned.release();
    bytes_live_ += byte_count;
    return std::span(memory, byte_count);
  }
  void free(std::span<std::byte> memory) noexcept override {
    if (delay_) delay_();
    const Lock lock(mutex_);
    HEADRACE_CHECK(live_.erase(memory.data()) == 1, "a copy is freed once");
    bytes_live_ -= memory.size();
    std::free(memory.data());
  }
  /// Frees memory that a cache retains for ever because of late writes: the test has no device.
  /// Returns the number of copies.
  std::size_t take_back() {
    const Lock lock(mutex_);
    for (const auto& [memory, node] : live_) std::free(const_cast<std::byte*>(memory));
    bytes_live_ = 0;
    return std::exchange(live_, {}).size();
  }
  /// Runs `delay` in each call, with no lock held. Call before threads use the memory.
  void delay_by(std::function<void()> delay) { delay_ = std::move(delay); }
  void fill_up(std::optional<NodeId> node) {
    const Lock lock(mutex_);
    full_node_ = node;
  }
  /// From now on: fail with an error other than out_of_memory.
  void break_down(bool broken) {
    const Lock lock(mutex_);
    broken_ = broken;
  }
  [[nodiscard]] std::size_t live_count() const {
    const Lock lock(mutex_);
    return live_.size();
  }
  [[nodiscard]] std::size_t bytes_live() const {
    const Lock lock(mutex_);
    return bytes_live_;
  }
  [[nodiscard]] std::optional<NodeId> node_of(const std::byte* copy) const {
    const Lock lock(mutex_);
    const auto found = live_.find(copy);
    return found == live_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  mutable Mutex mutex_;
  std::map<const std::byte*, NodeId> live_ HEADRACE_GUARDED_BY(mutex_);
  std::size_t bytes_live_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::optional<NodeId> full_node_ HEADRACE_GUARDED_BY(mutex_);
  bool broken_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::function<void()> delay_;
};

/// A cache over one staged mover.
///
/// Threading: that of its members.
struct CacheStage {
  explicit CacheStage(StagedMover::Mode mode = StagedMover::Mode::at_once,
                      cache::CacheOptions options = {}) {
    auto made_mover = std::make_unique<StagedMover>(mode);
    mover = made_mover.get();
    std::vector<std::unique_ptr<engine::Mover>> movers;
    movers.push_back(std::move(made_mover));
    engine = std::move(engine::Engine::make(std::move(movers)).value());
    if (!options.placement) options.placement = cache::placement::on(NodeId(8));
    options.memory = memory;
    cache = std::move(cache::Cache::make(machine, *engine, std::move(options)).value());
  }

  [[nodiscard]] cache::CacheStatistics statistics() const { return cache->statistics(); }

  topo::Machine machine = hand_made_machine();
  std::shared_ptr<CountedMemory> memory = std::make_shared<CountedMemory>();
  StagedMover* mover = nullptr;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<cache::Cache> cache;
};

/// Bytes that depend on their position.
inline std::vector<std::byte> numbered_bytes(std::size_t byte_count) {
  std::vector<std::byte> bytes(byte_count);
  for (std::size_t i = 0; i < byte_count; ++i) bytes[i] = static_cast<std::byte>(i * 131 + i / 251);
  return bytes;
}

/// True if both hold the same bytes.
inline bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace headrace::test
