// SPDX-License-Identifier: Apache-2.0
// Comparing, and filling with one byte, through registers of one family; included only by the file
// of that family, whose -m flags the code depends on.
//
// Its register type is in an unnamed namespace, and what is no template is always inlined: the
// linker would merge an inline function shared by two files with different -m flags into one,
// perhaps one that this processor cannot run. For the same reason nothing here calls a std::
// function.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::copy::detail {

/// Bytes compared per branch, or stored per iteration. With half of it, comparisons from memory are
/// slower.
inline constexpr std::size_t kTurnBytes = 256;
inline constexpr std::size_t kLine = 64;
/// Prefetch distance. Twice and four times as much was not faster.
inline constexpr std::size_t kAheadBytes = 8 * kLine;
inline constexpr std::size_t kPageBytes = 4096;

/// Index of the first byte in which two different words differ: the lowest byte is the first.
[[gnu::always_inline]] inline std::size_t byte_that_differs(std::uint64_t left,
                                                            std::uint64_t right) {
  return static_cast<std::size_t>(__builtin_ctzll(left ^ right)) / 8;
}

[[gnu::always_inline]] inline std::size_t difference_plainly(const std::byte* left,
                                                             const std::byte* right,
                                                             std::size_t byte_count) {
  std::size_t at = 0;
  for (; byte_count - at >= 8; at += 8) {
    std::uint64_t one = 0;
    std::uint64_t other = 0;
    __builtin_memcpy(&one, left + at, 8);
    __builtin_memcpy(&other, right + at, 8);
    if (one != other) return at + byte_that_differs(one, other);
  }
  while (at < byte_count && left[at] == right[at]) ++at;
  return at;
}

/// Compares a register's length or more by registers; the last one overlaps the one before.
template <typename Vector>
std::size_t difference_with(const void* one, const void* other, std::size_t byte_count) noexcept {
  constexpr std::size_t kBytes = Vector::kBytes;
  const auto* const left = static_cast<const std::byte*>(one);
  const auto* const right = static_cast<const std::byte*>(other);
  if (byte_count < kBytes) return difference_plainly(left, right, byte_count);
  // Zero: equal. Bytes changed concurrently may count as equal or different.
  std::uint32_t unlike = 0;
  const auto difference = [&](std::size_t at) {
    return at + Vector::place(unlike, left + at, right + at);
  };
  // Most comparisons that find a difference find it here.
  unlike = Vector::unlike(left, right);
  if (unlike != 0) return difference(0);
  if (kBytes < kLine && byte_count >= 2 * kBytes) {
    unlike = Vector::unlike(left + kBytes, right + kBytes);
    if (unlike != 0) return difference(kBytes);
  }
  // Align to a line of the left side: an unaligned iteration loads one line more.
  std::size_t at = kLine - reinterpret_cast<std::uintptr_t>(left) % kLine;
  for (; at + kTurnBytes <= byte_count; at += kTurnBytes) {
    if (!Vector::turn_differs(left + at, right + at)) continue;
    for (std::size_t i = at; i < at + kTurnBytes; i += kBytes) {
      unlike = Vector::unlike(left + i, right + i);
      if (unlike != 0) return difference(i);
    }
  }
  for (; at + kBytes <= byte_count; at += kBytes) {
    unlike = Vector::unlike(left + at, right + at);
    if (unlike != 0) return difference(at);
  }
  at = byte_count - kBytes;
  unlike = Vector::unlike(left + at, right + at);
  return unlike != 0 ? difference(at) : byte_count;
}

[[gnu::always_inline]] inline void set_plainly(std::byte* target, std::byte value,
                                               std::size_t byte_count) {
  for (std::size_t i = 0; i < byte_count; ++i) target[i] = value;
}

enum class Stores : std::uint8_t { plain, prefetched, touching, nontemporal };

/// Fills through registers; stores at the ends are unaligned and overlap their neighbours.
template <typename Vector, Stores kStores>
void* set_with(void* begin, int value, std::size_t byte_count) noexcept {
  constexpr std::size_t kBytes = Vector::kBytes;
  auto* const target = static_cast<std::byte*>(begin);
  if (byte_count < kBytes) {
    set_plainly(target, static_cast<std::byte>(value), byte_count);
    return begin;
  }
  const std::uint64_t word = 0x0101010101010101U * static_cast<unsigned char>(value);
  const auto all = Vector::repeat(word, word);
  std::byte* const last = target + byte_count - kBytes;
  Vector::store(target, all);
  if (kBytes < kLine && byte_count >= 2 * kBytes) Vector::store(target + kBytes, all);
  // Aligned registers, except the last one, which is stored separately.
  std::byte* at = target + kLine - reinterpret_cast<std::uintptr_t>(target) % kLine;
  const auto left = [&] { return last - at; };
  for (; left() >= static_cast<std::ptrdiff_t>(kTurnBytes); at += kTurnBytes) {
    if constexpr (kStores == Stores::touching || kStores == Stores::nontemporal) {
      // Load the next page's translation (docs/concepts/copy.md).
      if (reinterpret_cast<std::uintptr_t>(at) % kPageBytes < kTurnBytes) {
        __builtin_prefetch(at + kPageBytes, kStores == Stores::touching ? 1 : 0,
                           kStores == Stores::touching ? 3 : 0);
      }
    }
    if constexpr (kStores == Stores::prefetched) {
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kTurnBytes; i += kLine) {
        __builtin_prefetch(at + kAheadBytes + i, 1);
      }
    }
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kTurnBytes; i += kBytes) {
      if constexpr (kStores == Stores::nontemporal) {
        Vector::stream(at + i, all);
      } else {
        Vector::store_aligned(at + i, all);
      }
    }
  }
  for (; left() > 0; at += kBytes) Vector::store_aligned(at, all);
  Vector::store(last, all);
  // As after a non-temporal copy: later stores of this thread become visible after the fill.
  if constexpr (kStores == Stores::nontemporal) Vector::fence();
  return begin;
}

}  // namespace headrace::copy::detail
