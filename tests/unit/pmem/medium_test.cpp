// SPDX-License-Identifier: Apache-2.0
#include "headrace/pmem/medium.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "headrace/base/random.hpp"
#include "headrace/platform/cpu.hpp"
#include "kernels/kernels.hpp"
#include "support/seed.hpp"

namespace headrace::pmem {
namespace {

constexpr std::size_t kPoolBytes = 2048;

struct alignas(kBlockBytes) Pool {
  std::array<std::byte, kPoolBytes> bytes{};
};

void fill(std::span<std::byte> bytes, Random& random) {
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
}

Medium medium_of(Granularity granularity) {
  return Medium({.granularity = granularity, .instruction = flush_instructions().back()});
}

struct Kernel {
  const char* name;
  detail::DigestLines digest;
};

std::vector<Kernel> kernels() {
  std::vector<Kernel> found{{"baseline", detail::digest_lines_baseline}};
  if (platform::cpu_features().avx2) {
    found.push_back({"avx2", detail::digest_lines_avx2});
  }
  if (platform::cpu_features().avx512) {
    found.push_back({"avx512", detail::digest_lines_avx512});
  }
  return found;
}

TEST(Kernels, CopyTheSameAndDigestTheSame) {
  Random random(test::seed());
  Pool source;
  fill(source.bytes, random);
  for (const Kernel& kernel : kernels()) {
    for (std::size_t line_count = 0; line_count <= 16; ++line_count) {
      const std::size_t shift = random.below(64);
      Pool target;
      std::array<std::uint64_t, 8> expected{};
      detail::digest_lines_baseline(nullptr, source.bytes.data() + shift, line_count,
                                    expected.data(), 3);
      std::array<std::uint64_t, 8> lanes{};
      kernel.digest(target.bytes.data(), source.bytes.data() + shift, line_count, lanes.data(), 3);
      EXPECT_EQ(lanes, expected) << kernel.name << " " << line_count;
      EXPECT_TRUE(std::equal(target.bytes.begin(), target.bytes.begin() + line_count * 64,
                             source.bytes.begin() + shift))
          << kernel.name << " " << line_count;
      EXPECT_TRUE(std::all_of(target.bytes.begin() + line_count * 64, target.bytes.end(),
                              [](std::byte byte) { return byte == std::byte{0}; }));
      lanes = {};
      kernel.digest(nullptr, source.bytes.data() + shift, line_count, lanes.data(), 3);
      EXPECT_EQ(lanes, expected) << kernel.name << " " << line_count;
      Pool plain;
      detail::stream_lines(plain.bytes.data(), source.bytes.data() + shift, line_count);
      EXPECT_EQ(plain.bytes, target.bytes) << kernel.name << " " << line_count;
    }
  }
}

TEST(Digest, DoesNotDependOnHowTheLinesArrive) {
  Random random(test::seed());
  Pool source;
  fill(source.bytes, random);
  Digest whole;
  digest_lines(source.bytes, whole);
  Digest parts;
  digest_lines(std::span(source.bytes).first(64), parts);
  digest_lines(std::span(source.bytes).subspan(64, 192), parts);
  digest_lines(std::span(source.bytes).subspan(256), parts);
  EXPECT_EQ(whole.value(1), parts.value(1));
  EXPECT_NE(whole.value(1), whole.value(2));
}

TEST(Digest, NoticesEveryBitAndEveryExchangeOfWords) {
  Random random(test::seed());
  Pool source;
  fill(source.bytes, random);
  const std::span<std::byte> lines = std::span(source.bytes).first(256);
  const auto value = [&] {
    Digest digest;
    digest_lines(lines, digest);
    return digest.value(7);
  };
  const std::uint64_t expected = value();
  for (std::size_t bit = 0; bit < lines.size() * 8; ++bit) {
    lines[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_NE(value(), expected) << bit;
    lines[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
  for (std::size_t a = 0; a < 32; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      std::swap_ranges(&lines[a * 8], &lines[a * 8] + 8, &lines[b * 8]);
      EXPECT_NE(value(), expected) << a << " " << b;
      std::swap_ranges(&lines[a * 8], &lines[a * 8] + 8, &lines[b * 8]);
    }
  }
  EXPECT_EQ(value(), expected);
}

TEST(Digest, TellsLinesOfZerosByTheirNumber) {
  const Pool zeros;
  Digest one;
  digest_lines(std::span(zeros.bytes).first(64), one);
  Digest two;
  digest_lines(std::span(zeros.bytes).first(128), two);
  EXPECT_NE(one.value(0), two.value(0));
}

TEST(Medium, CopiesEveryLengthToEveryPlaceInALineAndNothingElse) {
  Random random(test::seed());
  Pool source;
  fill(source.bytes, random);
  for (const Granularity granularity : {Granularity::byte, Granularity::line}) {
    Medium medium = medium_of(granularity);
    for (std::size_t start = 0; start < 65; ++start) {
      for (std::size_t byte_count = 0; byte_count < 300; byte_count += 1 + byte_count / 40) {
        Pool target;
        Pool expected;
        medium.copy(target.bytes.data() + start, std::span(source.bytes).subspan(5, byte_count));
        medium.drain();
        std::memcpy(expected.bytes.data() + start, source.bytes.data() + 5, byte_count);
        ASSERT_EQ(target.bytes, expected.bytes) << start << " " << byte_count;
      }
    }
  }
}

TEST(Medium, FillsEveryLengthAtEveryPlaceInALineAndNothingElse) {
  for (const Granularity granularity : {Granularity::byte, Granularity::line}) {
    Medium medium = medium_of(granularity);
    for (std::size_t start = 0; start < 65; ++start) {
      for (std::size_t byte_count = 0; byte_count < 1900; byte_count += 1 + byte_count / 20) {
        Pool target;
        Pool expected;
        medium.fill(target.bytes.data() + start, std::byte{0xa5}, byte_count);
        medium.drain();
        std::memset(expected.bytes.data() + start, 0xa5, byte_count);
        ASSERT_EQ(target.bytes, expected.bytes) << start << " " << byte_count;
      }
    }
  }
}

TEST(Medium, FlushesWithEveryInstructionThatTheProcessorHas) {
  for (const FlushInstruction instruction : flush_instructions()) {
    Medium medium({.granularity = Granularity::line, .instruction = instruction});
    Pool pool;
    std::uint64_t word = 0;
    medium.store_word(word, 42);
    medium.persist(&word, sizeof(word));
    medium.flush(pool.bytes.data() + 60, 8);
    medium.drain();
    EXPECT_EQ(word, 42U);
    EXPECT_EQ(medium.fault(), Fault::none);
  }
}

TEST(Medium, NamesAreReadAgain) {
  for (const auto each :
       {FlushInstruction::clflush, FlushInstruction::clflushopt, FlushInstruction::clwb}) {
    EXPECT_EQ(parse_name<FlushInstruction>(name(each), "flush instruction"), each);
  }
  for (const auto each : {Granularity::byte, Granularity::line, Granularity::page}) {
    EXPECT_EQ(parse_name<Granularity>(name(each), "granularity"), each);
  }
  const Result<Granularity> none = parse_name<Granularity>("sector", "granularity");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Code::invalid_argument);
  EXPECT_NE(none.error().message().find("byte, line, page"), std::string::npos);
}

}  // namespace
}  // namespace headrace::pmem
