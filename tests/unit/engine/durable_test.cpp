// SPDX-License-Identifier: Apache-2.0
// Operations with a durable target: with every mover, once the job has ended no state that a crash
// could leave lacks a byte.
//
// The recorder of the pmem layer replaces persistent memory. It does not see stores of a device or
// of a copy kernel; so the linker substitutes the function below for the one that flushes lines,
// and records the target's content at that moment as stores in any order. Lines that are not
// flushed count as never stored.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "emulated.hpp"
#include "engine/dsa/codec.hpp"
#include "engine/memory_access.hpp"
#include "headrace/pmem/recorder.hpp"

namespace {

std::mutex recording_mutex;
headrace::pmem::Recorder* recording = nullptr;

void record(std::span<const std::byte> bytes) {
  const std::scoped_lock lock(recording_mutex);
  if (recording == nullptr) return;
  const std::span<std::byte> memory = recording->memory();
  const std::less<> before;
  if (before(bytes.data(), memory.data()) || !before(bytes.data(), memory.data() + memory.size())) {
    return;
  }
  recording->store(memory.data() + (bytes.data() - memory.data()), bytes);
  recording->flush(bytes.data(), bytes.size());
  recording->drain();
}

}  // namespace

// NOLINTBEGIN(*-reserved-identifier, *-identifier-naming): the linker's names.
extern "C" void
__real__ZN8headrace8platform16write_back_linesESt4spanIKSt4byteLm18446744073709551615EE(
    std::span<const std::byte> bytes) noexcept;
extern "C" void
__wrap__ZN8headrace8platform16write_back_linesESt4spanIKSt4byteLm18446744073709551615EE(
    std::span<const std::byte> bytes) noexcept {
  record(bytes);
  __real__ZN8headrace8platform16write_back_linesESt4spanIKSt4byteLm18446744073709551615EE(bytes);
}
// NOLINTEND(*-reserved-identifier, *-identifier-naming)

namespace headrace::engine {
namespace {

using emu::FaultKind;
using emu::FaultRule;
using test::Emulated;
using test::make_emulated;

constexpr std::size_t kMemoryBytes = 128U << 10U;
// Neither end is line-aligned; several pages.
constexpr std::size_t kOffset = 4096 + 37;
constexpr std::size_t kBytes = 50'001;

/// Zeroed persistent memory of the recorder.
class Media {
 public:
  Media() : recorder_(std::vector<std::byte>(kMemoryBytes)) {
    const std::scoped_lock lock(recording_mutex);
    recording = &recorder_;
  }
  Media(const Media&) = delete;
  Media& operator=(const Media&) = delete;
  ~Media() { end(); }

  [[nodiscard]] std::span<std::byte> target() {
    return recorder_.memory().subspan(kOffset, kBytes);
  }
  /// Describes the error if power fails now or later; empty if there is none.
  [[nodiscard]] std::string lost() {
    end();
    const std::vector<std::byte> wanted(recorder_.memory().begin(), recorder_.memory().end());
    recorder_.mark(1);
    const pmem::Exploration explored =
        pmem::explore(recorder_,
                      [&](std::span<std::byte> memory, std::uint64_t mark) -> std::string {
                        if (mark == 0 || std::ranges::equal(memory, wanted)) return {};
                        const auto [byte, other] = std::ranges::mismatch(memory, wanted);
                        return "byte " + std::to_string(byte - memory.begin()) + " is lost";
                      },
                      {.states_per_moment_max = 4});
    return explored.first_bad.has_value() ? explored.first_bad->verdict : std::string();
  }

 private:
  static void end() {
    const std::scoped_lock lock(recording_mutex);
    recording = nullptr;
  }
  pmem::Recorder recorder_;
};

std::vector<std::byte> some_bytes(std::size_t byte_count) {
  return test::Buffers(byte_count, 3).source;
}

Completion submit_and_wait(Engine& engine, const Operation& operation, Path path) {
  Job job;
  Submit answer = Submit::full;
  while (answer == Submit::full) {
    answer = engine.submit(job, operation, {.path = path});
    engine.poll();
  }
  EXPECT_EQ(answer, Submit::accepted);
  EXPECT_TRUE(job.wait_for(std::chrono::seconds(60)));
  EXPECT_EQ(job.completion().state, JobState::done);
  return job.completion();
}

std::unique_ptr<Engine> make_workers() {
  auto engine = Engine::make(topo::discover().value(), {.piece = kib(8), .path = Path::cpu});
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  return std::move(*engine);
}

TEST(Durable, WithoutItTheRecorderFindsWhatIsLost) {
  const std::vector<std::byte> source = some_bytes(kBytes);
  const auto engine = make_workers();
  Media media;
  submit_and_wait(*engine, Operation::copy(media.target(), source), Path::cpu);
  EXPECT_EQ(media.lost(), "byte " + std::to_string(kOffset) + " is lost");
}

TEST(Durable, NothingOfASynchronousCopyIsLost) {
  const std::vector<std::byte> source = some_bytes(kBytes);
  const auto engine = make_workers();
  for (const std::size_t byte_count : {std::size_t{1}, std::size_t{64}, kBytes}) {
    Media media;
    Completion end;
    const Operation copy =
        Operation::copy(media.target().first(byte_count), std::span(source).first(byte_count));
    ASSERT_EQ(engine->run(copy.durable(), end, {.path = Path::cpu}), Submit::accepted);
    EXPECT_EQ(end.state, JobState::done);
    EXPECT_EQ(media.lost(), "") << byte_count;
    EXPECT_EQ(media.target()[0], source[0]);
  }
}

TEST(Durable, NothingThatWorkersWriteIsLost) {
  const std::vector<std::byte> source = some_bytes(kBytes);
  const auto engine = make_workers();
  Media media;
  submit_and_wait(*engine, Operation::copy(media.target(), source).durable(), Path::cpu);
  EXPECT_EQ(media.lost(), "");
  EXPECT_TRUE(std::ranges::equal(media.target(), source));
}

TEST(Durable, NothingThatADeviceWritesIsLost) {
  const std::vector<std::byte> source = some_bytes(kBytes);
  // One descriptor, and several stripes of several descriptors.
  for (const std::uint64_t transfer_max : {std::uint64_t{1} << 21U, std::uint64_t{4096}}) {
    const Emulated machine = make_emulated({.transfer_bytes_max = transfer_max});
    Media media;
    const Completion end = submit_and_wait(
        *machine.engine, Operation::copy(media.target(), source).durable(), Path::dsa);
    EXPECT_GT(end.bytes_by_device, 0U);
    EXPECT_EQ(media.lost(), "") << transfer_max;
    EXPECT_TRUE(std::ranges::equal(media.target(), source));
  }
}

TEST(Durable, NothingIsLostThatAProcessorFinishesForADevice) {
  const std::vector<std::byte> source = some_bytes(kBytes);
  const Emulated machine = make_emulated(
      {.device = {.page_faults = FaultPolicy::finish_on_cpu},
       .faults = test::script({FaultRule{.kind = FaultKind::page_fault, .every = 1}})});
  Media media;
  const Completion end = submit_and_wait(
      *machine.engine, Operation::copy(media.target(), source).durable(), Path::dsa);
  EXPECT_GT(end.page_faults, 0U);
  EXPECT_TRUE(end.fell_back);
  EXPECT_EQ(media.lost(), "");
}

TEST(Durable, NothingOfABatchIsLost) {
  const std::vector<std::byte> source = some_bytes(kBytes);
  const Emulated machine = make_emulated({});
  const auto workers = make_workers();
  const std::array<Engine*, 2> engines{machine.engine.get(), workers.get()};
  for (Engine* const engine : engines) {
    Media media;
    const std::span<std::byte> target = media.target();
    const std::span<const std::byte> all(source);
    const std::array operations{
        Operation::copy(target.first(1000), all.first(1000)).durable(),
        Operation::fill(target.subspan(1000, 777), 7).durable(),
        Operation::crc(all.first(100)).durable(),
        Operation::copy_crc(target.subspan(3000, 500), all.first(500)).durable()};
    Job job;
    ASSERT_EQ(engine->submit_batch(job, {.operations = operations, .completions = {}}),
              Submit::accepted);
    ASSERT_TRUE(job.wait_for(std::chrono::seconds(60)));
    EXPECT_EQ(job.completion().state, JobState::done);
    EXPECT_EQ(media.lost(), "");
    EXPECT_EQ(target[1000], std::byte{7});
  }
}

TEST(Durable, NothingThatAChannelWritesIsLost) {
  const std::vector<std::byte> source = some_bytes(kBytes);
  const auto faulty = test::script({FaultRule{.kind = FaultKind::page_fault, .every = 1}});
  // By the device, and by a processor that helps.
  for (const bool helped : {false, true}) {
    const Emulated machine = make_emulated({.device = {.page_faults = FaultPolicy::finish_on_cpu},
                                            .faults = helped ? faulty : emu::FaultScript{}});
    auto channel = machine.engine->open_channel();
    ASSERT_TRUE(channel.has_value());
    Media media;
    const std::span<std::byte> target = media.target();
    const std::span<const std::byte> all(source);
    Ticket ticket{};
    ASSERT_EQ((*channel)->submit(Operation::copy(target.first(20'000), all.first(20'000)).durable(),
                                 ticket),
              Submit::accepted);
    EXPECT_EQ((*channel)->wait(ticket).state, JobState::done);
    const std::array operations{
        Operation::copy(target.subspan(20'000, 1000), all.first(1000)).durable(),
        Operation::fill(target.subspan(21'000, 777), 7).durable()};
    ASSERT_EQ((*channel)->submit_batch({.operations = operations, .completions = {}}, ticket),
              Submit::accepted);
    EXPECT_EQ((*channel)->wait(ticket).state, JobState::done);
    EXPECT_EQ(media.lost(), "") << helped;
    EXPECT_EQ(target[21'000], std::byte{7});
  }
}

TEST(Durable, BothTargetsOfADualcastAre) {
  const std::vector<std::byte> source = some_bytes(2000);
  const Emulated machine = make_emulated({});
  Media media;
  const std::span<std::byte> target = media.target();
  submit_and_wait(
      *machine.engine,
      Operation::dualcast(target.first(2000), target.subspan(8192, 2000), source).durable(),
      Path::dsa);
  EXPECT_EQ(media.lost(), "");
  EXPECT_EQ(target[8192], source[0]);
}

TEST(Durable, ADeviceIsNotAskedToWriteIntoTheCache) {
  const std::vector<std::byte> source = some_bytes(64);
  std::vector<std::byte> target(64);
  const Operation copy = Operation::copy(target, source);
  const auto flags = [&](const Operation& operation) {
    return detail::hints(operation, {}, FaultPolicy::touch_and_resubmit) & dsa::flag::cache_control;
  };
  EXPECT_NE(flags(copy.into_cache()), 0U);
  EXPECT_EQ(flags(copy.into_cache().durable()), 0U);
  EXPECT_EQ(flags(copy.durable().into_cache()), 0U);
}

TEST(Durable, WhatIsRefusedWithoutItIsRefused) {
  std::vector<std::byte> target(64);
  EXPECT_EQ(Operation::copy(target, std::span(target).first(32)).durable().validate(),
            Submit::length_differs);
  EXPECT_EQ(Operation::no_op().durable().validate(), Submit::accepted);
}

}  // namespace
}  // namespace headrace::engine
