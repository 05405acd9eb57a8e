// SPDX-License-Identifier: Apache-2.0
// Batches and entries without completion: the test writes the records behind a portal, or does not.
// Not for: invalid records (dsa_answer_test.cpp).
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "fixtures.hpp"
#include "told_portal.hpp"

namespace headrace::engine::dsa_unanswered_test {
namespace {

using test::answer;
using test::Buffers;
using test::engine_on;
using test::ToldPortal;

constexpr std::uint32_t kLong = 4096;

/// A device that omits records of a batch: how many operations of the batch it carries out, and
/// their statuses; 0 writes no record. The test triggers the batch's record.
struct SilentDevice {
  std::size_t done_max = 0;
  std::vector<std::uint8_t> told = {};
  std::vector<dsa::Descriptor> unanswered = {};

  void take(const dsa::Descriptor& descriptor) {
    unanswered.push_back(descriptor);
    if (descriptor.opcode != DSA_OPCODE_BATCH) return;
    const std::span list(reinterpret_cast<const dsa::Descriptor*>(descriptor.desc_list_addr),
                         descriptor.desc_count);
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i < done_max) move_or_fill(list[i]);
      if (i < told.size() && told[i] != 0) {
        answer(list[i], told[i]);
      } else {
        unanswered.push_back(list[i]);
      }
    }
  }
  static void move_or_fill(const dsa::Descriptor& descriptor) {
    auto* const target = reinterpret_cast<std::byte*>(descriptor.dst_addr);
    if (descriptor.opcode == DSA_OPCODE_MEMMOVE) {
      std::memcpy(target, reinterpret_cast<const std::byte*>(descriptor.src_addr),
                  descriptor.xfer_size);
    } else if (descriptor.opcode == DSA_OPCODE_MEMFILL) {
      std::memset(target, static_cast<int>(descriptor.pattern & 0xffU), descriptor.xfer_size);
    }
  }
};

struct SilentBatch {
  SilentDevice device = {};
  std::vector<std::byte> first = std::vector<std::byte>(kLong, std::byte{1});
  std::vector<std::byte> second = std::vector<std::byte>(kLong, std::byte{2});
  std::vector<std::byte> third = std::vector<std::byte>(kLong, std::byte{3});
  std::vector<std::byte> fourth = std::vector<std::byte>(kLong, std::byte{4});
  std::vector<Completion> completions = {};
  Completion end = {};
  bool by_channel = false;
  std::size_t batch_max = 32;
  LateWrites late_writes = LateWrites::report;

  void run(const std::vector<Operation>& operations) {
    ToldPortal portal([&](const dsa::Descriptor& descriptor) { device.take(descriptor); });
    portal.tell_batch_max(batch_max);
    const std::unique_ptr<Engine> engine =
        engine_on(portal, {.timeout = std::chrono::milliseconds(1), .late_writes = late_writes});
    completions.assign(operations.size(), {});
    if (by_channel) {
      run_in_channel(*engine, {operations, completions});
    } else {
      Job job;
      ASSERT_EQ(engine->submit_batch(job, {operations, completions}, {.path = Path::dsa}),
                Submit::accepted);
      ASSERT_TRUE(job.wait_for(std::chrono::seconds(60)));
      end = job.completion();
    }
    EXPECT_TRUE(end.late_write_possible);
    // So that the mover can release its slots.
    for (const dsa::Descriptor& descriptor : device.unanswered) {
      answer(descriptor, DSA_COMP_SUCCESS);
    }
    engine->poll();
  }
  void run_in_channel(Engine& engine, const Batch& batch) {
    Result<std::unique_ptr<Channel>> channel = engine.open_channel({.depth = 1});
    ASSERT_TRUE(channel.has_value());
    Ticket ticket{};
    ASSERT_EQ((*channel)->submit_batch(batch, ticket), Submit::accepted);
    end = (*channel)->wait(ticket);
  }
  /// Copies `first` to `second`, and then overwrites `first`.
  [[nodiscard]] std::vector<Operation> copy_then_fill() {
    return {Operation::copy(second, first), Operation::fill(first, 0x0909090909090909).fenced()};
  }
};

bool all_are(const std::vector<std::byte>& bytes, int value) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [&](std::byte byte) { return byte == std::byte(value); });
}

TEST(DsaUnanswered, WhatHasARecordInABatchWithoutAnAnswerIsNotDoneAgain) {
  SilentBatch batch{.device = {.done_max = 2, .told = {DSA_COMP_SUCCESS, DSA_COMP_SUCCESS}}};
  batch.run(batch.copy_then_fill());
  EXPECT_EQ(batch.end.state, JobState::done) << name(batch.end.cause);
  EXPECT_EQ(batch.end.bytes_by_device, 2 * kLong);
  EXPECT_TRUE(all_are(batch.second, 1)) << "copied again, from what was overwritten meanwhile";
  EXPECT_TRUE(all_are(batch.first, 9));
  EXPECT_FALSE(batch.completions[0].fell_back);
}

TEST(DsaUnanswered, ABatchWithoutAnAnswerFailsWhereDoingItAgainCouldGiveWrongBytes) {
  for (const std::size_t done : {std::size_t{0}, std::size_t{2}}) {
    SilentBatch batch{.device = {.done_max = done}};
    std::vector<Operation> operations = batch.copy_then_fill();
    operations.push_back(Operation::drain().fenced());  // Not in a list, so it was not sent.
    batch.run(operations);
    EXPECT_EQ(batch.end.state, JobState::failed);
    EXPECT_EQ(batch.end.cause, Cause::batch_failed);
    EXPECT_EQ(batch.end.bytes_done, 0U);
    EXPECT_EQ(batch.completions[0].cause, Cause::device_dead);
    EXPECT_EQ(batch.completions[1].cause, Cause::device_dead);
    EXPECT_EQ(batch.completions[2].cause, Cause::fence_broken);
    EXPECT_TRUE(all_are(batch.second, done == 0 ? 2 : 1)) << "nothing but what the device did";
  }
}

TEST(DsaUnanswered, NothingSucceedsThatADeviceMayStillWriteToIfLateWritesFail) {
  for (const bool by_channel : {false, true}) {
    SilentBatch batch{.by_channel = by_channel, .late_writes = LateWrites::fail};
    batch.run(
        {Operation::copy(batch.second, batch.first), Operation::copy(batch.fourth, batch.third)});
    EXPECT_EQ(batch.end.cause, Cause::batch_failed);
    EXPECT_EQ(batch.completions[0].cause, Cause::device_dead);
    EXPECT_EQ(batch.completions[1].cause, Cause::device_dead);
    EXPECT_TRUE(all_are(batch.second, 2) && all_are(batch.fourth, 4)) << "a processor did it";
  }
  std::vector<dsa::Descriptor> unanswered;
  ToldPortal portal([&](const dsa::Descriptor& descriptor) { unanswered.push_back(descriptor); });
  const std::unique_ptr<Engine> engine =
      engine_on(portal, {.timeout = std::chrono::milliseconds(1), .late_writes = LateWrites::fail});
  const std::vector<std::byte> source(kLong, std::byte{1});
  std::vector<std::byte> target(kLong);
  const auto end_of = [&](const Operation& operation) {
    Job job;
    EXPECT_EQ(engine->submit(job, operation, {.path = Path::dsa}), Submit::accepted);
    EXPECT_TRUE(job.wait_for(std::chrono::seconds(60)));
    return job.completion();
  };
  const Completion copied = end_of(Operation::copy(target, source));
  EXPECT_EQ(copied.state, JobState::failed);
  EXPECT_EQ(copied.cause, Cause::device_dead);
  EXPECT_TRUE(copied.late_write_possible);
  EXPECT_TRUE(all_are(target, 0)) << "a processor did it";
  const Completion summed = end_of(Operation::crc(source));
  EXPECT_EQ(summed.state, JobState::done) << "what writes nothing succeeds";
  EXPECT_TRUE(summed.fell_back);
  for (const dsa::Descriptor& descriptor : unanswered) answer(descriptor, DSA_COMP_SUCCESS);
  engine->poll();
}

TEST(DsaUnanswered, AProcessorDoesWhatIsLeftOfABatchWhereThatDoesNoHarm) {
  {
    SilentBatch batch{.device = {.done_max = 1, .told = {DSA_COMP_SUCCESS}}};
    batch.run(batch.copy_then_fill());
    EXPECT_EQ(batch.end.state, JobState::done);
    EXPECT_TRUE(all_are(batch.second, 1));
    EXPECT_TRUE(all_are(batch.first, 9));
    EXPECT_FALSE(batch.completions[0].fell_back);
    EXPECT_TRUE(batch.completions[1].fell_back);
  }
  SilentBatch batch;
  batch.run({Operation::copy(batch.second, batch.first), Operation::crc(batch.first),
             Operation::compare(batch.first, batch.second).fenced()});
  EXPECT_EQ(batch.end.state, JobState::done);
  EXPECT_TRUE(all_are(batch.second, 1));
  EXPECT_FALSE(batch.completions[2].result.different);
  for (const Completion& one : batch.completions) EXPECT_TRUE(one.fell_back);
}

TEST(DsaUnanswered, AnOperationOfABatchHasItsRecordWhereADeviceTakesNoBatches) {
  // Reported as 0 by a device that takes none. AddressSanitizer sees a record that has no room.
  SilentBatch batch{.batch_max = 0};
  batch.run({Operation::copy(batch.second, batch.first), Operation::crc(batch.first)});
  EXPECT_EQ(batch.end.state, JobState::done);
  EXPECT_TRUE(all_are(batch.second, 1));
}

TEST(DsaUnanswered, AFenceHoldsWhereAProcessorDoesTheBatch) {
  // An operation that fails on any path: its offset is beyond the target.
  std::vector<std::byte> record(10);
  record[0] = std::byte{200};
  const auto check = [](const SilentBatch& batch) {
    EXPECT_EQ(batch.end.cause, Cause::batch_failed);
    EXPECT_EQ(batch.completions[0].cause, Cause::bad_record);
    EXPECT_EQ(batch.completions[1].state, JobState::done);
    EXPECT_EQ(batch.completions[2].cause, Cause::fence_broken);
    EXPECT_EQ(batch.completions[3].cause, Cause::fence_broken);
  };
  const auto operations = [&](SilentBatch& batch) {
    // Nothing behind the fence writes, so all of it may be repeated.
    return std::vector<Operation>{Operation::apply_delta(std::span(batch.second).first(8), record),
                                  Operation::compare(batch.first, batch.second),
                                  Operation::crc(batch.first).fenced(),
                                  Operation::crc(batch.first)};
  };
  SilentBatch unanswered;
  unanswered.run(operations(unanswered));
  check(unanswered);

  SilentBatch refused;
  const std::vector<Operation> list = operations(refused);
  // Accepted, discarded by a reset, and refused from then on.
  ToldPortal portal(
      [](const dsa::Descriptor& descriptor) { answer(descriptor, dsa::kStatusAborted); }, 1);
  const std::unique_ptr<Engine> engine =
      engine_on(portal, {.timeout = std::chrono::milliseconds(1)});
  refused.completions.resize(list.size());
  Job job;
  ASSERT_EQ(engine->submit_batch(job, {list, refused.completions}, {.path = Path::dsa}),
            Submit::accepted);
  ASSERT_TRUE(job.wait_for(std::chrono::seconds(60)));
  refused.end = job.completion();
  check(refused);
}

/// What ends a list without completion: it is not part of the list.
enum class ListEnd : std::uint8_t { longest, most, drain, fill_16, large };
constexpr std::array kListEnds{ListEnd::longest, ListEnd::most, ListEnd::drain, ListEnd::fill_16,
                               ListEnd::large};

/// A batch of two operations, one that ends the device's list, and a copy to `fourth`.
struct EndedList {
  explicit EndedList(ListEnd how) : end(how), large(end == ListEnd::large ? kLarge : 0) {}

  void run(SilentBatch& batch, const Operation& first, const Operation& second) {
    std::vector<Operation> operations{first, second};
    // No records are kept of more than 64, whatever the queue accepts.
    batch.batch_max = end == ListEnd::most ? 1024 : 32;
    const std::size_t list_max = end == ListEnd::most ? 64 : end == ListEnd::longest ? 32 : 3;
    while (operations.size() < list_max) operations.push_back(Operation::no_op());
    after = operations.size();
    switch (end) {
      case ListEnd::longest:
      case ListEnd::most:
        break;
      case ListEnd::drain:
        operations.push_back(Operation::drain());
        break;
      case ListEnd::fill_16:
        operations.push_back(Operation::fill(spare, 1, 2));
        break;
      case ListEnd::large:
        operations.push_back(
            Operation::copy(std::span(large).first(kLarge / 2), std::span(large).last(kLarge / 2)));
        break;
    }
    operations.push_back(Operation::copy(batch.fourth, batch.third));
    batch.run(operations);
  }

  static constexpr std::size_t kLarge = (2U << 21U) + 2;
  ListEnd end;
  std::vector<std::byte> large;
  std::vector<std::byte> spare = std::vector<std::byte>(64);
  std::size_t after = 0;  ///< The first operation that is not in the list.
};

TEST(DsaUnanswered, NothingBeginsBehindTheListOfAFenceThatIsBroken) {
  for (const bool by_channel : {false, true}) {
    for (const ListEnd how : kListEnds) {
      SCOPED_TRACE(::testing::Message() << "end " << static_cast<int>(how) << by_channel);
      SilentBatch batch{.by_channel = by_channel};
      EndedList list(how);
      list.run(batch, Operation::copy(batch.second, batch.first),
               Operation::copy(batch.third, batch.second).fenced());
      EXPECT_EQ(batch.end.cause, Cause::batch_failed);
      EXPECT_EQ(batch.end.bytes_done, 0U);
      for (std::size_t i = 0; i < batch.completions.size(); ++i) {
        EXPECT_EQ(batch.completions[i].cause,
                  i < list.after ? Cause::device_dead : Cause::fence_broken)
            << i << " " << name(batch.completions[i].cause);
      }
      EXPECT_TRUE(all_are(batch.fourth, 4)) << "copied from what was not written";
      EXPECT_EQ(list.spare[0], std::byte{0});
    }
  }
}

TEST(DsaUnanswered, WhatADeviceDidBehindAFenceStaysAndNothingMoreBeginsThere) {
  for (const ListEnd how : kListEnds) {
    SCOPED_TRACE(static_cast<int>(how));
    // The first has no record, though the device carried it out.
    SilentBatch batch{.device = {.done_max = 2, .told = {0, DSA_COMP_SUCCESS}}};
    EndedList list(how);
    list.run(batch, Operation::copy(batch.second, batch.first),
             Operation::copy(batch.third, batch.second).fenced());
    EXPECT_EQ(batch.completions[0].cause, Cause::device_dead);
    EXPECT_EQ(batch.completions[1].state, JobState::done);
    EXPECT_FALSE(batch.completions[1].fell_back);
    for (std::size_t i = list.after; i < batch.completions.size(); ++i) {
      EXPECT_EQ(batch.completions[i].cause, Cause::fence_broken) << i;
    }
    EXPECT_TRUE(all_are(batch.third, 1));
    EXPECT_TRUE(all_are(batch.fourth, 4));
  }
}

TEST(DsaUnanswered, AProcessorDoesNotFinishWhatADeviceBeganBehindAFenceThatIsBroken) {
  SilentBatch batch{.device = {.told = {0, DSA_COMP_HW_ERR1}}};
  EndedList list(ListEnd::drain);
  list.run(batch, Operation::copy(batch.second, batch.first),
           Operation::copy(batch.third, batch.second).fenced());
  EXPECT_EQ(batch.completions[0].cause, Cause::device_dead);
  EXPECT_EQ(batch.completions[1].cause, Cause::device_dead);
  EXPECT_EQ(batch.completions[1].bytes_done, 0U);
  EXPECT_EQ(batch.completions[list.after].cause, Cause::fence_broken);
  EXPECT_TRUE(all_are(batch.third, 3)) << "copied from what the device was to write";
}

TEST(DsaUnanswered, WhereADeviceToldOfTheFailureBeforeAFenceTheFenceIsBroken) {
  // An operation that fails on any path: its offset is beyond the target.
  std::vector<std::byte> record(10);
  record[0] = std::byte{200};
  SilentBatch batch{.device = {.told = {DSA_COMP_DR_OFFSET_ERANGE}}};
  batch.run({Operation::apply_delta(std::span(batch.second).first(8), record),
             Operation::copy(batch.third, batch.second).fenced(),
             Operation::fill(batch.second, 5).fenced()});
  EXPECT_EQ(batch.completions[0].cause, Cause::bad_record);
  EXPECT_EQ(batch.completions[1].cause, Cause::fence_broken);
  EXPECT_EQ(batch.completions[2].cause, Cause::fence_broken);
  EXPECT_TRUE(all_are(batch.third, 3));
}

TEST(DsaUnanswered, WithoutAFenceAProcessorDoesWhatIsBehindTheList) {
  for (const ListEnd how : kListEnds) {
    SCOPED_TRACE(static_cast<int>(how));
    SilentBatch batch;
    EndedList list(how);
    list.run(batch, Operation::crc(batch.first), Operation::crc(batch.first));
    EXPECT_EQ(batch.end.state, JobState::done);
    EXPECT_TRUE(all_are(batch.fourth, 3));
    EXPECT_TRUE(batch.completions[list.after].fell_back);
  }
}

TEST(DsaUnanswered, AQueueWhoseEntriesAreAllLostIsSentNothingMoreUntilOneComesBack) {
  std::vector<dsa::Descriptor> sent;
  ToldPortal portal([&](const dsa::Descriptor& descriptor) { sent.push_back(descriptor); });
  const std::unique_ptr<Engine> engine =
      engine_on(portal, {.timeout = std::chrono::milliseconds(1)});
  const std::size_t entry_count = portal.info().entry_count;
  std::vector<Buffers> buffers(entry_count, Buffers(kLong));
  std::vector<Job> jobs(entry_count);
  for (std::size_t i = 0; i < entry_count; ++i) {
    ASSERT_EQ(engine->submit_copy(jobs[i], buffers[i].plan(), {.path = Path::dsa}),
              Submit::accepted);
  }
  for (Job& job : jobs) EXPECT_TRUE(job.wait().late_write_possible);
  EXPECT_EQ(sent.size(), entry_count);
  Completion end;
  const Operation copy = Operation::copy(buffers[0].target, buffers[0].source);
  const auto by_processor = [&] {
    EXPECT_EQ(engine->run(copy, end, {.path = Path::dsa}), Submit::accepted);
    EXPECT_TRUE(end.fell_back);
  };
  for (int i = 0; i < 3; ++i) by_processor();
  EXPECT_EQ(sent.size(), entry_count);
  answer(sent[0], DSA_COMP_SUCCESS);
  engine->poll();
  Job job;
  EXPECT_EQ(engine->submit_copy(job, buffers[0].plan(), {.path = Path::dsa}), Submit::accepted);
  EXPECT_EQ(sent.size(), entry_count + 1) << "the queue is used again";
  // So that the mover can release its slots.
  for (const dsa::Descriptor& descriptor : sent) answer(descriptor, DSA_COMP_SUCCESS);
  engine->poll();
}

TEST(DsaUnanswered, AQueueWhoseEntriesAreAllLostIsNotFullThoughItHasAnsweredSince) {
  std::vector<dsa::Descriptor> sent;
  ToldPortal portal([&](const dsa::Descriptor& descriptor) { sent.push_back(descriptor); });
  const std::unique_ptr<Engine> engine =
      engine_on(portal, {.timeout = std::chrono::milliseconds(1)});
  const std::size_t entry_count = portal.info().entry_count;
  // The last two are used after the completion.
  std::vector<Buffers> buffers(entry_count + 2, Buffers(kLong));
  std::vector<Job> jobs(entry_count + 2);
  const auto submit = [&](std::size_t i) {
    return engine->submit_copy(jobs[i], buffers[i].plan(), {.path = Path::dsa});
  };
  for (std::size_t i = 0; i < entry_count; ++i) ASSERT_EQ(submit(i), Submit::accepted);
  for (std::size_t i = 0; i < entry_count; ++i) EXPECT_TRUE(jobs[i].wait().late_write_possible);
  answer(sent[0], DSA_COMP_SUCCESS);
  engine->poll();
  ASSERT_EQ(submit(entry_count), Submit::accepted);
  EXPECT_TRUE(jobs[entry_count].wait().late_write_possible) << "the entry is lost again";
  // One loss since the completion: the queue is not retired, but has nothing to wait for, either.
  ASSERT_EQ(submit(entry_count + 1), Submit::accepted);
  EXPECT_TRUE(jobs[entry_count + 1].wait().fell_back);
  EXPECT_EQ(sent.size(), entry_count + 1);
  for (const dsa::Descriptor& descriptor : sent) answer(descriptor, DSA_COMP_SUCCESS);
  engine->poll();
}

TEST(DsaUnanswered, AChannelWithRoomFindsOutThatTheDeviceLivesThoughAllOtherEntriesAreLost) {
  std::vector<dsa::Descriptor> sent;
  ToldPortal portal([&](const dsa::Descriptor& descriptor) { sent.push_back(descriptor); },
                    ~std::size_t{0}, 4);
  const std::unique_ptr<Engine> engine =
      engine_on(portal, {.timeout = std::chrono::milliseconds(1)});
  std::vector<Buffers> buffers(4, Buffers(kLong));
  std::vector<Job> jobs(3);
  {
    Result<std::unique_ptr<Channel>> channel = engine->open_channel({.depth = 1});
    ASSERT_TRUE(channel.has_value());
    for (std::size_t i = 0; i < 3; ++i) {
      ASSERT_EQ(engine->submit_copy(jobs[i], buffers[i].plan()), Submit::accepted);
    }
    for (Job& job : jobs) EXPECT_TRUE(job.wait().late_write_possible);
    Ticket ticket{};
    EXPECT_EQ((*channel)->submit_copy(buffers[3].plan(), ticket), Submit::closed);
    ASSERT_EQ(sent.size(), 4U) << "no thread has asked whether it lives";
    EXPECT_EQ(sent[3].opcode, DSA_OPCODE_NOOP);
    answer(sent[3], DSA_COMP_SUCCESS);
    EXPECT_EQ((*channel)->submit_copy(buffers[3].plan(), ticket), Submit::accepted);
    // The jobs' entries stay lost.
    Job job;
    ASSERT_EQ(engine->submit_copy(job, buffers[0].plan()), Submit::accepted);
    EXPECT_TRUE(job.wait().fell_back);
    EXPECT_EQ(sent.size(), 5U);
    answer(sent[4], DSA_COMP_SUCCESS);
    EXPECT_EQ((*channel)->wait(ticket).state, JobState::done);
  }
  // So that the mover can release its slots.
  for (const dsa::Descriptor& descriptor : sent) answer(descriptor, DSA_COMP_SUCCESS);
  engine->poll();
}

TEST(DsaUnanswered, ASecondThreadSendsNoProbeWhileTheFirstOneStillWritesItsOwn) {
  // timeout is so short that it expires before the first probe is submitted.
  struct Device {
    Engine* engine = nullptr;
    std::vector<Job>* jobs = nullptr;
    std::vector<Buffers>* buffers = nullptr;
    std::vector<dsa::Descriptor> sent = {};
    bool held_up = false;
    int probe_count = 0;
    int probes_meanwhile = 0;

    void take(const dsa::Descriptor& descriptor) {
      sent.push_back(descriptor);
      if (descriptor.opcode != DSA_OPCODE_NOOP) return;
      ++probe_count;
      if (held_up) ++probes_meanwhile;
      if (probe_count > 1) return;
      // The first probe is being submitted: its thread is blocked here, and another one submits.
      held_up = true;
      std::thread([this] {
        EXPECT_EQ(engine->submit_copy((*jobs)[4], (*buffers)[4].plan(), {.path = Path::dsa}),
                  Submit::accepted);
      }).join();
      held_up = false;
    }
  } device;
  ToldPortal portal([&](const dsa::Descriptor& descriptor) { device.take(descriptor); });
  const std::unique_ptr<Engine> engine =
      engine_on(portal, {.timeout = std::chrono::nanoseconds(1)});
  std::vector<Buffers> buffers(5, Buffers(kLong));
  std::vector<Job> jobs(5);
  device.engine = engine.get();
  device.jobs = &jobs;
  device.buffers = &buffers;
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(engine->submit_copy(jobs[i], buffers[i].plan(), {.path = Path::dsa}),
              Submit::accepted);
    EXPECT_TRUE(jobs[i].wait().late_write_possible);
  }
  // The queue is retired: the next submission sends a probe in place of the copy.
  ASSERT_EQ(engine->submit_copy(jobs[3], buffers[3].plan(), {.path = Path::dsa}), Submit::accepted);
  EXPECT_GT(device.probe_count, 0);
  EXPECT_EQ(device.probes_meanwhile, 0) << "two threads wrote to one descriptor";
  for (Job& job : jobs) job.wait();
  // So that the mover can release its slots.
  for (const dsa::Descriptor& descriptor : device.sent) answer(descriptor, DSA_COMP_SUCCESS);
  engine->poll();
}

}  // namespace
}  // namespace headrace::engine::dsa_unanswered_test
