// SPDX-License-Identifier: Apache-2.0
// Shared libraries that may be absent: loaded at run time.
// Not for libraries that the project links against.
#pragma once

#include <string>

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

  Library(Library&& other) noexcept;
  Library& operator=(Library&& other) noexcept;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library();

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

  void* handle_;
};

}  // namespace headrace::platform
