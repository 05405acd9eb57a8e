// SPDX-License-Identifier: Apache-2.0
// Arena: memory for operator new of an injected library. Not malloc: the program may be inside
// malloc, or have replaced it. For few, small allocations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "inject/lock.hpp"

namespace headrace::inject {

/// Power-of-two blocks from regions that are never unmapped. If the process has signal handlers,
/// callers block all signals first (see InjectLock). Zero-initialised; a child of fork that finds
/// it zeroed leaks its parent's memory.
///
/// Threading: shared.
class Arena {
 public:
  constexpr Arena() = default;
  /// Returns null if memory is exhausted.
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

/// The arena of operator new. Each injected library defines it.
[[nodiscard]] Arena& own_arena() noexcept;

}  // namespace headrace::inject
