// SPDX-License-Identifier: Apache-2.0
// Tables and their prefetcher: refusals, ownership of memory, and prefetch distance. Column types:
// python/tests/test_table.py, against another implementation of Arrow.
#include "headrace/query/table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>

#include "headrace/query/prefetcher.hpp"
#include "support/cache_stage.hpp"
#include "support/machines.hpp"

namespace headrace::query {
namespace {

constexpr std::size_t kChunkRows = 8192;
constexpr std::size_t kChunkBytes = kChunkRows * sizeof(std::int64_t);

/// A stream of one column of 64-bit integers, and the number of live batches.
struct Numbers {
  explicit Numbers(std::size_t row_count) : values(row_count) {
    std::iota(values.begin(), values.end(), 1000);
  }

  ArrowArrayStream stream() {
    return {[](ArrowArrayStream* self, ArrowSchema* out) { return of(self).write_schema(*out); },
            [](ArrowArrayStream* self, ArrowArray* out) { return of(self).write_batch(*out); },
            [](ArrowArrayStream*) { return "the source is gone"; },
            [](ArrowArrayStream* self) { self->release = nullptr; }, this};
  }
  static Numbers& of(ArrowArrayStream* self) { return *static_cast<Numbers*>(self->private_data); }

  int write_schema(ArrowSchema& out) {
    column_schema = {format, "n", nullptr, 0, 0, nullptr, nullptr, nullptr, nullptr};
    schema_children = {&column_schema};
    out = {"+s",    "",
           nullptr, 0,
           1,       schema_children.data(),
           nullptr, [](ArrowSchema* self) { self->release = nullptr; },
           nullptr};
    return 0;
  }
  int write_batch(ArrowArray& out) {
    out = {};
    if (is_failing) return EIO;
    if (is_read) return 0;
    is_read = true;
    ++alive;
    const auto length = static_cast<std::int64_t>(values.size());
    column = {length - offset, 0,       offset, std::ssize(buffers), 0, buffers.data(), nullptr,
              nullptr,         nullptr, nullptr};
    children = {&column};
    out = {length - offset,
           0,
           0,
           1,
           column_count,
           no_buffers.data(),
           children.data(),
           nullptr,
           [](ArrowArray* self) {
             --static_cast<Numbers*>(self->private_data)->alive;
             self->release = nullptr;
           },
           this};
    return 0;
  }

  std::vector<std::int64_t> values;
  bool is_failing = false;
  std::int64_t column_count = 1;
  std::int64_t offset = 0;  ///< Of the exported array, as that of a slice.
  const char* format = "l";
  std::vector<const void*> buffers{nullptr, values.data()};
  int alive = 0;

 private:
  bool is_read = false;
  ArrowSchema column_schema{};
  std::array<ArrowSchema*, 1> schema_children{};
  ArrowArray column{};
  std::array<ArrowArray*, 1> children{};
  std::array<const void*, 1> no_buffers{};
};

std::shared_ptr<const Table> import_numbers(Numbers& numbers) {
  ArrowArrayStream stream = numbers.stream();
  return *Table::import_stream(&stream, kChunkRows);
}

/// The next chunk's batch; released by the destructor.
class Batch {
 public:
  explicit Batch(ArrowArrayStream& stream) { EXPECT_EQ(stream.get_next(&stream, &array_), 0); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() {
    if (array_.release != nullptr) array_.release(&array_);
  }
  [[nodiscard]] std::span<const std::int64_t> values() const {
    if (array_.release == nullptr) return {};
    return {static_cast<const std::int64_t*>(array_.children[0]->buffers[1]),
            static_cast<std::size_t>(array_.length)};
  }
  [[nodiscard]] const ArrowArray& column() const { return *array_.children[0]; }
  [[nodiscard]] ArrowArray take_column() {
    ArrowArray taken = *array_.children[0];
    array_.children[0]->release = nullptr;
    return taken;
  }

 private:
  ArrowArray array_{};
};

bool equal(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

struct Stage {
  explicit Stage(std::size_t capacity_bytes) {
    cache::CacheOptions options;
    options.placement = cache::placement::on(NodeId(0));
    options.capacity_per_node = Bytes(capacity_bytes);
    cache = *cache::Cache::make(machine, *engine, std::move(options));
  }
  topo::Machine machine = test::one_node_machine();
  std::unique_ptr<engine::Engine> engine = *engine::Engine::make(machine, {});
  std::shared_ptr<cache::Cache> cache;
};

TEST(Table, CutsABatchIntoChunks) {
  Numbers numbers(2 * kChunkRows + 5);
  const std::shared_ptr<const Table> table = import_numbers(numbers);
  EXPECT_EQ(table->row_count(), 2 * kChunkRows + 5);
  EXPECT_EQ(table->chunk_count(), 3U);
  EXPECT_EQ(table->chunk_rows(2), 5U);
  EXPECT_EQ(table->column_name(0), "n");
  // The last chunk is too short to be moved.
  EXPECT_EQ(table->movable(0).count(), 2 * kChunkBytes);
}

TEST(Table, HasNoNullsInASliceWithoutNullsThatSharesItsBitmap) {
  Numbers numbers(24);
  const std::array<std::uint8_t, 3> only_the_first_is_null{0xFE, 0xFF, 0xFF};
  numbers.buffers[0] = only_the_first_is_null.data();
  numbers.offset = 16;
  ArrowArrayStream stream{};
  ASSERT_TRUE(import_numbers(numbers)->open_stream({0}, nullptr, &stream).has_value());
  const Batch batch(stream);
  stream.release(&stream);
  EXPECT_EQ(batch.column().null_count, 0);
  EXPECT_EQ(batch.column().buffers[0], nullptr) << "its bits are those of other rows";
  EXPECT_EQ(batch.values()[0], 1016);
}

TEST(Table, RefusesStreamsThatItCannotRead) {
  Numbers numbers(10);
  ArrowArrayStream stream = numbers.stream();
  EXPECT_EQ(Table::import_stream(&stream, 0).error().code, Code::invalid_argument);
  EXPECT_EQ(Table::import_stream(&stream, 1).error().code, Code::invalid_argument)
      << "it was released";
  EXPECT_EQ(Table::import_stream(nullptr, 1).error().code, Code::invalid_argument);
  numbers.is_failing = true;
  stream = numbers.stream();
  const Error error = Table::import_stream(&stream, 1).error();
  EXPECT_EQ(error.code, Code::io_failed);
  EXPECT_EQ(error.os_errno, EIO);
  EXPECT_EQ(error.cause, "the source is gone");
  numbers.is_failing = false;
  numbers.column_count = 0;
  stream = numbers.stream();
  EXPECT_EQ(Table::import_stream(&stream, 1).error().code, Code::corrupt_data);
  EXPECT_EQ(numbers.alive, 0);
}

TEST(Table, IsKeptByEachPartOfWhatItsStreamsGave) {
  Numbers numbers(kChunkRows);
  ArrowArray column{};
  {
    ArrowArrayStream stream{};
    ASSERT_TRUE(import_numbers(numbers)->open_stream({0}, nullptr, &stream).has_value());
    Batch batch(stream);
    stream.release(&stream);
    EXPECT_TRUE(equal(batch.values(), numbers.values));
    column = batch.take_column();
  }
  EXPECT_EQ(numbers.alive, 1);
  column.release(&column);
  EXPECT_EQ(numbers.alive, 0);
}

TEST(Table, RefusesAStreamOfAColumnThatItDoesNotHave) {
  Numbers numbers(1);
  ArrowArrayStream stream{};
  EXPECT_EQ(import_numbers(numbers)->open_stream({1}, nullptr, &stream).error().code,
            Code::out_of_range);
}

TEST(Prefetcher, IsAsFarAheadAsTheCacheHolds) {
  Numbers numbers(6 * kChunkRows);
  const std::shared_ptr<const Table> table = import_numbers(numbers);
  Stage stage(3 * kChunkBytes);
  const auto prefetcher = *Prefetcher::start(stage.cache, {{table, {}, {0}, {}}});
  prefetcher->finish();
  EXPECT_EQ(prefetcher->statistics().scans[0].chunks_submitted, 3U);
  ArrowArrayStream stream{};
  ASSERT_TRUE(prefetcher->open_stream(table, {0}, &stream).has_value());
  for (std::size_t chunk = 0; chunk < 6; ++chunk) {
    const Batch batch(stream);
    EXPECT_TRUE(
        equal(batch.values(), std::span(numbers.values).subspan(chunk * kChunkRows, kChunkRows)));
    EXPECT_NE(batch.values().data(), numbers.values.data() + chunk * kChunkRows) << "a copy";
    // The query is slow: the prefetcher refills the room freed by the previous chunk.
    prefetcher->finish();
  }
  EXPECT_TRUE(Batch(stream).values().empty());
  stream.release(&stream);
  prefetcher->stop();
  const ScanStatistics scan = prefetcher->statistics().scans[0];
  EXPECT_EQ(scan.chunks_read, 6U);
  EXPECT_EQ(scan.chunks_submitted, 6U);
  EXPECT_EQ(scan.columns[0].bytes_from_copies, 6 * kChunkBytes);
  EXPECT_EQ(scan.columns[0].bytes_from_source, 0U);
  EXPECT_EQ(prefetcher->statistics().copies_by_node.at(NodeId(0)), 6U);
  EXPECT_EQ(scan.columns[0].chunks_ahead, 6U);
  EXPECT_GT(scan.columns[0].lead.count(), 0);
}

TEST(Prefetcher, CopiesWhatStreamsReadIfThereIsNoPlan) {
  Numbers numbers(4 * kChunkRows);
  const std::shared_ptr<const Table> table = import_numbers(numbers);
  Stage stage(8 * kChunkBytes);
  const auto prefetcher = *Prefetcher::start(stage.cache, {});
  prefetcher->finish();
  EXPECT_TRUE(prefetcher->statistics().scans.empty());
  ArrowArrayStream stream{};
  EXPECT_EQ(prefetcher->open_stream(table, {1}, &stream).error().code, Code::out_of_range);
  for (int round = 0; round < 2; ++round) {  // As a recursive query does.
    ASSERT_TRUE(prefetcher->open_stream(table, {0}, &stream).has_value());
    prefetcher->finish();
    while (!Batch(stream).values().empty()) {
    }
    stream.release(&stream);
  }
  const PrefetchStatistics statistics = prefetcher->statistics();
  ASSERT_EQ(statistics.scans.size(), 1U);
  EXPECT_EQ(statistics.scans[0].chunks_submitted, 4U);
  EXPECT_EQ(statistics.scans[0].columns[0].bytes_from_copies, 8 * kChunkBytes);
  EXPECT_EQ(statistics.scans[0].columns[0].bytes_from_source, 0U);
}

TEST(Prefetcher, LeavesTheQueryNineTenthsOfTheTimeAtASparePace) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kMoveMin{5};
  Numbers numbers(3 * kChunkRows);
  test::CacheStage stage(test::StagedMover::Mode::held);
  const auto prefetcher = *Prefetcher::start(std::move(stage.cache),
                                             {{import_numbers(numbers), {}, {0}, {}}}, Pace::spare);
  while (stage.mover->accepted_count() == 0) std::this_thread::yield();
  const auto begin = Clock::now();
  while (Clock::now() < begin + kMoveMin) std::this_thread::yield();
  EXPECT_EQ(stage.mover->accepted_count(), 1U) << "one move at a time";
  const auto end = Clock::now();
  stage.mover->release();
  while (stage.mover->accepted_count() == 1) std::this_thread::yield();
  EXPECT_GE(Clock::now() - end, 9 * kMoveMin);
  std::jthread finisher([&] { prefetcher->finish(); });
  while (prefetcher->statistics().scans[0].chunks_submitted < 3) stage.mover->release();
  stage.mover->release();
}

TEST(Prefetcher, GivesCopiesOfStringsWhoseOffsetsCountFromTheCopy) {
  constexpr std::int32_t kLength = 8;
  std::vector<std::int32_t> offsets(2 * kChunkRows + 1);
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    offsets[i] = static_cast<std::int32_t>(i) * kLength;
  }
  std::string text(2 * kChunkRows * kLength, 'a');
  std::fill(text.begin() + std::ssize(text) / 2, text.end(), 'b');
  Numbers words(2 * kChunkRows);
  words.format = "u";
  words.buffers = {nullptr, offsets.data(), text.data()};
  const std::shared_ptr<const Table> table = import_numbers(words);
  Stage stage(8 * kChunkBytes);
  const auto prefetcher = *Prefetcher::start(stage.cache, {{table, {}, {0}, {}}});
  prefetcher->finish();
  ArrowArrayStream stream{};
  ASSERT_TRUE(prefetcher->open_stream(table, {0}, &stream).has_value());
  for (const char letter : {'a', 'b'}) {
    const Batch batch(stream);
    const auto* const found = static_cast<const std::int32_t*>(batch.column().buffers[1]);
    EXPECT_EQ(found[0], 0) << "the buffer starts before the copy";
    EXPECT_EQ(found[kChunkRows], kLength * std::int32_t{kChunkRows});
    const auto* const letters = static_cast<const char*>(batch.column().buffers[2]);
    EXPECT_EQ(std::string(letters + found[0], kLength), std::string(kLength, letter));
  }
  stream.release(&stream);
  prefetcher->stop();
  EXPECT_EQ(prefetcher->statistics().scans[0].columns[0].bytes_from_source, 0U);
}

TEST(Prefetcher, GivesUpWhatTheQueryHasRead) {
  Numbers first(3 * kChunkRows);
  Numbers second(4 * kChunkRows);
  const std::array tables{import_numbers(first), import_numbers(second)};
  Stage stage(1 * kChunkBytes);
  const auto prefetcher =
      *Prefetcher::start(stage.cache, {{tables[0], {}, {0}, {}}, {tables[1], {}, {0}, {}}});
  prefetcher->finish();
  // The query reads the second table first; the prefetcher is still at the other one.
  for (const std::size_t index : {1U, 0U}) {
    ArrowArrayStream stream{};
    ASSERT_TRUE(prefetcher->open_stream(tables[index], {0}, &stream).has_value());
    while (!Batch(stream).values().empty()) {
    }
    stream.release(&stream);
  }
  prefetcher->finish();
  const ScanStatistics scan = prefetcher->statistics().scans[1];
  EXPECT_EQ(scan.chunks_submitted, 0U);
  EXPECT_EQ(scan.chunks_skipped, 4U);
}

TEST(Prefetcher, LeavesWhatNeverFitsAtTheSource) {
  Numbers numbers(2 * kChunkRows);
  const std::shared_ptr<const Table> table = import_numbers(numbers);
  Stage stage(kChunkBytes / 2);
  const auto prefetcher = *Prefetcher::start(stage.cache, {{table, {0}, {}, {}}});
  prefetcher->finish();
  EXPECT_EQ(prefetcher->statistics().scans[0].chunks_skipped, 2U);
  ArrowArrayStream stream{};
  ASSERT_TRUE(prefetcher->open_stream(table, {0}, &stream).has_value());
  EXPECT_EQ(Batch(stream).values().data(), numbers.values.data());
  stream.release(&stream);
}

TEST(Prefetcher, GivesEachStreamOfATableAScanOfItsOwn) {
  Numbers numbers(2 * kChunkRows);
  const std::shared_ptr<const Table> table = import_numbers(numbers);
  Stage stage(8 * kChunkBytes);
  const auto prefetcher =
      *Prefetcher::start(stage.cache, {{table, {}, {0}, {}}, {table, {0}, {}, {}}});
  prefetcher->finish();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(prefetcher->expects(*table, {0}), i < 2);
    ArrowArrayStream stream{};
    ASSERT_TRUE(prefetcher->open_stream(table, {0}, &stream).has_value());
    while (!Batch(stream).values().empty()) {
    }
    stream.release(&stream);
  }
  const PrefetchStatistics statistics = prefetcher->statistics();
  for (const ScanStatistics& scan : statistics.scans) EXPECT_EQ(scan.chunks_read, 2U);
  EXPECT_EQ(statistics.unplanned.bytes_from_copies, 2 * kChunkBytes);
}

TEST(Prefetcher, MayStopWhileAnotherThreadReads) {
  Numbers numbers(64 * kChunkRows);
  const std::shared_ptr<const Table> table = import_numbers(numbers);
  for (int i = 0; i < 2; ++i) {
    Stage stage(8 * kChunkBytes);
    const auto prefetcher = *Prefetcher::start(stage.cache, {{table, {}, {0}, {}}});
    ArrowArrayStream stream{};
    ASSERT_TRUE(prefetcher->open_stream(table, {0}, &stream).has_value());
    std::jthread reader([&] {
      for (std::size_t chunk = 0; chunk < 64; ++chunk) {
        EXPECT_TRUE(equal(Batch(stream).values(),
                          std::span(numbers.values).subspan(chunk * kChunkRows, kChunkRows)));
      }
    });
    prefetcher->stop();
    stage.cache.reset();
    stage.engine.reset();
    reader.join();
    stream.release(&stream);
  }
}

TEST(Prefetcher, RefusesAColumnThatATableDoesNotHave) {
  Numbers numbers(1);
  Stage stage(1 * kChunkBytes);
  EXPECT_EQ(Prefetcher::start(stage.cache, {{import_numbers(numbers), {1}, {}, {}}}).error().code,
            Code::out_of_range);
}

}  // namespace
}  // namespace headrace::query
