// SPDX-License-Identifier: Apache-2.0
// The mover of a DSA queue with invalid completion records, which the test writes behind a portal.
// Not for: missing completions (dsa_unanswered_test.cpp).
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "engine/dsa/codec.hpp"
#include "engine/software/software.hpp"
#include "fixtures.hpp"
#include "headrace/base/atomic.hpp"
#include "support/watchdog.hpp"
#include "told_portal.hpp"

namespace headrace::engine::dsa_answer_test {
namespace {

using test::answer;
using test::Buffers;
using test::engine_on;
using test::record_of;
using test::ToldPortal;

Completion run(Engine& engine, const Operation& operation) {
  Job job;
  EXPECT_EQ(engine.submit(job, operation, {.path = Path::dsa}), Submit::accepted);
  EXPECT_TRUE(job.wait_for(std::chrono::seconds(60)));
  return job.completion();
}

constexpr std::uint32_t kLong = 4096;
constexpr std::uint8_t kReadFault = DSA_COMP_PAGE_FAULT_NOBOF;
constexpr std::uint8_t kWriteFault = DSA_COMP_PAGE_FAULT_NOBOF | 0x80U;

/// An operation of each kind that a record may report as partial.
struct Plans {
  Buffers buffers{kLong, 1};
  std::vector<std::byte> record = std::vector<std::byte>(kLong * 2);
  std::vector<std::byte> even = std::vector<std::byte>(kLong);  ///< All equal except the last.

  [[nodiscard]] std::vector<Operation> operations() {
    const std::span<std::byte> target(buffers.target);
    const std::span<const std::byte> source(buffers.source);
    even.back() = std::byte{1};
    const DifFormat format{.block = DifBlock::bytes_512};
    return {Operation::copy(target, source),
            Operation::fill(target, 0x1122334455667788),
            Operation::compare_pattern(even, 0),
            Operation::crc(source),
            Operation::create_delta(record, source, buffers.target),
            Operation::dif_insert(std::span(record).first(kLong + 64), source, format,
                                  {.tags = {7, 8, 0x0f0f}})};
  }
};

TEST(DsaAnswer, AQueueOfWhichNotAllIsUsedSaysSo) {
  for (const auto& [entry_count, note] :
       {std::pair{63U, "near"}, {64U, "near; 63 of its 64 entries are used"}}) {
    ToldPortal portal(nullptr, 0, entry_count);
    const auto mover = DsaQueue::make(portal, {.note = "near"});
    ASSERT_TRUE(mover.has_value());
    EXPECT_EQ((*mover)->info().note, note);
  }
}

TEST(DsaAnswer, AFlagThatTheDeviceDoesNotHaveIsNotSetAndANoteSaysSo) {
  constexpr std::uint32_t kCache = dsa::flag::cache_control;
  constexpr std::uint32_t kBlock = dsa::flag::block_on_fault;
  struct Row {
    std::optional<std::uint64_t> capabilities;
    std::uint32_t of_writes;
    std::uint32_t of_flushes;
  };
  for (const auto& [capabilities, of_writes, of_flushes] :
       {Row{std::nullopt, kCache | kBlock, kBlock}, Row{0U, 0U, 0U}, Row{1U, kBlock, kBlock},
        Row{0x40915f0107U, kCache | kBlock, kBlock}, Row{0xcU, kCache, kCache}}) {
    std::uint32_t flags = 0;
    ToldPortal portal([&](const dsa::Descriptor& descriptor) {
      flags = descriptor.flags & (kCache | kBlock);
      answer(descriptor, DSA_COMP_SUCCESS);
    });
    portal.tell_capabilities(capabilities);
    const auto engine = engine_on(portal, {.page_faults = FaultPolicy::block});
    Buffers buffers(kLong);
    for (const Operation& operation :
         {Operation::copy(buffers.target, buffers.source), Operation::fill(buffers.target, 7)}) {
      run(*engine, operation.into_cache());
      EXPECT_EQ(flags, of_writes);
      run(*engine, operation);
      EXPECT_EQ(flags, of_writes & kBlock);
    }
    run(*engine, Operation::cache_flush(buffers.target).into_cache());
    EXPECT_EQ(flags, of_flushes);
    const std::string& note = engine->movers()[0].note;
    EXPECT_EQ(note.find("no cache control") == note.npos, (of_writes & kCache) != 0) << note;
    EXPECT_EQ(note.find("not block on") == note.npos, (of_writes & kBlock) != 0) << note;
  }
  EXPECT_EQ(detail::capabilities_from("0x40915f0107"), std::optional(std::uint64_t{0x40915f0107}));
  for (const char* const none : {"", "0x", "7", "0xq", "0x1 2"}) {
    EXPECT_EQ(detail::capabilities_from(none), std::nullopt) << none;
  }
}

TEST(DsaAnswer, AnyNumberInARecordOfAPageFaultIsTakenOrDoneWithout) {
  for (const std::uint32_t number : {0U, 5U, 512U, kLong - 3, kLong - 8, kLong, kLong + 1,
                                     std::numeric_limits<std::uint32_t>::max()}) {
    for (std::size_t kind = 0; kind < Plans().operations().size(); ++kind) {
      Plans expected;
      const Completion right = software::execute(expected.operations()[kind]);
      Plans plans;
      const Operation operation = plans.operations()[kind];
      int descriptor_count = 0;
      ToldPortal portal([&](const dsa::Descriptor& descriptor) {
        if (++descriptor_count > 1) return answer(descriptor, DSA_COMP_HW_ERR1);
        // The device has done as much as the record claims, up to the operation's size.
        dsa::CompletionRecord& record = record_of(descriptor);
        const std::uint32_t done = std::min(number, kLong);
        const std::size_t cut = operation.cut_bytes();
        const bool whole = cut != 0 && done % cut == 0;
        if (whole && done > 0) {
          const Completion part = software::execute(operation.part(0, done, {}));
          record.crc_val = part.result.crc;
          std::memcpy(record.op_specific + 8, &part.result.target_tags.reference, 4);
        } else if (operation.kind() == OperationKind::fill) {
          std::memcpy(plans.buffers.target.data(), expected.buffers.target.data(), done);
        }
        record.bytes_completed = number;
        record.fault_addr =
            operation.kind() == OperationKind::fill ? descriptor.dst_addr : descriptor.src_addr;
        answer(descriptor, operation.kind() == OperationKind::fill ? kWriteFault : kReadFault);
      });
      const std::unique_ptr<Engine> engine = engine_on(portal);
      const Completion end = run(*engine, operation);
      EXPECT_EQ(end.cause, right.cause) << name(operation.kind()) << " " << number;
      EXPECT_EQ(end.bytes_done, right.bytes_done) << name(operation.kind()) << " " << number;
      EXPECT_EQ(end.result.crc, right.result.crc) << name(operation.kind()) << " " << number;
      EXPECT_EQ(end.result.different, right.result.different) << name(operation.kind());
      EXPECT_EQ(end.result.difference_offset, right.result.difference_offset);
      EXPECT_EQ(end.result.delta_bytes, right.result.delta_bytes);
      EXPECT_TRUE(plans.buffers.target == expected.buffers.target)
          << name(operation.kind()) << " " << number;
      EXPECT_TRUE(plans.record == expected.record) << name(operation.kind()) << " " << number;
      EXPECT_TRUE(end.fell_back);
    }
  }
}

TEST(DsaAnswer, ASuccessThatCannotBeIsAnErrorOfTheDevice) {
  for (const std::uint32_t number : {kLong, std::numeric_limits<std::uint32_t>::max()}) {
    Plans plans;
    ToldPortal portal([&](const dsa::Descriptor& descriptor) {
      dsa::CompletionRecord& record = record_of(descriptor);
      record.result = 1;
      record.bytes_completed = number;
      if (descriptor.opcode == DSA_OPCODE_CR_DELTA) record.delta_rec_size = number * 2 + 1;
      answer(descriptor, DSA_COMP_SUCCESS_PRED);
    });
    const std::unique_ptr<Engine> engine = engine_on(portal);
    const std::vector<Operation> operations{
        Operation::compare(plans.buffers.source, plans.buffers.target),
        Operation::compare_pattern(plans.buffers.source, 5),
        Operation::create_delta(std::span(plans.record).first(80), plans.buffers.source,
                                plans.buffers.source)};
    for (const Operation& operation : operations) {
      const OperationResult right = software::execute(operation).result;
      const Completion end = run(*engine, operation);
      EXPECT_EQ(end.state, JobState::done);
      EXPECT_EQ(end.result, right) << name(operation.kind()) << " " << number;
      EXPECT_TRUE(end.fell_back) << name(operation.kind()) << " " << number;
    }
    EXPECT_EQ(engine->device_statistics().at(0).errors, operations.size());
  }
}

TEST(DsaAnswer, AQueueThatIsFullNowAndThenIsNotGivenUp) {
  using std::chrono::milliseconds;
  ToldPortal portal(nullptr);
  const std::unique_ptr<Engine> engine = engine_on(portal, {.timeout = milliseconds(400)});
  Buffers buffers(kLong);
  Job job;
  const auto ask = [&] { return engine->submit_copy(job, buffers.plan(), {.path = Path::dsa}); };
  EXPECT_EQ(ask(), Submit::full);
  const auto later = std::chrono::steady_clock::now() + milliseconds(500);
  while (std::chrono::steady_clock::now() < later) std::this_thread::yield();
  EXPECT_EQ(ask(), Submit::full) << "no thread has asked in between";
  EXPECT_EQ(buffers.moved_bytes(), 0U);
  // Under constant polling it is: then the calling thread does the work.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  Submit last = Submit::full;
  while (last == Submit::full && std::chrono::steady_clock::now() < end) last = ask();
  ASSERT_EQ(last, Submit::accepted);
  EXPECT_EQ(job.wait().state, JobState::done);
  EXPECT_TRUE(job.completion().fell_back);
  EXPECT_TRUE(buffers.equal());
}

TEST(DsaAnswer, WhatAQueueMayNotDoIsNeverGivenToIt) {
  EXPECT_EQ(detail::opcodes_from("00000000,00000000,00000000,00000001,001f03ff"),
            std::optional<std::uint64_t>(0x1'001f'03ff));
  EXPECT_EQ(detail::opcodes_from("7f"), std::optional<std::uint64_t>(0x7f));
  for (const char* const none : {"", "none", "1,,2", "1ffffffff", "-1"}) {
    EXPECT_EQ(detail::opcodes_from(none), std::nullopt) << none;
  }
  std::size_t told = 0;
  ToldPortal portal([&](const dsa::Descriptor& descriptor) {
    ++told;
    answer(descriptor, DSA_COMP_SUCCESS);
  });
  // Copies and no-ops, no batches.
  portal.tell_opcodes(1U << DSA_OPCODE_NOOP | 1U << DSA_OPCODE_MEMMOVE);
  const std::unique_ptr<Engine> engine = engine_on(portal);
  EXPECT_TRUE(engine->movers()[0].operations.has(OperationKind::copy));
  EXPECT_FALSE(engine->movers()[0].operations.has(OperationKind::crc));
  Buffers buffers(kLong);
  const Completion summed = run(*engine, Operation::crc(buffers.source));
  EXPECT_EQ(summed.result, software::execute(Operation::crc(buffers.source)).result);
  EXPECT_TRUE(summed.fell_back);
  EXPECT_EQ(told, 0U);
  const std::array<Operation, 2> both{Operation::no_op(), Operation::no_op()};
  Job job;
  ASSERT_EQ(engine->submit_batch(job, {both, {}}, {.path = Path::dsa}), Submit::accepted);
  EXPECT_EQ(job.wait().state, JobState::done);
  EXPECT_EQ(told, 2U) << "one after the other";
  auto channel = engine->open_channel({.depth = 1});
  Ticket ticket{};
  ASSERT_EQ((*channel)->submit(Operation::crc(buffers.source), ticket), Submit::accepted);
  EXPECT_EQ((*channel)->wait(ticket).result, summed.result);
  EXPECT_EQ(told, 2U);
  EXPECT_EQ(engine->device_statistics()[0].errors, 0U);
}

TEST(DsaAnswer, AQueueThatRefusesCopiesIsAskedOnceForThem) {
  for (const bool by_channel : {false, true}) {
    SCOPED_TRACE(by_channel);
    std::size_t copies = 0;
    ToldPortal portal([&](const dsa::Descriptor& descriptor) {
      std::span list(&descriptor, 1);
      if (descriptor.opcode == DSA_OPCODE_BATCH) {
        list = {reinterpret_cast<const dsa::Descriptor*>(descriptor.desc_list_addr),
                descriptor.desc_count};
      }
      for (const dsa::Descriptor& one : list) {
        const bool copy = one.opcode == DSA_OPCODE_MEMMOVE;
        if (copy) ++copies;
        answer(one, copy ? DSA_COMP_BAD_OPCODE : DSA_COMP_SUCCESS);
      }
      if (descriptor.opcode == DSA_OPCODE_BATCH) answer(descriptor, DSA_COMP_BATCH_FAIL);
    });
    const std::unique_ptr<Engine> engine = engine_on(portal);
    Result<std::unique_ptr<Channel>> channel = engine->open_channel({.depth = 1});
    ASSERT_TRUE(channel.has_value());
    Buffers buffers(kLong);
    const std::span<std::byte> target(buffers.target);
    const std::span<const std::byte> source(buffers.source);
    const std::array<Operation, 2> both{Operation::copy(target.first(8), source.first(8)),
                                        Operation::copy(target.subspan(8), source.subspan(8))};
    for (int i = 0; i < 3; ++i) {
      std::fill(buffers.target.begin(), buffers.target.end(), std::byte{});
      Job job;
      Ticket ticket{};
      Completion end;
      if (by_channel) {
        ASSERT_EQ((*channel)->submit_copy(buffers.plan(), ticket), Submit::accepted);
        end = (*channel)->wait(ticket);
      } else {
        end = run(*engine, Operation::copy(target, source));
      }
      EXPECT_EQ(end.state, JobState::done);
      EXPECT_TRUE(end.fell_back && buffers.equal());
      EXPECT_EQ(copies, 1U);
      std::fill(buffers.target.begin(), buffers.target.end(), std::byte{});
      if (by_channel) {
        ASSERT_EQ((*channel)->submit_batch({both, {}}, ticket), Submit::accepted);
        end = (*channel)->wait(ticket);
      } else {
        ASSERT_EQ(engine->submit_batch(job, {both, {}}, {.path = Path::dsa}), Submit::accepted);
        end = job.wait();
      }
      EXPECT_EQ(end.state, JobState::done);
      EXPECT_TRUE(end.fell_back && buffers.equal());
      EXPECT_EQ(copies, 1U) << "in a batch";
    }
  }
}

TEST(DsaAnswer, AQueueThatDoesNotSayWhatItMayDoIsAskedOnceForEachKind) {
  std::size_t told = 0;
  ToldPortal portal([&](const dsa::Descriptor& descriptor) {
    ++told;
    answer(descriptor, DSA_COMP_BAD_OPCODE);
  });
  const std::unique_ptr<Engine> engine = engine_on(portal);
  Buffers buffers(kLong);
  for (int i = 0; i < 5; ++i) {
    const Completion end = run(*engine, Operation::crc(buffers.source));
    EXPECT_EQ(end.state, JobState::done);
    EXPECT_EQ(end.result, software::execute(Operation::crc(buffers.source)).result);
    EXPECT_TRUE(end.fell_back);
    EXPECT_EQ(end.device_status, i == 0 ? DSA_COMP_BAD_OPCODE : 0);
    EXPECT_EQ(told, 1U);
  }
  EXPECT_EQ(run(*engine, Operation::fill(buffers.target, 1)).state, JobState::done);
  EXPECT_EQ(told, 2U) << "another kind";
}

/// Carries out descriptors, or leaves one without completion.
struct Honest {
  std::size_t silent_at = ~std::size_t{0};
  std::size_t told = 0;
  std::vector<std::uint32_t> lengths = {};

  void operator()(const dsa::Descriptor& descriptor) {
    lengths.push_back(descriptor.xfer_size);
    if (told++ == silent_at) return;
    if (descriptor.xfer_size != 0)
      std::memcpy(reinterpret_cast<std::byte*>(descriptor.dst_addr),
                  reinterpret_cast<const std::byte*>(descriptor.src_addr), descriptor.xfer_size);
    record_of(descriptor).bytes_completed = descriptor.xfer_size;
    answer(descriptor, DSA_COMP_SUCCESS);
  }
};

TEST(DsaAnswer, AnOperationOfABatchThatIsLargerThanATransferIsDoneInPieces) {
  constexpr std::size_t kTransfer = 1U << 21U;
  Buffers large(2 * kTransfer + 5);
  Buffers small(100);
  const std::array<Operation, 2> both{Operation::copy(large.target, large.source),
                                      Operation::copy(small.target, small.source).fenced()};
  std::array<Completion, 2> ends;
  Honest honest;
  ToldPortal portal(std::ref(honest));
  const std::unique_ptr<Engine> engine = engine_on(portal);
  Job job;
  ASSERT_EQ(engine->submit_batch(job, {both, ends}, {.path = Path::dsa}), Submit::accepted);
  ASSERT_TRUE(job.wait_for(std::chrono::seconds(60)));
  EXPECT_EQ(job.completion().state, JobState::done);
  EXPECT_EQ(honest.lengths, (std::vector<std::uint32_t>{kTransfer, kTransfer, 5, 100}));
  EXPECT_EQ(job.completion().bytes_by_device, 2 * kTransfer + 105);
  EXPECT_EQ(ends[0].bytes_by_device, 2 * kTransfer + 5);
  EXPECT_FALSE(job.completion().fell_back);
  EXPECT_TRUE(large.equal());
  EXPECT_TRUE(small.equal());
}

TEST(DsaAnswer, ALargeOperationOfABatchWhoseStopIsAskedForIsStoppedBetweenPieces) {
  Buffers large((4U << 21U) + 1);
  const std::array<Operation, 2> both{Operation::no_op(),
                                      Operation::copy(large.target, large.source)};
  std::array<Completion, 2> ends;
  Job job;
  Honest honest;
  // Requested while the second piece is in flight.
  ToldPortal portal([&](const dsa::Descriptor& descriptor) {
    if (honest.lengths.size() == 2) job.stop();
    honest(descriptor);
  });
  const std::unique_ptr<Engine> engine = engine_on(portal);
  ASSERT_EQ(engine->submit_batch(job, {both, ends}, {.path = Path::dsa}), Submit::accepted);
  ASSERT_TRUE(job.wait_for(std::chrono::seconds(60)));
  EXPECT_EQ(job.completion().state, JobState::stopped);
  EXPECT_EQ(ends[0].state, JobState::done);
  EXPECT_EQ(ends[1].state, JobState::stopped);
  EXPECT_EQ(ends[1].bytes_done, 2U << 21U);
  EXPECT_EQ(job.completion().bytes_done, 2U << 21U);
}

TEST(DsaAnswer, APieceOfABatchThatIsNotAnsweredIsDoneByAProcessor) {
  for (const bool writes_later : {false, true}) {
    Buffers large((1U << 21U) + 5);
    Buffers small(100);
    const Operation last =
        writes_later ? Operation::copy(small.target, small.source) : Operation::crc(small.source);
    const std::array<Operation, 2> both{Operation::copy(large.target, large.source), last.fenced()};
    std::array<Completion, 2> ends;
    Honest honest{.silent_at = 1};
    ToldPortal portal(std::ref(honest));
    const std::unique_ptr<Engine> engine =
        engine_on(portal, {.timeout = std::chrono::milliseconds(1)});
    Job job;
    ASSERT_EQ(engine->submit_batch(job, {both, ends}, {.path = Path::dsa}), Submit::accepted);
    ASSERT_TRUE(job.wait_for(std::chrono::seconds(60)));
    EXPECT_TRUE(job.completion().late_write_possible);
    EXPECT_EQ(job.completion().state, writes_later ? JobState::failed : JobState::done);
    // The device may reach the piece after the operations behind the fence.
    EXPECT_EQ(ends[0].cause, writes_later ? Cause::device_dead : Cause::none);
    EXPECT_EQ(ends[1].cause, writes_later ? Cause::fence_broken : Cause::none);
    if (!writes_later) {
      EXPECT_TRUE(large.equal());
    }
    EXPECT_EQ(small.moved_bytes(), 0U);
  }
}

TEST(DsaAnswer, AQueueThatTakesNothingOfABatchRefusesIt) {
  ToldPortal portal(nullptr);
  const std::unique_ptr<Engine> engine =
      engine_on(portal, {.timeout = std::chrono::milliseconds(100)});
  Buffers buffers(kLong);
  const std::array<Operation, 2> both{Operation::copy(buffers.target, buffers.source),
                                      Operation::crc(buffers.source)};
  std::array<Completion, 2> ends;
  Job job;
  const auto ask = [&] { return engine->submit_batch(job, {both, ends}, {.path = Path::dsa}); };
  EXPECT_EQ(ask(), Submit::full);
  EXPECT_EQ(job.state(), JobState::idle);
  EXPECT_EQ(buffers.moved_bytes(), 0U);
  // The queue of a removed device: no thread waits for it.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  Submit last = Submit::full;
  while (last == Submit::full && std::chrono::steady_clock::now() < end) last = ask();
  ASSERT_EQ(last, Submit::accepted);
  EXPECT_TRUE(job.poll()) << "done by the calling thread";
  EXPECT_EQ(job.completion().state, JobState::done);
  EXPECT_TRUE(job.completion().fell_back);
  EXPECT_TRUE(buffers.equal());

  auto opened = engine->open_channel({.depth = 1});
  ASSERT_TRUE(opened.has_value());
  Ticket ticket{};
  const std::array<Operation, 2> mixed{both[1], both[0]};
  EXPECT_NE((*opened)->submit_batch({both, ends}, ticket), Submit::accepted);
  EXPECT_NE((*opened)->submit_batch({mixed, ends}, ticket), Submit::accepted);
  EXPECT_EQ((*opened)->in_flight(), 0U);
}

TEST(DsaAnswer, AChildOfTheProcessEndsNothingOfTheParents) {
  // The record is written at once, so that the polling thread ends the job.
  ToldPortal portal(
      [](const dsa::Descriptor& descriptor) { answer(descriptor, DSA_COMP_SUCCESS); });
  const std::unique_ptr<Engine> engine = engine_on(portal);
  Buffers buffers(kLong);
  Atomic<int> ended_count{0};
  const SubmitOptions options{.callback =
                                  [](void* count, const Completion&) noexcept {
                                    static_cast<Atomic<int>*>(count)->fetch_add_acq_rel(1);
                                  },
                              .callback_context = &ended_count,
                              .path = Path::dsa};
  Job job;
  ASSERT_EQ(engine->submit_copy(job, buffers.plan(), options), Submit::accepted);
  // Slots held when the process forks are not released in the child.
  Atomic<int> enough{0};
  std::thread counting([&] {
    while (enough.load_acquire() == 0) static_cast<void>(engine->statistics());
  });
  bool as_told = true;
  for (int i = 0; i < 50 && as_told; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(headrace::test::kHangSeconds);
      engine->poll();
      static_cast<void>(engine->statistics());
      static_cast<void>(engine->device_statistics());
      Job other;
      Completion end;
      const Operation copy = Operation::copy(buffers.target, buffers.source);
      const bool refused = engine->submit_copy(other, buffers.plan()) == Submit::forked &&
                           engine->run(copy, end) == Submit::forked &&
                           engine->submit_batch(other, {{&copy, 1}, {}}) == Submit::forked &&
                           !engine->open_channel().has_value();
      const bool runs = job.state() == JobState::running;
      const bool told = job.wait().cause == Cause::forked && ended_count.load_acquire() == 0;
      engine->stop();
      ::_exit(refused && runs && told ? 0 : 1);
    }
    int status = 1;
    as_told = child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
    EXPECT_TRUE(as_told) << "child " << i << " ended with " << status;
  }
  enough.store_release(1);
  counting.join();
  EXPECT_EQ(job.wait().state, JobState::done);
  EXPECT_EQ(ended_count.load_acquire(), 1);
}

TEST(DsaAnswer, ABatchThatBeginsWithWhatNoDeviceCanDoIsNotDoneBySubmission) {
  ToldPortal portal([](const dsa::Descriptor&) { ADD_FAILURE() << "the device cannot do it"; });
  std::vector<std::unique_ptr<Mover>> movers;
  movers.push_back(DsaQueue::make(portal, {}).value());
  movers.push_back(std::make_unique<test::PolledMover>(test::PolledMover::Options{
      .info =
          {.name = "processor", .polled = true, .operations = OperationSet::all(), .batches = true},
      .work = [](const Request& request) {
        return Completion{.bytes_done = request.byte_count()};
      }}));
  const auto engine = Engine::make(std::move(movers)).value();
  std::vector<std::byte> target(4096);
  const std::array list{Operation::fill(target, 1, 2), Operation::fill(target, 3)};
  Job job;
  ASSERT_EQ(engine->submit_batch(job, {list, {}}, {.path = Path::dsa}), Submit::accepted);
  EXPECT_EQ(job.state(), JobState::running);
  EXPECT_TRUE(job.wait().fell_back);
}

}  // namespace
}  // namespace headrace::engine::dsa_answer_test
