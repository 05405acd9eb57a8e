// SPDX-License-Identifier: Apache-2.0
// What a hook is made of: a function that takes the place of the C library's, and Next, the one
// that it hides, as the program would have reached it without us: another preload's, or the C
// library's.
#pragma once

#include <dlfcn.h>

#include "headrace/base/atomic.hpp"

/// A function that takes the place of the C library's: what is visible of the preload.
#define HEADRACE_HOOK [[gnu::visibility("default")]]
/// Another name for a hook: x86-64 has one width of file offsets, and old names of some functions.
#define HEADRACE_HOOK_TOO(name, hook) \
  asm(".globl " #name "\n.type " #name ", @function\n.set " #name ", " #hook)
/// Defines a Next. All of them lie side by side, to be looked up at the start of the program.
/// `used`: Clang does not know of that use, and would lay the members of one apart.
#define HEADRACE_NEXT [[gnu::used, gnu::section("headrace_next")]] constinit Next

namespace headrace::emu {

/// Threading: shared.
class AnyNext {
 public:
  constexpr explicit AnyNext(const char* name) : name_(name) {}
  /// Looked up at the first call, which is at the start of the program for all of ours, never in a
  /// handler.
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
