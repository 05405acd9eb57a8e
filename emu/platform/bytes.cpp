// SPDX-License-Identifier: Apache-2.0
#include "emu/platform/bytes.hpp"

#include <immintrin.h>

#include <array>

namespace headrace::emu::bytes {
namespace {

constexpr std::uint32_t kCastagnoliReflected = 0x82f63b78;
constexpr std::uint16_t kT10 = 0x8bb7;
constexpr std::size_t kSliceCount = 8;

// Entry [s][b]: the CRC of byte b followed by s zero bytes, to process eight bytes in one step.
template <typename T>
using Slices = std::array<std::array<T, 256>, kSliceCount>;

// Reflected: bit 0 first; otherwise the highest bit first.
template <typename T>
constexpr Slices<T> make_slices(T polynomial, bool reflected) {
  constexpr int kTop = sizeof(T) * 8 - 1;
  Slices<T> slices{};
  for (std::size_t byte = 0; byte < 256; ++byte) {
    auto value = static_cast<T>(reflected ? byte : byte << (kTop - 7));
    for (int bit = 0; bit < 8; ++bit) {
      const bool out = (value >> (reflected ? 0 : kTop) & 1U) != 0;
      value = static_cast<T>((reflected ? value >> 1 : value << 1) ^ (out ? polynomial : T{0}));
    }
    slices[0][byte] = value;
  }
  for (std::size_t slice = 1; slice < kSliceCount; ++slice) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const T value = slices[slice - 1][byte];
      slices[slice][byte] = static_cast<T>(reflected ? value >> 8 ^ slices[0][value & 0xffU]
                                                     : value << 8 ^ slices[0][value >> (kTop - 7)]);
    }
  }
  return slices;
}

constexpr auto kCastagnoliSlices = make_slices(kCastagnoliReflected, true);
constexpr auto kT10Slices = make_slices(kT10, false);

template <typename T>
std::size_t at(T value) {
  return static_cast<std::size_t>(value & 0xff);
}

[[gnu::target("sse4.2")]] std::uint32_t crc32c_by_instruction(
    std::uint32_t value, std::span<const std::byte> data) noexcept {
  std::uint64_t wide = value;
  const std::byte* from = data.data();
  std::size_t left = data.size();
  for (; left >= 8; left -= 8, from += 8) {
    wide = _mm_crc32_u64(wide, load_little<std::uint64_t>(from));
  }
  auto narrow = static_cast<std::uint32_t>(wide);
  for (; left > 0; --left, ++from) {
    narrow = _mm_crc32_u8(narrow, std::to_integer<std::uint8_t>(*from));
  }
  return narrow;
}

__m128i load_vector(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

}  // namespace

std::size_t first_difference(const std::byte* left, const std::byte* right,
                             std::size_t byte_count) noexcept {
  std::size_t index = 0;
  for (; index + 64 <= byte_count; index += 64) {
    const auto equal = [&](std::size_t offset) {
      return _mm_cmpeq_epi8(load_vector(left + index + offset),
                            load_vector(right + index + offset));
    };
    const __m128i all =
        _mm_and_si128(_mm_and_si128(equal(0), equal(16)), _mm_and_si128(equal(32), equal(48)));
    if (_mm_movemask_epi8(all) != 0xffff) break;
  }
  while (index < byte_count && left[index] == right[index]) ++index;
  return index;
}

void repeat(std::span<std::byte> target, std::span<const std::byte> pattern) noexcept {
  std::size_t from = 0;
  for (std::byte& byte : target) {
    byte = pattern[from];
    from = from + 1 == pattern.size() ? 0 : from + 1;
  }
}

void reverse_bits(std::span<std::byte> target) noexcept {
  for (std::byte& byte : target) {
    auto value = std::to_integer<unsigned>(byte);
    value = (value & 0x55U) << 1 | (value >> 1 & 0x55U);
    value = (value & 0x33U) << 2 | (value >> 2 & 0x33U);
    value = (value & 0x0fU) << 4 | value >> 4;
    byte = static_cast<std::byte>(value & 0xffU);
  }
}

std::uint32_t crc32c(std::uint32_t value, std::span<const std::byte> data) noexcept {
  __builtin_cpu_init();  // Programs submit before constructors have run.
  static const bool kInstruction = __builtin_cpu_supports("sse4.2") != 0;
  return kInstruction ? crc32c_by_instruction(value, data) : crc32c_by_table(value, data);
}

std::uint32_t crc32c_by_table(std::uint32_t value, std::span<const std::byte> data) noexcept {
  const auto& slices = kCastagnoliSlices;
  const std::byte* from = data.data();
  std::size_t left = data.size();
  for (; left >= 8; left -= 8, from += 8) {
    const std::uint64_t word = load_little<std::uint64_t>(from) ^ value;
    value = slices[7][at(word)] ^ slices[6][at(word >> 8)] ^ slices[5][at(word >> 16)] ^
            slices[4][at(word >> 24)] ^ slices[3][at(word >> 32)] ^ slices[2][at(word >> 40)] ^
            slices[1][at(word >> 48)] ^ slices[0][at(word >> 56)];
  }
  for (; left > 0; --left, ++from) {
    value = value >> 8 ^ slices[0][at(value ^ std::to_integer<std::uint32_t>(*from))];
  }
  return value;
}

std::uint16_t crc16_t10(std::uint16_t value, std::span<const std::byte> data) noexcept {
  const auto& slices = kT10Slices;
  const std::byte* from = data.data();
  std::size_t left = data.size();
  for (; left >= 8; left -= 8, from += 8) {
    // Only the first two bytes depend on the previous value; the others need not wait for it.
    const auto word = load_big<std::uint64_t>(from);
    const unsigned rest = slices[5][at(word >> 40)] ^ slices[4][at(word >> 32)] ^
                          slices[3][at(word >> 24)] ^ slices[2][at(word >> 16)] ^
                          slices[1][at(word >> 8)] ^ slices[0][at(word)];
    const std::uint64_t first = word >> 48 ^ value;
    value = static_cast<std::uint16_t>(slices[7][at(first >> 8)] ^ slices[6][at(first)] ^ rest);
  }
  for (; left > 0; --left, ++from) {
    const auto byte = std::to_integer<unsigned>(*from);
    value = static_cast<std::uint16_t>((unsigned{value} << 8 & 0xffffU) ^
                                       slices[0][(value >> 8 ^ byte) & 0xffU]);
  }
  return value;
}

}  // namespace headrace::emu::bytes
