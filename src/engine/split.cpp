// SPDX-License-Identifier: Apache-2.0
#include "split.hpp"

#include <algorithm>
#include <cstdint>

namespace headrace::engine::detail {

std::size_t share_count(std::size_t byte_count, std::size_t mover_count) {
  const std::size_t worthwhile = std::max<std::size_t>(1, byte_count / kShareBytesMin);
  return std::min({worthwhile, mover_count, Job::kShareMax});
}

void split(const CopyPlan& plan, std::span<Share> shares) {
  const std::size_t total = plan.target.size();
  const auto base = reinterpret_cast<std::uintptr_t>(plan.target.data());
  std::size_t begin = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    std::size_t end = total;
    if (i + 1 < shares.size()) {
      // Each share has kShareBytesMin or more before this moves its end by less than a page, so
      // none becomes empty and none ends before it begins.
      const std::size_t even = total / shares.size() * (i + 1);
      end = even - (base + even) % kShareAlignment;
    }
    shares[i].target = plan.target.subspan(begin, end - begin);
    shares[i].source = plan.source.subspan(begin, end - begin);
    begin = end;
  }
}

}  // namespace headrace::engine::detail
