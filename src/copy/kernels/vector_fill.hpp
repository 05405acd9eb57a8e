// SPDX-License-Identifier: Apache-2.0
// Filling through registers of one family; included only by the file of that family.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::copy::detail {

/// A pattern of 16 bytes, rotated by `phase` bytes.
struct Rotated {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
};
[[gnu::always_inline]] inline Rotated rotated(std::uint64_t low, std::uint64_t high,
                                              std::size_t phase) {
  if ((phase & 8U) != 0) {
    const std::uint64_t other = low;
    low = high;
    high = other;
  }
  const std::size_t bits = (phase & 7U) * 8;
  if (bits == 0) return {low, high};
  return {low >> bits | high << (64 - bits), high >> bits | low << (64 - bits)};
}

/// Fills at least one register. Stores at the ends are unaligned and overlap their neighbours.
template <typename Vector>
void fill_with(std::byte* target, std::size_t byte_count, std::uint64_t low, std::uint64_t high) {
  constexpr std::size_t kBytes = Vector::kBytes;
  std::byte* const end = target + byte_count;
  Vector::store(target, Vector::repeat(low, high));
  const std::size_t skipped = kBytes - reinterpret_cast<std::uintptr_t>(target) % kBytes;
  const Rotated middle = rotated(low, high, skipped % 16);
  const auto value = Vector::repeat(middle.low, middle.high);
  std::byte* at = target + skipped;
  for (; end - at >= static_cast<std::ptrdiff_t>(4 * kBytes); at += 4 * kBytes) {
    Vector::store_aligned(at, value);
    Vector::store_aligned(at + kBytes, value);
    Vector::store_aligned(at + 2 * kBytes, value);
    Vector::store_aligned(at + 3 * kBytes, value);
  }
  for (; end - at >= static_cast<std::ptrdiff_t>(kBytes); at += kBytes) {
    Vector::store_aligned(at, value);
  }
  const Rotated last = rotated(low, high, (byte_count - kBytes) % 16);
  Vector::store(end - kBytes, Vector::repeat(last.low, last.high));
}

}  // namespace headrace::copy::detail
