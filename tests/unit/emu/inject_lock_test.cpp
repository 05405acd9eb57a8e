// SPDX-License-Identifier: Apache-2.0
// A waiter for the lock of the injected libraries sleeps: spinning at a higher real-time priority
// would keep the holder from running.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "headrace/base/atomic.hpp"
#include "inject/lock.hpp"

namespace headrace::inject {
namespace {

/// The state of a thread in /proc: 'R' if runnable, 'S' if sleeping.
char state_of(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');
  return name_end == std::string::npos ? '?' : line[name_end + 2];
}

TEST(InjectLock, AWaiterSleeps) {
  InjectLock lock;
  lock.lock();
  Atomic<pid_t> waiter_id;
  std::thread waiter([&] {
    waiter_id.store_release(::gettid());
    const Hold hold(lock);
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (state_of(waiter_id.load_acquire()) != 'S' && std::chrono::steady_clock::now() < end) {
  }
  EXPECT_EQ(state_of(waiter_id.load_acquire()), 'S');
  lock.unlock();
  waiter.join();
}

TEST(InjectLock, OneThreadHoldsItAtATime) {
  InjectLock lock;
  int count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20'000; ++round) {
        const Hold hold(lock);
        ++count;
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(count, 80'000);
}

}  // namespace
}  // namespace headrace::inject
