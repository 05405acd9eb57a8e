// SPDX-License-Identifier: Apache-2.0
// From a variant to machine code. Implemented by generator.cpp with Xbyak, or by
// generator_absent.cpp in builds without a generator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/copy/generated.hpp"
#include "headrace/copy/variant.hpp"

namespace headrace::copy::detail {

inline constexpr bool kHasGenerator = HEADRACE_HAS_GENERATOR != 0;
/// Upper bound on the code of a variant; generate() checks it.
inline constexpr std::size_t kCodeBytesMax = std::size_t{16} << 10U;

/// The shortest copy that a variant does not pass to its fallback.
[[nodiscard]] std::size_t loop_bytes_min(const Variant& variant);

/// Lengths that a function is called with.
struct Lengths {
  std::size_t min = 0;
  std::size_t max = SIZE_MAX;
};

/// Writes the function of a valid variant to the start of `room`, which is writable and has
/// kCodeBytesMax bytes. It may be moved, but only by whole lines: loops are aligned. Returns the
/// bytes used.
[[nodiscard]] std::size_t generate(const Variant& variant, Move fallback, std::span<std::byte> room,
                                   const Lengths& lengths = {});

/// Upper bound on the bytes that generate_entry writes.
inline constexpr std::size_t kEntryCodeBytesMax = kCodeBytesMax * (kEntryClassesMax + 2);

/// Writes a function into `room`, which has kEntryCodeBytesMax bytes. It serves the lengths of
/// `entry.shortest` inline and the others by `entry.table`. If it `stays` there, it may jump to the
/// fallback directly, and is no longer than otherwise; else it may be moved by whole lines. Returns
/// the bytes used.
[[nodiscard]] std::size_t generate_entry(const Entry& entry, Move fallback,
                                         std::span<std::byte> room, bool stays);

/// Upper bound on the bytes that generate_probe writes.
inline constexpr std::size_t kProbeCodeBytesMax = 256;

/// Writes a function into `room`, which has kProbeCodeBytesMax bytes. It jumps to `cold` if the
/// bytes come from memory, else to `warm`.
void generate_probe(const ColdProbe& probe, Move warm, Move cold, std::span<std::byte> room);

}  // namespace headrace::copy::detail
