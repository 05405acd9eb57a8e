// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

namespace headrace::platform {

Result<Library> Library::load(const std::string& name) {
  void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* cause = ::dlerror();
    return fail(Code::hardware_absent, fmt::format("load the library '{}'", name),
                cause != nullptr ? cause : "the dynamic linker does not say why", "install it");
  }
  return Library(handle);
}

Library::Library(Library&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

Library& Library::operator=(Library&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

Library::~Library() {
  if (handle_ != nullptr) ::dlclose(handle_);
}

void* Library::address(const char* name) const {
  return ::dlsym(handle_, name);
}

}  // namespace headrace::platform
