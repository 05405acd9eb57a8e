// SPDX-License-Identifier: Apache-2.0
// From a variant to machine code. One of two files implements it: generator.cpp with Xbyak, or
// generator_absent.cpp where there is nothing to generate for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/copy/generated.hpp"
#include "headrace/copy/variant.hpp"

namespace headrace::copy::detail {

inline constexpr bool kHasGenerator = HEADRACE_HAS_GENERATOR != 0;
/// No variant needs more; generate() checks it.
inline constexpr std::size_t kCodeBytesMax = std::size_t{16} << 10U;

/// The shortest copy that a variant does not hand to its fallback.
[[nodiscard]] std::size_t loop_bytes_min(const Variant& variant);

/// Lengths that a function is called with.
struct Lengths {
  std::size_t min = 0;
  std::size_t max = SIZE_MAX;
};

/// Writes the function of a valid variant into `room`, which is writable and has kCodeBytesMax
/// bytes; it begins at the first. It may be moved by whole lines, not by less: loops are aligned.
/// Returns the bytes used.
[[nodiscard]] std::size_t generate(const Variant& variant, Move fallback, std::span<std::byte> room,
                                   const Lengths& lengths = {});

/// Bytes of the function that generate_entry writes, at most.
inline constexpr std::size_t kEntryCodeBytesMax = kCodeBytesMax * (kEntryClassesMax + 2);

/// Writes a function that serves the lengths of `entry.shortest` itself and lets `entry.table`
/// serve the others into `room`, which has kEntryCodeBytesMax bytes. If it `stays` there its jumps
/// may lead to the fallback itself and it is no longer than otherwise; else it may be moved by
/// whole lines. Returns the bytes used.
[[nodiscard]] std::size_t generate_entry(const Entry& entry, Move fallback,
                                         std::span<std::byte> room, bool stays);

/// Bytes of the function that generate_probe writes, at most.
inline constexpr std::size_t kProbeCodeBytesMax = 256;

/// Writes a function that goes on to `cold` if the bytes come from memory, else to `warm`, into
/// `room`, which has kProbeCodeBytesMax bytes.
void generate_probe(const ColdProbe& probe, Move warm, Move cold, std::span<std::byte> room);

}  // namespace headrace::copy::detail
