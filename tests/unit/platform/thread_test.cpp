// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/thread.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <future>
#include <thread>

namespace headrace::platform {
namespace {

TEST(Thread, APinnedThreadRunsWhereItWasTold) {
  const std::vector<CpuId> allowed = allowed_cpus();
  ASSERT_FALSE(allowed.empty());
  std::thread([&] {
    const std::array<CpuId, 1> last{allowed.back()};
    const auto pinned = pin_this_thread(last);
    ASSERT_TRUE(pinned.has_value()) << pinned.error().message();
    EXPECT_EQ(current_cpu(), allowed.back());
    EXPECT_EQ(allowed_cpus(), std::vector<CpuId>(last.begin(), last.end()));
  }).join();
}

TEST(Thread, AnotherThreadRunsWhereItWasPinned) {
  const std::array<CpuId, 1> last{allowed_cpus().back()};
  std::promise<void> pinned;
  std::thread thread([&] {
    pinned.get_future().wait();
    EXPECT_EQ(allowed_cpus(), std::vector<CpuId>(last.begin(), last.end()));
  });
  EXPECT_TRUE(pin_thread(thread, last).has_value());
  pinned.set_value();
  thread.join();
}

TEST(Thread, ProcessorsThatDoNotExistAreRefused) {
  const std::array<CpuId, 1> far{CpuId(60000)};
  EXPECT_EQ(pin_this_thread(far).error().code, Code::invalid_argument);
}

TEST(Thread, OfTheLibraryRunsNoHandlerOfTheProgram) {
  sigset_t before;
  sigset_t inside;
  sigset_t after;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &before);
  auto thread = start_thread("try it", [&] { ::pthread_sigmask(SIG_BLOCK, nullptr, &inside); });
  ASSERT_TRUE(thread.has_value()) << thread.error().message();
  thread->join();
  ::pthread_sigmask(SIG_BLOCK, nullptr, &after);
  for (const int sent : {SIGTERM, SIGINT, SIGUSR1, SIGALRM, SIGPROF, SIGCHLD}) {
    EXPECT_EQ(::sigismember(&inside, sent), 1) << sent;
    EXPECT_EQ(::sigismember(&after, sent), ::sigismember(&before, sent)) << sent;
  }
  // Lost pages and emulated devices are handled there.
  for (const int raised : {SIGSEGV, SIGBUS, SIGILL}) EXPECT_EQ(::sigismember(&inside, raised), 0);
}

TEST(Thread, ThatTheSystemRefusesIsAnErrorByName) {
  const auto refused = [] {
    const rlimit none{1U << 20U, 1U << 20U};
    ::setrlimit(RLIMIT_AS, &none);  // No room for a stack.
    const auto thread = start_thread("try it", [] {});
    ::_exit(!thread && thread.error().code == Code::unsupported ? 0 : 1);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // No stack of an earlier thread is left.
  EXPECT_EXIT(refused(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headrace::platform
