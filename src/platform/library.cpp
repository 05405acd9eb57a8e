// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

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

void Library::unload(void* handle) noexcept {
  if (handle != nullptr) ::dlclose(handle);
}

void* Library::address(const char* name) const {
  return ::dlsym(handle_.get(), name);
}

}  // namespace headrace::platform
