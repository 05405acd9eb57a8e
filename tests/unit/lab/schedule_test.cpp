// SPDX-License-Identifier: Apache-2.0
// The schedule of a query while it checks for copies. Whole queries: q6_prefetch_test.cpp.
#include "headrace/lab/schedule.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "support/cache_stage.hpp"
#include "support/watchdog.hpp"

namespace headrace::query::lab {
namespace {

struct Copies {
  std::optional<cache::Entry> discount = std::nullopt;
  std::optional<cache::Entry> extended_price = std::nullopt;
  [[nodiscard]] bool is_ready() const { return discount->try_wait() && extended_price->try_wait(); }
};

TEST(Schedule, NoLockIsHeldWhereAnObserverIsCalled) {
  test::expect_ends([] {
    std::function<void()> meanwhile;
    cache::CacheOptions options;
    options.observer = [&](const cache::Event& event) {
      if (event.kind == cache::EventKind::moved && meanwhile) std::exchange(meanwhile, nullptr)();
    };
    test::CacheStage stage(test::StagedMover::Mode::on_poll, std::move(options));
    const auto source = test::numbered_bytes(8192);
    Schedule<Copies> schedule(0, 1, 1);
    Schedule<Copies>::Task task = schedule.next({}, true);
    ASSERT_EQ(task.kind, Schedule<Copies>::Task::Kind::prefetch);
    task.slot->held.discount = stage.cache->access(std::span(source).first(4096));
    task.slot->held.extended_price = stage.cache->access(std::span(source).subspan(4096));
    task = schedule.next(task, true);
    ASSERT_EQ(task.kind, Schedule<Copies>::Task::Kind::scan);
    bool asked = false;
    // Another worker requests a task while this one calls the observer.
    meanwhile = [&] {
      std::thread other([&] {
        EXPECT_EQ(schedule.next({}, false).kind, Schedule<Copies>::Task::Kind::none);
        asked = true;
      });
      other.join();
    };
    task = schedule.next(task, true);
    EXPECT_EQ(task.kind, Schedule<Copies>::Task::Kind::aggregate);
    EXPECT_TRUE(asked);
  });
}

}  // namespace
}  // namespace headrace::query::lab
