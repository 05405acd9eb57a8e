// SPDX-License-Identifier: Apache-2.0
// The document of --stats: what the devices did, in the shape that every document of the command
// has.
#pragma once

#include <string>

#include "emu/device/statistics.hpp"
#include "headrace/base/result.hpp"

namespace headrace::emu {

/// What is told beside the devices' own figures.
struct RunFacts {
  double seconds = 0;
  int exit_code = -1;  ///< -1: ended by a signal.
  int signal_number = 0;
  bool deterministic = false;
};

/// The JSON text, with a line end.
[[nodiscard]] std::string statistics_document(const Statistics& statistics, const RunFacts& facts);

/// Whether a file can be written at `path` later on.
///
/// Fails: not_found, permission_denied or invalid_argument, before anything is started.
[[nodiscard]] Result<void> check_writable(const std::string& option, const std::string& path);
/// Writes it whole: beside it and renamed, or straight into what is no regular file.
[[nodiscard]] Result<void> write_whole(const std::string& path, const std::string& text);

}  // namespace headrace::emu
