// SPDX-License-Identifier: Apache-2.0
// Opens the DSA work queues of a machine as movers, through the mapped page of /dev/dsa/wqD.Q or
// write().
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
  std::string note;  ///< How descriptors are submitted, and why.
};

/// Opens `path` and maps its page. If the kernel refuses the mapping, descriptors are submitted
/// with write(), one system call each.
///
/// Fails: as platform::CharacterDevice::open.
[[nodiscard]] Result<OpenPortal> open_portal(const std::string& path, dsa::QueueInfo info);

struct DsaQueues {
  std::vector<std::unique_ptr<Mover>> movers;
  /// Why queues are not used; one sentence each.
  std::vector<std::string> notes;
};

/// Opens every enabled queue of type user. Unusable queues are skipped with a note: an engine works
/// without devices.
///
/// Fails: hardware_absent if a queue named by the options is not usable.
[[nodiscard]] Result<DsaQueues> open_dsa_queues(const topo::Machine& machine,
                                                const DeviceOptions& options);

}  // namespace headrace::engine
