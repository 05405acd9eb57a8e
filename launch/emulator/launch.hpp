// SPDX-License-Identifier: Apache-2.0
// 'headrace emulate' from its options to the end of the command.
#pragma once

#include "headrace/base/result.hpp"
#include "launch/emulator/options.hpp"

namespace headrace::emu {

/// Runs the command on emulated devices. Its wait status, as of waitpid.
///
/// Fails: before the command was started; nothing is left then.
[[nodiscard]] Result<int> launch_emulation(const Options& options);

/// What the devices of a running emulation have done until now, as the document of --stats. `path`
/// is its /dev/dsa-emulator/registers, which may be cut off or spoiled meanwhile.
///
/// Fails: not_found, permission_denied or io_failed for the file; corrupt_data or version_mismatch
///        for what is in it.
[[nodiscard]] Result<std::string> statistics_of(const std::string& path);

}  // namespace headrace::emu
