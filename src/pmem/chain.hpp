// SPDX-License-Identifier: Apache-2.0
// The result of recovery: the unacknowledged entries, as a chain from the read position. Recovery
// only reads.
#pragma once

#include <cstdint>
#include <string>

#include "headrace/base/result.hpp"
#include "ring_layout.hpp"

namespace headrace::pmem::detail {

/// The position after an entry, and the values required in the next header.
struct Cursor {
  std::uint64_t position = 0;
  std::uint64_t ordinal = 0;
  std::uint64_t generation = 0;
};

struct Chain {
  /// Position of the last acknowledged entry, or of the first entry if none was acknowledged. The
  /// producer must not overwrite it.
  std::uint64_t kept = 0;
  Cursor first;  ///< The oldest unacknowledged entry.
  Cursor end;    ///< Where the next entry goes.
  std::uint64_t generation = 0;
};

/// All rules of a protocol, known to the compiler.
template <typename Rules>
struct AllRules {
  static constexpr Rules value{};  // NOLINT(readability-identifier-naming): as below.
};
/// Rules at run time: the crash check compiles each protocol once for all its broken rings.
template <typename Rules>
struct SomeRules {
  Rules value;
};

/// The two forms of the read word.
[[nodiscard]] constexpr bool nothing_read(std::uint64_t word) {
  return (word & DurableWords::kNothingRead) != 0;
}
[[nodiscard]] constexpr std::uint64_t position_of(std::uint64_t word) {
  return word & ~DurableWords::kNothingRead;
}

[[nodiscard]] constexpr std::uint64_t rounded_up(std::uint64_t byte_count, std::uint64_t unit) {
  return (byte_count + unit - 1) / unit * unit;
}

[[nodiscard]] inline Failure damaged(const std::string& tried, std::string cause) {
  return fail(
      Code::corrupt_data, tried, std::move(cause),
      "restore the file from a copy, or read what is left with pmem::salvage_ring; the file "
      "was not changed");
}

}  // namespace headrace::pmem::detail
