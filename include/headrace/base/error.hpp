// SPDX-License-Identifier: Apache-2.0
// Error: why a set-up step failed, for the person who has to fix it.
// Not for the data path: a full queue or a page fault is an outcome with its own enumeration
// (engine::Submit, engine::Completion), never an Error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/export.hpp"

namespace headrace {

/// The kind of an error, grouped by what has to change before a retry can succeed.
enum class Code : std::uint8_t {
  // The call: correct the arguments.
  invalid_argument,
  not_found,
  out_of_range,
  // The input: use another file.
  io_failed,
  corrupt_data,
  version_mismatch,
  type_mismatch,
  // The object: make a new one.
  closed,
  // The device or node: use another one, or free some of it.
  hardware_absent,
  out_of_memory,
  capacity_exceeded,
  // The process or machine: change permissions or configuration.
  permission_denied,
  unsupported,
};

/// Name of `code` as in the source: "invalid_argument".
[[nodiscard]] HEADRACE_API std::string_view name(Code code);

/// Why a set-up step failed.
///
/// Threading: immutable once made.
struct HEADRACE_API Error {
  Code code = Code::invalid_argument;
  /// errno of the system call that failed; 0 if none did.
  int os_errno = 0;
  /// The step that failed, as a clause: "read the machine record 'x.json'".
  std::string tried;
  /// Why it failed: "line 3 is not JSON".
  std::string cause;
  /// What the user can do: "record it again with 'headrace topo --record'".
  std::string remedy;

  /// One sentence: "cannot TRIED: CAUSE (ERRNO); REMEDY".
  [[nodiscard]] std::string message() const;
  /// This error with `outer` as `tried`; the previous `tried` moves into the cause.
  [[nodiscard]] Error within(std::string_view outer) const;
};

}  // namespace headrace
