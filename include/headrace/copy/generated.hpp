// SPDX-License-Identifier: Apache-2.0
// Code generation at run time: from descriptions of copies (variant.hpp) to functions.
// Not for choosing among them: the profile (profile.hpp) and the tuner do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "headrace/base/export.hpp"
#include "headrace/base/result.hpp"
#include "headrace/copy/variant.hpp"

namespace headrace::copy {

/// Copies as memmove does and returns `target`. Never allocates, locks, throws or reads the locale.
using Move = void* (*)(void* target, const void* source, std::size_t byte_count) noexcept;

/// The C library's memmove, to which generated copies pass short and overlapping ranges.
[[nodiscard]] HEADRACE_API Move libc_move();

/// Bounds, in ticks of the time-stamp counter, on the load of a byte from memory: more than from a
/// cache, fewer than with a page fault.
///
/// Threading: immutable.
struct ColdProbe {
  std::uint32_t ticks_min = 0;
  std::uint32_t ticks_max = 0;

  friend bool operator==(const ColdProbe&, const ColdProbe&) = default;
};

/// A copy for bytes that are cached and one for bytes that are not; nothing is the fallback. With
/// `cold`, a call first times the load of a byte of the target and, if that is slow, of one of the
/// source; `cold` serves only if both come from memory. Non-temporal stores are faster then, and
/// evict nothing. The target alone cannot decide: after a non-temporal copy it stays cold, however
/// often the same bytes are copied.
///
/// Threading: immutable.
struct Routine {
  std::optional<Variant> warm = {};
  std::optional<Variant> cold = {};
};

/// Lengths up to `bytes_max` that follow those of the range before, and the function that serves
/// them.
///
/// Threading: immutable.
struct Range {
  std::size_t bytes_max = 0;
  Move move = nullptr;  ///< Null: the fallback, or an inline copy as the fallback's.
  /// The copy that `move` makes, if it is one of a variant: an entry inlines it where it needs no
  /// loop.
  std::optional<Variant> variant = {};
};

/// Machine code of variants, in memory that is never writable and executable at once.
///
/// Ownership: the functions live as long as this object and its copies.
/// Threading: immutable.
class HEADRACE_API GeneratedCode {
 public:
  /// Generates one function for each of `variants`. Each is correct for every length, alignment and
  /// overlap; it passes copies too short for its loop, and overlapping ones, to `fallback`.
  ///
  /// Fails: invalid_argument if a variant is not valid; unsupported if this processor cannot run
  ///        it, or this build has no generator; permission_denied if this process may not make
  ///        memory executable; out_of_memory.
  [[nodiscard]] static Result<GeneratedCode> make(std::span<const Variant> variants,
                                                  Move fallback = libc_move());

  /// Generates one function for each of `routines`. Those with `cold` read the time-stamp counter,
  /// which kills a process that has disabled it. With `guards` a guard stands for the fallback in
  /// them: it copies by a loop if the target lies 1 to 32 bytes after the source, counted within
  /// pages of 4 KiB, and else calls the fallback.
  ///
  /// Fails: as above.
  [[nodiscard]] static Result<GeneratedCode> make(std::span<const Routine> routines,
                                                  const ColdProbe& probe,
                                                  Move fallback = libc_move(), bool guards = false);

  /// Generates one function that serves each length as its range says, and longer ones as the
  /// fallback does: compares of the length, inline copies up to some hundred bytes, and jumps. It
  /// loads nothing but the bytes. `ranges` ascend; their functions must live as long as this one.
  ///
  /// Fails: as above; unsupported if this build has no generator.
  [[nodiscard]] static Result<GeneratedCode> make_entry(std::span<const Range> ranges,
                                                        Move fallback = libc_move());

  /// The functions, in the order of the variants or routines; that of an entry is the first; with
  /// `guards` the last is the guard.
  [[nodiscard]] std::span<const Move> moves() const;
  /// Bytes of machine code.
  [[nodiscard]] std::size_t code_bytes() const;

 private:
  struct State;
  explicit GeneratedCode(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace headrace::copy
