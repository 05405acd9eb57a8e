// SPDX-License-Identifier: Apache-2.0
// The event stream: one event per access and per change of an entry's state.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/cache/cache.hpp"
#include "headrace/platform/memory.hpp"
#include "support/cache_stage.hpp"
#include "support/watchdog.hpp"

namespace headrace::cache {
namespace {

using test::CacheStage;
using test::StagedMover;

class Events : public ::testing::Test {
 protected:
  CacheOptions options() {
    CacheOptions made;
    made.observer = [this](const Event& event) {
      const Lock lock(mutex_);
      seen_.emplace_back(event.kind, event.region.size(), event.node);
    };
    return made;
  }
  /// Events since the last call, as "kind length node".
  std::vector<std::string> take() {
    const Lock lock(mutex_);
    std::vector<std::string> lines;
    for (const auto& [kind, byte_count, node] : std::exchange(seen_, {})) {
      lines.push_back(std::string(name(kind)) + " " + std::to_string(byte_count) +
                      (node ? " " + std::to_string(node->value()) : ""));
    }
    return lines;
  }
  using Lines = std::vector<std::string>;

 private:
  Mutex mutex_;
  std::vector<std::tuple<EventKind, std::size_t, std::optional<NodeId>>> seen_
      HEADRACE_GUARDED_BY(mutex_);
};

TEST_F(Events, TellOfEveryAccessAndWhatBecomesOfItsEntry) {
  const std::size_t page_bytes = platform::page_bytes();
  auto source = test::numbered_bytes(2 * page_bytes);
  CacheOptions made = options();
  made.capacity_per_node = Bytes(page_bytes);
  made.placement = [](const PlacementContext& context) {
    return context.source.size() == 7 ? std::nullopt : std::optional(NodeId(8));
  };
  CacheStage stage(StagedMover::Mode::at_once, std::move(made));
  static_cast<void>(stage.cache->access(std::span(source).first(100)));
  EXPECT_EQ(take(), (Lines{"moved 100 8", "miss 100 8"}));
  static_cast<void>(stage.cache->access(std::span(source).first(10)));
  static_cast<void>(stage.cache->access_weak(std::span(source).first(20)));
  static_cast<void>(stage.cache->access_weak(std::span(source).last(20)));
  static_cast<void>(stage.cache->access(std::span(source).first(7)));
  EXPECT_EQ(take(), (Lines{"hit 10 8", "weak_hit 20 8", "weak_miss 20", "not_placed 7"}));
  static_cast<void>(stage.cache->change(std::span(source).first(50)).value());
  EXPECT_EQ(take(), (Lines{"hit 50 8"}));
  // Eviction: dirty bytes are written back first.
  static_cast<void>(stage.cache->access(std::span(source).last(30)));
  EXPECT_EQ(take(), (Lines{"written_back 50 8", "evicted 100 8", "moved 30 8", "miss 30 8"}));
  static_cast<void>(stage.cache->access(source));
  EXPECT_EQ(take(), (Lines{"refused 8192"}));
  EXPECT_EQ(stage.cache->flush(), 1U);
  EXPECT_EQ(take(), (Lines{"dropped 30 8"}));
  stage.mover->fail_with(engine::Cause::device_error);
  static_cast<void>(stage.cache->access(std::span(source).first(11)));
  EXPECT_EQ(take(), (Lines{"move_failed 11 8", "miss 11 8"}));
}

/// An observer that drops entries while another thread begins a change of the bytes of an entry
/// that this thread is creating.
void drop_during_a_change(const std::function<void(Cache&)>& drop, EventKind kind,
                          const std::function<void(Cache&, std::span<std::byte>)>& access) {
  test::expect_ends([&] {
    const std::size_t page_bytes = platform::page_bytes();
    auto source = test::numbered_bytes(8 * page_bytes);
    Cache* cache = nullptr;
    const std::thread::id here = std::this_thread::get_id();
    std::optional<test::ObservedThread> changing;
    CacheOptions made;
    made.observer = [&](const Event& event) {
      if (event.kind != kind || std::this_thread::get_id() != here || changing) return;
      changing.emplace([&] {
        static_cast<void>(
            cache->change(std::span(source).subspan(3 * page_bytes, 2 * page_bytes)).value());
      });
      changing->await_asleep();
      drop(*cache);
    };
    CacheStage stage(StagedMover::Mode::at_once, std::move(made));
    cache = stage.cache.get();
    access(*cache, source);
    EXPECT_TRUE(changing.has_value());
  });
}

TEST_F(Events, MayDropEntriesWhileAnotherThreadBeginsAChangeOfTheirBytes) {
  const std::size_t page_bytes = platform::page_bytes();
  const std::array<std::function<void(Cache&)>, 3> drops = {
      [](Cache& cache) { cache.flush(); }, [](Cache& cache) { cache.clear(); },
      [](Cache& cache) { cache.invalidate(test::numbered_bytes(1)); }};
  for (const auto& drop : drops) {
    drop_during_a_change(drop, EventKind::written_back, [&](Cache& cache, auto source) {
      static_cast<void>(cache.change(source.first(page_bytes)).value());
      static_cast<void>(cache.access(source.first(4 * page_bytes)));
    });
    drop_during_a_change(drop, EventKind::hit, [&](Cache& cache, auto source) {
      static_cast<void>(cache.access(source.last(page_bytes)));
      const std::array<std::span<const std::byte>, 2> both = {source.first(4 * page_bytes),
                                                              source.last(page_bytes)};
      static_cast<void>(cache.access_many(both));
    });
  }
}

TEST_F(Events, ComeWithNoLockHeldSoThatTheObserverMayCallTheCache) {
  test::expect_ends([] {
    const std::size_t page_bytes = platform::page_bytes();
    auto source = test::numbered_bytes(16 * page_bytes);
    const auto page = [&](std::size_t index, std::size_t count = 1) {
      return std::span(source).subspan(index * page_bytes, count * page_bytes);
    };
    CacheOptions made;
    made.capacity_per_node = Bytes(4 * page_bytes);
    Cache* cache = nullptr;
    bool nested = false;
    std::map<EventKind, std::size_t> seen;
    made.observer = [&](const Event& event) {
      if (nested || event.kind == EventKind::moved || event.kind == EventKind::move_failed) return;
      nested = true;
      ++seen[event.kind];
      static_cast<void>(cache->access(page(14)));
      static_cast<void>(cache->access(page(1, 2)));
      static_cast<void>(cache->access_weak(page(0)));
      EXPECT_TRUE(cache->write_back().has_value());
      cache->pin(page(0));
      cache->unpin(page(0));
      cache->invalidate(page(13, 2));
      cache->flush();
      cache->clear();
      EXPECT_GT(cache->statistics().misses, 0U);
      nested = false;
    };
    made.placement = [&](const PlacementContext& context) {
      return context.source.size() == 7 ? std::nullopt : std::optional(NodeId(8));
    };
    CacheStage stage(StagedMover::Mode::at_once, std::move(made));
    cache = stage.cache.get();
    const auto change = [&](std::span<std::byte> region) {
      nested = true;  // It would clear the entries needed below.
      std::fill_n(cache->change(region).value().data().begin(), 10, std::byte{1});
      nested = false;
    };
    const auto have = [&](std::span<const std::byte> region) {
      nested = true;
      static_cast<void>(cache->access(region));
      nested = false;
    };
    have(page(0));
    static_cast<void>(cache->access(page(0)));
    have(page(0));
    static_cast<void>(cache->access_weak(page(0)));
    static_cast<void>(cache->access_weak(page(5)));
    static_cast<void>(cache->access(page(0).first(7)));
    static_cast<void>(cache->access(page(0, 5)));
    for (const std::size_t index : {0U, 1U, 2U, 3U}) have(page(index));
    static_cast<void>(cache->access(page(8, 2)));  // Evicts.
    // Several dirty ranges, and an access that needs all of them written back.
    for (const std::size_t index : {0U, 1U, 2U}) change(page(index));
    static_cast<void>(cache->access(page(0, 3)));
    for (const std::size_t index : {0U, 1U, 2U, 3U}) change(page(index));
    static_cast<void>(cache->access(page(8, 2)));
    for (const std::size_t index : {0U, 1U}) change(page(index));
    EXPECT_EQ(cache->write_back().value().count(), 2 * page_bytes);
    for (const std::size_t index : {0U, 1U}) change(page(index));
    cache->flush();
    for (const std::size_t index : {0U, 1U}) change(page(index));
    cache->clear();
    have(page(0));
    EXPECT_EQ(cache->invalidate(page(0)), 1U);
    EXPECT_EQ(seen.size(), 9U) << "every kind but the ends of moves";
  });
}

TEST_F(Events, MemoryIsFreedWithNoLockHeldSoThatItsSourceMayCallTheCache) {
  // A memory source whose free() calls a cache.
  class Calling final : public MemorySource {
   public:
    Result<std::span<std::byte>> allocate(std::size_t byte_count, NodeId /*node*/) override {
      return std::span(new std::byte[byte_count], byte_count);
    }
    void free(std::span<std::byte> memory) noexcept override {
      delete[] memory.data();
      if (cache != nullptr) std::exchange(cache, nullptr)->flush();
    }
    Cache* cache = nullptr;
  };
  test::expect_ends([] {
    const auto source = test::numbered_bytes(100);
    CacheStage stage;
    const auto memory = std::make_shared<Calling>();
    CacheOptions made;
    made.memory = memory;
    made.placement = placement::on(NodeId(8));
    const auto cache = Cache::make(stage.machine, *stage.engine, std::move(made)).value();
    static_cast<void>(cache->access(source));
    memory->cache = cache.get();
    EXPECT_EQ(cache->clear(), 1U);
    EXPECT_EQ(memory->cache, nullptr);
  });
}

TEST_F(Events, SayWhyAMoveFailed) {
  std::vector<Event> failed;
  CacheOptions made;
  made.observer = [&](const Event& event) {
    if (event.kind == EventKind::move_failed) failed.push_back(event);
  };
  const auto source = test::numbered_bytes(100);
  CacheStage stage(StagedMover::Mode::at_once, std::move(made));
  stage.mover->fail_with(engine::Cause::page_fault);
  static_cast<void>(stage.cache->access(source));
  stage.mover->fail_with(engine::Cause::device_dead);
  static_cast<void>(stage.cache->access(source));
  stage.mover->fail_with(engine::Cause::none);
  stage.mover->leave_late_writes(true);
  static_cast<void>(stage.cache->access(source));
  ASSERT_EQ(failed.size(), 3U);
  EXPECT_EQ(failed[0].cause, engine::Cause::page_fault);
  EXPECT_EQ(failed[1].cause, engine::Cause::device_dead);
  EXPECT_FALSE(failed[1].late_write_possible);
  EXPECT_EQ(failed[2].cause, engine::Cause::none);
  EXPECT_TRUE(failed[2].late_write_possible);
  stage.cache->clear();
  EXPECT_EQ(stage.memory->take_back(), 1U);
}

TEST_F(Events, AddUpToTheStatistics) {
  auto source = test::numbered_bytes(100000);
  CacheOptions made = options();
  made.capacity_per_node = Bytes(4 * platform::page_bytes());
  CacheStage stage(StagedMover::Mode::at_once, std::move(made));
  for (std::size_t i = 0; i < 500; ++i) {
    static_cast<void>(stage.cache->access(std::span(source).subspan(i * 37 % 20 * 5000, 3000)));
  }
  std::size_t hits = 0;
  std::size_t evictions = 0;
  for (const std::string& line : take()) {
    if (line.rfind("hit ", 0) == 0) ++hits;
    if (line.rfind("evicted ", 0) == 0) ++evictions;
  }
  EXPECT_EQ(hits, stage.statistics().hits);
  EXPECT_EQ(evictions, stage.statistics().evictions);
  EXPECT_GT(evictions, 0U);
}

TEST_F(Events, AnObserverThatThrowsIsCountedAndHarmsNobody) {
  const auto source = test::numbered_bytes(100);
  CacheOptions made;
  made.observer = [](const Event&) { throw std::runtime_error("of the observer"); };
  CacheStage stage(StagedMover::Mode::at_once, std::move(made));
  EXPECT_TRUE(stage.cache->access(source).cached());
  EXPECT_EQ(stage.cache->clear(), 1U);
  EXPECT_EQ(stage.statistics().policy_errors, 3U);
}

TEST_F(Events, KeepComingFromAChangeThatOutlivesTheCache) {
  auto source = test::numbered_bytes(100);
  CacheStage stage(StagedMover::Mode::at_once, options());
  {
    const Change change = stage.cache->change(source).value();
    stage.cache.reset();
    static_cast<void>(take());
  }
  EXPECT_EQ(take(), (Lines{"written_back 100 8"}));
}

TEST(HugePages, LongCopiesAreAlignedToThemAndShortOnesAreNot) {
  const std::size_t huge_bytes = platform::huge_page_bytes();
  if (huge_bytes == 0) GTEST_SKIP() << "this kernel has no transparent huge pages";
  const auto memory = huge_pages();
  for (const std::size_t byte_count : {huge_bytes, 2 * huge_bytes + platform::page_bytes()}) {
    const std::span<std::byte> bytes = memory->allocate(byte_count, NodeId(0)).value();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % huge_bytes, 0U);
    bytes.front() = bytes.back() = std::byte{1};
    memory->free(bytes);
  }
  const std::span<std::byte> shorter = memory->allocate(platform::page_bytes(), NodeId(0)).value();
  EXPECT_EQ(shorter.size(), platform::page_bytes());
  memory->free(shorter);
}

}  // namespace
}  // namespace headrace::cache
