// SPDX-License-Identifier: Apache-2.0
// Error: why a set-up step failed, for a person who has to mend it.
// Not for the data path: a full queue or a page fault is an outcome with an enum of its own
// (engine::Submit, engine::Completion), never an Error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/export.hpp"

namespace headrace {

/// What went wrong, grouped by the largest thing that must be made anew before a retry can succeed.
enum class Code : std::uint8_t {
  // The call: correct the arguments.
  invalid_argument,
  not_found,
  out_of_range,
  // The input: get another file.
  io_failed,
  corrupt_data,
  version_mismatch,
  type_mismatch,
  // The queue or engine: make a new one.
  closed,
  // The device or node: choose another one.
  hardware_absent,
  out_of_memory,
  capacity_exceeded,
  // The process or machine: change permissions or configuration.
  permission_denied,
  unsupported,
};

/// The largest thing that must be made anew before a retry of what failed can succeed.
enum class Scope : std::uint8_t { call, input, queue, device, process };

/// Name of `code` as it is written in the source, for example "invalid_argument".
[[nodiscard]] HEADRACE_API std::string_view name(Code code);
[[nodiscard]] HEADRACE_API Scope scope(Code code);

/// Why a set-up step failed.
///
/// Threading: immutable once made.
struct HEADRACE_API Error {
  Code code = Code::invalid_argument;
  /// errno of the system call that failed, 0 if none did.
  int os_errno = 0;
  /// What was tried, as a clause: "read the machine record 'x.json'".
  std::string tried;
  /// What was found: "line 3 is not JSON".
  std::string cause;
  /// What to do about it: "record it anew with 'headrace topo --record'".
  std::string remedy;

  /// One sentence with all of the above: "cannot TRIED: CAUSE (ERRNO); REMEDY".
  [[nodiscard]] std::string message() const;
  /// The same error, seen from a caller: `outer` becomes what was tried, the rest stays.
  [[nodiscard]] Error within(std::string_view outer) const;
};

}  // namespace headrace
