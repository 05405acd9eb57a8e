// SPDX-License-Identifier: Apache-2.0
// What the benchmarks of the cache put in the place of everything that touches bytes, so that
// nothing is measured but the cache: a mover that moves nothing, and memory that is an address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "headrace/cache/cache.hpp"
#include "headrace/engine/engine.hpp"

namespace headrace::bench {

/// Says that it has moved everything, at once.
///
/// Threading: shared.
class NoMover final : public engine::Mover {
 public:
  [[nodiscard]] const engine::MoverInfo& info() const override { return info_; }
  [[nodiscard]] engine::Submit post(engine::Request& request) noexcept override {
    for (engine::Completion& end : request.batch().completions) {
      end = {.state = engine::JobState::done};
    }
    request.complete({.bytes_done = request.byte_count()});
    return engine::Submit::accepted;
  }
  void stop() noexcept override {}

 private:
  engine::MoverInfo info_{.name = "none", .batches = true};
};

/// An engine with that mover alone.
[[nodiscard]] inline std::unique_ptr<engine::Engine> engine_that_moves_nothing() {
  std::vector<std::unique_ptr<engine::Mover>> movers;
  movers.push_back(std::make_unique<NoMover>());
  return std::move(engine::Engine::make(std::move(movers)).value());
}

/// Addresses for copies that are neither written nor read.
///
/// Threading: shared.
class NoMemory final : public cache::MemorySource {
 public:
  Result<std::span<std::byte>> allocate(std::size_t byte_count, NodeId /*node*/) override {
    return std::span(reinterpret_cast<std::byte*>(std::uintptr_t{1} << 45U), byte_count);
  }
  void free(std::span<std::byte> /*memory*/) noexcept override {}
};

}  // namespace headrace::bench
