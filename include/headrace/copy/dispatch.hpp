// SPDX-License-Identifier: Apache-2.0
// Which copy serves which length: a table of functions, asked by one short sequence of
// instructions. Not for filling it: profile.hpp does.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "headrace/base/atomic.hpp"
#include "headrace/base/export.hpp"
#include "headrace/copy/generated.hpp"

namespace headrace::copy {

/// A function for each class of lengths. Class c holds the lengths in (2^c, 2^(c+1)]; class 0 holds
/// 1 and 2 as well, the last one 0.
///
/// Made without running code, so that it serves copies before main; nothing in it allocates, locks
/// or throws.
///
/// Threading: shared. A function once chosen must live as long as anybody may copy.
class Dispatch {
  // Above its use: Clang has not seen it in a constant expression otherwise.
  template <std::size_t... kIndices>
  constexpr Dispatch(Move initial, std::index_sequence<kIndices...> /*indices*/) noexcept
      : moves_{((void)kIndices, Atomic<Move>(initial))...}, fallback_(initial) {}

 public:
  static constexpr std::size_t kClassCount = 64;

  /// `initial` serves every length until another is chosen.
  constexpr explicit Dispatch(Move initial) noexcept
      : Dispatch(initial, std::make_index_sequence<kClassCount>()) {}

  [[nodiscard]] static constexpr std::size_t class_of(std::size_t byte_count) noexcept {
    // The bit keeps zero away, for which there is no leading bit; it changes no other class. Not
    // std::bit_width, whose test for zero would stay in the code.
    return 63U ^ static_cast<unsigned>(std::countl_zero((byte_count - 1) | 1U));
  }
  [[nodiscard]] Move move_for(std::size_t byte_count) const noexcept {
    // edge: copy-choice (acquire)
    return moves_[class_of(byte_count)].load_acquire();
  }
  /// What it was made with.
  [[nodiscard]] Move fallback() const noexcept { return fallback_; }
  /// From now on `move` serves the class, in every thread soon.
  void choose(std::size_t class_index, Move move) noexcept {
    // edge: copy-choice (release)
    moves_[class_index].store_release(move);
  }
  void choose_fallback() noexcept {
    for (std::size_t i = 0; i < kClassCount; ++i) choose(i, fallback_);
  }

 private:
  std::array<Atomic<Move>, kClassCount> moves_;
  Move fallback_;
};

/// memmove by the table that use_profile fills: the C library's until then. Callable at any time,
/// before main and in a signal handler too.
///
/// Threading: shared.
/// Cost: seven instructions above the function that it finds; a test counts them.
HEADRACE_API void* move_bytes(void* target, const void* source, std::size_t byte_count) noexcept;

}  // namespace headrace::copy
