// SPDX-License-Identifier: Apache-2.0
// UMONITOR and UMWAIT: the encoded bytes are the instructions, and, where the processor supports
// them, a wait ends at its deadline and on a write. Use by the engine:
// tests/unit/engine/waiting_test.cpp.
#include "headrace/platform/wait.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "headrace/base/atomic.hpp"
#include "headrace/platform/ticks.hpp"

namespace headrace::platform {
namespace {

// Encoded by the assembler from the mnemonics. Never executed.
asm(R"(
  .pushsection .rodata
headrace_test_umonitor:
  umonitor %rax
headrace_test_umwait:
  umwait %ecx
headrace_test_end:
  .popsection
)");
extern "C" const unsigned char headrace_test_umonitor[];
extern "C" const unsigned char headrace_test_umwait[];
extern "C" const unsigned char headrace_test_end[];

/// Whether the code of `function` has the bytes from `first` to `last` near its beginning.
template <typename Function>
bool has(Function function, const unsigned char* first, const unsigned char* last) {
  std::array<unsigned char, 48> code{};
  std::memcpy(code.data(), reinterpret_cast<const void*>(function), code.size());
  return std::search(code.begin(), code.end(), first, last) != code.end();
}

TEST(LineWait, TheBytesAreTheInstructions) {
  EXPECT_EQ(headrace_test_umwait - headrace_test_umonitor, 4);
  EXPECT_EQ(headrace_test_end - headrace_test_umwait, 4);
  EXPECT_TRUE(has(kLineWait.watch, headrace_test_umonitor, headrace_test_umwait));
  EXPECT_TRUE(has(kLineWait.wait, headrace_test_umwait, headrace_test_end));
}

TEST(LineWait, EndsByItsDeadlineOrByAWrite) {
  if (!has_line_wait()) {
    GTEST_SKIP() << "this processor has no UMWAIT (CPUID: WAITPKG)";
  }
  Atomic<std::uint32_t> word;
  watch_line(&word);
  wait_for_line(ticks() + to_ticks(std::chrono::microseconds(10)));
  std::thread writer([&] { word.store_relaxed(1); });  // Relaxed: nothing else is shared.
  while (word.load_relaxed() == 0) {                   // As above.
    watch_line(&word);
    // As above.
    if (word.load_relaxed() == 0) wait_for_line(ticks() + to_ticks(std::chrono::milliseconds(1)));
  }
  writer.join();
}

TEST(LineWait, ATestMayPutItsOwnInTheirPlace) {
  static const void* watched = nullptr;
  static std::uint64_t until = 0;
  constexpr LineWait kTold{[](const void* address) noexcept { watched = address; },
                           [](std::uint64_t until_ticks) noexcept { until = until_ticks; }};
  const bool before = has_line_wait();
  replace_line_wait(&kTold);
  EXPECT_TRUE(has_line_wait());
  watch_line(&before);
  wait_for_line(17);
  replace_line_wait(nullptr);
  EXPECT_EQ(has_line_wait(), before);
  EXPECT_EQ(watched, &before);
  EXPECT_EQ(until, 17U);
}

}  // namespace
}  // namespace headrace::platform
