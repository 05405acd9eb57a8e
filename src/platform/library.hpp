// SPDX-License-Identifier: Apache-2.0
// Shared libraries that may be absent: loaded at run time.
// Not for libraries that the project links against.
#pragma once

#include <string>

#include "headrace/base/owned.hpp"
#include "headrace/base/result.hpp"

namespace headrace::platform {

/// A loaded shared library. The destructor unloads it.
///
/// Threading: immutable.
class Library {
 public:
  /// Loads `name` by the search path of the dynamic linker.
  ///
  /// Fails: hardware_absent with the dynamic linker's message.
  [[nodiscard]] static Result<Library> load(const std::string& name);

  /// Finds the function `name`. Its type is the caller's claim and cannot be checked.
  ///
  /// Returns: nullptr if the library has no such function.
  template <typename Function>
  [[nodiscard]] Function* function(const char* name) const {
    return reinterpret_cast<Function*>(address(name));
  }

 private:
  explicit Library(void* handle) : handle_(handle) {}
  [[nodiscard]] void* address(const char* name) const;

  static void unload(void* handle) noexcept;

  Owned<void*, unload> handle_;
};

}  // namespace headrace::platform
