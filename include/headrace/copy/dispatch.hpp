// SPDX-License-Identifier: Apache-2.0
// Dispatch by length: a table of functions, and an entry that uses it.
// Not for filling the table: profile.hpp does.
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

/// Class c holds the lengths in (2^c, 2^(c+1)]; class 0 also holds length 1, the last class also
/// length 0.
inline constexpr std::size_t kClassCount = 64;
[[nodiscard]] constexpr std::size_t class_of(std::size_t byte_count) noexcept {
  // `| 1` avoids countl_zero(0) and changes no class. Not std::bit_width, whose test for zero the
  // compiler would keep.
  return 63U ^ static_cast<unsigned>(std::countl_zero((byte_count - 1) | 1U));
}

/// A function for each class of lengths: copies (Move), fills or comparisons (fill_compare.hpp).
///
/// Constant-initialized, so that it serves callers before main; nothing in it allocates, locks or
/// throws.
///
/// Threading: shared. A function once chosen must live as long as any thread may call it.
template <typename Function>
class Dispatch {
  // Defined before its use: Clang requires that in a constant expression.
  template <std::size_t... kIndices>
  constexpr Dispatch(Function initial, std::index_sequence<kIndices...> /*indices*/) noexcept
      : functions_{((void)kIndices, Atomic<Function>(initial))...},
        entry_(initial),
        fallback_(initial) {}

 public:
  /// `initial` serves every length until another is chosen.
  constexpr explicit Dispatch(Function initial) noexcept
      : Dispatch(initial, std::make_index_sequence<kClassCount>()) {}

  [[nodiscard]] Function function_for(std::size_t byte_count) const noexcept {
    // edge: copy-choice (acquire)
    return functions_[class_of(byte_count)].load_acquire();
  }
  /// The function that calls of every length enter: it serves them, or finds the function that
  /// does. Initially the constructor's.
  [[nodiscard]] Function entry() const noexcept {
    // edge: copy-choice (acquire)
    return entry_.load_acquire();
  }
  /// The function passed to the constructor.
  [[nodiscard]] Function fallback() const noexcept { return fallback_; }
  /// Makes `function` serve the class; other threads see it soon.
  void choose(std::size_t class_index, Function function) noexcept {
    // edge: copy-choice (release)
    functions_[class_index].store_release(function);
  }
  /// Makes calls enter `function`, which must serve each class by the function chosen for it.
  void choose_entry(Function function) noexcept {
    // edge: copy-choice (release)
    entry_.store_release(function);
  }
  void choose_fallback() noexcept {
    choose_entry(fallback_);
    for (std::size_t i = 0; i < kClassCount; ++i) choose(i, fallback_);
  }

 private:
  std::array<Atomic<Function>, kClassCount> functions_;
  Atomic<Function> entry_;
  Function fallback_;
};

namespace detail {
/// The table of this process. Constant-initialized: it serves callers that copy before our
/// constructors run.
HEADRACE_API extern Dispatch<Move> default_dispatch;
}  // namespace detail

/// memmove through the table that use_profile fills; the C library's memmove until then. Callable
/// at any time, also before main and in a signal handler.
///
/// Threading: shared.
/// Cost: two loads above memmove; with a profile at most eight instructions, counted by a test.
// NOLINTNEXTLINE(misc-const-correctness): written through by a function that is chosen at run time.
inline void* move_bytes(void* target, const void* source, std::size_t byte_count) noexcept {
  return detail::default_dispatch.entry()(target, source, byte_count);
}

}  // namespace headrace::copy
