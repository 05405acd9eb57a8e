// SPDX-License-Identifier: Apache-2.0
// Runs 'headrace emulate', from its options to the end of the command.
#pragma once

#include "headrace/base/result.hpp"
#include "launch/emulator/options.hpp"

namespace headrace::emu {

/// Runs the command on emulated devices. Returns its wait status, as waitpid does.
///
/// Fails: only before the command starts; everything is cleaned up then.
[[nodiscard]] Result<int> launch_emulation(const Options& options);

/// Statistics of a running emulation so far, as the --stats document. `path` is its
/// /dev/dsa-emulator/registers, which may be truncated or overwritten at any time.
///
/// Fails: not_found, permission_denied or io_failed for the file; corrupt_data or version_mismatch
///        for what is in it.
[[nodiscard]] Result<std::string> statistics_of(const std::string& path);

}  // namespace headrace::emu
