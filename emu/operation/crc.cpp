// SPDX-License-Identifier: Apache-2.0
// CRC generation and copy with CRC: CRC-32C in four variants. One reflected register serves all,
// because an unreflected CRC is the bit-reversed reflected CRC of bit-reversed bytes.
#include <algorithm>

#include "emu/operation/operation.hpp"
#include "emu/operation/rules.hpp"
#include "emu/platform/bytes.hpp"

namespace headrace::emu {
namespace {

constexpr std::uint32_t reversed(std::uint32_t value) {
  value = (value & 0x55555555U) << 1 | (value >> 1 & 0x55555555U);
  value = (value & 0x33333333U) << 2 | (value >> 2 & 0x33333333U);
  value = (value & 0x0f0f0f0fU) << 4 | (value >> 4 & 0x0f0f0f0fU);
  return __builtin_bswap32(value);
}

// Converts between seed or result and register; its own inverse. [S] DML, crc.cpp
constexpr std::uint32_t turned(std::uint32_t value, std::uint32_t flags) {
  return (flags & rules::kFlagBypassInversion) != 0 ? reversed(value) : ~value;
}

}  // namespace

// The value so far: the seed of a descriptor for the rest.
std::uint32_t Operation::crc_value() const {
  if (begun_) return turned(crc_, descriptor_.flags);
  return (descriptor_.flags & rules::kFlagReadSeed) != 0 ? 0 : descriptor_.crc_seed;
}

bool Operation::crc_piece(Memory& memory, std::size_t byte_count_max) {
  if (!begun_) {
    std::uint32_t seed = descriptor_.crc_seed;
    if ((descriptor_.flags & rules::kFlagReadSeed) != 0) {
      std::array<std::byte, 4> bytes{};
      const Reach reach = read(memory, bytes, descriptor_.seed_addr);
      if (reach.fault) return fail(*reach.fault);
      seed = bytes::load_little<std::uint32_t>(bytes.data());
    }
    crc_ = turned(seed, descriptor_.flags);
    begun_ = true;
  }

  const std::size_t byte_count = std::min({left(), byte_count_max, kChunkBytes});
  const auto chunk = std::span(first_).first(byte_count);
  const Reach source = read(memory, chunk, descriptor_.src_addr + done_);
  Reach target{source.byte_count, std::nullopt};
  if (opcode() == dsa::Opcode::copy_crc) {
    target = write(memory, descriptor_.dst_addr + done_, chunk.first(source.byte_count));
  }
  // The CRC covers exactly the bytes done, so that the rest can continue from it.
  const auto done = chunk.first(target.byte_count);
  if ((descriptor_.flags & rules::kFlagBypassReflection) != 0) bytes::reverse_bits(done);
  crc_ = bytes::crc32c(crc_, done);
  done_ += done.size();
  return end_piece({target.fault, source.fault});
}

}  // namespace headrace::emu
