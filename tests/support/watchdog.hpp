// SPDX-License-Identifier: Apache-2.0
// For tests that hang when they fail: run in a child process that an alarm kills, so that a
// deadlock is a failed test within seconds and the other tests still run.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "headrace/base/atomic.hpp"

namespace headrace::test {

/// Far longer than any scenario takes, even on a loaded machine. Three times this is less than
/// ctest's timeout, so that this alarm reports the hang first.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr unsigned kHangSeconds = 190;
#else
inline constexpr unsigned kHangSeconds = 100;
#endif

/// Runs `scenario` in a child process; fails if an expectation fails there or if it hangs.
inline void expect_ends(const std::function<void()>& scenario) {
  // "threadsafe" re-executes the program: a plain fork would not have its threads.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::alarm(kHangSeconds);
        scenario();
        std::exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

/// A thread whose falling asleep can be awaited.
///
/// Threading: owned.
class ObservedThread {
 public:
  explicit ObservedThread(std::function<void()> work)
      : thread_([this, work = std::move(work)] {
          // edge: observed-thread (release)
          kernel_id_.store_release(static_cast<std::int32_t>(::gettid()));
          work();
        }) {}
  ObservedThread(const ObservedThread&) = delete;
  ObservedThread& operator=(const ObservedThread&) = delete;
  ~ObservedThread() { join(); }

  /// Returns when the kernel shows the thread asleep or gone, and after ten seconds in any case: a
  /// thread that does not sleep makes a test weaker, not wrong.
  void await_asleep() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (char now = state(); now != 'S' && now != 'X'; now = state()) {
      if (std::chrono::steady_clock::now() >= deadline) return;
      std::this_thread::yield();
    }
  }
  void join() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  [[nodiscard]] char state() const {
    const std::int32_t id = kernel_id_.load_acquire();  // edge: observed-thread (acquire)
    if (id == 0) return '?';
    std::ifstream file("/proc/self/task/" + std::to_string(id) + "/stat");
    std::string text;
    std::getline(file, text);
    const std::size_t name_end = text.rfind(") ");
    return name_end == std::string::npos ? 'X' : text[name_end + 2];
  }

  Atomic<std::int32_t> kernel_id_{0};
  std::thread thread_;
};

}  // namespace headrace::test
