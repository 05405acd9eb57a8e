// SPDX-License-Identifier: Apache-2.0
// Injection: a node that receives messages and computes on them, with a NIC whose function decides
// where each message goes. Caches are simulated line by line.
#pragma once

#include <cstdint>
#include <functional>

#include "headrace/base/result.hpp"
#include "sim/model.hpp"

namespace headrace::sim {

struct Message {
  std::uint64_t index = 0;
  double bytes = 0;
  std::uint32_t sender_core = 0;
  std::uint32_t receiver_core = 0;
};

enum class Level : std::uint8_t { memory, l3, l2 };

/// Where the NIC puts a message: header (its first line) and payload.
struct Place {
  Level header = Level::memory;
  Level payload = Level::memory;
  std::uint32_t core = 0;  ///< Whose L2.
};

/// The NIC's function. It sees each message before it is written.
using NicFunction = std::function<Place(const Message&)>;

struct InjectionRun {
  double message_bytes = 4096;
  std::uint32_t message_count = 8;
  std::uint32_t core_count = 2;
  bool polled = true;  ///< A user's queue is polled; else interrupt and kernel.
  bool protocol_on_nic = true;
  double read_share = 1;    ///< Of a message, what the computation reads.
  double memory_ratio = 1;  ///< Processor to memory speed, over the model's.
};

struct InjectionOutcome {
  double time_ns = 0;       ///< Of one message: receiving and computing.
  double memory_lines = 0;  ///< Read and written in memory, of one message.
};

/// Fails: invalid_argument if the function throws or names a core that is not there, with the
///        message it was asked about.
[[nodiscard]] Result<InjectionOutcome> inject(const InjectionModel& model, const InjectionRun& run,
                                              const NicFunction& function);

}  // namespace headrace::sim
