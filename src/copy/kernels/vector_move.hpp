// SPDX-License-Identifier: Apache-2.0
// The vector kernels, templates for any register width; avx2.cpp and avx512.cpp define the
// registers. Not for other files: the code depends on the -m flags of the including file.
//
// Everything here is in an unnamed namespace: the linker would merge an inline function shared by
// two files with different -m flags into one, perhaps one that this processor cannot run. For the
// same reason it calls no std:: function.
//
// In optimised builds the compiler inserts vzeroupper where a function dirtied the upper halves of
// the registers, so that callers in SSE code pay no transition penalty.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "headrace/base/line.hpp"

namespace headrace::copy::detail {
namespace {

template <typename Word>
struct Scalar {
  using Register = Word;
  static constexpr std::size_t kBytes = sizeof(Word);
  static Register load(const std::byte* from) {
    Register value;
    __builtin_memcpy(&value, from, kBytes);
    return value;
  }
  static void store(std::byte* to, Register value) { __builtin_memcpy(to, &value, kBytes); }
};

struct Xmm {
  using Register = __m128i;
  static constexpr std::size_t kBytes = 16;
  static Register load(const std::byte* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  static void store(std::byte* to, Register value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value);
  }
};

/// kCount registers loaded from consecutive addresses.
template <typename Vector, std::size_t kCount>
struct Block {
  static constexpr std::size_t kBytes = kCount * Vector::kBytes;
  typename Vector::Register value[kCount];

  [[gnu::always_inline]] static Block load(const std::byte* from) {
    Block block;
    for (std::size_t i = 0; i < kCount; ++i)
      block.value[i] = Vector::load(from + i * Vector::kBytes);
    return block;
  }
  [[gnu::always_inline]] void store(std::byte* to) const {
    for (std::size_t i = 0; i < kCount; ++i) Vector::store(to + i * Vector::kBytes, value[i]);
  }
  [[gnu::always_inline]] void store_aligned(std::byte* to) const {
    for (std::size_t i = 0; i < kCount; ++i)
      Vector::store_aligned(to + i * Vector::kBytes, value[i]);
  }
  [[gnu::always_inline]] void stream(std::byte* to) const {
    for (std::size_t i = 0; i < kCount; ++i) Vector::stream(to + i * Vector::kBytes, value[i]);
  }
};

/// Moves Ends::kBytes <= byte_count <= 2 * Ends::kBytes by a head and a tail that may overlap. Both
/// are read before either is written, so source and target may overlap too.
template <typename Ends>
[[gnu::always_inline]] inline void move_ends(std::byte* target, const std::byte* source,
                                             std::size_t byte_count) {
  const Ends head = Ends::load(source);
  const Ends tail = Ends::load(source + byte_count - Ends::kBytes);
  head.store(target);
  tail.store(target + byte_count - Ends::kBytes);
}

/// Moves at most 2 * Xmm::kBytes.
[[gnu::always_inline]] inline void move_tiny(std::byte* target, const std::byte* source,
                                             std::size_t byte_count) {
  if (byte_count >= 16) return move_ends<Block<Xmm, 1>>(target, source, byte_count);
  if (byte_count >= 8)
    return move_ends<Block<Scalar<std::uint64_t>, 1>>(target, source, byte_count);
  if (byte_count >= 4)
    return move_ends<Block<Scalar<std::uint32_t>, 1>>(target, source, byte_count);
  if (byte_count >= 2)
    return move_ends<Block<Scalar<std::uint16_t>, 1>>(target, source, byte_count);
  if (byte_count == 1) *target = *source;
}

/// The longest move that needs no loop.
template <typename Vector>
constexpr std::size_t kSmallBytesMax = 8 * Vector::kBytes;

template <typename Vector>
[[gnu::always_inline]] inline void move_small(std::byte* target, const std::byte* source,
                                              std::size_t byte_count) {
  if (byte_count < Vector::kBytes) return Vector::move_less_than_one(target, source, byte_count);
  if (byte_count <= 2 * Vector::kBytes)
    return move_ends<Block<Vector, 1>>(target, source, byte_count);
  if (byte_count <= 4 * Vector::kBytes)
    return move_ends<Block<Vector, 2>>(target, source, byte_count);
  move_ends<Block<Vector, 4>>(target, source, byte_count);
}

/// Bytes from `address` to the next line, or a whole line if it starts one.
[[gnu::always_inline]] inline std::size_t bytes_to_next_line(const std::byte* address) {
  return kLineBytes - reinterpret_cast<std::uintptr_t>(address) % kLineBytes;
}

template <typename Vector>
using Line = Block<Vector, kLineBytes / Vector::kBytes>;

/// Copies upwards; correct unless `target` starts inside the source. Needs more than
/// kSmallBytesMax.
///
/// Head and tail are read first and written last: the loop may overwrite the source of the tail,
/// and writing the head may overwrite the source of the loop.
template <typename Vector>
inline void move_upwards(std::byte* target, const std::byte* source, std::size_t byte_count) {
  using Step = Block<Vector, 4>;
  const auto head = Line<Vector>::load(source);
  const auto tail = Step::load(source + byte_count - Step::kBytes);
  std::size_t at = bytes_to_next_line(target);
  for (; byte_count - at > Step::kBytes; at += Step::kBytes) {
    Step::load(source + at).store_aligned(target + at);
  }
  tail.store(target + byte_count - Step::kBytes);
  head.store(target);
}

/// Copies downwards; correct unless `source` starts inside the target. Needs more than
/// kSmallBytesMax.
template <typename Vector>
inline void move_downwards(std::byte* target, const std::byte* source, std::size_t byte_count) {
  using Step = Block<Vector, 4>;
  const auto head = Step::load(source);
  const auto tail = Line<Vector>::load(source + byte_count - kLineBytes);
  std::size_t end = byte_count - reinterpret_cast<std::uintptr_t>(target + byte_count) % kLineBytes;
  for (; end > Step::kBytes; end -= Step::kBytes) {
    const std::size_t at = end - Step::kBytes;
    Step::load(source + at).store_aligned(target + at);
  }
  head.store(target);
  tail.store(target + byte_count - kLineBytes);
}

template <typename Vector>
inline void move_temporal(std::byte* target, const std::byte* source, std::size_t byte_count) {
  if (byte_count <= kSmallBytesMax<Vector>) return move_small<Vector>(target, source, byte_count);
  // Wraps to a large number if the target is below the source, where upwards is correct.
  const std::uintptr_t distance =
      reinterpret_cast<std::uintptr_t>(target) - reinterpret_cast<std::uintptr_t>(source);
  if (distance >= byte_count) {
    move_upwards<Vector>(target, source, byte_count);
  } else {
    move_downwards<Vector>(target, source, byte_count);
  }
}

/// Copies whole lines with non-temporal stores. Small and overlapping moves are temporal: a small
/// one would write partial lines, which write-combining makes slow; in an overlapping one the next
/// loads would fetch back from memory lines that were just written there.
template <typename Vector>
inline void move_nontemporal(std::byte* target, const std::byte* source, std::size_t byte_count) {
  const std::uintptr_t distance =
      reinterpret_cast<std::uintptr_t>(target) - reinterpret_cast<std::uintptr_t>(source);
  const bool overlaps = distance < byte_count || 0 - distance < byte_count;
  if (byte_count <= kSmallBytesMax<Vector> || overlaps) {
    return move_temporal<Vector>(target, source, byte_count);
  }
  using Step = Block<Vector, 4 * kLineBytes / Vector::kBytes>;
  Line<Vector>::load(source).store(target);
  std::size_t at = bytes_to_next_line(target);
  for (; byte_count - at >= Step::kBytes; at += Step::kBytes) {
    Step::load(source + at).stream(target + at);
  }
  move_small<Vector>(target + at, source + at, byte_count - at);
  // Streaming stores wait in write-combining buffers and may become visible after younger stores.
  // The other agent is a thread that sees our next release store (a completion flag): without
  // sfence, which makes every earlier store visible before any later one, it could read old bytes.
  // sfence orders no loads and does not guarantee when the bytes reach memory.
  _mm_sfence();
}

}  // namespace
}  // namespace headrace::copy::detail
