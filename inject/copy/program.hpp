// SPDX-License-Identifier: Apache-2.0
// Program: what the functions of the preload know of the program that they are in. All zero until
// the constructor has run, so that it needs neither code nor relocations before.
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

/// Threading: shared. The constructor writes it, once.
struct alignas(64) Program {
  /// Calls for fewer bytes go straight to the C library. Zero: none does, either because nothing
  /// is known yet (`ready` is false) or because every call is counted.
  Atomic<std::size_t> move_bytes_min;
  Atomic<std::size_t> fill_bytes_min;
  Atomic<std::size_t> compare_bytes_min;
  /// The next functions of these names, as the program would have reached them without us. That of
  /// memmove serves memcpy too: programs linked against an old C library may rely on it.
  Move libc_move;
  Fill libc_fill;
  Compare libc_compare;
  Counters* counters;  ///< Null: nothing is counted.
  Device* device;      ///< Null: there is none.
  /// Copies from here on are shared with the device, if there is one.
  std::size_t device_bytes_min;
  Atomic<bool> ready;
};
extern Program program;

/// What serves a move that is not short. Only once the program is ready.
[[nodiscard]] Move move_for(std::size_t byte_count) noexcept;
/// The kernel of the profile that fills or compares so many bytes; null: the C library's serves.
[[nodiscard]] Fill fill_for(std::size_t byte_count) noexcept;
[[nodiscard]] copy::FirstDifference comparison_for(std::size_t byte_count) noexcept;

}  // namespace headrace::preload
