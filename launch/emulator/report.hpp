// SPDX-License-Identifier: Apache-2.0
// The --stats document: what the devices did, in the common format of the command's documents.
#pragma once

#include <string>

#include "emu/device/statistics.hpp"

namespace headrace::emu {

/// Facts of the run besides the devices' statistics.
struct RunFacts {
  double seconds = 0;
  int exit_code = -1;  ///< -1: ended by a signal.
  int signal_number = 0;
  bool deterministic = false;
};

/// The JSON text, with a line end.
[[nodiscard]] std::string statistics_document(const Statistics& statistics, const RunFacts& facts);

}  // namespace headrace::emu
