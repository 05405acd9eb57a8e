// SPDX-License-Identifier: Apache-2.0
// The table behind move_bytes: the class of a length, use before main, and the number of
// instructions it adds.
#include "headrace/copy/dispatch.hpp"

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "headrace/copy/copy.hpp"
#include "headrace/copy/profile.hpp"
#include "headrace/platform/cpu.hpp"

namespace headrace::copy {
namespace {

/// Copies during static construction, unordered with the library's constructors.
struct EarlyBird {
  EarlyBird() { move_bytes(text.data(), "before main", 12); }
  std::array<char, 12> text{};
};
const EarlyBird kEarlyBird;

TEST(Dispatch, CopiesBeforeMain) {
  EXPECT_STREQ(kEarlyBird.text.data(), "before main");
}

TEST(Dispatch, AClassHoldsTheLengthsUpToAPowerOfTwo) {
  EXPECT_EQ(class_of(0), 63U);
  EXPECT_EQ(class_of(1), 0U);
  EXPECT_EQ(class_of(2), 0U);
  for (std::size_t bits = 2; bits < 64; ++bits) {
    const std::size_t bytes_max = std::size_t{1} << bits;
    EXPECT_EQ(class_of(bytes_max), bits - 1) << bytes_max;
    EXPECT_EQ(class_of(bytes_max / 2 + 1), bits - 1) << bytes_max;
  }
}

void* other_move(void* target, const void* source, std::size_t byte_count) noexcept {
  return std::memmove(target, source, byte_count);
}

TEST(Dispatch, EveryLengthIsTheFallbacksUntilAnotherIsChosen) {
  static constinit Dispatch dispatch(&other_move);
  for (std::size_t bits = 0; bits < 64; ++bits) {
    EXPECT_EQ(dispatch.function_for(std::size_t{1} << bits), &other_move);
  }
  dispatch.choose(class_of(4096), libc_move());
  EXPECT_EQ(dispatch.function_for(4096), libc_move());
  EXPECT_EQ(dispatch.function_for(2049), libc_move());
  EXPECT_EQ(dispatch.function_for(2048), &other_move);
  EXPECT_EQ(dispatch.function_for(4097), &other_move);
  EXPECT_EQ(dispatch.entry(), &other_move);
  dispatch.choose_entry(libc_move());
  EXPECT_EQ(dispatch.entry(), libc_move());
  dispatch.choose_fallback();
  EXPECT_EQ(dispatch.function_for(4096), &other_move);
  EXPECT_EQ(dispatch.entry(), &other_move);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__OPTIMIZE__)
[[gnu::noinline]] void call_between_breakpoints(Move move, char* target, const char* source) {
  asm volatile("int3");
  move(target, source, 32);
  asm volatile("int3");
}

/// Instructions of a copy of 32 bytes, counted by single-stepping a child; -1 if not permitted
/// here.
long count_instructions(Move move) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::array<char, 32> target{};
    std::array<char, 32> source{};
    move(target.data(), source.data(), 32);  // Resolves the symbols first.
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(1);
    call_between_breakpoints(move, target.data(), source.data());
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  long count = -1;
  if (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP) {
    // The second breakpoint is the next SIGTRAP after which the byte before the place is an int3.
    for (count = 0;; ++count) {
      if (::ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0) return -1;
      ::waitpid(child, &status, 0);
      if (!WIFSTOPPED(status)) return -1;
      const long place = ::ptrace(PTRACE_PEEKUSER, child, 16 * sizeof(long), nullptr);  // rip
      if ((::ptrace(PTRACE_PEEKTEXT, child, place, nullptr) & 0xFF) == 0xCC) break;
    }
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return count;
}

int crawl_count = 0;
/// As `rep movsb` on a Zen 3, but on any processor: slow if the target lies 1 to 31 bytes after the
/// source within a page.
void* crawling_move(void* target, const void* source, std::size_t byte_count) noexcept {
  const auto distance =
      reinterpret_cast<std::uintptr_t>(target) - reinterpret_cast<std::uintptr_t>(source);
  if (byte_count > 2048 && (distance - 1) % 4096 < 31) {
    ++crawl_count;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
    while (std::chrono::steady_clock::now() < end) {
    }
  }
  return std::memmove(target, source, byte_count);
}

Profile profile_without_variants() {
  Profile profile;
  profile.machine = this_machine();
  for (std::size_t bytes_max = 1024; bytes_max <= std::size_t{2} << 20U; bytes_max *= 2) {
    profile.classes.push_back({.bytes_max = bytes_max, .variant = {}});
  }
  return profile;
}

TEST(Dispatch, CopiesInWhichTheCLibraryCrawlsAreReplacedAndNoOthers) {
  if (!platform::cpu_features().avx2) GTEST_SKIP() << "the loop needs AVX2";
  Dispatch dispatch(&crawling_move);
  ASSERT_TRUE(use_profile(profile_without_variants(), dispatch).has_value());
  for (const std::size_t bytes_max : {2049U, 4096U, 65536U, 1U << 20U}) {
    EXPECT_NE(dispatch.function_for(bytes_max), &crawling_move) << bytes_max;
  }
  for (const std::size_t bytes_max : {1024U, 2048U, (1U << 20U) + 1, 4U << 20U}) {
    EXPECT_EQ(dispatch.function_for(bytes_max), &crawling_move) << bytes_max;
  }
  ASSERT_NE(dispatch.entry(), &crawling_move);

  constexpr std::size_t kCopied = 3000;
  std::vector<std::byte> from(kCopied + 8192);
  std::vector<std::byte> to(from.size());
  std::byte* const source =
      from.data() + 4096 - reinterpret_cast<std::uintptr_t>(from.data()) % 4096;
  std::byte* const target = to.data() + 4096 - reinterpret_cast<std::uintptr_t>(to.data()) % 4096;
  crawl_count = 0;
  for (std::size_t distance = 0; distance < 40; ++distance) {
    for (std::size_t i = 0; i < kCopied; ++i) source[i] = static_cast<std::byte>(i + distance);
    std::ranges::fill(to, std::byte{0});
    EXPECT_EQ(dispatch.entry()(target + distance, source, kCopied), target + distance);
    EXPECT_TRUE(std::equal(source, source + kCopied, target + distance)) << distance;
    EXPECT_EQ(target[distance + kCopied], std::byte{0});
  }
  EXPECT_EQ(crawl_count, 0);
  // Overlapping ranges may be as close, and stay the C library's.
  const std::vector<std::byte> before(source, source + kCopied);
  dispatch.entry()(source + 16, source, kCopied);
  EXPECT_TRUE(std::ranges::equal(before, std::span(source + 16, kCopied)));
  EXPECT_EQ(crawl_count, 1);
}

/// As fast for every distance.
void* even_move(void* target, const void* source, std::size_t byte_count) noexcept {
  for (std::size_t i = 0; i < byte_count; ++i) {
    static_cast<std::byte*>(target)[i] = static_cast<const std::byte*>(source)[i];
    asm volatile("" ::: "memory");  // The compiler must not call memmove.
  }
  return target;
}

TEST(Dispatch, ACLibraryThatDoesNotCrawlKeepsItsCopies) {
  Dispatch dispatch(&even_move);
  ASSERT_TRUE(use_profile(profile_without_variants(), dispatch).has_value());
  EXPECT_EQ(dispatch.function_for(4096), &even_move);
  EXPECT_EQ(dispatch.entry(), &even_move);
}

TEST(Dispatch, AShortCopyTakesAtMostEightInstructionsMoreThanMemmove) {
  const long libc = count_instructions(libc_move());
  if (libc < 0) GTEST_SKIP() << "stepping through a child is not permitted here";
  const long ours = count_instructions(&move_bytes);
  RecordProperty("instructions_libc", std::to_string(libc));
  RecordProperty("instructions_ours", std::to_string(ours));
  EXPECT_GE(libc, 5);
  EXPECT_LE(ours, libc + 8) << libc;
  const std::vector<Variant> variants = variants_for(4096);
  if (variants.empty()) return;  // No copies can be generated here.
  Profile profile{.machine = this_machine(), .classes = {}};
  for (std::uint64_t bytes_max = 256; bytes_max <= 8192; bytes_max *= 2) {
    profile.classes.push_back({.bytes_max = bytes_max, .variant = variants.front()});
  }
  const auto used = use_profile(profile);
  ASSERT_TRUE(used.has_value()) << used.error().message();
  // Not move_bytes, whose length depends on the compiler: two loads where it is inlined.
  const long tuned = count_instructions(detail::default_dispatch.entry()) + 2;
  use_no_profile();
  RecordProperty("instructions_tuned", std::to_string(tuned));
  EXPECT_LE(tuned, libc + 8) << libc;
}
#endif

}  // namespace
}  // namespace headrace::copy
