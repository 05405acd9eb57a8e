// SPDX-License-Identifier: Apache-2.0
// Arena: where operator new of an injected library takes memory. Not malloc: that is the program's,
// which may be in the middle of it, or have replaced it. For few and small allocations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "inject/lock.hpp"

namespace headrace::inject {

/// Blocks of powers of two from regions that are never given back. Callers in a process that has
/// signal handlers block all signals first (see InjectLock). Starts as all zero; a child of fork
/// that finds it zeroed leaks its parent's memory.
///
/// Threading: shared.
class Arena {
 public:
  constexpr Arena() = default;
  /// Null if there is no memory.
  void* take(std::size_t byte_count, std::size_t alignment) noexcept;
  void give_back(void* pointer) noexcept;

 private:
  struct Free {
    Free* next;
  };
  static constexpr unsigned kClassMax = 48;  // Block of class n: 2^n bytes.
  void* take_block(unsigned size_class) noexcept;

  InjectLock lock_;
  Free* free_[kClassMax] = {};
  std::uint64_t region_next_ = 0;
  std::uint64_t region_end_ = 0;
};

/// The arena of operator new. Each library that is injected defines it.
[[nodiscard]] Arena& own_arena() noexcept;

}  // namespace headrace::inject
