// SPDX-License-Identifier: Apache-2.0
// Files: a descriptor that closes itself, reading whole files, and an errno as a Failure; and a
// descriptor to wait for.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "headrace/base/owned.hpp"
#include "headrace/base/result.hpp"

namespace headrace::platform {

/// Closes `descriptor`, unless it is negative.
void close_descriptor(int descriptor) noexcept;

/// A descriptor that is closed at the end.
using Descriptor = Owned<int, close_descriptor>;

/// Writes all of `bytes`. Returns 0 or the errno.
[[nodiscard]] int write_all(int descriptor, std::span<const std::byte> bytes);

/// Failure for the errno of a system call on a file.
[[nodiscard]] Failure file_failure(int os_errno, std::string tried);

/// Reads a regular file; a pipe or a terminal would block the caller.
///
/// Fails: not_found, permission_denied or io_failed; capacity_exceeded beyond `byte_count_max`.
[[nodiscard]] Result<std::string> load_file(const std::string& path, std::size_t byte_count_max);

/// Whether `path` is a regular file visible to this process.
[[nodiscard]] bool is_file(const std::string& path) noexcept;

/// A counter with a descriptor that poll(), epoll and event loops can wait for.
///
/// Threading: shared.
/// Ownership: closes the descriptor.
class EventDescriptor {
 public:
  /// Fails: capacity_exceeded if no descriptor is left.
  [[nodiscard]] static Result<EventDescriptor> make();

  /// Adds 1. Never blocks.
  void signal() const noexcept;
  void reset() const noexcept;
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }

 private:
  explicit EventDescriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor descriptor_;
};

}  // namespace headrace::platform
