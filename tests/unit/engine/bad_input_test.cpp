// SPDX-License-Identifier: Apache-2.0
// Every invalid argument, on every path: a named error is reported, and nothing outside a target is
// written.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "emulated.hpp"
#include "headrace/platform/memory.hpp"

namespace headrace::engine {
namespace {

using test::Emulated;
using test::make_emulated;

constexpr std::size_t kPage = 4096;

/// Page-aligned, between two inaccessible pages.
class Island {
 public:
  explicit Island(std::size_t byte_count, int protection = PROT_READ | PROT_WRITE)
      : byte_count_((byte_count + kPage - 1) / kPage * kPage) {
    // Far from where the kernel places mappings: another thread's memory must not fill the hole
    // that unmap() leaves. AddressSanitizer allows different ranges.
#ifdef __SANITIZE_ADDRESS__
    constexpr unsigned kPlaceBit = 45;
#else
    constexpr unsigned kPlaceBit = 36;
#endif
    auto* const wish = reinterpret_cast<void*>(std::uintptr_t{1} << kPlaceBit);
    base_ = static_cast<std::byte*>(::mmap(wish, byte_count_ + 2 * kPage, PROT_NONE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    protect(0, byte_count_, PROT_READ | PROT_WRITE);
    if (byte_count <= 64 * kPage) std::memset(base_ + kPage, 0x5a, byte_count_);
    protect(0, byte_count_, protection);
  }
  ~Island() { ::munmap(base_, byte_count_ + 2 * kPage); }
  Island(const Island&) = delete;
  Island& operator=(const Island&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const { return {base_ + kPage, byte_count_}; }
  void protect(std::size_t first, std::size_t count, int protection) const {
    EXPECT_EQ(::mprotect(base_ + kPage + first, count, protection), 0);
  }
  void unmap(std::size_t first, std::size_t count) const {
    EXPECT_EQ(::munmap(base_ + kPage + first, count), 0);
  }
  /// Maps a file that ends before page `first` from there on.
  void end_file(std::size_t first) const {
    const int file = ::memfd_create("short", MFD_CLOEXEC);
    EXPECT_NE(::mmap(base_ + kPage + first, byte_count_ - first, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_FIXED, file, 0),
              MAP_FAILED);
    ::close(file);
  }

 private:
  std::byte* base_ = nullptr;
  std::size_t byte_count_;
};

enum class Trouble : std::uint8_t { unmapped, closed, read_only, behind_the_end };

/// Makes page `first` of `island` bad.
void spoil(const Island& island, std::size_t first, Trouble trouble) {
  switch (trouble) {
    case Trouble::unmapped:
      return island.unmap(first, kPage);
    case Trouble::closed:
      return island.protect(first, kPage, PROT_NONE);
    case Trouble::read_only:
      return island.protect(first, kPage, PROT_READ);
    case Trouble::behind_the_end:
      return island.end_file(first);
  }
}

/// Ways to submit an operation.
enum class Way : std::uint8_t { run, submit, batch };

Completion carry_out(Engine& engine, const Operation& operation, Way way, Path path) {
  Completion end;
  Job job;
  if (way == Way::run) {
    EXPECT_EQ(engine.run(operation, end, {.path = path}), Submit::accepted);
    return end;
  }
  const std::array<Operation, 2> both{Operation::no_op(), operation};
  std::array<Completion, 2> ends;
  const Submit answer = way == Way::submit ? engine.submit(job, operation, {.path = path})
                                           : engine.submit_batch(job, {both, ends}, {.path = path});
  EXPECT_EQ(answer, Submit::accepted) << name(answer);
  // More than 4 GiB under ThreadSanitizer take a minute on a busy machine.
  EXPECT_TRUE(job.wait_for(std::chrono::seconds(240)));
  if (way == Way::batch) {
    EXPECT_EQ(ends[0].state, JobState::done);
    EXPECT_EQ(job.completion().cause,
              ends[1].cause == Cause::none ? Cause::none : Cause::batch_failed);
    return ends[1];
  }
  return job.completion();
}

void expect_fault(const Completion& end, std::span<const std::byte> bad_page) {
  EXPECT_EQ(end.state, JobState::failed);
  EXPECT_EQ(end.cause, Cause::page_fault) << name(end.cause);
  const auto first = reinterpret_cast<std::uintptr_t>(bad_page.data());
  EXPECT_GE(end.fault_address, first);
  EXPECT_LT(end.fault_address, first + kPage);
}

/// Inaccessible memory in the middle of a source and of a target.
void check_memory(Engine& engine, Path path, std::size_t byte_count, bool partly) {
  const std::size_t bad = byte_count / kPage / 2 * kPage;  // The bad page.
  for (const Trouble trouble :
       {Trouble::unmapped, Trouble::closed, Trouble::read_only, Trouble::behind_the_end}) {
    for (const Way way : {Way::run, Way::submit, Way::batch}) {
      SCOPED_TRACE(fmt::format("{} bytes, trouble {}, way {}", byte_count,
                               static_cast<int>(trouble), static_cast<int>(way)));
      std::vector<std::byte> good(byte_count + 64, std::byte{7});
      const auto part = std::span(good).subspan(16, byte_count);
      if (trouble != Trouble::read_only) {
        const Island source(byte_count + 16);
        spoil(source, bad, trouble);
        const auto from = source.bytes().subspan(16, byte_count);
        for (const Operation& operation :
             {Operation::copy(part, from), Operation::crc(from), Operation::compare(part, from)}) {
          expect_fault(carry_out(engine, operation, way, path), source.bytes().subspan(bad, kPage));
        }
        EXPECT_EQ(good.front(), std::byte{7});
        EXPECT_EQ(good.back(), std::byte{7});
        if (!partly) {
          EXPECT_EQ(good, std::vector<std::byte>(byte_count + 64, std::byte{7}));
        }
      }
      const Island target(byte_count + 16);
      spoil(target, bad, trouble);
      const auto to = target.bytes().subspan(8, byte_count);
      for (const Operation& operation : {Operation::copy(to, part), Operation::fill(to, 9)}) {
        expect_fault(carry_out(engine, operation, way, path), target.bytes().subspan(bad, kPage));
      }
      if (bad == 0) continue;
      // The surroundings of the target, and its part before the bad page.
      EXPECT_EQ(target.bytes()[7], std::byte{0x5a});
      EXPECT_EQ(to[0], partly ? std::byte{9} : std::byte{0x5a});
    }
  }
}

TEST(BadInput, MemoryThatMayNotBeAccessedIsNamedByADeviceAtAnySize) {
  const Emulated machine = make_emulated({});
  for (const std::size_t byte_count : {std::size_t{1}, kPage, 5 * kPage + 3}) {
    check_memory(*machine.engine, Path::dsa, byte_count, true);
  }
}

TEST(BadInput, ADurableOperationThatFailedWritesNoMemoryBackThatIsNotThere) {
  const Emulated machine = make_emulated({});
  auto channel = machine.engine->open_channel();
  ASSERT_TRUE(channel.has_value());
  const std::vector<std::byte> source(2 * kPage, std::byte{7});
  for (const Trouble trouble : {Trouble::unmapped, Trouble::behind_the_end}) {
    const Island target(2 * kPage);
    spoil(target, kPage, trouble);
    const auto bad = target.bytes().subspan(kPage);
    const Operation copy = Operation::copy(target.bytes(), source).durable();
    for (const Way way : {Way::run, Way::submit, Way::batch}) {
      const Completion end = carry_out(*machine.engine, copy, way, Path::dsa);
      expect_fault(end, bad);
      EXPECT_EQ(end.bytes_done, way == Way::batch ? 0 : kPage);
    }
    Ticket ticket{};
    ASSERT_EQ((*channel)->submit(copy, ticket), Submit::accepted);
    expect_fault((*channel)->wait(ticket), bad);
    // A delta that ends before the page of its record that is missing.
    const std::vector<std::byte> other(64, std::byte{8});
    const Operation delta =
        Operation::create_delta(target.bytes(), std::span(source).first(64), other).durable();
    expect_fault(carry_out(*machine.engine, delta, Way::submit, Path::dsa), bad);
    // An operation that never starts, because one before its fence fails.
    const std::array operations{Operation::fill(target.bytes().first(64), 1).durable(),
                                Operation::copy(bad, std::span(source).first(kPage)),
                                Operation::fill(bad, 2).durable().fenced()};
    std::array<Completion, 3> ends;
    Job job;
    ASSERT_EQ(machine.engine->submit_batch(job, {operations, ends}, {.path = Path::dsa}),
              Submit::accepted);
    job.wait();
    EXPECT_EQ(ends[0].state, JobState::done);
    EXPECT_EQ(ends[1].cause, Cause::page_fault);
    EXPECT_EQ(ends[2].cause, Cause::fence_broken);
  }
}

TEST(BadInput, MemoryThatMayNotBeAccessedIsNamedByProcessorsThatAreToldToLook) {
  const auto engine = test::make_engine({.check_memory = true});
  for (const std::size_t byte_count : {std::size_t{1}, kPage, 5 * kPage + 3}) {
    check_memory(*engine, Path::cpu, byte_count, false);
  }
}

TEST(BadInput, ProcessorsThatAreToldToLookDoAllTheSameWhatCanBeDone) {
  const auto engine = test::make_engine({.check_memory = true});
  for (const Way way : {Way::run, Way::submit, Way::batch}) {
    const Island target(3 * kPage);
    const Island source(3 * kPage, PROT_READ);
    const Completion end = carry_out(*engine,
                                     Operation::copy(target.bytes().subspan(5, 2 * kPage),
                                                     source.bytes().subspan(77, 2 * kPage)),
                                     way, Path::cpu);
    EXPECT_EQ(end.state, JobState::done);
    EXPECT_EQ(end.bytes_done, 2 * kPage);
  }
}

TEST(BadInput, LargeMemoryThatIsNotThereOrATargetThatIsReadOnlyIsNamedByAnyProcessor) {
  constexpr std::size_t kLarge = 2U << 20U;
  const auto engine = test::make_engine();
  std::vector<std::byte> good(kLarge);
  const Island read_only(kLarge, PROT_READ);
  const Island holed(kLarge);
  holed.unmap(300 * kPage, kPage);
  for (const Way way : {Way::run, Way::submit, Way::batch}) {
    for (const Operation& operation :
         {Operation::copy(read_only.bytes(), good), Operation::fill(read_only.bytes(), 1)}) {
      expect_fault(carry_out(*engine, operation, way, Path::cpu), read_only.bytes().first(kPage));
    }
    for (const Operation& operation :
         {Operation::copy(holed.bytes(), good), Operation::copy(good, holed.bytes())}) {
      expect_fault(carry_out(*engine, operation, way, Path::cpu),
                   holed.bytes().subspan(300 * kPage, kPage));
    }
    // Readable memory is enough for a source.
    EXPECT_EQ(carry_out(*engine, Operation::copy(good, read_only.bytes()), way, Path::cpu).state,
              JobState::done);
  }
}

TEST(BadInput, ABadPageAtTheEndOfMuchMemoryIsFoundInAMoment) {
  // Checking page by page, each time with the whole rest, would take hours.
  constexpr std::size_t kMuch = 256U << 20U;
  const auto engine = test::make_engine({.check_memory = true});
  const Island source(kMuch, PROT_READ);  // All of it is the zero page.
  source.unmap(kMuch - kPage, kPage);
  expect_fault(carry_out(*engine, Operation::crc(source.bytes()), Way::run, Path::cpu),
               source.bytes().last(kPage));
}

TEST(BadInput, ADeviceGoesOnAfterAFaultAtMemoryThatIsNotTheProgramsOwn) {
  // The vDSO's data page, which no system call faults in: docs/concepts/engine.md, "Bad input".
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line) && !line.ends_with("[vvar]")) {
  }
  if (!line.ends_with("[vvar]")) GTEST_SKIP() << "the kernel maps no clock into programs";
  const std::span<const std::byte> clock(
      reinterpret_cast<const std::byte*>(std::stoull(line, nullptr, 16)) + 64, 64);
  const Emulated machine = make_emulated(
      {.faults = test::script({{.kind = emu::FaultKind::page_fault, .every = 2, .at_byte = 8}})});
  std::vector<std::byte> target(64);
  for (int i = 0; i < 4; ++i) {
    Job job;
    ASSERT_EQ(machine.engine->submit(job, Operation::copy(target, clock), {.path = Path::dsa}),
              Submit::accepted);
    ASSERT_TRUE(job.wait_for(std::chrono::seconds(60)));
    EXPECT_EQ(job.completion().state, JobState::done) << name(job.completion().cause);
    EXPECT_EQ(job.completion().bytes_by_device, 64U);
  }
  EXPECT_GT(machine.engine->device_statistics()[0].page_faults, 0U);
}

/// Results of submissions that start nothing.
TEST(BadInput, WhatCannotBeIsRefusedByNameByEveryWayIn) {
  const Emulated machine = make_emulated({});
  const auto workers = test::make_engine();
  std::vector<std::byte> bytes(16 * kPage, std::byte{3});
  const std::vector<std::byte> before = bytes;
  const std::span all(bytes);
  const std::span<std::byte> nowhere(static_cast<std::byte*>(nullptr), 100);
  struct Case {
    Operation operation;
    Submit answer;
  };
  const std::size_t aligned = 8 - reinterpret_cast<std::uintptr_t>(all.data()) % 8;
  const std::array cases{
      Case{Operation::copy(nowhere, all.first(100)), Submit::null_address},
      Case{Operation::copy(all.first(100), nowhere), Submit::null_address},
      Case{Operation::fill(nowhere, 1), Submit::null_address},
      Case{Operation::copy(all.first(100), all.subspan(1, 100)), Submit::overlapping},
      Case{Operation::copy_crc(all.first(100), all.subspan(50, 100)), Submit::overlapping},
      Case{Operation::dualcast(all.first(100), all.subspan(kPage, 100), all.subspan(50, 100)),
           Submit::overlapping},
      Case{Operation::dualcast(all.first(100), all.subspan(150, 100), all.subspan(300, 100)),
           Submit::misaligned},
      Case{Operation::create_delta(all.subspan(aligned + 1024, 80), all.subspan(aligned + 1, 64),
                                   all.subspan(aligned + 512, 64)),
           Submit::misaligned},
      Case{Operation::create_delta(all.subspan(aligned + 1024, 80), all.subspan(aligned, 60),
                                   all.subspan(aligned + 512, 60)),
           Submit::misaligned},
      Case{Operation::copy({}, {}), Submit::empty},
      Case{Operation::fill({}, 1), Submit::empty},
      Case{Operation::crc({}), Submit::empty},
      Case{Operation::copy(all.first(10), all.subspan(20, 11)), Submit::length_differs},
      Case{Operation::crc({all.data(), ~std::size_t{0}}), Submit::too_large}};
  for (const Case& one : cases) {
    SCOPED_TRACE(fmt::format("{}: {}", name(one.operation.kind()), name(one.answer)));
    for (Engine* const engine : {machine.engine.get(), workers.get()}) {
      Job job;
      Completion end;
      const std::array<Operation, 2> both{Operation::no_op(), one.operation};
      EXPECT_EQ(engine->submit(job, one.operation), one.answer);
      EXPECT_EQ(engine->run(one.operation, end), one.answer);
      EXPECT_EQ(engine->submit_batch(job, {both, {}}), one.answer);
      EXPECT_EQ(job.state(), JobState::idle);
    }
    auto channel = machine.engine->open_channel({.depth = 1});
    ASSERT_TRUE(channel.has_value());
    Ticket ticket{};
    EXPECT_EQ((*channel)->submit(one.operation, ticket), one.answer);
  }
  EXPECT_EQ(bytes, before);
}

TEST(BadInput, MoreThanFourGibibytesAreDoneByEveryPath) {
  // The same 2 MiB mapped repeatedly.
  constexpr std::size_t kWindow = 2U << 20U;
  constexpr std::size_t kAll = (std::size_t{1} << 32U) + kWindow;
  const int file = ::memfd_create("window", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(file, kWindow), 0);
  const Island view(kAll, PROT_READ);
  for (std::size_t at = 0; at < kAll; at += kWindow) {
    ASSERT_NE(::mmap(view.bytes().data() + at, kWindow, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0),
              MAP_FAILED);
  }
  const Emulated machine = make_emulated(
      {.transfer_bytes_max = 1U << 26U, .device = {.timeout = std::chrono::minutes(10)}});
  const auto workers = test::make_engine();
  for (Engine* const engine : {machine.engine.get(), workers.get()}) {
    const Path path = engine == workers.get() ? Path::cpu : Path::dsa;
    const Completion end = carry_out(
        *engine, Operation::compare_pattern(view.bytes().first(kAll - 5), 0), Way::submit, path);
    EXPECT_EQ(end.state, JobState::done) << name(end.cause);
    EXPECT_EQ(end.bytes_done, kAll - 5);
    EXPECT_FALSE(end.result.different);
    EXPECT_EQ(end.bytes_by_device, path == Path::dsa ? kAll - 5 : 0);
  }
  ::close(file);
}

TEST(BadInput, AnEngineThatWasStoppedRefusesByName) {
  const Emulated machine = make_emulated({});
  const auto workers = test::make_engine();
  for (Engine* const engine : {machine.engine.get(), workers.get()}) {
    engine->stop();
    test::Buffers buffers(100);
    Job job;
    Completion end;
    const std::array<Operation, 1> one{Operation::copy(buffers.target, buffers.source)};
    EXPECT_EQ(engine->submit_copy(job, buffers.plan()), Submit::closed);
    EXPECT_EQ(engine->submit(job, one[0]), Submit::closed);
    EXPECT_EQ(engine->submit_batch(job, {one, {}}), Submit::closed);
    EXPECT_EQ(engine->run(one[0], end), Submit::closed);
    EXPECT_EQ(engine->open_channel().error().code, Code::closed);
    EXPECT_EQ(buffers.moved_bytes(), 0U);
    engine->poll();
  }
}

TEST(BadInput, AnEngineWithoutMoversIsNotMade) {
  EXPECT_EQ(Engine::make(std::vector<std::unique_ptr<Mover>>(), {}).error().code,
            Code::invalid_argument);
  EXPECT_EQ(Engine::make(topo::Machine(), {.nodes = {NodeId(0)}}).error().code,
            Code::invalid_argument);
}

}  // namespace
}  // namespace headrace::engine
