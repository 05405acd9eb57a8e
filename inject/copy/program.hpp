// SPDX-License-Identifier: Apache-2.0
// Program: what the preload's functions know of their host program. All zero until the constructor
// has run, so it needs no code or relocations before.
#pragma once

#include <cstddef>

#include "headrace/base/atomic.hpp"
#include "headrace/copy/dispatch.hpp"
#include "headrace/copy/fill_compare.hpp"
#include "inject/copy/counters.hpp"
#include "inject/copy/device_copy.hpp"

namespace headrace::preload {

using Move = copy::Move;
using Fill = copy::Fill;
using Compare = int (*)(const void* left, const void* right, std::size_t byte_count) noexcept;

/// Threading: shared. Written once, by the constructor.
struct alignas(64) Program {
  /// Shorter calls go straight to the C library. Zero: none does, because nothing is known yet
  /// (`ready` is false) or because every call is counted.
  Atomic<std::size_t> move_bytes_min;
  Atomic<std::size_t> fill_bytes_min;
  Atomic<std::size_t> compare_bytes_min;
  /// The next definitions of these names, which the program would use without this library. memmove
  /// also serves memcpy: programs linked against an old C library may depend on that.
  Move libc_move;
  Move guard;  ///< libc_move, but for the copies in which that crawls; null if there is none.
  Fill libc_fill;
  Compare libc_compare;
  Counters* counters;  ///< Null: nothing is counted.
  Device* device;      ///< Null: there is none.
  /// Copies of at least this length are shared with the device, if any.
  std::size_t device_bytes_min;
  Atomic<bool> ready;
};
extern Program program;

/// The function for a move that is not short. Only valid once `ready` is set.
[[nodiscard]] Move move_for(std::size_t byte_count) noexcept;
/// The profile's kernel for a fill or comparison of this length; null: use the C library.
[[nodiscard]] Fill fill_for(std::size_t byte_count) noexcept;
[[nodiscard]] copy::FirstDifference comparison_for(std::size_t byte_count) noexcept;

}  // namespace headrace::preload
