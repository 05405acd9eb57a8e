// SPDX-License-Identifier: Apache-2.0
// Fault injection: a TOML script decides which descriptors get which fault. Position-independent
// plain data, because it is stored in the registers that clients share.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/result.hpp"

namespace headrace::emu {

enum class FaultKind : std::uint8_t {
  queue_full,  ///< The submission is answered with retry (shared), or dropped (dedicated).
  page_fault,  ///< At byte `at_byte`: reported without block on fault, resolved after `delay_ns`
               ///< with it.
  status,      ///< The descriptor ends with `raw_status`.
  slow,        ///< The descriptor takes `delay_ns` longer.
  halt,        ///< The device stops: nothing completes any more, until reset.
  reset,       ///< The device is reset: everything outstanding is aborted.
  lost_completion,  ///< The work is done, the record is never written.
};

/// One [[fault]] of the script. It matches a descriptor that agrees in every given field, and fires
/// with `probability`, on each `every`-th match, or on the `nth` match only.
struct FaultRule {
  FaultKind kind = FaultKind::status;
  std::int32_t device = -1;  ///< -1: any.
  std::int32_t queue = -1;
  std::int32_t opcode = -1;
  double probability = 0;
  std::uint64_t every = 0;
  std::uint64_t nth = 0;
  std::uint64_t at_byte = 0;
  std::uint64_t delay_ns = 0;
  std::uint8_t raw_status = 0;
  bool write = false;  ///< page_fault: on the target.
};

inline constexpr std::size_t kFaultRuleMax = 32;

struct FaultScript {
  std::array<FaultRule, kFaultRuleMax> rules{};
  std::uint32_t rule_count = 0;
};

/// Reads a script.
///
/// Fails: corrupt_data with the line, the field and its allowed values.
[[nodiscard]] Result<FaultScript> parse_fault_script(std::string_view toml,
                                                     const std::string& file_name);

}  // namespace headrace::emu
