// SPDX-License-Identifier: Apache-2.0
// Replay: the time of a traced program on a machine. The program's order, its waits, the sizes and
// nodes of its operations and its own computing are inputs; how long operations took is not.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/result.hpp"
#include "sim/injection.hpp"
#include "sim/model.hpp"
#include "sim/trace.hpp"

namespace headrace::sim {

/// Path of all operations; `recorded`: as each asked for.
enum class ReplayPath : std::uint8_t { recorded, cpu, dsa };

struct ReplayOptions {
  std::map<std::uint32_t, std::uint32_t> nodes = {};  ///< Recorded node to the machine's.
  std::optional<std::uint32_t> copies = {};           ///< Node of the copies of caches.
  std::optional<std::uint32_t> devices = {};          ///< The first ones; none: all.
  std::string policy = "round_robin";
  ReplayPath path = ReplayPath::recorded;
  std::uint32_t workers = 0;    ///< Worker threads of a socket; 0: as an engine starts.
  double compute_scale = 1;     ///< Of the program's own computing.
  std::uint32_t bin_count = 0;  ///< Of the timeline; 0: none.
  /// Messages come through a NIC with this function; none: from core to core.
  NicFunction nic = {};
  /// With `nic`: each thread reads so much again after each message. What it takes longer than
  /// undisturbed is added to its computing.
  double working_bytes = 0;
};

struct Replayed {
  double time_ns = 0;
  double computing_ns = 0;  ///< Of all threads, as the next two.
  double moving_ns = 0;     ///< In operations that a thread carries out or submits.
  double waited_ns = 0;
  std::string bound;

  struct Resource {
    std::string name;
    double utilisation = 0;
    double full_share = 0;  ///< Of the time, in which flows waited for it.
  };
  std::vector<Resource> resources;  ///< Used ones.
  struct Device {
    std::uint32_t number = 0;
    double submissions = 0;
    double queued_ns = 0;  ///< Mean time of a submission in the queue.
  };
  std::vector<Device> devices;
  /// By thread and bin: shares of computing, moving and waiting.
  std::vector<std::vector<std::array<double, 3>>> timeline;
  std::vector<std::string> notes;
};

/// Fails: invalid_argument for a node that the machine lacks, or a recorded node without a place;
///        unsupported for more devices than the machine has, or messages on a machine whose record
///        does not say how cores pass lines; not_found for a policy.
[[nodiscard]] Result<Replayed> replay(const Trace& trace, const Model& model,
                                      const ReplayOptions& options);

}  // namespace headrace::sim
