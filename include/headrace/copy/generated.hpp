// SPDX-License-Identifier: Apache-2.0
// Copies generated at run time, from their descriptions (variant.hpp) to functions.
// Not for choosing among them: that is the profile's (profile.hpp) and the tuner's.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "headrace/base/export.hpp"
#include "headrace/base/result.hpp"
#include "headrace/copy/variant.hpp"

namespace headrace::copy {

/// Copies as memmove does and returns `target`. Never allocates, locks, throws or reads the locale.
using Move = void* (*)(void* target, const void* source, std::size_t byte_count) noexcept;

/// The C library's, which is what a generated copy hands short and overlapping ranges to.
[[nodiscard]] HEADRACE_API Move libc_move();

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

  GeneratedCode(GeneratedCode&& other) noexcept;
  GeneratedCode& operator=(GeneratedCode&& other) noexcept;
  GeneratedCode(const GeneratedCode&) = delete;
  GeneratedCode& operator=(const GeneratedCode&) = delete;
  ~GeneratedCode();

  /// The functions, in the order of the variants.
  [[nodiscard]] std::span<const Move> moves() const;
  /// Bytes of machine code.
  [[nodiscard]] std::size_t code_bytes() const;

 private:
  struct State;
  explicit GeneratedCode(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace headrace::copy
