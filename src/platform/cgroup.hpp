// SPDX-License-Identifier: Apache-2.0
// Memory limit of this process's control group, such as a container's.
#pragma once

#include <optional>
#include <string>

#include "headrace/base/units.hpp"

namespace headrace::platform {

/// Memory that this process can allocate before its control group, or an ancestor, is out of
/// memory; inactive page cache counts as free. Nothing if there is no visible limit. A snapshot.
///
/// Beyond a limit the kernel kills processes instead of refusing pages, so check before allocating.
/// `membership` is /proc/self/cgroup and `mount` the mount point of control groups (version 2, or
/// version 1 with its folder `memory`); tests pass others.
[[nodiscard]] std::optional<Bytes> available_in_cgroup(
    const std::string& membership = "/proc/self/cgroup",
    const std::string& mount = "/sys/fs/cgroup");

}  // namespace headrace::platform
