// SPDX-License-Identifier: Apache-2.0
// Helpers for tests of the emulated device: configurations, descriptors with a record each, and
// waiting for records with a timeout.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "emu/device/device.hpp"
#include "headrace/dsa/descriptor.hpp"

namespace headrace::test {

struct QueueOptions {
  std::uint32_t size = 16;
  std::uint32_t engines = 1;
  std::uint32_t priority = 10;
  dsa::QueueMode mode = dsa::QueueMode::shared;
};

/// A device with one WQ in one group.
inline emu::DeviceConfig one_queue(QueueOptions options = {}) {
  const bool shared = options.mode == dsa::QueueMode::shared;
  emu::DeviceConfig config =
      emu::default_device(shared ? 1 : 0, shared ? 0 : 1, options.engines, "test");
  config.queues[0].size = options.size;
  config.queues[0].threshold = shared ? options.size : 0;
  config.queues[0].priority = options.priority;
  return config;
}

/// Completion records, and descriptors that use them.
class Completions {
 public:
  explicit Completions(std::size_t count) : records_(count) {}

  [[nodiscard]] dsa::Descriptor noop(std::size_t index) {
    dsa::Descriptor descriptor{};
    descriptor.flags = dsa::flag::record_address_valid | dsa::flag::request_record;
    descriptor.opcode = static_cast<std::uint8_t>(dsa::Opcode::noop);
    descriptor.completion_addr = reinterpret_cast<std::uint64_t>(&records_[index]);
    return descriptor;
  }
  [[nodiscard]] dsa::Descriptor drain(std::size_t index) {
    dsa::Descriptor descriptor = noop(index);
    descriptor.opcode = static_cast<std::uint8_t>(dsa::Opcode::drain);
    return descriptor;
  }
  [[nodiscard]] dsa::Descriptor move(std::size_t index, std::span<std::byte> target,
                                     std::span<const std::byte> source) {
    dsa::Descriptor descriptor = noop(index);
    descriptor.opcode = static_cast<std::uint8_t>(dsa::Opcode::move);
    descriptor.src_addr = reinterpret_cast<std::uint64_t>(source.data());
    descriptor.dst_addr = reinterpret_cast<std::uint64_t>(target.data());
    descriptor.xfer_size = static_cast<std::uint32_t>(source.size());
    descriptor.flags = descriptor.flags | dsa::flag::block_on_fault;
    return descriptor;
  }
  [[nodiscard]] dsa::Descriptor batch(std::size_t index, std::span<const dsa::Descriptor> list) {
    dsa::Descriptor descriptor = noop(index);
    descriptor.opcode = static_cast<std::uint8_t>(dsa::Opcode::batch);
    descriptor.desc_list_addr = reinterpret_cast<std::uint64_t>(list.data());
    descriptor.desc_count = static_cast<std::uint32_t>(list.size());
    return descriptor;
  }

  [[nodiscard]] const dsa::CompletionRecord& record(std::size_t index) const {
    return records_[index];
  }
  [[nodiscard]] int status(std::size_t index) const { return dsa::load_status(records_[index]); }
  void clear(std::size_t index) { records_[index].status = 0; }
  /// Waits for a nonzero status and returns it; returns 0 after a minute.
  int await(std::size_t index) const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (int tries = 0; status(index) == 0; ++tries) {
      if (tries % 256 == 255) std::this_thread::yield();
      if (tries % 4096 == 4095 && std::chrono::steady_clock::now() > limit) break;
    }
    return status(index);
  }

 private:
  std::vector<dsa::CompletionRecord> records_;
};

}  // namespace headrace::test
