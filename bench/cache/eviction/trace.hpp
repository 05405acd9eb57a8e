// SPDX-License-Identifier: Apache-2.0
// Traces: regions in order of access, generated from a seed or read from a recording. A region is a
// number, without address or length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::bench {

struct Trace {
  std::string name;
  /// Region numbers, from 0.
  std::vector<std::uint32_t> accesses;

  /// One more than the highest number.
  [[nodiscard]] std::uint32_t region_count() const;
};

/// Generates every kind of trace with `access_count` accesses. Equal seeds give equal traces on
/// every machine.
[[nodiscard]] std::vector<Trace> make_traces(std::uint64_t seed, std::size_t access_count);

/// Parses `text`: lines of numbers and inclusive ranges (7-12) in order of access; '#' begins a
/// comment. Empty if malformed or longer than 16 million accesses.
[[nodiscard]] Trace parse_trace(std::string name, std::string_view text);

}  // namespace headrace::bench
