// SPDX-License-Identifier: Apache-2.0
// Compares every operation on a processor with the emulated device, which is independent of the
// engine: same bytes, same results, no access outside the operands. In both directions, whole and
// in parts, by one mover and by several.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "emu/operation/operation.hpp"
#include "engine/completions.hpp"
#include "engine/software/software.hpp"
#include "headrace/engine/engine.hpp"
#include "support/dsa_case.hpp"
#include "support/dsa_reference.hpp"
#include "support/guarded_buffer.hpp"
#include "support/operation_case.hpp"
#include "support/seed.hpp"
#include "unit/engine/fixtures.hpp"

namespace headrace::engine {
namespace {

using headrace::test::descriptor_of;
using headrace::test::Finding;
using headrace::test::finding_of;
using headrace::test::OperationCase;
using headrace::test::shown;

constexpr emu::Limits kLimits{
    .transfer_bytes_max = 1U << 30U, .batch_max = 32, .block_on_fault = true};

constexpr int kCaseCount = 114;  // Six of each order of magnitude.

/// The emulated device's record of `operation`, carried out in slices of any length.
dsa::CompletionRecord by_device(const Operation& operation, Random& random) {
  dsa::Descriptor descriptor = descriptor_of(operation);
  descriptor.flags |= dsa::flag::block_on_fault;  // All pages are present: no faults need handling.
  EXPECT_FALSE(emu::refuse(descriptor, kLimits, emu::Origin::portal)) << shown(operation);
  emu::Operation carried(descriptor, kLimits);
  while (!carried.advance(emu::process_memory(), 1 + random.below(200'000))) {
  }
  return carried.record();
}

/// The first byte that differs, or nothing.
std::string difference(const std::vector<std::byte>& got, const std::vector<std::byte>& expected) {
  const auto [one, other] = std::ranges::mismatch(got, expected);
  if (one == got.end()) return {};
  return fmt::format("byte {} of the memory is {:#x}, should be {:#x}", one - got.begin(),
                     std::to_integer<unsigned>(*one), std::to_integer<unsigned>(*other));
}

class EveryKind : public ::testing::TestWithParam<OperationKind> {
 protected:
  /// Calls `property` for cases of the kind, small and large ones in turn.
  template <typename Property>
  void check(const Property& property) {
    for (int i = 0; i < kCaseCount && !HasFailure(); ++i) {
      Random random(headrace::test::seed() + static_cast<std::uint64_t>(i));
      const std::size_t most = OperationCase::kBytesMax >> (18 - i % 19);
      OperationCase made(GetParam(), 1 + random.below(most), random);
      SCOPED_TRACE(fmt::format("case {}: {}", i, shown(made.operation())));
      property(made, random);
    }
  }
};

TEST_P(EveryKind, AProcessorDoesWhatADeviceDoes) {
  check([](OperationCase& made, Random& random) {
    const Operation& operation = made.operation();
    ASSERT_EQ(operation.validate(), Submit::accepted);
    const std::vector<std::byte> before = made.snapshot();
    const Finding got = finding_of(software::execute(operation));
    const std::vector<std::byte> after = made.snapshot();
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (before[i] != after[i]) {
        ASSERT_TRUE(made.is_target(i)) << "byte " << i << " of the memory was written";
      }
    }
    made.restore(before);
    const dsa::CompletionRecord record = by_device(operation, random);
    EXPECT_EQ(got, finding_of(operation.kind(), operation.byte_count(), record));
    EXPECT_EQ(difference(after, made.snapshot()), "");
  });
}

/// Where to cut: from the beginning to the end, at units.
std::vector<std::size_t> any_cuts(const Operation& operation, Random& random) {
  std::vector<std::size_t> cuts{0, operation.byte_count()};
  if (operation.cut_bytes() != 0) {
    const std::size_t units = operation.byte_count() / operation.cut_bytes();
    for (std::uint64_t i = random.below(8); i > 0; --i) {
      cuts.push_back(random.below(units + 1) * operation.cut_bytes());
    }
  }
  std::ranges::sort(cuts);
  const auto gone = std::ranges::unique(cuts);
  cuts.erase(gone.begin(), gone.end());
  return cuts;
}

TEST_P(EveryKind, PartsOneAfterTheOtherMakeTheWhole) {
  check([](OperationCase& made, Random& random) {
    const Operation& operation = made.operation();
    const std::vector<std::byte> before = made.snapshot();
    const Finding expected = finding_of(software::execute(operation));
    const std::vector<std::byte> after = made.snapshot();
    made.restore(before);
    const std::vector<std::size_t> cuts = any_cuts(operation, random);
    Completion whole;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      if (whole.cause != Cause::none || whole.result.different) break;
      const Operation part = operation.part(cuts[i], cuts[i + 1] - cuts[i], whole.result);
      if (part.kind() != OperationKind::create_delta) {
        ASSERT_EQ(part.validate(), Submit::accepted);
      }
      detail::append(whole, software::execute(part), cuts[i]);
    }
    EXPECT_EQ(finding_of(whole), expected);
    EXPECT_EQ(difference(made.snapshot(), after), "");
  });
}

TEST_P(EveryKind, IndependentPartsMakeTheWholeInAnyOrder) {
  check([](OperationCase& made, Random& random) {
    const Operation& operation = made.operation();
    if (!operation.has_independent_parts()) return;
    const std::vector<std::byte> before = made.snapshot();
    const Finding expected = finding_of(software::execute(operation));
    const std::vector<std::byte> after = made.snapshot();
    made.restore(before);
    const std::vector<std::size_t> cuts = any_cuts(operation, random);
    std::vector<std::size_t> order(cuts.size() - 1);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    std::vector<Completion> parts(order.size());
    for (const std::size_t i : order) {
      parts[i] = software::execute(operation.part(cuts[i], cuts[i + 1] - cuts[i]));
    }
    Completion whole;
    for (std::size_t i = 0; i < parts.size(); ++i) detail::append(whole, parts[i], cuts[i]);
    // Parts behind a difference were compared, too.
    if (!expected.result.different) {
      EXPECT_EQ(whole.bytes_done, expected.bytes_done);
    }
    EXPECT_EQ(whole.result, expected.result);
    EXPECT_EQ(difference(made.snapshot(), after), "");
  });
}

TEST_P(EveryKind, SeveralMoversDoWhatOneDoes) {
  test::PolledMover::Options options;
  options.info.operations = OperationSet::all();
  options.work = [](const Request& request) { return software::execute(request.operation()); };
  test::PolledMover::Options reversed = options;
  reversed.last_first = true;
  const auto engine = test::make_polled_engine(options, reversed, options, reversed, options);
  check([&](OperationCase& made, Random&) {
    const Operation& operation = made.operation();
    const std::vector<std::byte> before = made.snapshot();
    const Finding expected = finding_of(software::execute(operation));
    const std::vector<std::byte> after = made.snapshot();
    made.restore(before);
    Job job;
    ASSERT_EQ(engine->submit(job, operation), Submit::accepted);
    const Completion& got = job.wait();
    EXPECT_EQ(got.cause, expected.cause);
    EXPECT_EQ(got.result, expected.result);
    EXPECT_EQ(got.state, got.cause == Cause::none ? JobState::done : JobState::failed);
    if (!expected.result.different) {
      EXPECT_EQ(got.bytes_done, expected.bytes_done);
    }
    EXPECT_EQ(difference(made.snapshot(), after), "");
  });
}

INSTANTIATE_TEST_SUITE_P(OperationProperty, EveryKind,
                         ::testing::ValuesIn(headrace::test::kinds_with_operands().begin(),
                                             headrace::test::kinds_with_operands().end()),
                         [](const auto& kind) { return std::string(name(kind.param)); });

/// The operation equivalent to a descriptor has the result of the reference implementation
/// (tests/support/dsa_reference.hpp).
TEST(OperationProperty, EveryDescriptorHasAnOperationThatDoesTheSame) {
  const auto opcodes = headrace::test::operation_opcodes();
  for (std::size_t i = 0; i < opcodes.size() * 40 && !HasFailure(); ++i) {
    Random random(headrace::test::seed() + i);
    const dsa::Opcode opcode = opcodes[i % opcodes.size()];
    headrace::test::DsaCase made =
        headrace::test::make_case(opcode, 1 + random.below(1U << (i % 13)), random);
    // The same memory with the same phases, at addresses that exist.
    headrace::test::GuardedBuffer memory(made.arena.byte_count());
    std::ranges::copy(made.arena.bytes(), memory.bytes().begin());
    const auto at = [&](std::uint64_t address) {
      return memory.bytes().data() + (address - made.arena.base());
    };
    const Operation operation = headrace::test::operation_of(made.descriptor, at);
    const Submit valid = operation.validate();
    if (opcode == dsa::Opcode::move && valid == Submit::overlapping) continue;  // A device moves.
    SCOPED_TRACE(fmt::format("case {}: {}", i, shown(operation)));
    ASSERT_EQ(valid, Submit::accepted);
    const auto record =
        headrace::test::carry_out(made.descriptor, emu::PageFaults::report, made.arena);
    const Finding got = finding_of(software::execute(operation));
    Finding expected = finding_of(operation.kind(), operation.byte_count(), record);
    // The reference omits fields that a record does not define: tags after success.
    expected.result.source_tags = got.result.source_tags;
    expected.result.target_tags = got.result.target_tags;
    EXPECT_EQ(got, expected);
    // Behind an error a target may be partly written.
    if (got.cause == Cause::none) {
      EXPECT_TRUE(std::ranges::equal(memory.bytes(), made.arena.bytes()));
    }
  }
}

/// Spans anywhere in a few pages, often of equal length and at good addresses.
class Wild {
 public:
  explicit Wild(Random& random) : random_(random), length_(any_length()) {}
  std::span<std::byte> operator()() {
    if (random_.chance(1, 8)) length_ = any_length();
    constexpr std::array<std::size_t, 4> kAlignments{1, 8, 64, 4096};
    const std::size_t alignment = kAlignments.at(random_.below(kAlignments.size()));
    const std::size_t offset = random_.below(kRoom) / alignment * alignment;
    return {base() + offset, length_};
  }
  std::size_t length() const { return length_; }

 private:
  static constexpr std::size_t kRoom = 64U << 10U;
  /// Never accessed.
  static std::byte* base() { return reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40U); }
  std::size_t any_length() {
    constexpr std::array<std::size_t, 10> kLengths{0, 1, 8, 80, 100, 512, 520, 4112, 5200, 8320};
    return random_.chance(1, 16) ? kDeltaBytesMax + random_.below(2) * 8
                                 : kLengths.at(random_.below(kLengths.size()));
  }
  Random& random_;
  std::size_t length_;
};

Operation any_wild_operation(OperationKind kind, Random& random) {
  Wild span(random);
  const DifFormat format{.block = static_cast<DifBlock>(random.below(4))};
  const std::size_t block = block_bytes(format.block);
  // Targets of insert and strip have the matching length, except for an occasional error.
  const auto other_length = [&](std::size_t from, std::size_t to) {
    const std::span<std::byte> any = span();
    const std::size_t length = span.length() / from * to + (random.chance(1, 16) ? 1 : 0);
    return std::span(any.data(), length);
  };
  switch (kind) {
    case OperationKind::copy:
      return Operation::copy(span(), span());
    case OperationKind::fill:
      return Operation::fill(span(), random());
    case OperationKind::compare:
      return Operation::compare(span(), span());
    case OperationKind::compare_pattern:
      return Operation::compare_pattern(span(), random());
    case OperationKind::create_delta:
      return Operation::create_delta(span(), span(), span());
    case OperationKind::apply_delta:
      return Operation::apply_delta(span(), span());
    case OperationKind::dualcast:
      return Operation::dualcast(span(), span(), span());
    case OperationKind::crc:
      return Operation::crc(span());
    case OperationKind::copy_crc:
      return Operation::copy_crc(span(), span());
    case OperationKind::dif_check:
      return Operation::dif_check(span(), format, {});
    case OperationKind::dif_insert: {
      const std::span<std::byte> source = span();
      return Operation::dif_insert(other_length(block, block + 8), source, format, {});
    }
    case OperationKind::dif_strip: {
      const std::span<std::byte> source = span();
      return Operation::dif_strip(other_length(block + 8, block), source, format, {});
    }
    case OperationKind::dif_update:
      return Operation::dif_update(span(), span(), format, {}, {});
    case OperationKind::cache_flush:
      return Operation::cache_flush(span());
    case OperationKind::no_op:
    case OperationKind::drain:
      break;
  }
  return Operation::no_op();
}

TEST(OperationProperty, ChecksumsOfAllLengthsAndAlignmentsAreThoseOfTheReference) {
  constexpr std::size_t kBytesMax = 1100;
  Random random(headrace::test::seed());
  std::vector<std::byte> from(64 + kBytesMax);
  for (std::byte& each : from) each = static_cast<std::byte>(random());
  for (std::size_t start = 0; start < 64; ++start) {
    std::vector<std::byte> to(64 + kBytesMax + 1);
    const auto seed = static_cast<std::uint32_t>(random());
    std::uint32_t expected = seed;
    for (std::size_t length = 1; length <= kBytesMax; ++length) {
      const std::span source = std::span(from).subspan(start, length);
      const std::span target = std::span(to).subspan(random.below(64), length);
      expected = headrace::test::reference_crc32c(expected, source.last(1), 0);
      std::ranges::fill(to, std::byte{0});
      EXPECT_EQ(software::execute(Operation::crc(source, {.seed = seed})).result.crc, expected);
      const Completion copied =
          software::execute(Operation::copy_crc(target, source, {.seed = seed}));
      ASSERT_EQ(copied.result.crc, expected) << length << " bytes from " << start;
      ASSERT_TRUE(std::ranges::equal(source, target)) << length << " bytes from " << start;
      std::ranges::fill(target, std::byte{0});
      ASSERT_EQ(std::ranges::count(to, std::byte{0}), std::ssize(to)) << "bytes beside the target";
    }
  }
}

TEST(OperationProperty, WhatIsAcceptedIsWhatADeviceTakes) {
  std::size_t accepted_count = 0;
  std::size_t refused_count = 0;
  for (int i = 0; i < 40'000; ++i) {
    Random random(headrace::test::seed() + static_cast<std::uint64_t>(i));
    const auto kinds = headrace::test::kinds_with_operands();
    const Operation operation = any_wild_operation(kinds[random.below(kinds.size())], random);
    const Submit valid = operation.validate();
    const auto refused = emu::refuse(descriptor_of(operation), kLimits, emu::Origin::portal);
    if (valid == Submit::accepted) {
      ++accepted_count;
      ASSERT_FALSE(refused) << shown(operation) << " status " << unsigned{refused->status};
      continue;
    }
    // A descriptor has a single length, so it cannot have this error, except for the delta record.
    if (valid == Submit::length_differs) continue;
    // A device moves as memmove does; a job that is split among movers cannot.
    if (valid == Submit::overlapping && operation.kind() == OperationKind::copy) continue;
    ++refused_count;
    ASSERT_TRUE(refused) << shown(operation) << " is " << name(valid);
  }
  EXPECT_GT(accepted_count, 4000U);
  EXPECT_GT(refused_count, 4000U);
}

}  // namespace
}  // namespace headrace::engine
