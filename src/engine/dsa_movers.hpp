// SPDX-License-Identifier: Apache-2.0
// The work queues of a machine as movers: which can be used by this process, how, and why not.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "headrace/engine/engine.hpp"
#include "headrace/engine/mover.hpp"
#include "headrace/topo/machine.hpp"

namespace headrace::engine {

struct DsaMovers {
  std::vector<std::unique_ptr<Mover>> movers;
  /// Why a queue, or all of them, are not among the movers; one sentence each.
  std::vector<std::string> notes;
};

/// Opens every enabled queue of type user. What cannot be used is left out with a note: an engine
/// without devices is an engine all the same.
///
/// Fails: hardware_absent for a queue that the options name.
[[nodiscard]] Result<DsaMovers> open_dsa_movers(const topo::Machine& machine,
                                                const DeviceOptions& options);

}  // namespace headrace::engine
