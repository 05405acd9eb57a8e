// SPDX-License-Identifier: Apache-2.0
// Integrity fields: the four operations, their flags, and the results of checks.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "emu/operation/operation.hpp"
#include "emu/operation/rules.hpp"
#include "emu/platform/bytes.hpp"
#include "emu/platform/guarded.hpp"
#include "operands.hpp"

namespace headrace::emu {
namespace {

using dsa::Descriptor;
using dsa::Opcode;
using operands::address_of;
using operands::descriptor_of;
using operands::noise;
using operands::run;

constexpr std::size_t kBlockBytes[] = {512, 520, 4096, 4104};
constexpr std::size_t kBlocks = 5;

class DifTest : public ::testing::TestWithParam<std::uint8_t> {
 protected:
  DifTest() { guarded::install(); }

  [[nodiscard]] std::size_t block_bytes() const { return kBlockBytes[GetParam() & 3U]; }
  [[nodiscard]] std::size_t whole_bytes() const { return block_bytes() + 8; }

  // The data of all blocks with fields, as inserted with these flags.
  std::vector<std::byte> inserted(std::uint8_t target_flags) {
    std::vector<std::byte> target(kBlocks * whole_bytes());
    auto descriptor = descriptor_of(Opcode::dif_insert, address_of(data_.data()),
                                    address_of(target.data()), data_.size());
    descriptor.dif_ins_flags = GetParam();
    descriptor.dest_dif_flag = target_flags;
    descriptor.ins_ref_tag_seed = 0xfffffffe;
    descriptor.ins_app_tag_seed = 0x1234;
    descriptor.ins_app_tag_mask = 0x0030;
    const auto record = run(descriptor, 1000);
    EXPECT_EQ(record.status, DSA_COMP_SUCCESS);
    EXPECT_EQ(record.bytes_completed, 0U);
    const bool fixed = (target_flags & rules::kDifFixedRefTag) != 0;
    const bool step = (target_flags & rules::kDifIncrementAppTag) != 0;
    EXPECT_EQ(record.dif_ins_ref_tag, fixed ? 0xfffffffeU : 3U);
    EXPECT_EQ(record.dif_ins_app_tag, step ? 0x1234 + kBlocks : 0x1234);
    return target;
  }

  Descriptor check(const std::vector<std::byte>& source, std::uint8_t source_flags) {
    auto descriptor = descriptor_of(Opcode::dif_check, address_of(source.data()), 0, source.size());
    descriptor.dif_chk_flags = GetParam();
    descriptor.src_dif_flags = source_flags;
    descriptor.chk_ref_tag_seed = 0xfffffffe;
    descriptor.chk_app_tag_seed = 0x1234;
    descriptor.chk_app_tag_mask = 0x0030;
    return descriptor;
  }

  std::byte* field(std::vector<std::byte>& source, std::size_t block) {
    return source.data() + block * whole_bytes() + block_bytes();
  }

  std::vector<std::byte> data_ = noise(kBlocks * block_bytes());
};

// Block sizes with and without inversion of seed and result.
INSTANTIATE_TEST_SUITE_P(Blocks, DifTest,
                         ::testing::Values(0, 1, 2, 3, 0 | 4, 1 | 8, 2 | 12, 3 | 4));

TEST_P(DifTest, an_insert_lays_big_endian_fields_behind_the_blocks) {
  auto target = inserted(rules::kDifIncrementAppTag);
  for (std::size_t block = 0; block < kBlocks; ++block) {
    const std::byte* const data = data_.data() + block * block_bytes();
    EXPECT_EQ(std::memcmp(target.data() + block * whole_bytes(), data, block_bytes()), 0);
    const std::byte* const dif = field(target, block);
    std::uint32_t guard = (GetParam() & 4) != 0 ? 0xffff : 0;
    for (std::size_t index = 0; index < block_bytes(); ++index) {
      guard ^= std::to_integer<std::uint32_t>(data[index]) << 8;
      for (int bit = 0; bit < 8; ++bit) {
        guard = (guard << 1 ^ ((guard & 0x8000) != 0 ? 0x8bb7U : 0)) & 0xffff;
      }
    }
    if ((GetParam() & 8) != 0) guard = ~guard & 0xffff;
    EXPECT_EQ(bytes::load_big<std::uint16_t>(dif), guard);
    EXPECT_EQ(bytes::load_big<std::uint16_t>(dif + 2), (0x1234 + block) & 0xffcf);
    EXPECT_EQ(bytes::load_big<std::uint32_t>(dif + 4),
              0xfffffffe + static_cast<std::uint32_t>(block));
  }
}

TEST_P(DifTest, what_was_inserted_checks_and_strips_back) {
  for (const std::uint8_t flags : {std::uint8_t{0}, std::uint8_t{rules::kDifIncrementAppTag},
                                   std::uint8_t{rules::kDifFixedRefTag}}) {
    const auto source = inserted(flags);
    auto descriptor = check(source, flags);
    EXPECT_EQ(run(descriptor).status, DSA_COMP_SUCCESS);
    std::vector<std::byte> target(data_.size());
    descriptor.opcode = static_cast<std::uint8_t>(Opcode::dif_strip);
    descriptor.dst_addr = address_of(target.data());
    const auto record = run(descriptor, 1);
    EXPECT_EQ(record.status, DSA_COMP_SUCCESS);
    EXPECT_EQ(record.dif_status, 0);
    EXPECT_EQ(target, data_);
  }
}

TEST_P(DifTest, each_damage_is_told_by_its_bit_and_block_and_can_be_left_unchecked) {
  struct Damage {
    std::size_t byte;
    unsigned found;
    unsigned skip;
  };
  for (const auto& [byte, found, skip] :
       {Damage{0, rules::kDifBadGuard, rules::kDifSkipGuard}, Damage{2, rules::kDifBadAppTag, 0},
        Damage{7, rules::kDifBadRefTag, rules::kDifSkipRefTag}}) {
    auto source = inserted(0);
    field(source, 3)[byte] ^= std::byte{0x40};
    const auto record = run(check(source, 0));
    EXPECT_EQ(record.status, DSA_COMP_DIF_ERR);
    EXPECT_EQ(record.dif_status, found);
    EXPECT_EQ(record.bytes_completed, 3 * whole_bytes());
    EXPECT_EQ(record.dif_chk_ref_tag, 1U);
    if (skip != 0) {
      EXPECT_EQ(run(check(source, static_cast<std::uint8_t>(skip))).status, DSA_COMP_SUCCESS);
    }
  }
  auto source = inserted(0);
  source[0] ^= std::byte{1};
  field(source, 0)[7] ^= std::byte{1};
  EXPECT_EQ(run(check(source, 0)).dif_status, rules::kDifBadGuard | rules::kDifBadRefTag);
  auto masked = check(source, rules::kDifSkipGuard | rules::kDifSkipRefTag);
  masked.chk_app_tag_seed = 0xffff;
  masked.chk_app_tag_mask = 0xffff;
  EXPECT_EQ(run(masked).status, DSA_COMP_SUCCESS);
}

TEST_P(DifTest, a_field_of_ones_escapes_the_check_or_is_an_error_of_its_own) {
  const auto run_with = [&](std::size_t from, unsigned flags) {
    auto source = inserted(0);
    std::memset(field(source, 2) + from, 0xff, from == 2 ? 2 : 8 - from);
    if (from == 3) std::memset(field(source, 2) + 2, 0xff, 6);  // Both tags, not the guard.
    source[2 * whole_bytes()] ^= std::byte{1};
    return run(check(source, static_cast<std::uint8_t>(flags)));
  };
  EXPECT_EQ(run_with(0, 0).status, DSA_COMP_DIF_ERR);
  EXPECT_EQ(run_with(0, rules::kDifDetectAllOnes).status, DSA_COMP_SUCCESS);
  EXPECT_EQ(run_with(0, rules::kDifDetectBothTags).status, DSA_COMP_SUCCESS);
  EXPECT_EQ(run_with(0, rules::kDifDetectAppTag).status, DSA_COMP_SUCCESS);
  const auto record = run_with(0, rules::kDifDetectAllOnes | rules::kDifAllOnesIsError);
  EXPECT_EQ(record.status, DSA_COMP_DIF_ERR);
  EXPECT_EQ(record.dif_status, rules::kDifAllOnes);
  EXPECT_EQ(record.bytes_completed, 2 * whole_bytes());
  EXPECT_EQ(run_with(3, rules::kDifDetectAllOnes).status, DSA_COMP_DIF_ERR);
  EXPECT_EQ(run_with(3, rules::kDifDetectBothTags).status, DSA_COMP_SUCCESS);
  EXPECT_EQ(run_with(2, rules::kDifDetectBothTags).status, DSA_COMP_DIF_ERR);
  EXPECT_EQ(run_with(2, rules::kDifDetectAppTag).status, DSA_COMP_SUCCESS);
}

TEST_P(DifTest, an_update_makes_new_tags_and_lets_pass_what_it_is_told_to) {
  auto source = inserted(0);
  for (const unsigned pass :
       {0U, rules::kDifPassGuard, rules::kDifPassAppTag, rules::kDifPassRefTag}) {
    std::vector<std::byte> target(source.size());
    auto descriptor = descriptor_of(Opcode::dif_update, address_of(source.data()),
                                    address_of(target.data()), source.size());
    descriptor.dif_upd_flags = GetParam();
    descriptor.upd_dest_flags = static_cast<std::uint8_t>(pass | rules::kDifFixedRefTag);
    descriptor.src_ref_tag_seed = 0xfffffffe;
    descriptor.src_app_tag_seed = 0x1234;
    descriptor.src_app_tag_mask = 0x0030;
    descriptor.dest_ref_tag_seed = 77;
    descriptor.dest_app_tag_seed = 88;
    const auto record = run(descriptor);
    EXPECT_EQ(record.status, DSA_COMP_SUCCESS);
    EXPECT_EQ(record.dif_upd_src_ref_tag, 3U);
    EXPECT_EQ(record.dif_upd_dest_ref_tag, 77U);
    for (std::size_t block = 0; block < kBlocks; ++block) {
      std::byte* const old_field = field(source, block);
      std::byte* const new_field = field(target, block);
      EXPECT_EQ(bytes::load_big<std::uint16_t>(new_field),
                bytes::load_big<std::uint16_t>(old_field));
      EXPECT_EQ(bytes::load_big<std::uint16_t>(new_field + 2),
                pass == rules::kDifPassAppTag ? 0x1204 : 88);
      EXPECT_EQ(
          bytes::load_big<std::uint32_t>(new_field + 4),
          pass == rules::kDifPassRefTag ? bytes::load_big<std::uint32_t>(old_field + 4) : 77U);
    }
  }
}

}  // namespace
}  // namespace headrace::emu
