// SPDX-License-Identifier: Apache-2.0
// Which copy serves which length: a table of functions, and an entry that asks it.
// Not for filling it: profile.hpp does.
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
/// Threading: shared. A function once chosen must live as long as any thread may copy.
class Dispatch {
  // Above its use: Clang has not seen it in a constant expression otherwise.
  template <std::size_t... kIndices>
  constexpr Dispatch(Move initial, std::index_sequence<kIndices...> /*indices*/) noexcept
      : moves_{((void)kIndices, Atomic<Move>(initial))...}, entry_(initial), fallback_(initial) {}

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
  /// What a copy of any length calls: what serves it, or code that finds that. At first what the
  /// table was made with.
  [[nodiscard]] Move entry() const noexcept {
    // edge: copy-choice (acquire)
    return entry_.load_acquire();
  }
  /// For code that asks the table by itself.
  [[nodiscard]] const void* table() const noexcept { return moves_.data(); }
  /// What it was made with.
  [[nodiscard]] Move fallback() const noexcept { return fallback_; }
  /// From now on `move` serves the class, in every thread soon.
  void choose(std::size_t class_index, Move move) noexcept {
    // edge: copy-choice (release)
    moves_[class_index].store_release(move);
  }
  /// From now on copies call `move`, which has to serve each class as it was chosen.
  void choose_entry(Move move) noexcept {
    // edge: copy-choice (release)
    entry_.store_release(move);
  }
  void choose_fallback() noexcept {
    choose_entry(fallback_);
    for (std::size_t i = 0; i < kClassCount; ++i) choose(i, fallback_);
  }

 private:
  static_assert(sizeof(Atomic<Move>) == sizeof(Move), "code that asks the table loads pointers");

  std::array<Atomic<Move>, kClassCount> moves_;
  Atomic<Move> entry_;
  Move fallback_;
};

namespace detail {
/// The table of this process. Filled by the linker, not by code: it serves callers that
/// copy before our constructors run.
HEADRACE_API extern Dispatch default_dispatch;
}  // namespace detail

/// memmove by the table that use_profile fills: the C library's until then. Callable at any time,
/// before main and in a signal handler too.
///
/// Threading: shared.
/// Cost: two loads above memmove; with a profile at most eight instructions, counted by a test.
// NOLINTNEXTLINE(misc-const-correctness): written through by a function that is chosen at run time.
inline void* move_bytes(void* target, const void* source, std::size_t byte_count) noexcept {
  return detail::default_dispatch.entry()(target, source, byte_count);
}

}  // namespace headrace::copy
