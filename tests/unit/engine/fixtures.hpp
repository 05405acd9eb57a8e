// SPDX-License-Identifier: Apache-2.0
// Fixtures of the engine's tests: machines, buffers, and a mover that the test controls.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <latch>
#include <memory>
#include <utility>
#include <vector>

#include "headrace/base/mutex.hpp"
#include "headrace/base/random.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/platform/thread.hpp"

namespace headrace::engine::test {

/// A machine of `node_count` nodes, each with all processors of this process.
inline topo::Machine this_machine(std::uint32_t node_count = 1) {
  topo::Machine machine;
  for (std::uint32_t i = 0; i < node_count; ++i) {
    topo::Node& node = machine.nodes.emplace_back();
    node.id = NodeId(i);
    node.cpus = platform::allowed_cpus();
  }
  return machine;
}

inline std::unique_ptr<Engine> make_engine(EngineOptions options = {},
                                           std::uint32_t node_count = 1) {
  auto engine = Engine::make(this_machine(node_count), std::move(options));
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  return std::move(*engine);
}

/// A source of random bytes and a target that differs from it everywhere. Filled and compared by
/// words: by bytes, under a sanitizer, this takes longer than the operation under test.
struct Buffers {
  explicit Buffers(std::size_t byte_count, std::uint64_t seed = 1)
      : source(byte_count), target(byte_count) {
    Random random(seed);
    for (std::size_t i = 0; i < byte_count; i += sizeof(std::uint64_t)) {
      const std::uint64_t word = random();
      const std::uint64_t other = ~word;
      const std::size_t length = std::min(sizeof word, byte_count - i);
      std::memcpy(source.data() + i, &word, length);
      std::memcpy(target.data() + i, &other, length);
    }
  }

  [[nodiscard]] CopyPlan plan() { return {.target = target, .source = source}; }
  [[nodiscard]] bool equal() const { return source == target; }
  /// Bytes that were written; the others still differ from the source.
  [[nodiscard]] std::size_t moved_bytes() const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < source.size(); i += sizeof(std::uint64_t)) {
      const std::size_t length = std::min(sizeof(std::uint64_t), source.size() - i);
      std::uint64_t from = 0;
      std::uint64_t to = 0;
      std::memcpy(&from, source.data() + i, length);
      std::memcpy(&to, target.data() + i, length);
      if (from == to) {
        count += length;
      } else if (from != ~to) {
        for (std::size_t k = i; k < i + length; ++k) count += source[k] == target[k] ? 1U : 0U;
      }
    }
    return count;
  }

  std::vector<std::byte> source;
  std::vector<std::byte> target;
};

/// A mover without a thread, like a device: accepts requests according to `answer`, and completes
/// them in poll() according to `work`.
class PolledMover final : public Mover {
 public:
  struct Options {
    MoverInfo info{.name = "test", .polled = true};
    /// Result of call number n of submit(), from 0; empty: always accepted.
    std::function<Submit(std::size_t)> answer = {};
    /// Carries out a request and returns its completion; empty: copies.
    std::function<Completion(const Request&)> work = {};
    /// Completes the latest request first.
    bool last_first = false;
  };

  explicit PolledMover(Options options) : options_(std::move(options)) { held_.reserve(64); }

  [[nodiscard]] const MoverInfo& info() const override { return options_.info; }

  [[nodiscard]] Submit post(Request& request) noexcept override {
    const Lock lock(mutex_);
    if (stopping_) return Submit::closed;
    const Submit answer = options_.answer ? options_.answer(call_count_) : Submit::accepted;
    ++call_count_;
    if (answer == Submit::accepted) {
      held_.push_back(&request);
      ++unfinished_count_;
    }
    return answer;
  }

  void reap() noexcept override {
    while (Request* const request = take()) {
      const std::size_t byte_count = request->byte_count();
      Completion outcome{.bytes_done = byte_count};
      if (request->stop_requested()) {
        outcome = {.state = JobState::stopped};
      } else if (options_.work) {
        outcome = options_.work(*request);
      } else {
        std::memcpy(request->target().data(), request->source().data(), byte_count);
      }
      end(*request, outcome);
    }
  }

  void stop() noexcept override {
    {
      const Lock lock(mutex_);
      stopping_ = true;
    }
    while (Request* const request = take()) end(*request, {.state = JobState::stopped});
    const Lock lock(mutex_);
    while (unfinished_count_ > 0) finished_.wait(mutex_);
  }

 private:
  Request* take() noexcept {
    const Lock lock(mutex_);
    if (held_.empty()) return nullptr;
    const auto which = options_.last_first ? held_.end() - 1 : held_.begin();
    Request* const request = *which;
    held_.erase(which);
    return request;
  }

  /// Releases the request before its job ends, as early as the contract allows: from here on only
  /// the engine knows that a thread is still working.
  void end(Request& request, const Completion& outcome) noexcept {
    {
      const Lock lock(mutex_);
      --unfinished_count_;
      finished_.notify_all();
    }
    request.complete(outcome);
  }

  const Options options_;
  Mutex mutex_;
  Condition finished_;
  std::vector<Request*> held_ HEADRACE_GUARDED_BY(mutex_);
  std::size_t unfinished_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::size_t call_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool stopping_ HEADRACE_GUARDED_BY(mutex_) = false;
};

/// An engine of polled movers; jobs go to all of them.
template <typename... Options>
std::unique_ptr<Engine> make_polled_engine(Options... options) {
  std::vector<std::unique_ptr<Mover>> list;
  (list.push_back(std::make_unique<PolledMover>(std::move(options))), ...);
  return std::move(Engine::make(std::move(list), movers::all).value());
}

/// A job whose callback blocks an engine's only worker until open(), so that jobs submitted
/// meanwhile start together. (Real callbacks must not block.)
class Roadblock {
 public:
  explicit Roadblock(Engine& engine) {
    const SubmitOptions options{.callback =
                                    [](void* context, const Completion&) noexcept {
                                      auto* const self = static_cast<Roadblock*>(context);
                                      self->reached_.count_down();
                                      self->open_.wait();
                                    },
                                .callback_context = this};
    EXPECT_EQ(engine.submit_copy(job_, buffers_.plan(), options), Submit::accepted);
    reached_.wait();
  }
  ~Roadblock() { open(); }
  Roadblock(const Roadblock&) = delete;
  Roadblock& operator=(const Roadblock&) = delete;

  void open() {
    if (!std::exchange(opened_, true)) open_.count_down();
  }

 private:
  Buffers buffers_{1};
  std::latch reached_{1};
  std::latch open_{1};
  bool opened_ = false;
  Job job_;
};

}  // namespace headrace::engine::test
