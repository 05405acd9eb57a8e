// SPDX-License-Identifier: Apache-2.0
// Byte operations on engine scratch (never client memory): compare, fill, checksums. Does not call
// the C library, whose functions another library of the process may have replaced.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::emu::bytes {

/// Index of the first byte that differs, or `byte_count`.
[[nodiscard]] std::size_t first_difference(const std::byte* left, const std::byte* right,
                                           std::size_t byte_count) noexcept;
/// Repeats `pattern` (8 or 16 bytes) over `target`, from its first byte.
void repeat(std::span<std::byte> target, std::span<const std::byte> pattern) noexcept;
/// Reverses the bits of each byte.
void reverse_bits(std::span<std::byte> target) noexcept;

/// Continues a CRC-32C (Castagnoli, 0x11edc6f41) in reflected form, without inversion before or
/// after. Uses the SSE 4.2 instruction if available, else a table.
[[nodiscard]] std::uint32_t crc32c(std::uint32_t value, std::span<const std::byte> data) noexcept;
/// Table only, on every CPU.
[[nodiscard]] std::uint32_t crc32c_by_table(std::uint32_t value,
                                            std::span<const std::byte> data) noexcept;
/// Continues the CRC-16 of T10 (0x18bb7), the guard of an integrity field; not reflected.
[[nodiscard]] std::uint16_t crc16_t10(std::uint16_t value,
                                      std::span<const std::byte> data) noexcept;

// Little- and big-endian fields at any alignment. Built-in copies of constant size compile to
// moves, not calls.
template <std::unsigned_integral T>
[[nodiscard]] T turned(T value) noexcept {
  if constexpr (sizeof(T) == 2) return __builtin_bswap16(value);
  if constexpr (sizeof(T) == 4) return __builtin_bswap32(value);
  if constexpr (sizeof(T) == 8) return __builtin_bswap64(value);
}
template <std::unsigned_integral T>
[[nodiscard]] T load_little(const std::byte* from) noexcept {
  T value;
  __builtin_memcpy(&value, from, sizeof value);
  return std::endian::native == std::endian::little ? value : turned(value);
}
template <std::unsigned_integral T>
void store_little(std::byte* to, T value) noexcept {
  if constexpr (std::endian::native != std::endian::little) value = turned(value);
  __builtin_memcpy(to, &value, sizeof value);
}
template <std::unsigned_integral T>
[[nodiscard]] T load_big(const std::byte* from) noexcept {
  return turned(load_little<T>(from));
}
template <std::unsigned_integral T>
void store_big(std::byte* to, T value) noexcept {
  store_little(to, turned(value));
}

}  // namespace headrace::emu::bytes
