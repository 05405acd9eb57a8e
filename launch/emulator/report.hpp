// SPDX-License-Identifier: Apache-2.0
// The document of --stats: what the devices did, in the shape that every document of the command
// has.
#pragma once

#include <string>

#include "emu/device/statistics.hpp"

namespace headrace::emu {

/// Facts of the run beside the devices' own figures.
struct RunFacts {
  double seconds = 0;
  int exit_code = -1;  ///< -1: ended by a signal.
  int signal_number = 0;
  bool deterministic = false;
};

/// The JSON text, with a line end.
[[nodiscard]] std::string statistics_document(const Statistics& statistics, const RunFacts& facts);

}  // namespace headrace::emu
