// SPDX-License-Identifier: Apache-2.0
// What the kernel says of one NUMA node and hwloc does not pass on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/units.hpp"

namespace headrace::platform {

/// Processors that the kernel counts to `node`, in the kernel's list form ("0-11,24-35", "" for a
/// node of memory only); nothing where sysfs does not tell.
[[nodiscard]] std::optional<std::string> node_cpu_list(NodeId node);

struct HugePagePool {
  Bytes page_bytes;
  std::uint64_t total_count = 0;
  std::uint64_t free_count = 0;
};
/// Pools of huge pages of `node`, ascending by page size, those of no pages included; nothing where
/// sysfs does not tell.
[[nodiscard]] std::optional<std::vector<HugePagePool>> node_huge_pages(NodeId node);

}  // namespace headrace::platform
