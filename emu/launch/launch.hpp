// SPDX-License-Identifier: Apache-2.0
// The launcher from its options to the end of the command: parent of everything.
#pragma once

#include "emu/launch/options.hpp"
#include "headrace/base/result.hpp"

namespace headrace::emu {

/// Runs the command on emulated devices. Its wait status, as of waitpid.
///
/// Fails: before the command was started; nothing is left then.
[[nodiscard]] Result<int> launch(const Options& options);

/// Prints one sentence on stderr.
void complain(const std::string& sentence);

}  // namespace headrace::emu
