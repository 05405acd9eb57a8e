// SPDX-License-Identifier: Apache-2.0
// Memory for machine code: first writable, then executable, never both.
#pragma once

#include <cstddef>
#include <span>

#include "headrace/base/owned.hpp"
#include "headrace/base/result.hpp"

namespace headrace::platform {

/// Pages for code: writable until seal(), executable after it. The first pages of a process, if at
/// most 1 MiB, have unwind information (for exceptions, backtraces, debuggers), which is correct if
/// the code does not move the stack pointer.
///
/// Ownership: the destructor unmaps the pages; no thread may execute them any more.
/// Threading: confined until seal(), immutable afterwards.
class ExecutablePages {
 public:
  /// Fails: out_of_memory; invalid_argument if `byte_count` is 0.
  [[nodiscard]] static Result<ExecutablePages> make(std::size_t byte_count);

  /// Write it before seal(), call it after.
  [[nodiscard]] std::span<std::byte> bytes() const { return pages_.get(); }
  /// Makes the pages executable and unwritable.
  ///
  /// Fails: permission_denied if the system forbids executable memory (SELinux, seccomp,
  ///        PR_SET_MDWE). The pages stay writable.
  [[nodiscard]] Result<void> seal();

 private:
  explicit ExecutablePages(std::span<std::byte> pages) : pages_(pages) {}
  static void give_back(std::span<std::byte> pages) noexcept;

  Owned<std::span<std::byte>, give_back> pages_;
};

/// Replaces whole pages of this module's code, which other threads may be calling. Each of them
/// executes the old or the new code, but none may be behind the first instruction of a function
/// there: each function in `place` was one jump until now.
///
/// Fails: permission_denied if the system forbids it; out_of_memory. Nothing has changed then.
[[nodiscard]] Result<void> replace_code(std::span<std::byte> place,
                                        std::span<const std::byte> code);

}  // namespace headrace::platform
