// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/thread.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace headrace::platform
