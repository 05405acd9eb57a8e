// SPDX-License-Identifier: Apache-2.0
// The portal of a real work queue: /dev/dsa/wqD.Q, by its mapped page or by write(). Not for:
// credits, which are the mover's, and what the device answers.
#pragma once

#include <memory>
#include <string>

#include "headrace/base/result.hpp"
#include "headrace/dsa/portal.hpp"

namespace headrace::engine {

/// How descriptors reach a queue, and why so.
struct Access {
  bool mapped = false;
  std::string note;  ///< "ENQCMD to a mapped portal", "write(), because ...".
};

struct OpenPortal {
  std::unique_ptr<dsa::Portal> portal;
  Access access;
};

/// Opens `path` and maps its page; where the kernel does not let this process map it, descriptors
/// go by write(), one system call each.
///
/// Fails: as platform::CharacterDevice::open.
[[nodiscard]] Result<OpenPortal> open_portal(const std::string& path, dsa::QueueInfo info);

}  // namespace headrace::engine
