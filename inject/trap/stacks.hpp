// SPDX-License-Identifier: Apache-2.0
// Stacks of our own for the handler. A program may submit from a handler on an alternate stack of
// 8 KiB of which the kernel's frames (3 KiB each where there is AVX-512) leave next to nothing: so
// the entry takes one of these and goes on there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/base/atomic.hpp"

namespace headrace::emu {

/// Starts as all zero: none taken.
///
/// Threading: shared.
class StackPool {
 public:
  constexpr StackPool() = default;
  /// Its upper end, 16-byte aligned; 0 if `stack_pointer` is on one already (a fault inside the
  /// handler). Waits if all are taken.
  std::uint64_t take(std::uint64_t stack_pointer) noexcept;
  void give_back(std::uint64_t top) noexcept;

 private:
  static constexpr std::size_t kWordCount = 4;
  Atomic<std::uint64_t> taken_[kWordCount];  // Bit n of word w: stack 64 w + n.
};

/// Reserves the memory of all stacks. Once, before the program runs. False: there is none.
bool reserve_stacks() noexcept;

}  // namespace headrace::emu
