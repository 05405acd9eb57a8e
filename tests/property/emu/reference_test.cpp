// SPDX-License-Identifier: Apache-2.0
// Tests the reference: its checksums against published vectors and ISA-L, its opcodes against
// hand-computed examples.
#include <gtest/gtest.h>
#include <isa-l/crc.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "headrace/base/random.hpp"
#include "support/dsa_case.hpp"
#include "support/seed.hpp"

namespace headrace::test {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> bytes;
  for (const char letter : text) bytes.push_back(static_cast<std::byte>(letter));
  return bytes;
}
std::vector<std::byte> counted(int first, int step) {
  std::vector<std::byte> bytes;
  for (int i = 0; i < 32; ++i) bytes.push_back(static_cast<std::byte>(first + i * step));
  return bytes;
}

TEST(Reference, Crc32cGivesTheVectorsOfRfc3720) {
  EXPECT_EQ(reference_crc32c(0, counted(0, 0), 0), 0x8A9136AAU);
  EXPECT_EQ(reference_crc32c(0, counted(0xFF, 0), 0), 0x62A8AB43U);
  EXPECT_EQ(reference_crc32c(0, counted(0, 1), 0), 0x46DD794EU);
  EXPECT_EQ(reference_crc32c(0, counted(31, -1), 0), 0x113FDB5CU);
  EXPECT_EQ(reference_crc32c(0, bytes_of("123456789"), 0), 0xE3069283U);
}

TEST(Reference, GuardGivesThePublishedCheckValueOfT10Dif) {
  EXPECT_EQ(reference_guard(bytes_of("123456789"), 0), 0xD0DB);
  EXPECT_EQ(reference_guard(counted(0, 0), 0), 0);
}

TEST(Reference, ChecksumsAreIsaLs) {
  Random random(seed());
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> data(1 + random.below(5000));
    for (std::byte& value : data) value = static_cast<std::byte>(random());
    auto* const first = reinterpret_cast<unsigned char*>(data.data());
    const auto start = static_cast<std::uint32_t>(random());
    EXPECT_EQ(reference_crc32c(start, data, 0),
              ~crc32_iscsi(first, static_cast<int>(data.size()), ~start));
    EXPECT_EQ(reference_guard(data, 0), crc16_t10dif(0, first, data.size()));
    EXPECT_EQ(reference_guard(data, kDifInvertSeed), crc16_t10dif(0xFFFF, first, data.size()));
  }
}

TEST(Reference, AChecksumGoesOnFromItsOwnResult) {
  const auto whole = bytes_of("123456789");
  for (std::uint32_t flags = 0; flags < 4; ++flags) {
    const std::uint32_t crc_flags = flags << 17U;
    const std::uint32_t part = reference_crc32c(7, std::span(whole).first(4), crc_flags);
    EXPECT_EQ(reference_crc32c(part, std::span(whole).subspan(4), crc_flags),
              reference_crc32c(7, whole, crc_flags));
  }
}

TEST(Reference, AnAppliedDeltaTurnsTheFirstSourceIntoTheSecond) {
  Random random(seed());
  for (int round = 0; round < 200; ++round) {
    DsaCase made = make_case(dsa::Opcode::create_delta, 800, random);
    made.descriptor.flags = 0;
    const auto record = carry_out(made.descriptor, emu::PageFaults::report, made.arena);
    ASSERT_EQ(record.status, DSA_COMP_SUCCESS);
    const auto at = [&](emu::Address address, std::size_t byte_count) {
      return made.arena.bytes().subspan(address - made.arena.base(), byte_count);
    };
    const auto left = at(made.descriptor.src_addr, 800);
    const auto right = at(made.descriptor.src2_addr, 800);
    if (record.result == 0) {
      EXPECT_TRUE(std::ranges::equal(left, right));
      continue;
    }
    dsa::Descriptor apply{};
    apply.opcode = DSA_OPCODE_AP_DELTA;
    apply.src_addr = made.descriptor.delta_addr;
    apply.dst_addr = made.descriptor.src_addr;
    apply.xfer_size = made.descriptor.xfer_size;
    apply.delta_rec_size = record.delta_rec_size;
    made.arena.allow(apply.dst_addr, apply.xfer_size, ClientArena::Access::all);
    ASSERT_EQ(carry_out(apply, emu::PageFaults::report, made.arena).status, DSA_COMP_SUCCESS);
    const std::size_t through = record.result == 2 ? record.bytes_completed : 800;
    EXPECT_TRUE(std::ranges::equal(left.first(through), right.first(through)));
  }
}

TEST(Reference, WhatAnInsertionWroteACheckAccepts) {
  constexpr std::uint64_t kBase = 0x1000;
  ClientArena arena(kBase, 4096);
  dsa::Descriptor insert{};
  insert.opcode = DSA_OPCODE_DIF_INS;
  insert.src_addr = kBase;
  insert.dst_addr = kBase + 1024;
  insert.xfer_size = 1024;
  insert.ins_ref_tag_seed = 0x01020304;
  insert.ins_app_tag_seed = 0xABCD;
  EXPECT_EQ(carry_out(insert, emu::PageFaults::report, arena).status, DSA_COMP_SUCCESS);
  // Zeros have guard 0; tags are big-endian, and the reference tag counts blocks.
  const auto field = arena.bytes().subspan(1024 + 512 + 520, 8);
  EXPECT_EQ(field[2], std::byte{0xAB});
  EXPECT_EQ(field[3], std::byte{0xCD});
  EXPECT_EQ(field[4], std::byte{0x01});
  EXPECT_EQ(field[7], std::byte{0x05});
  dsa::Descriptor check{};
  check.opcode = DSA_OPCODE_DIF_CHECK;
  check.src_addr = insert.dst_addr;
  check.xfer_size = 1040;
  check.chk_ref_tag_seed = insert.ins_ref_tag_seed;
  check.chk_app_tag_seed = insert.ins_app_tag_seed;
  EXPECT_EQ(carry_out(check, emu::PageFaults::report, arena).status, DSA_COMP_SUCCESS);
  arena.bytes()[1024 + 520] ^= std::byte{1};
  const auto record = carry_out(check, emu::PageFaults::report, arena);
  EXPECT_EQ(record.status, DSA_COMP_DIF_ERR);
  EXPECT_EQ(record.dif_status, 0x01);
  EXPECT_EQ(record.bytes_completed, 520U);
}

}  // namespace
}  // namespace headrace::test
