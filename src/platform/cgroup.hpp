// SPDX-License-Identifier: Apache-2.0
// What the control group of this process still lets it take: the limit that a container has.
#pragma once

#include <optional>
#include <string>

#include "headrace/base/units.hpp"

namespace headrace::platform {

/// Memory that this process may take before its control group, or one above it, is out of memory;
/// page cache that has not been used lately counts as free. Nothing if there is no limit, or none
/// that can be seen. A snapshot.
///
/// Past a limit the kernel ends processes instead of refusing pages, so it has to be asked before.
/// `membership` is /proc/self/cgroup and `mount` where control groups are mounted (version 2, or
/// version 1 with its folder `memory`); tests give others.
[[nodiscard]] std::optional<Bytes> available_in_cgroup(
    const std::string& membership = "/proc/self/cgroup",
    const std::string& mount = "/sys/fs/cgroup");

}  // namespace headrace::platform
