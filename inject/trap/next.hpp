// SPDX-License-Identifier: Apache-2.0
// Hooks: a hook replaces a C library function; its Next is the definition that it hides, which the
// program would have called otherwise: another preload's or the C library's.
#pragma once

#include <dlfcn.h>

#include "headrace/base/atomic.hpp"

/// A function that replaces the C library's; visible outside the preload.
#define HEADRACE_HOOK [[gnu::visibility("default")]]
/// Alias of a hook: x86-64 has one width of file offsets, and some functions have old names.
#define HEADRACE_HOOK_TOO(name, hook) \
  asm(".globl " #name "\n.type " #name ", @function\n.set " #name ", " #hook)
/// Defines a Next. All are in one section, to be looked up at program start. `used`: Clang does not
/// see that use, and would split the members.
#define HEADRACE_NEXT [[gnu::used, gnu::section("headrace_next")]] constinit Next

namespace headrace::emu {

/// Threading: shared.
class AnyNext {
 public:
  constexpr explicit AnyNext(const char* name) : name_(name) {}
  /// Looked up at the first call: for all our hooks at program start, never in a handler.
  void* find() noexcept {
    // relaxed: every thread finds the same address.
    void* found = function_.load_relaxed();
    if (found == nullptr) {
      found = ::dlsym(RTLD_NEXT, name_);
      function_.store_relaxed(found);
    }
    return found;
  }

 private:
  const char* name_;
  Atomic<void*> function_;
};

template <typename Function>
class Next : public AnyNext {
 public:
  using AnyNext::AnyNext;
  Function* get() noexcept { return reinterpret_cast<Function*>(find()); }
  template <typename... Arguments>
  auto operator()(Arguments... arguments) noexcept {
    return get()(arguments...);
  }
};

}  // namespace headrace::emu
