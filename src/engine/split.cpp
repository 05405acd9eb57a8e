// SPDX-License-Identifier: Apache-2.0
#include "split.hpp"

#include <algorithm>
#include <cstdint>

namespace headrace::engine::detail {

std::size_t share_count(std::size_t byte_count, std::size_t mover_count) {
  const std::size_t worthwhile = std::max<std::size_t>(1, byte_count / kShareBytesMin);
  return std::min({worthwhile, mover_count, Job::kShareMax});
}

void split(const Operation& operation, std::span<Share> shares) {
  const std::size_t total = operation.byte_count();
  const std::size_t cut = operation.cut_bytes();
  const std::byte* const first =
      operation.target().empty() ? operation.source().data() : operation.target().data();
  // Parts begin at multiples of the pattern, so the address counts only as far as it is one.
  const auto base = reinterpret_cast<std::uintptr_t>(first) / cut * cut;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    std::size_t end = total;
    if (i + 1 < shares.size()) {
      // Each share has kShareBytesMin or more before this moves its end by less than a page, so
      // none becomes empty and none ends before it begins.
      const std::size_t even = total / shares.size() * (i + 1) / cut * cut;
      end = even - (base + even) % kShareAlignment;
    }
    shares[i].offset_bytes = begin;
    shares[i].byte_count = end - begin;
    begin = end;
  }
}

}  // namespace headrace::engine::detail
