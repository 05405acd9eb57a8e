// SPDX-License-Identifier: Apache-2.0
// What everything has in common that opens files: a descriptor that is closed, an errno in words.
#pragma once

#include <string>

#include "headrace/base/result.hpp"

namespace headrace::platform {

/// Closes a descriptor, if it is one, at the end of a scope.
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

/// The failure of a system call on a file, by its errno.
[[nodiscard]] Failure file_failure(int os_errno, std::string tried);

}  // namespace headrace::platform
