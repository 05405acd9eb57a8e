// SPDX-License-Identifier: Apache-2.0
// Private stacks for the handler. A program may submit from a handler on an 8 KiB alternate stack
// that the kernel's frames (3 KiB each with AVX-512) nearly fill, so the entry switches to one of
// these.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/base/atomic.hpp"

namespace headrace::emu {

/// Zero-initialised: none taken.
///
/// Threading: shared.
class StackPool {
 public:
  constexpr StackPool() = default;
  /// Returns the upper end of a free stack, 16-byte aligned; 0 if `stack_pointer` is already on one
  /// (a fault inside the handler). Waits if all are taken.
  std::uint64_t take(std::uint64_t stack_pointer) noexcept;
  void give_back(std::uint64_t top) noexcept;

 private:
  static constexpr std::size_t kWordCount = 4;
  Atomic<std::uint64_t> taken_[kWordCount];  // Bit n of word w: stack 64 w + n.
};

/// Reserves the memory of all stacks. Call once, before the program runs. False: no memory.
bool reserve_stacks() noexcept;

}  // namespace headrace::emu
