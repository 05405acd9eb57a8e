// SPDX-License-Identifier: Apache-2.0
// Traces: regions in the order in which they are asked for. Made from a seed, or read from a file
// that was recorded. They know neither addresses nor lengths: a region is its number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::bench {

struct Trace {
  std::string name;
  /// Numbers of regions, from 0.
  std::vector<std::uint32_t> accesses;

  /// One more than the highest number.
  [[nodiscard]] std::uint32_t region_count() const;
};

/// Every kind of trace that is made, `access_count` long. Equal seeds give equal traces on every
/// machine.
[[nodiscard]] std::vector<Trace> make_traces(std::uint64_t seed, std::size_t access_count);

/// Reads what `text` says: lines of numbers and of ranges (7-12), all inclusive, in the order of
/// access; '#' begins a comment. Empty if it is anything else, or longer than
/// 16 million accesses.
[[nodiscard]] Trace parse_trace(std::string name, std::string_view text);

}  // namespace headrace::bench
