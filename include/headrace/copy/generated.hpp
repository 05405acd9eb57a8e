// SPDX-License-Identifier: Apache-2.0
// Copies generated at run time, from their descriptions (variant.hpp) to functions.
// Not for choosing among them: that is the profile's (profile.hpp) and the tuner's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "headrace/base/export.hpp"
#include "headrace/base/result.hpp"
#include "headrace/copy/variant.hpp"

namespace headrace::copy {

/// Copies as memmove does and returns `target`. Never allocates, locks, throws or reads the locale.
using Move = void* (*)(void* target, const void* source, std::size_t byte_count) noexcept;

/// The C library's, which is what a generated copy hands short and overlapping ranges to.
[[nodiscard]] HEADRACE_API Move libc_move();

/// How many ticks of the time-stamp counter a byte takes to come if it comes from memory: more than
/// from a cache, fewer than if its page has to be made first.
///
/// Threading: immutable.
struct ColdProbe {
  std::uint32_t ticks_min = 0;
  std::uint32_t ticks_max = 0;

  friend bool operator==(const ColdProbe&, const ColdProbe&) = default;
};

/// One copy for what lies in the caches and one for what does not; nothing is the fallback. With
/// `cold`, a call first loads a byte of the target and, if it comes slowly, one of the source: only
/// if both come from memory `cold` serves. Past the caches is faster then, and there is nothing
/// that it could push out of them. Not by the target alone: past the caches it would stay cold,
/// however often the same is copied.
///
/// Threading: immutable.
struct Routine {
  std::optional<Variant> warm = {};
  std::optional<Variant> cold = {};
};

/// Classes that an entry may serve itself.
inline constexpr std::size_t kEntryClassesMax = 4;
/// Longest copies of those.
inline constexpr std::size_t kEntryBytesMax = 2048;

/// A function that serves the shortest copies itself and finds those of others in a table: to a
/// copy of 256 bytes one jump more is a tenth of its time.
///
/// Threading: immutable.
struct Entry {
  struct Class {
    std::size_t bytes_max = 0;  ///< A power of two.
    /// Nothing is the fallback; up to 512 bytes, where a jump there is much of the time, a copy of
    /// the same kind.
    std::optional<Variant> variant;
  };
  /// Ascending, each twice as long as the one before; kEntryClassesMax at most, the last one no
  /// longer than kEntryBytesMax.
  std::span<const Class> shortest;
  /// Whether what is shorter than those is the fallback's; else the table tells.
  bool shorter_stay = false;
  /// The functions for all classes, of a Dispatch; must live as long as any thread may copy.
  const void* table = nullptr;
};

/// Code of some variants, in memory that was written first and made executable, and unwritable,
/// then.
///
/// Ownership: the functions live as long as this.
/// Threading: immutable.
class HEADRACE_API GeneratedCode {
 public:
  /// Generates one function for each of `variants`. Each is right for every length, alignment and
  /// overlap; what is shorter than its loop needs, and what overlaps, goes to `fallback`.
  ///
  /// Fails: invalid_argument if a variant is not valid; unsupported if this processor cannot run
  ///        it, or this build generates nothing; permission_denied if this process may not make
  ///        memory executable; out_of_memory.
  [[nodiscard]] static Result<GeneratedCode> make(std::span<const Variant> variants,
                                                  Move fallback = libc_move());

  /// One function for each of `routines`, and that of `entry`, if it has a table. Those with `cold`
  /// read the time-stamp counter, which ends a process that has forbidden it to itself.
  ///
  /// Fails: as above.
  [[nodiscard]] static Result<GeneratedCode> make(std::span<const Routine> routines,
                                                  const ColdProbe& probe,
                                                  Move fallback = libc_move(),
                                                  const Entry& entry = {});

  GeneratedCode(GeneratedCode&& other) noexcept;
  GeneratedCode& operator=(GeneratedCode&& other) noexcept;
  GeneratedCode(const GeneratedCode&) = delete;
  GeneratedCode& operator=(const GeneratedCode&) = delete;
  ~GeneratedCode();

  /// The functions, in the order of the variants or routines.
  [[nodiscard]] std::span<const Move> moves() const;
  /// The function of the entry; `fallback` if none was wanted, or nothing is generated.
  [[nodiscard]] Move entry() const;
  /// Bytes of machine code.
  [[nodiscard]] std::size_t code_bytes() const;

 private:
  struct State;
  explicit GeneratedCode(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace headrace::copy
