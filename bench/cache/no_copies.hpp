// SPDX-License-Identifier: Apache-2.0
// Stubs for everything that touches bytes, so that benchmarks measure only the cache: a mover that
// moves nothing, and memory that is only an address.
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

/// Completes every request at once without moving anything.
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

/// An engine whose only mover is NoMover.
[[nodiscard]] inline std::unique_ptr<engine::Engine> engine_that_moves_nothing() {
  std::vector<std::unique_ptr<engine::Mover>> movers;
  movers.push_back(std::make_unique<NoMover>());
  return std::move(engine::Engine::make(std::move(movers)).value());
}

/// Returns addresses that are never read or written.
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
