// SPDX-License-Identifier: Apache-2.0
// What the schedule of a query does while it looks whether copies are there. Whole queries are in
// prefetch_test.cpp.
#include "query/schedule.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <utility>

#include "support/cache_stage.hpp"
#include "support/watchdog.hpp"

namespace headrace::query::detail {
namespace {

TEST(Schedule, NoLockIsHeldWhereAnObserverIsCalled) {
  test::expect_ends([] {
    std::function<void()> meanwhile;
    cache::CacheOptions options;
    options.observer = [&](const cache::Event& event) {
      if (event.kind == cache::EventKind::moved && meanwhile) std::exchange(meanwhile, nullptr)();
    };
    test::CacheStage stage(test::StagedMover::Mode::on_poll, std::move(options));
    const auto source = test::numbered_bytes(8192);
    Schedule schedule(0, 1, 1, 1);
    Task task = schedule.next({}, true);
    ASSERT_EQ(task.kind, Task::Kind::prefetch);
    task.slot->discount = stage.cache->access(std::span(source).first(4096));
    task.slot->extended_price = stage.cache->access(std::span(source).subspan(4096));
    task = schedule.next(task, true);
    ASSERT_EQ(task.kind, Task::Kind::scan);
    bool asked = false;
    // Another worker asks for a task while this one calls the observer.
    meanwhile = [&] {
      std::thread other([&] {
        EXPECT_EQ(schedule.next({}, false).kind, Task::Kind::none);
        asked = true;
      });
      other.join();
    };
    task = schedule.next(task, true);
    EXPECT_EQ(task.kind, Task::Kind::aggregate);
    EXPECT_TRUE(asked);
  });
}

}  // namespace
}  // namespace headrace::query::detail
