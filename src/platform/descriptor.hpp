// SPDX-License-Identifier: Apache-2.0
// Helpers for opening files: a descriptor that closes itself, and an errno as a Failure.
#pragma once

#include <string>

#include "headrace/base/result.hpp"

namespace headrace::platform {

/// Closes a descriptor, unless it is negative, at the end of a scope.
///
/// Threading: immutable.
class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
  [[nodiscard]] int get() const { return descriptor_; }

 private:
  int descriptor_;
};

/// Failure for the errno of a system call on a file.
[[nodiscard]] Failure file_failure(int os_errno, std::string tried);

}  // namespace headrace::platform
