// SPDX-License-Identifier: Apache-2.0
// Many threads use one device while the driver resets and disables it: every accepted descriptor
// ends exactly once.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "emu/device/device.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/base/random.hpp"
#include "support/emulator.hpp"
#include "support/seed.hpp"
#include "support/watchdog.hpp"

namespace headrace::emu {
namespace {

using test::Completions;
using test::one_queue;

constexpr DeviceId kDevice{0};
constexpr QueueId kQueue{0};
constexpr int kThreads = 8;
constexpr int kRounds = 400;

std::unique_ptr<Device> make(const DeviceConfig& config, DeviceOptions options = {}) {
  auto device = Device::create(std::span(&config, 1), std::move(options));
  EXPECT_TRUE(device) << device.error().message();
  return std::move(*device);
}

/// Submits copies, batches and drains sequentially, waits for each, and counts their results.
struct Ends {
  std::uint64_t succeeded = 0;
  std::uint64_t aborted = 0;
  std::uint64_t other = 0;
  void add(int status) {
    if (status == 1) {
      ++succeeded;
    } else if (status == dsa::kStatusAborted) {
      ++aborted;
    } else {
      ++other;
    }
  }
};

Ends submit_and_wait(dsa::Portal& portal, int rounds, std::uint64_t seed) {
  Random random(seed);
  Ends ends;
  Completions completions(9);
  std::vector<std::byte> source(20'000, static_cast<std::byte>(seed));
  std::vector<std::byte> target(source.size());
  const auto submit = [&](const dsa::Descriptor& descriptor) {
    while (!portal.submit(descriptor)) std::this_thread::yield();
  };
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < 9; ++i) completions.clear(i);
    switch (random.below(4)) {
      case 0: {
        submit(completions.noop(0));
        ends.add(completions.await(0));
        break;
      }
      case 1: {
        const std::size_t length = 1 + random.below(source.size());
        std::fill(target.begin(), target.end(), std::byte{0});
        submit(completions.move(0, target, std::span(source).first(length)));
        const int status = completions.await(0);
        ends.add(status);
        if (status == 1) {
          EXPECT_EQ(target[length - 1], source[0]);
        }
        break;
      }
      case 2: {
        submit(completions.drain(0));
        ends.add(completions.await(0));
        break;
      }
      default: {
        alignas(64) std::array<dsa::Descriptor, 8> list;
        for (std::size_t i = 0; i < list.size(); ++i) {
          list[i] = completions.noop(i);
          if (random.chance(1, 4)) list[i].flags = list[i].flags | dsa::flag::fence;
        }
        submit(completions.batch(8, list));
        const int status = completions.await(8);
        ends.add(status);
        for (std::size_t i = 0; i < list.size(); ++i) {
          const int member = completions.status(i);
          if (status == 1) {
            EXPECT_EQ(member, 1);
          } else {
            EXPECT_NE(member, 0) << "a member of an aborted batch has no record";
          }
        }
      }
    }
  }
  return ends;
}

Ends storm(Device& device, int rounds, const std::function<void()>& meanwhile) {
  Atomic<int> running{kThreads};
  std::array<Ends, kThreads> ends;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      ends[static_cast<std::size_t>(i)] = submit_and_wait(
          device.portal(kDevice, kQueue), rounds, test::seed() + static_cast<std::uint64_t>(i));
      running.fetch_sub_relaxed(1);
    });
  }
  while (running.load_relaxed() != 0) {
    meanwhile();
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  Ends sum;
  for (const Ends& one : ends) {
    sum.succeeded += one.succeeded;
    sum.aborted += one.aborted;
    sum.other += one.other;
  }
  return sum;
}

TEST(DeviceStress, eight_threads_on_one_shared_queue_lose_nothing) {
  test::expect_ends([] {
    auto device = make(one_queue({.size = 16, .engines = 4}));
    const Ends ends = storm(*device, kRounds, [] {});
    EXPECT_EQ(ends.succeeded, std::uint64_t{kThreads} * kRounds);
    EXPECT_EQ(device->control().occupancy(kDevice, kQueue), 0U);
    EXPECT_EQ(device->control().statistics().devices[0].queues[0].accepted_count,
              std::uint64_t{kThreads} * kRounds);
  });
}

TEST(DeviceStress, one_engine_serves_eight_threads) {
  test::expect_ends([] {
    auto device = make(one_queue({.size = 4, .engines = 1}));
    const Ends ends = storm(*device, kRounds, [] {});
    EXPECT_EQ(ends.succeeded, std::uint64_t{kThreads} * kRounds);
  });
}

TEST(DeviceStress, a_storm_of_resets_aborts_and_loses_nothing) {
  test::expect_ends([] {
    auto device = make(one_queue({.size = 16, .engines = 4}));
    Random random(test::seed());
    const Ends ends = storm(*device, kRounds, [&] {
      if (random.chance(1, 3)) device->control().halt(kDevice);
      device->control().reset(kDevice);
    });
    EXPECT_EQ(ends.other, 0U) << "some descriptor was never answered, or not as aborted";
    EXPECT_EQ(ends.succeeded + ends.aborted, std::uint64_t{kThreads} * kRounds);
    EXPECT_EQ(device->control().occupancy(kDevice, kQueue), 0U);
  });
}

TEST(DeviceStress, a_storm_of_disable_and_enable_loses_nothing) {
  test::expect_ends([] {
    auto device = make(one_queue({.size = 16, .engines = 2}));
    Random random(test::seed());
    const Ends ends = storm(*device, kRounds, [&] {
      const auto wait_max = std::chrono::microseconds(random.chance(1, 2) ? 0 : 1'000'000);
      EXPECT_TRUE(device->control().disable_queue(kDevice, kQueue, wait_max));
      EXPECT_EQ(device->control().occupancy(kDevice, kQueue), 0U);
      EXPECT_TRUE(device->control().enable_queue(kDevice, kQueue));
    });
    EXPECT_EQ(ends.other, 0U);
    EXPECT_EQ(ends.succeeded + ends.aborted, std::uint64_t{kThreads} * kRounds);
  });
}

TEST(DeviceStress, a_device_goes_away_with_work_outstanding_and_answers_all_of_it) {
  test::expect_ends([] {
    const std::vector<std::byte> source(1 << 20);
    std::vector<std::byte> targets(16 * source.size());
    for (int round = 0; round < 50; ++round) {
      Completions completions(16);
      std::size_t count = 0;
      {
        auto device = make(one_queue({.size = 16, .engines = 2}));
        // Two engines write concurrently: each descriptor has a separate target.
        const auto submit_next = [&] {
          const auto target = std::span(targets).subspan(count * source.size(), source.size());
          return device->portal(kDevice, kQueue).submit(completions.move(count, target, source));
        };
        while (count < 16 && submit_next()) ++count;
      }
      for (std::size_t i = 0; i < count; ++i) EXPECT_NE(completions.status(i), 0) << i;
    }
  });
}

}  // namespace
}  // namespace headrace::emu
