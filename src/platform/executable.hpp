// SPDX-License-Identifier: Apache-2.0
// Memory that holds machine code: written first, executable then, never both.
#pragma once

#include <cstddef>
#include <span>

#include "headrace/base/result.hpp"

namespace headrace::platform {

/// Pages for code. Writable from their making to seal(), executable after it. The first ones of a
/// process, if they are no more than 1 MiB, lie where unwinders (exceptions, backtrace, debuggers)
/// know how to go on, provided that the code leaves the stack pointer alone.
///
/// Ownership: unmaps the pages; no thread may execute them then.
/// Threading: confined until seal(), immutable afterwards.
class ExecutablePages {
 public:
  /// Fails: out_of_memory; invalid_argument for no bytes.
  [[nodiscard]] static Result<ExecutablePages> make(std::size_t byte_count);

  ExecutablePages(ExecutablePages&& other) noexcept;
  ExecutablePages& operator=(ExecutablePages&& other) noexcept;
  ExecutablePages(const ExecutablePages&) = delete;
  ExecutablePages& operator=(const ExecutablePages&) = delete;
  ~ExecutablePages();

  /// To be written before seal(), to be called after it.
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
  /// Makes the pages executable and unwritable.
  ///
  /// Fails: permission_denied where the system forbids executable memory (SELinux, seccomp,
  ///        PR_SET_MDWE). The pages stay writable.
  [[nodiscard]] Result<void> seal();

 private:
  explicit ExecutablePages(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

}  // namespace headrace::platform
