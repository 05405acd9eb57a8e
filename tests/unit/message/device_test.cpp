// SPDX-License-Identifier: Apache-2.0
// A device moves payloads into the queue, with cache control, as in docs/concepts/message.md; on an
// emulated device, which accepts the flag and copies with a processor.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "emulated.hpp"
#include "headrace/message/queue.hpp"
#include "support/queue.hpp"

namespace headrace::message {
namespace {

using test::bytes_of;
using test::must;

TEST(Devices, ADeviceWithCacheControlMovesTheMessages) {
  const engine::test::Emulated machine = engine::test::make_emulated({.dedicated_count = 1});
  const Queue queue = must(Queue::make({.capacity = kib(64)}));
  Producer producer = must(queue.producer());
  Consumer consumer = must(queue.consumer());
  std::uint64_t by_device = 0;
  producer.place([&](std::span<std::byte> target, std::span<const std::byte> source) {
    engine::Completion completion;
    const auto copy = engine::Operation::copy(target, source).into_cache();
    if (machine.engine->run(copy, completion, {.path = engine::Path::dsa}) !=
            engine::Submit::accepted ||
        completion.state != engine::JobState::done) {
      std::ranges::copy(source, target.begin());
    }
    by_device += completion.bytes_by_device;
  });
  std::vector<std::byte> target(kib(32).count());
  for (std::uint64_t number = 0; number < 100; ++number) {
    const std::vector<std::byte> message = bytes_of(number, 1 + number * 200);
    ASSERT_EQ(producer.try_send(message), Outcome::done);
    std::size_t received = 0;
    ASSERT_EQ(consumer.try_receive(target, received), Outcome::done);
    ASSERT_TRUE(std::ranges::equal(std::span(target).first(received), message)) << number;
  }
  EXPECT_GT(by_device, 0U);
  std::uint64_t with_cache_control = 0;
  const emu::Statistics statistics = machine.devices->control().statistics();
  for (const emu::EngineStatistics& each : statistics.devices.at(0).engines) {
    with_cache_control += each.cache_control_count;
  }
  EXPECT_GE(with_cache_control, 100U);
}

}  // namespace
}  // namespace headrace::message
