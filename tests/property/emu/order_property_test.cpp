// SPDX-License-Identifier: Apache-2.0
// Random submissions in the deterministic schedule: the order in the trace must be one that a plain
// formulation of the ordering rules allows.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "emu/device/client.hpp"
#include "emu/device/device.hpp"
#include "headrace/base/random.hpp"
#include "support/emulator.hpp"
#include "support/seed.hpp"

namespace headrace::emu {
namespace {

using test::Completions;

constexpr DeviceId kDevice{0};
constexpr std::size_t kDescriptors = 60;
constexpr std::size_t kMembers = 6;

/// Submissions to one WQ, in order.
struct Submitted {
  bool drain = false;
  std::vector<bool> member_fenced;  // Empty: no batch.
  std::vector<bool> member_fails;
  std::size_t record = 0;
};

/// Follows the trace, and reports violations of a rule.
class Rules {
 public:
  Rules(const DeviceConfig& config, const std::vector<std::vector<Submitted>>& submitted)
      : config_(config), submitted_(submitted) {}

  void see(const TraceEvent& event) {
    if (event.kind == TraceKind::submitted) return;
    const Key key{event.queue, event.sequence, event.index};
    const Submitted& what = submitted_[event.queue][event.sequence];
    switch (event.kind) {
      case TraceKind::started:
        EXPECT_EQ(config_.engine_groups[event.engine], config_.queues[event.queue].group);
        EXPECT_TRUE(on_engine_.emplace(event.engine, key).second)
            << "an engine runs two descriptors at once";
        if (event.index == 0) {
          EXPECT_EQ(event.sequence, next_[event.queue]++) << "a WQ is first in, first out";
        } else {
          see_member_start(event, what);
        }
        break;
      case TraceKind::fetched:
        on_engine_.erase(event.engine);
        fetched_.insert(key);
        break;
      case TraceKind::finished:
        EXPECT_TRUE(finished_.insert(key).second) << "finished twice";
        if (event.index != 0 || what.member_fenced.empty()) on_engine_.erase(event.engine);
        if (what.drain) {
          for (std::uint64_t earlier = 0; earlier < event.sequence; ++earlier) {
            EXPECT_TRUE(finished_.contains({event.queue, earlier, 0}))
                << "a drain ended before what came before it";
          }
        }
        if (event.index == 0 && !what.member_fenced.empty()) see_batch_end(event, what);
        break;
      default:
        ADD_FAILURE() << "unexpected: " << to_json(event);
    }
  }

  void see_end() {
    for (std::uint32_t queue = 0; queue < submitted_.size(); ++queue) {
      for (std::uint64_t i = 0; i < submitted_[queue].size(); ++i) {
        EXPECT_TRUE(finished_.contains({queue, i, 0})) << "vanished: " << queue << ", " << i;
      }
    }
    EXPECT_TRUE(on_engine_.empty());
  }

 private:
  using Key = std::tuple<std::uint32_t, std::uint64_t, std::uint32_t>;

  void see_member_start(const TraceEvent& event, const Submitted& batch) {
    EXPECT_TRUE(fetched_.contains({event.queue, event.sequence, 0}));
    EXPECT_EQ(event.fenced, batch.member_fenced[event.index - 1]);
    if (!batch.member_fenced[event.index - 1]) return;
    for (std::uint32_t earlier = 1; earlier < event.index; ++earlier) {
      EXPECT_TRUE(finished_.contains({event.queue, event.sequence, earlier}))
          << "a fence was passed by an earlier member";
      EXPECT_FALSE(batch.member_fails[earlier - 1]) << "a fence was passed after a failure";
    }
  }

  /// Checks the number of members that ran: all, or those before the first fence after a failure.
  void see_batch_end(const TraceEvent& event, const Submitted& batch) {
    std::uint32_t expected = 0;
    bool failed = false;
    for (std::size_t i = 0; i < batch.member_fenced.size(); ++i) {
      if (batch.member_fenced[i] && failed) break;
      failed = failed || batch.member_fails[i];
      ++expected;
      EXPECT_TRUE(
          finished_.contains({event.queue, event.sequence, static_cast<std::uint32_t>(i + 1)}))
          << "a batch ended before its members";
    }
    EXPECT_EQ(event.byte_count, expected);
    EXPECT_EQ(event.raw_status, failed ? 5 : 1);
  }

  const DeviceConfig& config_;
  const std::vector<std::vector<Submitted>>& submitted_;
  std::map<std::uint32_t, Key> on_engine_;
  std::map<std::uint32_t, std::uint64_t> next_;
  std::set<Key> fetched_;
  std::set<Key> finished_;
};

void run_one(std::uint64_t seed) {
  Random random(seed);
  const auto queue_count = static_cast<std::uint32_t>(1 + random.below(3));
  DeviceConfig config = default_device(queue_count, 0, 4, "test");
  for (std::uint32_t i = 0; i < queue_count; ++i) {
    config.queues[i].priority = static_cast<std::uint32_t>(1 + random.below(15));
    config.queues[i].group = static_cast<std::uint32_t>(random.below(2));
  }
  for (std::uint32_t i = 0; i < kEngineMax; ++i) {
    // Both groups have at least one engine.
    config.engine_groups[i] = i < 2 ? i : static_cast<std::uint32_t>(random.below(2));
  }
  Completions completions(kDescriptors * (kMembers + 1));
  std::vector<std::byte> source(30'000);
  std::vector<std::byte> target(source.size());
  std::vector<std::vector<Submitted>> submitted(queue_count);
  struct alignas(64) List {
    std::array<dsa::Descriptor, kMembers> members;
  };
  std::vector<List> lists(kDescriptors);
  Rules rules(config, submitted);
  DeviceOptions options;
  options.schedule = Schedule::deterministic;
  options.seed = seed;
  options.trace = [&](const TraceEvent& event) { rules.see(event); };
  auto device = Device::create(std::span(&config, 1), std::move(options));
  ASSERT_TRUE(device) << device.error().message();
  const auto one = [&](std::size_t record) {
    return random.chance(1, 2)
               ? completions.noop(record)
               : completions.move(record, target,
                                  std::span(source).first(1 + random.below(source.size())));
  };
  for (std::size_t i = 0; i < kDescriptors; ++i) {
    const auto queue = static_cast<std::uint32_t>(random.below(queue_count));
    Submitted what;
    what.record = i * (kMembers + 1);
    dsa::Descriptor descriptor = one(what.record);
    const std::uint64_t kind = random.below(6);
    if (kind == 0) {
      what.drain = true;
      descriptor = completions.drain(what.record);
    } else if (kind < 3) {
      const std::size_t count = 2 + random.below(kMembers - 1);
      for (std::size_t m = 0; m < count; ++m) {
        dsa::Descriptor& member = lists[i].members[m];
        member = one(what.record + 1 + m);
        what.member_fenced.push_back(random.chance(1, 4));
        what.member_fails.push_back(random.chance(1, 6));
        if (what.member_fails.back()) member.opcode = 0x3f;
        if (what.member_fenced.back()) member.flags = member.flags | dsa::flag::fence;
      }
      descriptor = completions.batch(what.record, std::span(lists[i].members).first(count));
    }
    submitted[queue].push_back(what);
    while (!(*device)->portal(kDevice, QueueId(queue)).submit(descriptor)) {
      ASSERT_TRUE((*device)->client().step());
    }
    while (random.chance(1, 2)) (void)(*device)->client().step();
  }
  (*device)->client().run_until_idle();
  rules.see_end();
  for (const auto& queue : submitted) {
    for (const Submitted& what : queue) EXPECT_NE(completions.status(what.record), 0);
  }
}

TEST(OrderProperty, every_schedule_keeps_the_rules) {
  for (std::uint64_t round = 0; round < 150 && !::testing::Test::HasFailure(); ++round) {
    const std::uint64_t seed = test::seed() + round;
    SCOPED_TRACE("seed " + std::to_string(seed));
    run_one(seed);
  }
}

}  // namespace
}  // namespace headrace::emu
