// SPDX-License-Identifier: Apache-2.0
// Each operation without faults.
#include "emu/operation/operation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

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

constexpr std::size_t kSlices[] = {1, 7, 64, 4095, 1U << 20};

class OperationTest : public ::testing::Test {
 protected:
  OperationTest() { guarded::install(); }
};

TEST_F(OperationTest, a_noop_succeeds_and_touches_nothing) {
  const dsa::CompletionRecord record = run(descriptor_of(Opcode::noop, 1, 2, 3));
  EXPECT_EQ(record.status, DSA_COMP_SUCCESS);
  EXPECT_EQ(record.bytes_completed, 0U);
}

TEST_F(OperationTest, a_move_may_overlap_in_both_directions) {
  for (const std::ptrdiff_t distance : {-100, -3, -1, 0, 1, 3, 15, 16, 17, 100, 5000}) {
    for (const std::size_t slice : kSlices) {
      std::vector<std::byte> bytes = noise(12'000);
      auto expected = bytes;
      const auto target = static_cast<std::size_t>(200 + distance);
      std::memmove(&expected[target], &bytes[200], 3000);
      Operation operation(
          descriptor_of(Opcode::move, address_of(&bytes[200]), address_of(&bytes[target]), 3000),
          operands::kLimits);
      while (!operation.advance(process_memory(), slice)) {
      }
      EXPECT_EQ(operation.record().status, DSA_COMP_SUCCESS);
      EXPECT_EQ(operation.record().bytes_completed, 0U);
      EXPECT_EQ(operation.bytes_read(), 3000U);
      EXPECT_EQ(operation.bytes_written(), 3000U);
      EXPECT_EQ(bytes, expected) << distance << " " << slice;
    }
  }
}

TEST_F(OperationTest, a_fill_repeats_8_or_16_bytes_from_the_first_one_on) {
  for (const bool wide : {false, true}) {
    for (const std::size_t slice : kSlices) {
      std::vector<std::byte> target(9001);
      Descriptor descriptor =
          descriptor_of(Opcode::fill, 0x0807060504030201, address_of(&target[3]), 8990);
      for (std::uint8_t index = 0; index < 8; ++index) descriptor.op_specific[index] = 9 + index;
      if (wide) descriptor.flags |= rules::kFlagLongPattern;
      EXPECT_EQ(run(descriptor, slice).status, DSA_COMP_SUCCESS);
      for (std::size_t index = 0; index < target.size(); ++index) {
        const bool inside = index >= 3 && index < 8993;
        const std::size_t expected = inside ? (index - 3) % (wide ? 16 : 8) + 1 : 0;
        ASSERT_EQ(std::to_integer<std::size_t>(target[index]), expected) << index;
      }
    }
  }
}

TEST_F(OperationTest, a_comparison_tells_the_first_difference_wherever_it_is) {
  auto one = noise(5000);
  for (const std::size_t at : {0U, 1U, 63U, 64U, 4095U, 4096U, 4999U}) {
    auto other = one;
    other[at] ^= std::byte{0x10};
    if (at != 4999) other[4999] ^= std::byte{1};
    const auto descriptor =
        descriptor_of(Opcode::compare, address_of(one.data()), address_of(other.data()), 5000);
    for (const std::size_t slice : kSlices) {
      const auto record = run(descriptor, slice);
      EXPECT_EQ(record.status, DSA_COMP_SUCCESS);
      EXPECT_EQ(record.result, 1);
      EXPECT_EQ(record.bytes_completed, at);
    }
  }
  const auto copy = one;
  const auto record =
      run(descriptor_of(Opcode::compare, address_of(one.data()), address_of(copy.data()), 5000));
  EXPECT_EQ(record.status, DSA_COMP_SUCCESS);
  EXPECT_EQ(record.result, 0);
  EXPECT_EQ(record.bytes_completed, 0U);
}

TEST_F(OperationTest, a_pattern_is_compared_from_the_first_byte_on) {
  std::vector<std::byte> bytes(5001);
  for (std::size_t index = 0; index < 5000; ++index) {
    bytes[index + 1] = static_cast<std::byte>(index % 8 + 1);
  }
  for (const std::size_t slice : kSlices) {
    const auto descriptor =
        descriptor_of(Opcode::compare_pattern, address_of(&bytes[1]), 0x0807060504030201, 5000);
    EXPECT_EQ(run(descriptor, slice).result, 0);
    bytes[4500] = std::byte{0};
    const auto record = run(descriptor, slice);
    EXPECT_EQ(record.result, 1);
    EXPECT_EQ(record.bytes_completed, 4499U);
    bytes[4500] = static_cast<std::byte>(4499 % 8 + 1);
  }
}

TEST_F(OperationTest, an_unexpected_result_is_told_only_if_it_was_to_be_checked) {
  const auto one = noise(64);
  auto other = one;
  for (const bool differ : {false, true}) {
    other[5] = differ ? ~one[5] : one[5];
    for (const std::uint8_t expected : {std::uint8_t{0}, std::uint8_t{1}}) {
      auto descriptor =
          descriptor_of(Opcode::compare, address_of(one.data()), address_of(other.data()), 64);
      descriptor.expected_res = expected;
      EXPECT_EQ(run(descriptor).status, DSA_COMP_SUCCESS);
      descriptor.flags |= dsa::flag::check_result;
      EXPECT_EQ(run(descriptor).status,
                differ == (expected == 1) ? DSA_COMP_SUCCESS : DSA_COMP_SUCCESS_PRED);
      EXPECT_EQ(run(descriptor).result, differ ? 1 : 0);
    }
  }
}

TEST_F(OperationTest, a_dualcast_writes_both_targets) {
  const auto source = noise(10'000);
  std::vector<std::byte> targets(40'960);
  const std::size_t first = 4096 - address_of(targets.data()) % 4096 + 5;
  for (const std::size_t slice : kSlices) {
    std::fill(targets.begin(), targets.end(), std::byte{0});
    auto descriptor = descriptor_of(Opcode::dualcast, address_of(source.data()),
                                    address_of(&targets[first]), source.size());
    descriptor.dest2 = address_of(&targets[first + 16'384]);
    EXPECT_FALSE(refuse(descriptor, operands::kLimits, Origin::portal).has_value());
    EXPECT_EQ(run(descriptor, slice).status, DSA_COMP_SUCCESS);
    EXPECT_EQ(std::memcmp(&targets[first], source.data(), source.size()), 0);
    EXPECT_EQ(std::memcmp(&targets[first + 16'384], source.data(), source.size()), 0);
  }
}

class DeltaTest : public OperationTest {
 protected:
  static constexpr std::size_t kBytes = 8192;
  DeltaTest() : original_(noise(kBytes)), changed_(original_), record_(2 * kBytes) {
    for (const std::size_t unit : {0U, 1U, 77U, 255U, 256U, 511U, 1023U}) {
      changed_[unit * 8 + unit % 8] ^= std::byte{0xff};
    }
  }
  Descriptor create(std::size_t record_bytes) {
    auto descriptor = descriptor_of(Opcode::create_delta, address_of(original_.data()),
                                    address_of(changed_.data()), kBytes);
    descriptor.delta_addr = address_of(record_.data());
    descriptor.max_delta_size = static_cast<std::uint32_t>(record_bytes);
    return descriptor;
  }
  Descriptor apply(std::vector<std::byte>& target, std::uint32_t record_bytes) {
    auto descriptor = descriptor_of(Opcode::apply_delta, address_of(record_.data()),
                                    address_of(target.data()), kBytes);
    descriptor.delta_rec_size = record_bytes;
    return descriptor;
  }
  std::vector<std::byte> original_;
  std::vector<std::byte> changed_;
  std::vector<std::byte> record_;
};

TEST_F(DeltaTest, a_delta_turns_one_buffer_into_the_other) {
  for (const std::size_t slice : kSlices) {
    const auto record = run(create(record_.size()), slice);
    EXPECT_EQ(record.status, DSA_COMP_SUCCESS);
    EXPECT_EQ(record.result, 1);
    EXPECT_EQ(record.delta_rec_size, 70U);
    EXPECT_EQ(record.bytes_completed, 0U);
    auto target = original_;
    EXPECT_EQ(run(apply(target, record.delta_rec_size), slice).status, DSA_COMP_SUCCESS);
    EXPECT_EQ(target, changed_);
  }
}

TEST_F(DeltaTest, equal_buffers_make_an_empty_delta) {
  changed_ = original_;
  const auto record = run(create(80));
  EXPECT_EQ(record.result, 0);
  EXPECT_EQ(record.delta_rec_size, 0U);
}

TEST_F(DeltaTest, a_delta_that_does_not_fit_is_an_overflow_and_nothing_is_written_beyond) {
  for (std::size_t unit = 100; unit < 120; ++unit) changed_[unit * 8] ^= std::byte{1};
  std::fill(record_.begin(), record_.end(), std::byte{0xab});
  auto descriptor = create(85);
  const auto record = run(descriptor);
  EXPECT_EQ(record.status, DSA_COMP_SUCCESS);
  EXPECT_EQ(record.result, 2);
  EXPECT_EQ(record.delta_rec_size, 80U);
  EXPECT_EQ(record.bytes_completed, 105U * 8);
  EXPECT_TRUE(std::all_of(record_.begin() + 80, record_.end(),
                          [](std::byte byte) { return byte == std::byte{0xab}; }));
  descriptor.flags |= dsa::flag::check_result;
  descriptor.expected_res_mask = 0b011;
  EXPECT_EQ(run(descriptor).status, DSA_COMP_SUCCESS_PRED);
  descriptor.expected_res_mask = 0b100;
  EXPECT_EQ(run(descriptor).status, DSA_COMP_SUCCESS);
}

TEST_F(DeltaTest, offsets_that_do_not_increase_or_lie_outside_stop_the_application) {
  run(create(record_.size()));
  auto target = original_;
  bytes::store_little<std::uint16_t>(&record_[20], 1);
  auto record = run(apply(target, 70));
  EXPECT_EQ(record.status, DSA_COMP_DR_OFFSET_NOINC);
  bytes::store_little<std::uint16_t>(&record_[20], 1024);
  record = run(apply(target, 70));
  EXPECT_EQ(record.status, DSA_COMP_DR_OFFSET_ERANGE);
  EXPECT_EQ(std::memcmp(target.data() + 16, original_.data() + 16, kBytes - 16), 0);
}

TEST_F(OperationTest, a_cache_flush_changes_nothing) {
  auto bytes = noise(10'000);
  const auto before = bytes;
  EXPECT_EQ(run(descriptor_of(Opcode::cache_flush, 0, address_of(&bytes[7]), 9000)).status,
            DSA_COMP_SUCCESS);
  EXPECT_EQ(bytes, before);
}

// CRC in four variants, bit by bit, most significant first.
std::uint32_t plain_crc(std::uint32_t seed, std::span<const std::byte> data, std::uint32_t flags) {
  const auto reversed = [](std::uint32_t value, int bits) {
    std::uint32_t result = 0;
    for (int bit = 0; bit < bits; ++bit) result |= (value >> bit & 1) << (bits - 1 - bit);
    return result;
  };
  const bool bypass = (flags & rules::kFlagBypassInversion) != 0;
  std::uint32_t value = bypass ? seed : reversed(~seed, 32);
  for (const std::byte each : data) {
    auto byte = std::to_integer<std::uint32_t>(each);
    if ((flags & rules::kFlagBypassReflection) == 0) byte = reversed(byte, 8);
    value ^= byte << 24;
    for (int bit = 0; bit < 8; ++bit) value = value << 1 ^ (value >> 31 != 0 ? 0x1edc6f41U : 0);
  }
  return bypass ? value : ~reversed(value, 32);
}

TEST_F(OperationTest, a_crc_has_the_published_value) {
  const std::string_view text = "123456789";
  const auto record = run(descriptor_of(Opcode::crc, address_of(text.data()), 0, text.size()));
  EXPECT_EQ(record.status, DSA_COMP_SUCCESS);
  EXPECT_EQ(record.crc_val, 0xe3069283U);
}

TEST_F(OperationTest, a_crc_in_each_variant_is_that_of_plain_code_and_copies) {
  const auto source = noise(5003);
  alignas(4) const std::uint32_t seed = 0x12345678;
  for (const std::uint32_t variant : {0U, 1U, 2U, 3U}) {
    const std::uint32_t flags = variant << 17;
    for (const bool from_memory : {false, true}) {
      for (const std::size_t slice : kSlices) {
        std::vector<std::byte> target(source.size());
        auto descriptor = descriptor_of(Opcode::copy_crc, address_of(source.data()),
                                        address_of(target.data()), source.size());
        descriptor.flags =
            (flags | (from_memory ? rules::kFlagReadSeed : 0) | dsa::flag::block_on_fault) &
            0xffffffU;
        descriptor.crc_seed = from_memory ? 99 : seed;
        descriptor.seed_addr = address_of(&seed);
        const auto record = run(descriptor, slice);
        EXPECT_EQ(record.crc_val, plain_crc(seed, source, flags));
        EXPECT_EQ(target, source);
        descriptor.opcode = static_cast<std::uint8_t>(Opcode::crc);
        EXPECT_EQ(run(descriptor, slice).crc_val, record.crc_val);
      }
    }
  }
}

TEST(Bytes, the_checksums_by_table_are_those_by_instruction_and_bit_by_bit) {
  const auto data = noise(300);
  for (std::size_t byte_count = 0; byte_count <= data.size(); ++byte_count) {
    const auto part = std::span(data).first(byte_count);
    const std::uint32_t expected = ~plain_crc(5, part, 0);
    EXPECT_EQ(bytes::crc32c(~5U, part), expected);
    EXPECT_EQ(bytes::crc32c_by_table(~5U, part), expected);
    std::uint32_t guard = 0x1d0f;
    for (const std::byte each : part) {
      guard ^= std::to_integer<std::uint32_t>(each) << 8;
      for (int bit = 0; bit < 8; ++bit) {
        guard = (guard << 1 ^ ((guard & 0x8000) != 0 ? 0x8bb7U : 0)) & 0xffff;
      }
    }
    EXPECT_EQ(bytes::crc16_t10(0x1d0f, part), guard);
  }
}

}  // namespace
}  // namespace headrace::emu
