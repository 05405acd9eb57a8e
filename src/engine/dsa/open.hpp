// SPDX-License-Identifier: Apache-2.0
// The work queues of a machine as movers: which can be used by this process, how (by the mapped
// page of /dev/dsa/wqD.Q, or by write()), and why not.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/dsa/portal.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/engine/mover.hpp"
#include "headrace/topo/machine.hpp"

namespace headrace::engine {

struct OpenPortal {
  std::unique_ptr<dsa::Portal> portal;
  bool mapped = false;
  std::string note;  ///< How descriptors reach the queue, and why so.
};

/// Opens `path` and maps its page; where the kernel does not let this process map it, descriptors
/// go by write(), one system call each.
///
/// Fails: as platform::CharacterDevice::open.
[[nodiscard]] Result<OpenPortal> open_portal(const std::string& path, dsa::QueueInfo info);

struct DsaQueues {
  std::vector<std::unique_ptr<Mover>> movers;
  /// Why a queue, or all of them, are not among the movers; one sentence each.
  std::vector<std::string> notes;
};

/// Opens every enabled queue of type user. What cannot be used is left out with a note: an engine
/// without devices is an engine all the same.
///
/// Fails: hardware_absent for a queue that the options name.
[[nodiscard]] Result<DsaQueues> open_dsa_queues(const topo::Machine& machine,
                                                const DeviceOptions& options);

}  // namespace headrace::engine
