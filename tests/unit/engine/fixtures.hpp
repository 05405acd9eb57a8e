// SPDX-License-Identifier: Apache-2.0
// What the tests of the engine share: machines, buffers, and movers that do as they are told.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "headrace/base/random.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/platform/thread.hpp"

namespace headrace::engine::test {

/// A machine of one node with the processors of this process.
inline topo::Machine this_machine() {
  topo::Machine machine;
  topo::Node& node = machine.nodes.emplace_back();
  node.id = NodeId(0);
  node.cpus = platform::allowed_cpus();
  return machine;
}

inline std::unique_ptr<Engine> make_engine(EngineOptions options = {}) {
  auto engine = Engine::make(this_machine(), std::move(options));
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  return std::move(*engine);
}

inline std::unique_ptr<Engine> make_engine(std::unique_ptr<Mover> mover) {
  std::vector<std::unique_ptr<Mover>> movers;
  movers.push_back(std::move(mover));
  return std::move(Engine::make(std::move(movers)).value());
}

/// A source of random bytes and a target that differs from it everywhere.
struct Buffers {
  explicit Buffers(std::size_t byte_count, std::uint64_t seed = 1) : source(byte_count) {
    Random random(seed);
    std::size_t i = 0;
    for (; i + 8 <= byte_count; i += 8) {
      const std::uint64_t word = random();
      std::memcpy(source.data() + i, &word, 8);
    }
    for (; i < byte_count; ++i) source[i] = static_cast<std::byte>(random());
    target.reserve(byte_count);
    for (const std::byte value : source) target.push_back(~value);
  }

  [[nodiscard]] CopyPlan plan() { return {.target = target, .source = source}; }
  [[nodiscard]] bool equal() const { return source == target; }
  /// Bytes of the target that were written; every other one still differs from the source.
  [[nodiscard]] std::size_t moved_bytes() const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < source.size(); ++i) {
      if (target[i] == source[i]) ++count;
    }
    return count;
  }

  std::vector<std::byte> source;
  std::vector<std::byte> target;
};

}  // namespace headrace::engine::test
