// SPDX-License-Identifier: Apache-2.0
// Compares the device's checksums, through descriptors, with ISA-L and published vectors,
// independently of our implementation and our reference.
#include <gtest/gtest.h>
#include <isa-l/crc.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "emu/operation/operation.hpp"
#include "support/dsa_reference.hpp"

namespace headrace::emu::checksum_property_test {
namespace {

using test::ClientArena;

constexpr Address kSource = 0x10'0000;
constexpr Address kTarget = 0x20'0000;
constexpr Limits kLimits{.transfer_bytes_max = 1U << 21U, .batch_max = 32};

std::vector<std::byte> any_bytes(std::size_t count_max) {
  const auto count = *rc::gen::inRange<std::size_t>(1, count_max);
  const auto numbers =
      *rc::gen::container<std::vector<std::uint8_t>>(count, rc::gen::arbitrary<std::uint8_t>());
  std::vector<std::byte> bytes(count);
  std::memcpy(bytes.data(), numbers.data(), count);
  return bytes;
}

dsa::CompletionRecord carry_out(const dsa::Descriptor& descriptor, ClientArena& arena) {
  EXPECT_FALSE(refuse(descriptor, kLimits, Origin::portal));
  Operation operation(descriptor, kLimits);
  while (!operation.advance(arena, 777)) {
  }
  EXPECT_EQ(operation.record().status, DSA_COMP_SUCCESS);
  return operation.record();
}

std::uint32_t crc_by_device(const std::vector<std::byte>& data, std::uint32_t seed,
                            std::uint32_t flags) {
  ClientArena arena(kSource, data.size());
  std::memcpy(arena.bytes().data(), data.data(), data.size());
  dsa::Descriptor descriptor{};
  descriptor.opcode = DSA_OPCODE_CRCGEN;
  descriptor.flags = flags & 0xFFFFFFU;
  descriptor.src_addr = kSource;
  descriptor.xfer_size = static_cast<std::uint32_t>(data.size());
  descriptor.crc_seed = seed;
  return static_cast<std::uint32_t>(carry_out(descriptor, arena).crc_val);
}

std::uint32_t crc_by_isal(std::vector<std::byte> data, std::uint32_t seed) {
  return crc32_iscsi(reinterpret_cast<unsigned char*>(data.data()), static_cast<int>(data.size()),
                     seed);
}

TEST(Checksum, Crc32cGivesTheVectorsOfRfc3720) {
  std::vector<std::byte> up;
  std::vector<std::byte> down;
  for (int i = 0; i < 32; ++i) {
    up.push_back(static_cast<std::byte>(i));
    down.push_back(static_cast<std::byte>(31 - i));
  }
  EXPECT_EQ(crc_by_device(std::vector<std::byte>(32), 0, 0), 0x8A9136AAU);
  EXPECT_EQ(crc_by_device(std::vector<std::byte>(32, std::byte{0xFF}), 0, 0), 0x62A8AB43U);
  EXPECT_EQ(crc_by_device(up, 0, 0), 0x46DD794EU);
  EXPECT_EQ(crc_by_device(down, 0, 0), 0x113FDB5CU);
}

RC_GTEST_PROP(Checksum, Crc32cIsIsaLs, ()) {
  const auto data = any_bytes(3000);
  const auto seed = *rc::gen::arbitrary<std::uint32_t>();
  RC_ASSERT(crc_by_device(data, seed, 0) == ~crc_by_isal(data, ~seed));
}

RC_GTEST_PROP(Checksum, Crc32cWithoutInversionIsIsaLsReflected, ()) {
  const auto data = any_bytes(3000);
  const auto seed = *rc::gen::arbitrary<std::uint32_t>();
  RC_ASSERT(crc_by_device(data, seed, test::kCrcBypassInversion) ==
            test::reflect_bits(crc_by_isal(data, test::reflect_bits(seed, 32)), 32));
}

RC_GTEST_PROP(Checksum, Crc32cWithoutDataReflectionIsIsaLsOfReflectedBytes, ()) {
  const auto data = any_bytes(3000);
  auto reflected = data;
  for (std::byte& value : reflected) {
    value = static_cast<std::byte>(test::reflect_bits(std::to_integer<std::uint32_t>(value), 8));
  }
  const auto seed = *rc::gen::arbitrary<std::uint32_t>();
  RC_ASSERT(crc_by_device(data, seed, test::kCrcBypassDataReflection) ==
            ~crc_by_isal(reflected, ~seed));
}

RC_GTEST_PROP(Checksum, AnInsertedGuardIsIsaLs, ()) {
  dsa::Descriptor descriptor{};
  descriptor.opcode = DSA_OPCODE_DIF_INS;
  descriptor.dif_ins_flags = *rc::gen::inRange<std::uint8_t>(0, 16);
  const std::uint64_t block_bytes = test::dif_block_bytes(descriptor.dif_ins_flags);
  descriptor.src_addr = kSource;
  descriptor.dst_addr = kTarget;
  descriptor.xfer_size = static_cast<std::uint32_t>(block_bytes);
  ClientArena arena(kSource, kTarget - kSource + 8192);
  auto data = any_bytes(400);
  for (std::size_t i = 0; i < block_bytes; ++i) arena.bytes()[i] = data[i % data.size()];
  static_cast<void>(carry_out(descriptor, arena));
  const auto field = arena.bytes().subspan(kTarget - kSource + block_bytes, 2);
  const auto guard =
      std::to_integer<std::uint16_t>(field[0]) * 256U + std::to_integer<std::uint16_t>(field[1]);
  const std::uint16_t start = (descriptor.dif_ins_flags & test::kDifInvertSeed) != 0 ? 0xFFFF : 0;
  std::uint16_t expected =
      crc16_t10dif(start, reinterpret_cast<unsigned char*>(arena.bytes().data()), block_bytes);
  if ((descriptor.dif_ins_flags & test::kDifInvertResult) != 0) {
    expected = static_cast<std::uint16_t>(~expected);
  }
  RC_ASSERT(guard == expected);
}

}  // namespace
}  // namespace headrace::emu::checksum_property_test
