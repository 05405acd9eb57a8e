// SPDX-License-Identifier: Apache-2.0
// CRC-32C, optionally with a copy, by crc_avx512.cpp and for the rest by ISA-L, whose functions use
// the reflected register without inversion. An unreflected CRC is the bit-reversed CRC of
// bit-reversed bytes, so one function serves all four variants.
#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "headrace/copy/copy.hpp"
#include "headrace/platform/cpu.hpp"
#include "software.hpp"

namespace headrace::engine::software {
namespace {

/// Bytes copied and summed at a time; stays in the L1 cache in between.
constexpr std::size_t kCopyBytes = 8192;
/// ISA-L takes the length as an int.
constexpr std::size_t kSumBytesMax = std::size_t{1} << 30U;
constexpr std::size_t kReverseBytes = 2048;

constexpr std::uint64_t reversed_in_bytes(std::uint64_t word) {
  word = (word & 0x5555555555555555U) << 1U | (word >> 1U & 0x5555555555555555U);
  word = (word & 0x3333333333333333U) << 2U | (word >> 2U & 0x3333333333333333U);
  return (word & 0x0f0f0f0f0f0f0f0fU) << 4U | (word >> 4U & 0x0f0f0f0f0f0f0f0fU);
}

constexpr std::uint32_t reversed(std::uint32_t word) {
  return __builtin_bswap32(static_cast<std::uint32_t>(reversed_in_bytes(word)));
}

/// Converts a seed or value to the register's form and back; its own inverse.
constexpr std::uint32_t turned(std::uint32_t value, bool raw) {
  return raw ? reversed(value) : ~value;
}

std::uint32_t sum(std::uint32_t state, std::span<const std::byte> bytes) {
  // ISA-L only reads, although the parameter is not const.
  auto* const data =
      const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
  return crc32_iscsi(data, static_cast<int>(bytes.size()), state);
}

std::uint32_t sum_reversed(std::uint32_t state, std::span<const std::byte> bytes) {
  std::array<std::byte, kReverseBytes> scratch{};
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), scratch.size());
    std::memcpy(scratch.data(), bytes.data(), count);
    for (std::size_t at = 0; at < count; at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, scratch.data() + at, sizeof word);
      word = reversed_in_bytes(word);
      std::memcpy(scratch.data() + at, &word, sizeof word);
    }
    state = sum(state, std::span(scratch).first(count));
    bytes = bytes.subspan(count);
  }
  return state;
}

}  // namespace

Completion crc(const Operation& operation) noexcept {
  const CrcOptions options = operation.crc_options();
  const std::span<const std::byte> source = operation.source();
  const bool copies = operation.kind() == OperationKind::copy_crc;
  const std::size_t chunk_max = copies ? kCopyBytes : kSumBytesMax;
  std::uint32_t state = turned(options.seed, options.raw);
  std::size_t at = 0;
  if (options.reflect_data && source.size() >= kFoldBytes && platform::cpu_features().vpclmulqdq) {
    at = source.size() / kFoldBytes * kFoldBytes;
    state = sum_avx512(state, operation.target().data(), source.first(at));
  }
  while (at < source.size()) {
    const std::size_t count = std::min(chunk_max, source.size() - at);
    const std::span<const std::byte> chunk = source.subspan(at, count);
    state = options.reflect_data ? sum(state, chunk) : sum_reversed(state, chunk);
    if (copies) copy::copy_bytes(operation.target().subspan(at, count), chunk);
    at += count;
  }
  Completion outcome{.bytes_done = source.size()};
  outcome.result.crc = turned(state, options.raw);
  return outcome;
}

}  // namespace headrace::engine::software
