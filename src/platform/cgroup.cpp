// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/cgroup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "headrace/platform/attribute.hpp"
#include "headrace/platform/descriptor.hpp"

namespace headrace::platform {
namespace {

constexpr std::size_t kFileBytesMax = 1U << 16U;
/// Version 1 writes about 2^63 if there is no limit.
constexpr std::uint64_t kNoLimitBytes = std::uint64_t{1} << 60U;

/// Names of the files in the two versions.
struct Files {
  const char* limit;
  const char* used;
  const char* unused_cache;  ///< A line of memory.stat.
};
constexpr Files kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};
constexpr Files kVersion2{"memory.max", "memory.current", "inactive_file "};

std::uint64_t load_unused_cache(const std::string& path, std::string_view field) {
  const Result<std::string> text = load_file(path, kFileBytesMax);
  if (!text.has_value()) return 0;
  const std::size_t line = text->starts_with(field) ? 0 : text->find(fmt::format("\n{}", field));
  if (line == std::string::npos) return 0;
  return std::strtoull(text->c_str() + text->find(' ', line), nullptr, 10);
}

std::optional<std::uint64_t> available_in(const std::string& folder, const Files& files) {
  const auto limit = load_number(fmt::format("{}/{}", folder, files.limit));
  const auto used = load_number(fmt::format("{}/{}", folder, files.used));
  if (!limit.has_value() || !used.has_value() || *limit >= kNoLimitBytes) return std::nullopt;
  const std::uint64_t unused = load_unused_cache(folder + "/memory.stat", files.unused_cache);
  const std::uint64_t taken = *used - std::min(*used, unused);
  return *limit - std::min(*limit, taken);
}

/// The minimum of `group` and its ancestors. A missing group belongs to a container that sees its
/// own group as the root.
std::optional<std::uint64_t> least(const std::string& mount, std::string group,
                                   const Files& files) {
  std::optional<std::uint64_t> smallest;
  for (;;) {
    if (const auto bytes = available_in(mount + group, files); bytes.has_value()) {
      smallest = std::min(smallest.value_or(*bytes), *bytes);
    }
    if (group.empty()) return smallest;
    group.erase(group.rfind('/'));
  }
}

}  // namespace

std::optional<Bytes> available_in_cgroup(const std::string& membership, const std::string& mount) {
  const Result<std::string> text = load_file(membership, kFileBytesMax);
  if (!text.has_value()) return std::nullopt;
  std::optional<std::uint64_t> smallest;
  // Lines such as "0::/user.slice" (version 2) and "9:memory:/docker/1f" (version 1).
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(":/", first == std::string_view::npos ? 0 : first);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    std::string group(line.substr(second + 1));
    while (group.ends_with('/')) group.pop_back();
    const std::string_view controllers =
        second > first ? line.substr(first + 1, second - first - 1) : std::string_view();
    std::optional<std::uint64_t> bytes;
    if (controllers.empty()) {
      bytes = least(mount, group, kVersion2);
    } else if (controllers.find("memory") != std::string_view::npos) {
      bytes = least(mount + "/memory", group, kVersion1);
    }
    if (bytes.has_value()) smallest = std::min(smallest.value_or(*bytes), *bytes);
  }
  if (!smallest.has_value()) return std::nullopt;
  return Bytes(*smallest);
}

}  // namespace headrace::platform
