// SPDX-License-Identifier: Apache-2.0
// The meter: which copies its subjects make, and what it refuses. Not for speed.
#include "headrace/lab/meter.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <vector>

#include "headrace/base/atomic.hpp"
#include "headrace/platform/thread.hpp"
#include "support/watchdog.hpp"

namespace headrace::copy::lab {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kPoolBytes = std::size_t{1} << 20U;

struct Call {
  const void* target;
  const void* source;
  std::size_t byte_count;
};
std::vector<Call> calls;
Atomic<int> call_count{0};

void* recording_move(void* target, const void* source, std::size_t byte_count) noexcept {
  if (byte_count != 0) calls.push_back({target, source, byte_count});
  return std::memmove(target, source, byte_count);
}
void* counting_move(void* target, const void* source, std::size_t byte_count) noexcept {
  call_count.fetch_add_relaxed(1);  // Relaxed: read after the threads have ended.
  return std::memmove(target, source, byte_count);
}
void* forgetful_move(void* target, const void* /*source*/, std::size_t /*byte_count*/) noexcept {
  return target;
}

Meter meter() {
  auto made = Meter::make({.pool_bytes = kPoolBytes, .last_level_bytes = kPoolBytes / 8});
  EXPECT_TRUE(made.has_value());
  return std::move(*made);
}

std::vector<Call> calls_under(const Conditions& conditions) {
  calls.clear();
  const Move subject = &recording_move;
  const auto times_ns = meter().measure_round(std::span(&subject, 1), conditions);
  EXPECT_TRUE(times_ns.has_value()) << times_ns.error().message();
  EXPECT_EQ(times_ns->size(), 1U);
  return calls;
}

std::size_t place_count(const std::vector<Call>& all) {
  std::set<const void*> places;
  for (const Call& call : all) places.insert(call.source);
  return places.size();
}

bool is_at_page(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 4096 == 0;
}

TEST(Meter, HotCopiesStayAtOnePlace) {
  const auto all = calls_under({.bytes_min = 4096, .bytes_max = 4096});
  EXPECT_GT(all.size(), 100U);
  EXPECT_EQ(place_count(all), 1U);
}

TEST(Meter, ColdCopiesVisitAllPlacesBeforeOneAgain) {
  const auto all =
      calls_under({.bytes_min = 4096, .bytes_max = 4096, .temperature = Temperature::cold});
  EXPECT_EQ(place_count(all), all.size());
}

TEST(Meter, LastLevelCopiesStayInASmallerRegion) {
  const auto all =
      calls_under({.bytes_min = 256, .bytes_max = 256, .temperature = Temperature::last_level});
  const auto [low, high] = std::ranges::minmax(all, {}, &Call::source);
  EXPECT_LT(static_cast<const std::byte*>(high.source) - static_cast<const std::byte*>(low.source),
            static_cast<std::ptrdiff_t>(kPoolBytes / 16));
  EXPECT_GT(place_count(all), 10U);
}

TEST(Meter, AlignedCopiesBeginAtPages) {
  for (const Call& call :
       calls_under({.bytes_min = 4096, .bytes_max = 4096, .temperature = Temperature::cold})) {
    EXPECT_TRUE(is_at_page(call.source) && is_at_page(call.target));
  }
}

TEST(Meter, OtherCopiesBeginAnywhereAndLengthsAreOfTheWholeRange) {
  const auto all = calls_under(
      {.bytes_min = 513, .bytes_max = 1024, .temperature = Temperature::cold, .aligned = false});
  std::set<std::uintptr_t> alignments;
  std::set<std::size_t> lengths;
  for (const Call& call : all) {
    EXPECT_TRUE(call.byte_count >= 513 && call.byte_count <= 1024) << call.byte_count;
    alignments.insert(reinterpret_cast<std::uintptr_t>(call.target) % 64);
    lengths.insert(call.byte_count);
  }
  EXPECT_GT(alignments.size(), 40U);
  EXPECT_GT(lengths.size(), 100U);
}

TEST(Meter, SubjectsCopyTheSameLengthsInOtherOrders) {
  calls.clear();
  const std::vector<Move> subjects(2, &recording_move);
  const auto times_ns = meter().measure_round(
      subjects,
      {.bytes_min = 1, .bytes_max = 256, .temperature = Temperature::cold, .aligned = false});
  ASSERT_TRUE(times_ns.has_value()) << times_ns.error().message();
  ASSERT_EQ(calls.size() % 2, 0U);
  std::vector<std::size_t> first;
  for (const Call& call : calls) first.push_back(call.byte_count);
  const auto middle = first.begin() + static_cast<std::ptrdiff_t>(first.size() / 2);
  std::vector<std::size_t> second(middle, first.end());
  first.erase(middle, first.end());
  EXPECT_NE(first, second);
  std::ranges::sort(first);
  std::ranges::sort(second);
  EXPECT_EQ(first, second);
}

TEST(Meter, EverySubjectCopiesInEveryThread) {
  const std::vector<Move> subjects(3, &counting_move);
  Meter measuring = meter();
  for (std::size_t threads = 1; threads <= 2; ++threads) {
    call_count.store_relaxed(0);
    const auto times_ns = measuring.measure_round(
        subjects, {.bytes_min = 8192, .bytes_max = 8192, .thread_count = threads});
    if (!times_ns) GTEST_SKIP() << times_ns.error().message();
    EXPECT_EQ(times_ns->size(), 3U);
    // A batch, and the untimed copy.
    EXPECT_EQ(call_count.load_relaxed() % static_cast<int>(3 * threads), 0);
    EXPECT_GT(call_count.load_relaxed(), static_cast<int>(3 * threads));
  }
}

TEST(Meter, ASubjectThatCopiesWronglyIsFound) {
  const std::vector<Move> subjects = {libc_move(), &forgetful_move, libc_move()};
  for (const auto temperature : {Temperature::hot, Temperature::cold}) {
    const auto times_ns = meter().measure_round(
        subjects, {.bytes_min = 300, .bytes_max = 300, .temperature = temperature});
    ASSERT_FALSE(times_ns.has_value());
    EXPECT_EQ(times_ns.error().code, Code::corrupt_data);
    EXPECT_THAT(times_ns.error().message(), HasSubstr("subject 1 copied wrongly"));
  }
}

TEST(Meter, WhatTellsMemoryFromCachesIsInOrder) {
  // With pools that fit the caches the result is nothing, or random.
  Meter measuring = meter();
  for (int i = 0; i < 10; ++i) {
    if (const auto probe = measuring.find_cold_probe()) {
      EXPECT_GT(probe->ticks_min, 0U);
      EXPECT_LT(probe->ticks_min, probe->ticks_max);
    }
  }
}

TEST(Meter, WhereTicksAreForbiddenMemoryIsNotToldFromCaches) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Meter measuring = meter();
        if (::prctl(PR_SET_TSC, PR_TSC_SIGSEGV) != 0) std::_Exit(2);
        std::_Exit(measuring.find_cold_probe() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(Meter, WhatCannotBeMeasuredIsRefused) {
  const Move subject = libc_move();
  Meter measuring = meter();
  for (const Conditions& wrong :
       {Conditions{.bytes_min = 0, .bytes_max = 64}, Conditions{.bytes_min = 65, .bytes_max = 64},
        Conditions{.bytes_min = kPoolBytes + 1, .bytes_max = kPoolBytes + 1},
        Conditions{.bytes_min = 64, .bytes_max = 64, .thread_count = 0},
        Conditions{.bytes_min = 64, .bytes_max = 64, .thread_count = 1U << 20U}}) {
    const auto times_ns = measuring.measure_round(std::span(&subject, 1), wrong);
    ASSERT_FALSE(times_ns.has_value());
    EXPECT_EQ(times_ns.error().code, Code::invalid_argument);
  }
  EXPECT_FALSE(Meter::make({}).has_value());
}

TEST(Meter, ThreadsThatTheSystemDoesNotGiveAreAnErrorAndNoHang) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer takes address space for each thread, which is limited here";
#endif
  if (platform::allowed_cpus().size() < 2) GTEST_SKIP() << "needs two processors";
  test::expect_ends([] {
    Meter made = meter();
    // Room for one thread's stack but not for two.
    constexpr std::size_t kStackBytes = std::size_t{1} << 30U;
    pthread_attr_t attributes;
    ASSERT_EQ(::pthread_attr_init(&attributes), 0);
    ASSERT_EQ(::pthread_attr_setstacksize(&attributes, kStackBytes), 0);
    ASSERT_EQ(::pthread_setattr_default_np(&attributes), 0);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t present = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = present + kStackBytes + kStackBytes / 2;
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
    const Move subject = &counting_move;
    const auto times_ns = made.measure_round(std::span(&subject, 1),
                                             {.bytes_min = 64, .bytes_max = 64, .thread_count = 2});
    ASSERT_FALSE(times_ns.has_value());
    EXPECT_EQ(times_ns.error().code, Code::capacity_exceeded);
    EXPECT_THAT(times_ns.error().message(), HasSubstr("the system allowed only 1"));
  });
}

}  // namespace
}  // namespace headrace::copy::lab
