// SPDX-License-Identifier: Apache-2.0
// Work on bytes that are ours (scratch of an engine, never a client's): compare, fill, checksums.
// Own routines, because another library of the process may have taken the C library's over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::emu::bytes {

/// Index of the first byte that differs, or `byte_count`.
[[nodiscard]] std::size_t first_difference(const std::byte* left, const std::byte* right,
                                           std::size_t byte_count) noexcept;
/// Repeats `pattern` (8 or 16 bytes) over `target`, from its first byte.
void repeat(std::span<std::byte> target, std::span<const std::byte> pattern) noexcept;
/// Turns each byte round, so that bit 7 becomes bit 0.
void reverse_bits(std::span<std::byte> target) noexcept;

/// Goes on with a CRC-32C (Castagnoli, 0x11edc6f41) in reflected form, without inversion before or
/// after. By the instruction of SSE 4.2 if this CPU has it, else by table.
[[nodiscard]] std::uint32_t crc32c(std::uint32_t value, std::span<const std::byte> data) noexcept;
/// By table, on every CPU.
[[nodiscard]] std::uint32_t crc32c_by_table(std::uint32_t value,
                                            std::span<const std::byte> data) noexcept;
/// Goes on with the CRC-16 of T10 (0x18bb7), the guard of an integrity field; not reflected.
[[nodiscard]] std::uint16_t crc16_t10(std::uint16_t value,
                                      std::span<const std::byte> data) noexcept;

// Little- and big-endian fields at any alignment.
template <typename T>
[[nodiscard]] T load_little(const std::byte* from) noexcept {
  T value = 0;
  for (std::size_t index = sizeof(T); index-- > 0;) {
    value = static_cast<T>(value << 8 | std::to_integer<T>(from[index]));
  }
  return value;
}
template <typename T>
void store_little(std::byte* to, T value) noexcept {
  for (std::size_t index = 0; index < sizeof(T); ++index) {
    to[index] = static_cast<std::byte>(value >> 8 * index & 0xff);
  }
}
template <typename T>
[[nodiscard]] T load_big(const std::byte* from) noexcept {
  T value = 0;
  for (std::size_t index = 0; index < sizeof(T); ++index) {
    value = static_cast<T>(value << 8 | std::to_integer<T>(from[index]));
  }
  return value;
}
template <typename T>
void store_big(std::byte* to, T value) noexcept {
  for (std::size_t index = 0; index < sizeof(T); ++index) {
    to[index] = static_cast<std::byte>(value >> 8 * (sizeof(T) - 1 - index) & 0xff);
  }
}

}  // namespace headrace::emu::bytes
