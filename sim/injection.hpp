// SPDX-License-Identifier: Apache-2.0
// Injection: a node that receives messages and computes on them; its NIC calls a function that
// decides where each message goes. Caches are simulated line by line.
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
  std::uint32_t core = 0;  ///< The core whose L2 is meant.
};

/// Called by the NIC for each message before the message is written.
using NicFunction = std::function<Place(const Message&)>;

struct InjectionRun {
  double message_bytes = 4096;
  std::uint32_t message_count = 8;
  std::uint32_t core_count = 2;
  bool polled = true;  ///< Polls a user-space queue; else interrupt and kernel.
  bool protocol_on_nic = true;
  double read_share = 1;    ///< Share of a message that the computation reads.
  double memory_ratio = 1;  ///< Ratio of processor to memory speed, relative to the model's.
};

struct InjectionOutcome {
  double time_ns = 0;       ///< Per message: receiving and computing.
  double memory_lines = 0;  ///< Lines read from and written to memory, per message.
};

/// Fails: invalid_argument, naming the message, if the function throws or returns a core that does
///        not exist.
[[nodiscard]] Result<InjectionOutcome> inject(const InjectionModel& model, const InjectionRun& run,
                                              const NicFunction& function);

}  // namespace headrace::sim
