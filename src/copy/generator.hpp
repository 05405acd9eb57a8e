// SPDX-License-Identifier: Apache-2.0
// From a variant to machine code. Implemented by generator.cpp and entry.cpp with Xbyak; nothing of
// it may be called in builds without a generator.
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

/// Checks that the assembler met no error in this thread.
void check_written();

/// Whether a variant copies up to two of its blocks by a head and a tail.
[[nodiscard]] bool has_ends(const Variant& variant);

/// The shortest copy that a variant does not pass to its fallback.
[[nodiscard]] std::size_t loop_bytes_min(const Variant& variant);

/// Writes the function of a valid variant to the start of `room`, which is writable and has
/// kCodeBytesMax bytes. It may be moved, but only by whole lines: loops are aligned. Returns the
/// bytes used.
[[nodiscard]] std::size_t generate(const Variant& variant, Move fallback,
                                   std::span<std::byte> room);

/// Upper bound on the bytes that generate_entry writes, besides those for each range; it checks
/// them.
inline constexpr std::size_t kEntryCodeBytesMax = 3072;
inline constexpr std::size_t kRangeCodeBytesMax = 64;

/// Writes an entry (GeneratedCode::make_entry) into `room`, to be run at `place`, which begins a
/// line as the room does. Returns the bytes used.
[[nodiscard]] std::size_t generate_entry(std::span<const Range> ranges, Move fallback,
                                         std::span<std::byte> room, std::uintptr_t place);
/// Writes the same for fills: `libc` below `bytes_min`, else `longer`.
void generate_fill_entry(const void* libc, const void* longer, std::size_t bytes_min,
                         std::span<std::byte> room, std::uintptr_t place);
/// Writes jumps to functions whose third argument is a length: to `shorter` below `bytes_min`, else
/// to `longer`.
void generate_jumps(const void* shorter, const void* longer, std::size_t bytes_min,
                    std::span<std::byte> room, std::uintptr_t place);

/// Upper bound on the bytes that generate_probe writes.
inline constexpr std::size_t kProbeCodeBytesMax = 256;

/// Writes a function into `room`, which has kProbeCodeBytesMax bytes. It jumps to `cold` if the
/// bytes come from memory, else to `warm`.
void generate_probe(const ColdProbe& probe, Move warm, Move cold, std::span<std::byte> room);

/// Writes a function that fills the first line of `room`: it jumps to the next line if the target
/// lies 1 to 32 bytes after the source within pages of 4 KiB, and else to `other`.
void generate_guard(Move other, std::span<std::byte> room);

}  // namespace headrace::copy::detail
