// SPDX-License-Identifier: Apache-2.0
// Facts about one NUMA node that hwloc does not provide, from sysfs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/units.hpp"

namespace headrace::platform {

/// Processors that the kernel assigns to `node`, as a kernel list ("0-11,24-35", "" for a node
/// without processors); nothing if sysfs lacks it.
[[nodiscard]] std::optional<std::string> node_cpu_list(NodeId node);

struct HugePagePool {
  Bytes page_bytes;
  std::uint64_t total_count = 0;
  std::uint64_t free_count = 0;
};
/// Pools of huge pages of `node`, ascending by page size, including empty ones; nothing if sysfs
/// lacks them.
[[nodiscard]] std::optional<std::vector<HugePagePool>> node_huge_pages(NodeId node);

}  // namespace headrace::platform
