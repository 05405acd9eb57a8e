// SPDX-License-Identifier: Apache-2.0
// The recorder's model: counts the states that a crash can leave.
#include "headrace/pmem/recorder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <vector>

namespace headrace::pmem {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr std::size_t kBytes = 512;
using Words = std::array<std::uint64_t, kBytes / 8>;

/// A recorder on zeros, viewed as words, eight per line.
struct Stage {
  explicit Stage(Granularity granularity = Granularity::line)
      : recorder(std::vector<std::byte>(kBytes), granularity) {}

  std::uint64_t& word(std::size_t index) {
    return *reinterpret_cast<std::uint64_t*>(recorder.memory().data() + index * 8);
  }
  void store(std::size_t index, std::uint64_t value) { recorder.store_word(word(index), value); }
  void flush(std::size_t index, FlushInstruction instruction = FlushInstruction::clwb) {
    recorder.flush_with(instruction, &word(index), 8);
  }
  void stream_line(std::size_t line, std::uint64_t value) {
    std::array<std::uint64_t, 8> words;
    words.fill(value);
    recorder.stream(recorder.memory().data() + line * 64, std::as_bytes(std::span(words)));
  }
  /// Values of some words in every possible state after `mark` (0: at any time).
  std::multiset<std::vector<std::uint64_t>> states(const std::vector<std::size_t>& indices,
                                                   std::uint64_t mark = 0) {
    std::set<std::vector<std::uint64_t>> seen;
    result = explore(recorder, [&](std::span<std::byte> memory, std::uint64_t at) {
      if (at < mark) return std::string();
      Words words;
      std::memcpy(words.data(), memory.data(), kBytes);
      std::vector<std::uint64_t> values;
      for (const std::size_t index : indices) values.push_back(words[index]);
      seen.insert(values);
      return std::string();
    });
    return {seen.begin(), seen.end()};
  }
  Recorder recorder;
  Exploration result;
};

using State = std::vector<std::uint64_t>;

TEST(Explore, AStoreMayBeDurableOrNot) {
  Stage stage;
  stage.store(0, 1);
  EXPECT_THAT(stage.states({0}), UnorderedElementsAre(State{0}, State{1}));
  EXPECT_EQ(stage.result.states_tried, 2U);
}

TEST(Explore, StoresToOneLineAreDurableInTheirOrder) {
  Stage stage;
  stage.store(0, 1);
  stage.store(1, 1);
  EXPECT_THAT(stage.states({0, 1}), UnorderedElementsAre(State{0, 0}, State{1, 0}, State{1, 1}));
}

TEST(Explore, StoresToTwoLinesAreDurableInAnyOrder) {
  Stage stage;
  stage.store(0, 1);
  stage.store(8, 1);
  EXPECT_THAT(stage.states({0, 8}),
              UnorderedElementsAre(State{0, 0}, State{1, 0}, State{0, 1}, State{1, 1}));
}

TEST(Explore, AFlushWithoutAFenceIsNotEnough) {
  Stage stage;
  stage.store(0, 1);
  stage.flush(0);
  stage.recorder.mark(1);
  EXPECT_THAT(stage.states({0}, 1), UnorderedElementsAre(State{0}, State{1}));
}

TEST(Explore, AFlushAndAFenceAreEnough) {
  Stage stage;
  stage.store(0, 1);
  stage.flush(0, FlushInstruction::clflushopt);
  stage.recorder.drain();
  stage.recorder.mark(1);
  EXPECT_THAT(stage.states({0}, 1), UnorderedElementsAre(State{1}));
}

TEST(Explore, ClflushNeedsNoFence) {
  Stage stage;
  stage.store(0, 1);
  stage.flush(0, FlushInstruction::clflush);
  stage.recorder.mark(1);
  EXPECT_THAT(stage.states({0}, 1), UnorderedElementsAre(State{1}));
}

TEST(Explore, AFlushReachesOnlyWhatCameBeforeIt) {
  Stage stage;
  stage.store(0, 1);
  stage.flush(0);
  stage.store(1, 1);
  stage.recorder.drain();
  stage.recorder.mark(1);
  EXPECT_THAT(stage.states({0, 1}, 1), UnorderedElementsAre(State{1, 0}, State{1, 1}));
}

TEST(Explore, AFenceWithoutAFlushIsNotEnough) {
  Stage stage;
  stage.store(0, 1);
  stage.recorder.drain();
  stage.recorder.mark(1);
  EXPECT_THAT(stage.states({0}, 1), UnorderedElementsAre(State{0}, State{1}));
}

TEST(Explore, ANonTemporalLineIsTornAnyhowUntilTheFence) {
  Stage stage;
  stage.stream_line(0, 1);
  stage.recorder.drain();
  stage.recorder.mark(1);
  EXPECT_EQ(stage.states({0, 1, 2, 3, 4, 5, 6, 7}).size(), 256U);
  EXPECT_EQ(stage.result.moments_exhaustive, stage.result.moments);
  EXPECT_THAT(stage.states({0, 7}, 1), UnorderedElementsAre(State{1, 1}));
}

TEST(Explore, AFlushDoesNotReachANonTemporalStore) {
  Stage stage;
  stage.stream_line(0, 1);
  stage.flush(0, FlushInstruction::clflush);
  stage.recorder.mark(1);
  EXPECT_THAT(stage.states({0}, 1), UnorderedElementsAre(State{0}, State{1}));
}

TEST(Explore, AStoreOfSeveralWordsHasNoOrderWithin) {
  Stage stage;
  const std::array<std::uint64_t, 2> words{1, 1};
  stage.recorder.store(stage.recorder.memory().data(), std::as_bytes(std::span(words)));
  EXPECT_THAT(stage.states({0, 1}),
              UnorderedElementsAre(State{0, 0}, State{1, 0}, State{0, 1}, State{1, 1}));
}

TEST(Explore, EightAlignedBytesAreNotTornAndOthersAre) {
  Stage stage;
  const std::uint64_t value = 0x0101010101010101U;
  stage.recorder.store(stage.recorder.memory().data() + 4, std::as_bytes(std::span(&value, 1)));
  EXPECT_THAT(stage.states({0, 1}),
              UnorderedElementsAre(State{0, 0}, State{0x0101010100000000U, 0},
                                   State{0, 0x01010101U}, State{0x0101010100000000U, 0x01010101U}));
}

TEST(Explore, WithCachesThatAreSavedNothingHasToBeFlushed) {
  Stage stage(Granularity::byte);
  stage.store(0, 1);
  stage.store(8, 1);
  EXPECT_THAT(stage.states({0, 8}), UnorderedElementsAre(State{0, 0}, State{1, 0}, State{1, 1}));
  stage.stream_line(2, 1);
  stage.recorder.mark(1);
  EXPECT_EQ(stage.states({16, 17}, 1).size(), 4U);
}

TEST(Explore, AMomentWithTooManyStatesIsSampledAndSaysSo) {
  Stage stage;
  for (std::size_t line = 0; line < 8; ++line) stage.stream_line(line, 1);
  const Exploration result =
      explore(stage.recorder, [](std::span<std::byte>, std::uint64_t) { return std::string(); },
              {.states_per_moment_max = 1000, .seed = 3});
  EXPECT_EQ(result.moments, 1U);
  EXPECT_EQ(result.moments_exhaustive, 0U);
  EXPECT_GE(result.states_tried, 1000U);
  EXPECT_LT(result.states_tried, 1100U);
}

TEST(Explore, TheReportHasTheLostStoreAndNotTheInnocentOnes) {
  Stage stage;
  stage.recorder.phase("publish");
  stage.recorder.label("data");
  stage.store(0, 1);
  stage.recorder.label("other");
  stage.store(16, 1);
  stage.recorder.label("flag");
  stage.store(8, 1);
  const Exploration result =
      explore(stage.recorder, [](std::span<std::byte> memory, std::uint64_t) {
        Words words;
        std::memcpy(words.data(), memory.data(), kBytes);
        return words[8] == 1 && words[0] == 0 ? std::string("flag without data") : std::string();
      });
  ASSERT_TRUE(result.first_bad.has_value());
  ASSERT_EQ(result.first_bad->lost.size(), 1U);
  EXPECT_EQ(result.first_bad->lost[0].label, "publish: data");
  EXPECT_EQ(result.first_bad->lost[0].offset, 0U);
  EXPECT_THAT(result.first_bad->report(), HasSubstr("flag without data"));
  EXPECT_THAT(result.first_bad->report(), HasSubstr("lost: publish: data"));
  EXPECT_EQ(result.states_bad, 1U);
}

TEST(Explore, AStrongerPromiseIsAskedOfTheSameStates) {
  Stage stage;
  stage.store(0, 1);
  stage.recorder.mark(1);
  const Exploration result =
      explore(stage.recorder, [](std::span<std::byte> memory, std::uint64_t mark) {
        Words words;
        std::memcpy(words.data(), memory.data(), kBytes);
        return mark == 1 && words[0] == 0 ? std::string("lost") : std::string();
      });
  EXPECT_EQ(result.states_bad, 1U);
}

constexpr std::byte kValue{0xa5};

/// Explores every crash state before and after the mark: the bytes outside the range never change,
/// and after the mark all bytes inside are durable.
Exploration explore_range(const Recorder& recorder, std::size_t start, std::size_t byte_count) {
  return explore(recorder, [=](std::span<std::byte> memory, std::uint64_t mark) -> std::string {
    for (std::size_t i = 0; i < memory.size(); ++i) {
      const bool inside = i >= start && i < start + byte_count;
      if (memory[i] == (inside ? kValue : std::byte{0})) continue;
      if (!inside || mark == 1 || memory[i] != std::byte{0}) return "wrong";
    }
    return "";
  });
}

TEST(Recorder, CopiesAndFillsAreDurableAfterADrainAndNotBefore) {
  const std::vector<std::byte> source(kBytes, kValue);
  for (const std::size_t start : {std::size_t{0}, std::size_t{60}, std::size_t{64}}) {
    for (const std::size_t byte_count : {std::size_t{1}, std::size_t{70}, std::size_t{200}}) {
      for (const bool fills : {false, true}) {
        for (const bool drains : {false, true}) {
          Recorder recorder{std::vector<std::byte>(kBytes)};
          std::byte* const target = recorder.memory().data() + start;
          if (fills) {
            recorder.fill(target, kValue, byte_count);
          } else {
            recorder.copy(target, std::span(source).first(byte_count));
          }
          if (drains) recorder.drain();
          recorder.mark(1);
          EXPECT_EQ(explore_range(recorder, start, byte_count).states_bad == 0, drains)
              << start << ' ' << byte_count << ' ' << fills;
        }
      }
    }
  }
}

TEST(Recorder, LetsAnotherThreadTakeAStepAfterAnyEvent) {
  Stage stage;
  std::vector<std::size_t> seen;
  stage.recorder.interleave([&](std::size_t event) {
    seen.push_back(event);
    stage.store(8, event + 1);
  });
  stage.store(0, 1);
  stage.store(1, 1);
  EXPECT_EQ(seen, (std::vector<std::size_t>{0, 2}));
  EXPECT_EQ(stage.recorder.events().size(), 4U);
  EXPECT_EQ(stage.word(8), 3U);
}

TEST(Waste, FindsWhatWasForNothing) {
  Stage stage;
  stage.recorder.label("clean");
  stage.flush(0);
  stage.recorder.drain();
  stage.recorder.label("twice");
  stage.store(0, 1);
  stage.flush(0);
  stage.flush(0);
  stage.recorder.drain();
  stage.recorder.drain();
  for (std::size_t line = 4; line < 8; ++line) stage.stream_line(line, 1);
  stage.recorder.drain();
  const Waste waste = find_waste(stage.recorder);
  EXPECT_EQ(waste.clean_flushes, 2U);
  EXPECT_EQ(waste.needless_drains, 2U);
  EXPECT_EQ(waste.blocks, 2U);
  EXPECT_EQ(waste.partial_blocks, 1U);
  EXPECT_THAT(waste.details, Contains(HasSubstr("a clean line flushed: clean")));
}

}  // namespace
}  // namespace headrace::pmem
