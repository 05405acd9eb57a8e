// SPDX-License-Identifier: Apache-2.0
// The command line of headrace-emulator, parsed and validated before anything starts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "emu/device/config.hpp"
#include "headrace/base/result.hpp"

namespace headrace::emu {

/// Prefix that DPDK's driver looks for; it takes each such WQ for a dedicated one.
inline constexpr std::string_view kDpdkPrefix = "dpdk_";

enum class QueueChoice : std::uint8_t { shared, dedicated, both };

struct Options {
  bool help = false;
  bool version = false;
  std::optional<std::uint32_t> device_count;  ///< Not given: 1, or as many as the file has.
  std::vector<int> device_nodes;              ///< Of dsa0, dsa1, ...; empty: 0, or the file's.
  std::optional<std::string> config_path;
  QueueChoice queues = QueueChoice::both;
  std::string queue_name = "headrace";
  std::optional<std::uint32_t> engine_count;  ///< Not given: all.
  std::optional<std::uint64_t> seed;          ///< Given: deterministic.
  std::optional<std::string> faults_path;
  Pace pace;
  std::optional<std::string> statistics_path;
  std::optional<std::string> trace_path;
  bool refuse_mmap = false;
  bool force_access_trap = false;
  std::optional<std::string> preload_path;  ///< If not given: beside this program.
  std::vector<std::string> command;
};

/// Reads the arguments after the program's name.
///
/// Fails: invalid_argument; `cause` is the whole sentence, to be printed alone.
[[nodiscard]] Result<Options> parse_options(std::span<char* const> arguments);

/// Reads "2us,30GB/s": a latency in ns, us, ms or s, and a rate in decimal bytes per second.
[[nodiscard]] Result<Pace> parse_pace(const std::string& text);

/// What --help prints.
[[nodiscard]] std::string help_text();

}  // namespace headrace::emu
