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

}  // namespace headrace::emu
