// SPDX-License-Identifier: Apache-2.0
// Arena: where operator new of the preload takes memory. Not malloc, because that is the program's:
// a trap may come while the program, or another preload that has replaced malloc, is in the middle
// of it. Few and small allocations, made when a process connects.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/base/atomic.hpp"

namespace headrace::emu {

/// Blocks of powers of two from regions that are never given back. All callers have every signal
/// blocked, so that the lock's holder is never interrupted by somebody who waits for it. Starts as
/// all zero; a child made by fork starts with an empty one and leaks its parent's.
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
  void lock() noexcept;
  void unlock() noexcept;

  Atomic<std::uint32_t> locked_;
  Free* free_[kClassMax] = {};
  std::uint64_t region_next_ = 0;
  std::uint64_t region_end_ = 0;
};

}  // namespace headrace::emu
