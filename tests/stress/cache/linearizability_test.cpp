// SPDX-License-Identifier: Apache-2.0
// Threads use one cache concurrently, with delays, evictions, refused and failed moves; the
// recorded history is checked against the sequential specification (support/cache_spec.hpp).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/base/atomic.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/base/random.hpp"
#include "headrace/cache/cache.hpp"
#include "support/cache_spec.hpp"
#include "support/cache_stage.hpp"
#include "support/seed.hpp"
#include "support/watchdog.hpp"

namespace headrace::cache::linearizability_test {
namespace {

using test::CacheSpec;
using Kind = test::CacheSpec::Kind;

/// A value of the specification: written and read as a whole.
using Cell = std::uint64_t;
constexpr std::size_t kCellCount = 40;
constexpr std::size_t kCellsChangedMax = 8;
constexpr std::size_t kThreadCount = 4;
constexpr std::size_t kStepCount = 200;
constexpr std::size_t kRoundCount = 8;
constexpr std::size_t kStripe = std::size_t{4} << 20U;

/// An operation of one thread on neighbouring cells, and the values seen.
struct Record {
  Kind kind{};
  std::size_t first = 0;
  std::size_t count = 0;
  Cell written = 0;
  std::vector<Cell> seen = {};
  std::uint64_t called_at = 0;
  std::uint64_t returned_at = 0;
};

// A read of the source may race with its write-back, which the specification allows for the bytes
// of a live change: cells are read as a whole, and without ThreadSanitizer.
__attribute__((no_sanitize("thread"))) Cell load(const std::byte* bytes) {
  return *static_cast<const volatile Cell*>(static_cast<const void*>(bytes));
}
__attribute__((no_sanitize("thread"))) void store(std::byte* bytes, Cell value) {
  *static_cast<volatile Cell*>(static_cast<void*>(bytes)) = value;
}

std::vector<Cell> cells_of(std::span<const std::byte> bytes) {
  std::vector<Cell> cells(bytes.size() / sizeof(Cell));
  for (std::size_t i = 0; i < cells.size(); ++i) cells[i] = load(&bytes[i * sizeof(Cell)]);
  return cells;
}

/// Threading: shared.
class History {
 public:
  [[nodiscard]] std::uint64_t now() { return clock_.fetch_add_acq_rel(1); }

 private:
  Atomic<std::uint64_t> clock_{1};
};

/// Lets other threads run for a while: a wait that times out, so that it orders nothing.
void pause(std::chrono::microseconds time) {
  Mutex mutex;
  Condition never;
  const Lock lock(mutex);
  never.wait_for(mutex, time);
}

/// Pauses, yields or does nothing; thread-local, so that delays order nothing.
void delay() {
  thread_local Random random(test::seed() ^
                             std::hash<std::thread::id>{}(std::this_thread::get_id()));
  if (random.chance(1, 3)) std::this_thread::yield();
  if (random.chance(1, 24)) pause(std::chrono::microseconds(200));
}

/// One thread's part of a round.
///
/// Threading: owned.
class Client {
 public:
  Client(Cache& cache, History& history, std::span<std::byte> source, std::uint64_t id,
         std::uint64_t seed)
      : cache_(cache), history_(history), source_(source), id_(id), random_(seed) {}

  void run(std::size_t step_count) {
    for (std::size_t step = 0; step < step_count; ++step) {
      switch (random_.below(20)) {
        case 0:
          timed({Kind::write_back, 0, kCellCount}, [&] { static_cast<void>(cache_.write_back()); });
          break;
        case 1:
          timed({Kind::write_back, 0, kCellCount}, [&] { cache_.flush(); });
          break;
        case 2:
          if (random_.chance(1, 3))
            timed({Kind::write_back, 0, kCellCount}, [&] { cache_.clear(); });
          break;
        case 3:
          invalidate();
          break;
        case 4:
          read(true);
          break;
        case 11:
          read_many();
          break;
        case 5:
        case 6:
        case 7:
        case 8:
        case 9:
        case 10:
          change();
          break;
        default:
          read(false);
      }
    }
  }
  [[nodiscard]] std::vector<Record>& records() { return records_; }

 private:
  [[nodiscard]] std::span<std::byte> region(const Record& record) const {
    return source_.subspan(record.first * sizeof(Cell), record.count * sizeof(Cell));
  }
  [[nodiscard]] Record draw(Kind kind, std::size_t count_max) {
    Record record{kind};
    record.first = random_.below(kCellCount);
    record.count = 1 + random_.below(std::min(count_max, kCellCount - record.first));
    return record;
  }
  template <typename Call>
  void timed(Record record, Call call) {
    record.called_at = history_.now();
    call();
    record.returned_at = history_.now();
    records_.push_back(std::move(record));
  }
  void read(bool weak) {
    Record record = draw(Kind::read, kCellCount);
    // Often all of it, so that entries contain each other.
    if (random_.chance(1, 4)) record.first = 0, record.count = kCellCount;
    record.called_at = history_.now();
    const Entry entry = weak ? cache_.access_weak(region(record)) : cache_.access(region(record));
    // One in four is a prefetch.
    if (random_.chance(3, 4)) {
      entry.wait();
      record.seen = cells_of(entry.data());
      record.returned_at = history_.now();
      records_.push_back(std::move(record));
    }
  }
  void read_many() {
    std::vector<Record> drawn;
    std::vector<std::span<const std::byte>> regions;
    for (std::size_t i = 0; i < 3; ++i) {
      drawn.push_back(draw(Kind::read, kCellCount));
      drawn.back().called_at = history_.now();
      regions.emplace_back(region(drawn.back()));
    }
    const std::vector<Entry> entries = cache_.access_many(regions);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      entries[i].wait();
      drawn[i].seen = cells_of(entries[i].data());
      drawn[i].returned_at = history_.now();
      records_.push_back(std::move(drawn[i]));
    }
  }
  void change() {
    Record begin = draw(Kind::begin_change, kCellsChangedMax);
    begin.written = id_ << 32U | ++change_count_;
    begin.called_at = history_.now();
    std::optional<Result<Change>> change(cache_.change(region(begin)));
    if (!change->has_value()) return;
    const std::span<std::byte> data = change->value().data();
    begin.seen = cells_of(data);
    begin.returned_at = history_.now();
    Record end{Kind::end_change, begin.first, begin.count, begin.written};
    for (std::size_t i = 0; i < begin.count; ++i) {
      store(&data[i * sizeof(Cell)], begin.written);
      if (random_.chance(1, 16)) delay();
    }
    records_.push_back(std::move(begin));
    timed(std::move(end), [&] { change.reset(); });
    // Changes part of a slightly wider region.
    if (!random_.chance(1, 2)) return;
    Record record = records_.back();
    record.kind = Kind::read;
    if (record.first > 0) --record.first, ++record.count;
    if (record.first + record.count < kCellCount) ++record.count;
    record.called_at = history_.now();
    const Entry entry = cache_.access(region(record));
    // Without a wait the source is read, which has the change, too.
    if (random_.chance(1, 2)) entry.wait();
    record.seen = cells_of(entry.data());
    record.returned_at = history_.now();
    records_.push_back(std::move(record));
  }
  void invalidate() {
    const Record record = draw(Kind::invalidate, kCellsChangedMax);
    timed(record, [&] { cache_.invalidate(region(record)); });
  }

  Cache& cache_;
  History& history_;
  const std::span<std::byte> source_;
  const std::uint64_t id_;
  Random random_;
  std::uint64_t change_count_ = 0;
  std::vector<Record> records_;
};

void expect_linearizable(const std::vector<Record>& records, std::uint64_t seed) {
  for (std::size_t cell = 0; cell < kCellCount; ++cell) {
    std::vector<test::RecordedOperation> history;
    for (const Record& record : records) {
      if (cell < record.first || cell >= record.first + record.count) continue;
      test::RecordedOperation operation{
          {.kind = record.kind, .value = record.written}, record.called_at, record.returned_at};
      if (record.kind == Kind::read) operation.operation.value = record.seen[cell - record.first];
      if (record.kind == Kind::begin_change) {
        operation.operation.before = record.seen[cell - record.first];
      }
      history.push_back(operation);
    }
    const auto violation = test::find_violation(std::move(history));
    if (!violation.has_value()) continue;
    // Printed by the child; its other output is not shown.
    std::fprintf(stderr, "cell %zu, seed of the round %llu: %s\n", cell,
                 static_cast<unsigned long long>(seed), violation->c_str());
    FAIL() << *violation;
  }
}

class CacheHistory : public ::testing::TestWithParam<test::StagedMover::Mode> {};

TEST_P(CacheHistory, OfFourThreadsIsOneOfTheSpecification) {
  const auto mode = GetParam();
  test::expect_ends([mode] {
    for (std::size_t round = 0; round < kRoundCount && !::testing::Test::HasFailure(); ++round) {
      const std::uint64_t seed = test::seed() + 1000 * round;
      // In every other round the cells lie around a boundary of stripes, in a node with several
      // shards, and invalidated copies are freed later, as no observer hears of it.
      const bool is_striped = round % 2 == 1;
      std::vector<std::byte> memory(is_striped ? 2 * kStripe : kCellCount * sizeof(Cell));
      const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
      std::span<std::byte> source(memory);
      if (is_striped) {
        source = source.subspan(kStripe - address % kStripe - kCellCount / 2 * sizeof(Cell),
                                kCellCount * sizeof(Cell));
      }
      CacheOptions options;
      options.placement = [](const PlacementContext&) {
        delay();
        return std::optional(NodeId(8));
      };
      if (!is_striped) {
        options.observer = [](const Event&) { delay(); };
        options.capacity_per_node = Bytes((2 + round % 8) * 4096);
      }
      test::CacheStage stage(mode, std::move(options));
      stage.memory->delay_by(&delay);

      Atomic<bool> over{false};
      // Fails moves, refuses them and runs out of memory, in turn; drives the mover.
      std::thread chaos([&] {
        Random random(seed);
        while (!over.load_relaxed()) {  // relaxed: only the end matters.
          stage.mover->refuse(random.chance(1, 8));
          const bool fails = random.chance(1, 8);
          stage.mover->fail_with(fails ? engine::Cause::device_error : engine::Cause::none);
          stage.mover->release(fails ? engine::Cause::page_fault : engine::Cause::none);
          stage.memory->break_down(random.chance(1, 8));
          pause(std::chrono::microseconds(random.below(100)));
        }
      });
      History history;
      std::vector<Client> clients;
      clients.reserve(kThreadCount);
      for (std::size_t i = 0; i < kThreadCount; ++i) {
        clients.emplace_back(*stage.cache, history, source, i + 1, seed + i);
      }
      // Each awaited move costs two sleeps if a mover must be released.
      const std::size_t step_count =
          mode == test::StagedMover::Mode::held ? kStepCount / 4 : kStepCount;
      std::vector<std::thread> threads;
      for (Client& client : clients) {
        threads.emplace_back([&client, step_count] { client.run(step_count); });
      }
      for (std::thread& thread : threads) thread.join();

      std::vector<Record> records;
      for (Client& client : clients) {
        for (Record& record : client.records()) records.push_back(std::move(record));
      }
      Record last{Kind::write_back, 0, kCellCount};
      last.called_at = history.now();
      EXPECT_TRUE(stage.cache->write_back().has_value());
      last.returned_at = history.now();
      records.push_back(last);
      Record in_source{Kind::read, 0, kCellCount};
      in_source.called_at = history.now();
      in_source.seen = cells_of(source);
      in_source.returned_at = history.now();
      records.push_back(in_source);
      expect_linearizable(records, seed);
      stage.cache.reset();
      over.store_relaxed(true);  // relaxed: as above.
      chaos.join();
    }
  });
}

std::string name_of(const ::testing::TestParamInfo<test::StagedMover::Mode>& instance) {
  switch (instance.param) {
    case test::StagedMover::Mode::at_once:
      return "AtOnce";
    case test::StagedMover::Mode::on_poll:
      return "OnPoll";
    case test::StagedMover::Mode::held:
      break;
  }
  return "Held";
}

INSTANTIATE_TEST_SUITE_P(EveryMover, CacheHistory,
                         ::testing::Values(test::StagedMover::Mode::at_once,
                                           test::StagedMover::Mode::on_poll,
                                           test::StagedMover::Mode::held),
                         name_of);

}  // namespace
}  // namespace headrace::cache::linearizability_test
