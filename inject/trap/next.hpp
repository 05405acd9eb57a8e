// SPDX-License-Identifier: Apache-2.0
// Next: the function that a hook of ours hides, as the program would have reached it without us:
// another preload's, or the C library's.
#pragma once

#include <dlfcn.h>

#include "headrace/base/atomic.hpp"

namespace headrace::emu {

/// Threading: shared.
template <typename Function>
class Next {
 public:
  constexpr explicit Next(const char* name) : name_(name) {}
  /// Looked up at the first call, which is at the start of the program for all of ours
  /// (find_next_functions), never in a handler.
  Function* get() noexcept {
    // relaxed: every thread finds the same address.
    Function* found = function_.load_relaxed();
    if (found == nullptr) {
      found = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name_));
      function_.store_relaxed(found);
    }
    return found;
  }
  template <typename... Arguments>
  auto operator()(Arguments... arguments) noexcept {
    return get()(arguments...);
  }

 private:
  const char* name_;
  Atomic<Function*> function_;
};

/// Looks up what the hooks of each file need.
void find_next_mappings() noexcept;
void find_next_actions() noexcept;
void find_next_masks() noexcept;
void find_next_confinement() noexcept;
void find_next_files() noexcept;
/// `needs_environment`: programs load this library by LD_PRELOAD alone.
void find_next_executions(bool needs_environment) noexcept;

}  // namespace headrace::emu
