// SPDX-License-Identifier: Apache-2.0
// A portal whose device is the test, and an engine on it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/dsa/queue.hpp"
#include "headrace/base/atomic.hpp"

namespace headrace::engine::test {

/// Calls a function with each descriptor on the submitting thread, and accepts a limited number;
/// without a function, none.
class ToldPortal final : public dsa::Portal {
 public:
  using Device = std::function<void(const dsa::Descriptor&)>;

  explicit ToldPortal(Device device, std::size_t taken_max = ~std::size_t{0},
                      std::uint32_t entry_count = 8)
      : device_(std::move(device)), left_(taken_max) {
    info_.entry_count = entry_count;
  }
  [[nodiscard]] const dsa::QueueInfo& info() const override { return info_; }
  /// Call before the portal is used.
  void tell_opcodes(std::uint64_t opcodes) { info_.opcodes = opcodes; }
  void tell_batch_max(std::size_t count) { info_.batch_max = static_cast<std::uint32_t>(count); }
  void tell_capabilities(std::optional<std::uint64_t> bits) {
    info_.capabilities = bits;
    info_.block_on_fault = true;
  }
  [[nodiscard]] bool submit(const dsa::Descriptor& descriptor) noexcept override {
    if (!device_ || left_ == 0) return false;
    --left_;
    device_(descriptor);
    return true;
  }

 private:
  Device device_;
  std::size_t left_;
  dsa::QueueInfo info_{.name = "told/wq0.0",
                       .mode = dsa::QueueMode::shared,
                       .batch_max = 32,
                       .transfer_bytes_max = 1U << 21U};
};

inline dsa::CompletionRecord& record_of(const dsa::Descriptor& descriptor) {
  return *reinterpret_cast<dsa::CompletionRecord*>(descriptor.completion_addr);
}

inline void answer(const dsa::Descriptor& descriptor, std::uint8_t status) {
  // The status last, like the device.
  headrace::store_release(const_cast<std::uint8_t&>(record_of(descriptor).status), status);
}

inline std::unique_ptr<Engine> engine_on(ToldPortal& portal, DeviceOptions options = {}) {
  auto mover = DsaQueue::make(portal, {.device = options});
  EXPECT_TRUE(mover.has_value());
  std::vector<std::unique_ptr<Mover>> movers;
  movers.push_back(std::move(*mover));
  auto engine = Engine::make(std::move(movers), {});
  EXPECT_TRUE(engine.has_value());
  return std::move(*engine);
}

}  // namespace headrace::engine::test
