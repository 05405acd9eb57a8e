// SPDX-License-Identifier: Apache-2.0
// Sleeping on a word: waking by address alone, even if the memory is unmapped.
#include "headrace/platform/wait.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <thread>

#include "headrace/platform/memory.hpp"

namespace headrace::platform {
namespace {

constexpr std::chrono::nanoseconds kForever = std::chrono::nanoseconds::max();

TEST(Futex, ASleeperIsWokenThroughTheAddressAlone) {
  Atomic<std::uint32_t> word{0};
  std::thread sleeper([&] {
    while (word.load_acquire() == 0) sleep_on_word(word, 0, kForever);
  });
  word.store_release(1);
  wake_sleepers_at(&word);
  sleeper.join();
}

TEST(Futex, OnAnotherValueNobodySleeps) {
  Atomic<std::uint32_t> word{7};
  sleep_on_word(word, 6, kForever);  // Returns, or the test hangs.
}

TEST(Futex, ToWakeAtMemoryThatIsGoneDoesNothing) {
  void* const page =
      ::mmap(nullptr, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  ASSERT_EQ(::munmap(page, page_bytes()), 0);
  errno = 77;
  wake_sleepers_at(page);
  EXPECT_EQ(errno, 77);
}

}  // namespace
}  // namespace headrace::platform
