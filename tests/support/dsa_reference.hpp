// SPDX-License-Identifier: Apache-2.0
// Reference implementation of one DSA 1.0 descriptor: one byte, unit or block at a time, no slices,
// no vectors. Written from the architecture specification and from what clients expect,
// independently of emu/operation: two implementations of the same rules that must agree.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/dsa/descriptor.hpp"
#include "support/client_arena.hpp"

namespace headrace::test {

/// CRC of `width` bits, most significant bit first, one bit at a time.
[[nodiscard]] std::uint32_t crc_bits(std::uint32_t remainder, std::byte data, unsigned width,
                                     std::uint32_t polynomial);
[[nodiscard]] std::uint32_t reflect_bits(std::uint32_t value, unsigned width);
/// CRC-32C as the CRC opcodes define it with these descriptor flags.
[[nodiscard]] std::uint32_t reference_crc32c(std::uint32_t seed, std::span<const std::byte> data,
                                             std::uint32_t flags);
/// Guard of a block under these DIF flags.
[[nodiscard]] std::uint16_t reference_guard(std::span<const std::byte> data,
                                            std::uint8_t dif_flags);

/// Carries out a valid descriptor other than batch and drain. `faults`: how to handle absent bytes.
/// In the record, fields that the opcode does not define for this outcome are zero.
[[nodiscard]] dsa::CompletionRecord carry_out(const dsa::Descriptor& descriptor,
                                              emu::PageFaults faults, ClientArena& arena);

/// Bytes that a descriptor may write, besides its record.
struct Extent {
  emu::Address first = 0;
  std::uint64_t byte_count = 0;
  [[nodiscard]] bool holds(emu::Address address) const {
    return address >= first && address - first < byte_count;
  }
};
[[nodiscard]] std::vector<Extent> written_by(const dsa::Descriptor& descriptor);

// Flags that <linux/idxd.h> has no names for.
inline constexpr std::uint32_t kCrcReadSeed = 1U << 16U;
inline constexpr std::uint32_t kCrcBypassInversion = 1U << 17U;
inline constexpr std::uint32_t kCrcBypassDataReflection = 1U << 18U;
inline constexpr std::uint8_t kDifInvertSeed = 1U << 2U;
inline constexpr std::uint8_t kDifInvertResult = 1U << 3U;
inline constexpr std::uint8_t kDifAllFError = 1U << 0U;
inline constexpr std::uint8_t kDifAllF = 1U << 1U;
inline constexpr std::uint8_t kDifAppF = 1U << 2U;
inline constexpr std::uint8_t kDifAppRefF = 1U << 3U;
inline constexpr std::uint8_t kDifAppIncrements = 1U << 4U;
inline constexpr std::uint8_t kDifGuardUnchecked = 1U << 5U;  ///< Target: passed through.
inline constexpr std::uint8_t kDifRefUnchecked = 1U << 6U;    ///< Target: passed through.
inline constexpr std::uint8_t kDifRefFixed = 1U << 7U;
inline constexpr std::uint8_t kDifAppPassed = 1U << 3U;  ///< Target only.

inline constexpr std::uint64_t kDifBytes = 8;
[[nodiscard]] std::uint64_t dif_block_bytes(std::uint8_t dif_flags);

}  // namespace headrace::test
