// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/node.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "headrace/platform/attribute.hpp"

namespace headrace::platform {
namespace {

std::string node_folder(NodeId node) {
  return fmt::format("/sys/devices/system/node/node{}", node.value());
}

}  // namespace

std::optional<std::string> node_cpu_list(NodeId node) {
  return load_attribute(node_folder(node) + "/cpulist");
}

std::optional<std::vector<HugePagePool>> node_huge_pages(NodeId node) {
  std::error_code error;
  std::filesystem::directory_iterator folder(node_folder(node) + "/hugepages", error);
  if (error) return std::nullopt;
  std::vector<HugePagePool> pools;
  for (const std::filesystem::directory_iterator end; folder != end; folder.increment(error)) {
    if (error) return std::nullopt;
    // "hugepages-2048kB"
    const std::string name = folder->path().filename();
    constexpr std::string_view kPrefix = "hugepages-";
    constexpr std::string_view kSuffix = "kB";
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    const std::optional<std::uint64_t> page_kib = parse_number(std::string_view(name).substr(
        kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size()));
    const std::string pool = folder->path();
    const std::optional<std::uint64_t> total = load_number(pool + "/nr_hugepages");
    const std::optional<std::uint64_t> unused = load_number(pool + "/free_hugepages");
    if (!page_kib.has_value() || !total.has_value() || !unused.has_value()) return std::nullopt;
    pools.push_back({kib(*page_kib), *total, *unused});
  }
  std::ranges::sort(pools, {}, &HugePagePool::page_bytes);
  return pools;
}

}  // namespace headrace::platform
