// SPDX-License-Identifier: Apache-2.0
// A copy, fill or comparison shared with a device is correct whatever the device does: completes
// all, part or none of it, refuses, fails, or never completes.
#include "inject/copy/device_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csetjmp>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "emu/device/device.hpp"
#include "headrace/base/random.hpp"
#include "support/seed.hpp"

namespace headrace::preload {
namespace {

struct Options {
  std::uint32_t queue_count = 1;
  /// Entries of each queue, which is dedicated; 0: they are shared.
  std::uint32_t dedicated_entries = 0;
  std::uint64_t piece_bytes_max = 2U << 20U;
  std::uint64_t pauses_max = UINT64_MAX;
  std::uint64_t drain_pauses_max = UINT64_MAX;
  std::vector<emu::FaultRule> faults = {};
};

/// Devices emulated in this process, and a program's view of them.
class Stage {
 public:
  explicit Stage(const Options& options = {}) {
    emu::DeviceConfig config = emu::default_device(options.queue_count, 0, 2, "test");
    if (options.dedicated_entries != 0) {
      config = emu::default_device(0, options.queue_count, 2, "test");
      for (std::uint32_t i = 0; i < options.queue_count; ++i) {
        config.queues[i].size = options.dedicated_entries;
        device_->entry_counts[i] = options.dedicated_entries;
      }
    }
    for (emu::QueueConfig& queue : config.queues) {
      queue.transfer_bytes_max = options.piece_bytes_max;
    }
    emu::DeviceOptions emulator;
    for (const emu::FaultRule& rule : options.faults) {
      emulator.faults.rules[emulator.faults.rule_count++] = rule;
    }
    auto made = emu::Device::create(std::span(&config, 1), std::move(emulator));
    EXPECT_TRUE(made.has_value()) << made.error().message();
    emulated_ = std::move(*made);
    device_->portal_count.store_relaxed(options.queue_count);
    device_->piece_bytes_max = options.piece_bytes_max;
    device_->pauses_max = options.pauses_max;
    device_->drain_pauses_max = options.drain_pauses_max;
    device_->share.store_relaxed(kShareUnits / 2);
    static std::uint64_t generation = 0;
    device_->generation.store_relaxed(++generation);
    device_->usable.store_relaxed(true);
  }

  [[nodiscard]] Device& device() { return *device_; }
  [[nodiscard]] emu::Device& emulated() { return *emulated_; }

  DeviceTotals copy(std::byte* target, const std::byte* source, std::size_t byte_count) {
    const auto move = [](std::byte* to, const std::byte* from, std::size_t count) noexcept {
      std::memmove(to, from, count);
    };
    CopyTask task{target, source, move};
    return run(task, byte_count);
  }
  template <typename Task>
  DeviceTotals run(Task& task, std::size_t byte_count) {
    return DeviceWork(*device_, *this, task).run(byte_count);
  }
  bool enqueue(std::uint32_t portal, const dsa::Descriptor& descriptor) noexcept {
    return emulated_->portal(DeviceId(0), QueueId(portal)).submit(descriptor);
  }
  /// Called where a program would be aborted.
  void end_program() noexcept { ++end_count_; }
  [[nodiscard]] std::uint64_t end_count() const { return end_count_; }

 private:
  std::uint64_t end_count_ = 0;
  std::unique_ptr<Device> device_ = std::make_unique<Device>();
  // Destroyed before the slots that it may write to.
  std::unique_ptr<emu::Device> emulated_;
};

/// Bytes to copy, with a margin that must stay unchanged.
class Bytes {
 public:
  static constexpr std::size_t kMargin = 4096;

  Bytes(std::size_t byte_count, Random& random)
      : source_(byte_count + 2 * kMargin), target_(source_.size()), byte_count_(byte_count) {
    for (std::size_t i = 0; i + sizeof(std::uint64_t) <= source_.size(); i += 8) {
      const std::uint64_t word = random();
      std::memcpy(source_.data() + i, &word, sizeof word);
    }
    std::ranges::fill(target_, std::byte{0x5a});
    source_offset_ = random.below(kMargin);
    target_offset_ = random.below(kMargin);
  }
  [[nodiscard]] std::byte* target() { return target_.data() + target_offset_; }
  [[nodiscard]] const std::byte* source() const { return source_.data() + source_offset_; }
  [[nodiscard]] std::size_t size() const { return byte_count_; }
  void expect_copied() const {
    const auto begin = target_.begin() + static_cast<std::ptrdiff_t>(target_offset_);
    const auto end = begin + static_cast<std::ptrdiff_t>(byte_count_);
    const auto is_margin = [](std::byte byte) { return byte == std::byte{0x5a}; };
    EXPECT_TRUE(byte_count_ == 0 || std::memcmp(&*begin, source(), byte_count_) == 0);
    EXPECT_TRUE(std::all_of(target_.begin(), begin, is_margin));
    EXPECT_TRUE(std::all_of(end, target_.end(), is_margin));
  }

 private:
  std::vector<std::byte> source_;
  std::vector<std::byte> target_;
  std::size_t byte_count_;
  std::size_t source_offset_ = 0;
  std::size_t target_offset_ = 0;
};

/// Copies a number of lengths; returns the device's totals.
DeviceTotals copy_some(Stage& stage, int rounds) {
  Random random(test::seed());
  DeviceTotals all;
  for (int i = 0; i < rounds; ++i) {
    Bytes bytes(random.below(600'000), random);
    const DeviceTotals one = stage.copy(bytes.target(), bytes.source(), bytes.size());
    bytes.expect_copied();
    all.descriptors += one.descriptors;
    all.bytes += one.bytes;
    all.page_faults += one.page_faults;
    all.retries += one.retries;
    all.errors += one.errors;
    all.lost += one.lost;
  }
  return all;
}

/// Leaves a copy like a signal handler by siglongjmp, during the thread's part.
void leave_copy(Stage& stage, Bytes& bytes) {
  std::jmp_buf back;
  if (setjmp(back) != 0) return;
  const auto leave = [&back](std::byte*, const std::byte*, std::size_t) noexcept {
    std::longjmp(back, 1);
  };
  CopyTask task{bytes.target(), bytes.source(), leave};
  stage.run(task, bytes.size());
}

TEST(DeviceCopy, CopiesThatAreLeftByLongjmpLoseNoSlots) {
  Random random(test::seed());
  std::deque<Bytes> left;  // One per target; outlive the devices that may write to them.
  Stage stage;
  for (std::size_t i = 0; i < 2 * kSlotCount; ++i) {
    leave_copy(stage, left.emplace_back(65'536, random));
  }
  Bytes bytes(65'536, random);
  DeviceTotals totals;
  // The device may still be busy with abandoned copies.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (totals.descriptors == 0 && std::chrono::steady_clock::now() < end) {
    totals = stage.copy(bytes.target(), bytes.source(), bytes.size());
  }
  bytes.expect_copied();
  EXPECT_GT(totals.descriptors, 0U);
}

TEST(DeviceCopy, ACopyWhoseSlotAHandlerTookBackIsRight) {
  // The outer copy's piece fails, those that the slot is used for next do not: the outer copy must
  // not take their success for its own.
  Random random(test::seed());
  std::deque<Bytes> left;  // As above.
  Stage stage(
      {.faults = {{.kind = emu::FaultKind::status, .nth = 1, .raw_status = DSA_COMP_HW_ERR1}}});
  Bytes outer(65'536, random);
  Bytes inner(65'536, random);
  bool nested = false;
  const auto interrupt = [&](std::byte* to, const std::byte* from, std::size_t count) noexcept {
    std::memmove(to, from, count);
    if (std::exchange(nested, true)) return;
    while (headrace::load_acquire(
               const_cast<const std::uint8_t&>(stage.device().slots[0].record.status)) == 0) {
      std::this_thread::yield();
    }
    // More than the thread may hold, so that the completed slot is reclaimed and reused.
    for (std::size_t i = 0; i < kHeldSlotsMax + 1; ++i) {
      leave_copy(stage, left.emplace_back(65'536, random));
    }
    EXPECT_GE(stage.device().uses[0].load_relaxed(), 3U);  // Relaxed: written by this thread only.
    stage.copy(inner.target(), inner.source(), inner.size());
  };
  CopyTask task{outer.target(), outer.source(), interrupt};
  stage.run(task, outer.size());
  outer.expect_copied();
  inner.expect_copied();
}

TEST(DeviceCopy, TheDeviceHasAPartInEveryLengthFromAPageOn) {
  Stage stage;
  Random random(test::seed());
  for (const std::size_t length :
       {std::size_t{4096}, std::size_t{4097}, std::size_t{65'536}, std::size_t{65'599},
        std::size_t{1} << 20U, (std::size_t{40} << 20U) + 77}) {
    Bytes bytes(length, random);
    const DeviceTotals totals = stage.copy(bytes.target(), bytes.source(), length);
    bytes.expect_copied();
    EXPECT_GE(totals.bytes, length / kShareUnits * kShareMin / 2) << length;
    EXPECT_LT(totals.bytes, length) << length;
    EXPECT_GE(totals.descriptors, 1U);
    EXPECT_EQ(totals.errors + totals.lost + totals.page_faults + totals.retries, 0U);
  }
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{4095}}) {
    Bytes bytes(length, random);
    EXPECT_EQ(stage.copy(bytes.target(), bytes.source(), length).descriptors, 0U);
    bytes.expect_copied();
  }
  EXPECT_EQ(stage.device().busy.load_relaxed(), 0U);
}

TEST(DeviceCopy, NoDescriptorIsLongerThanTheQueueTakes) {
  Stage stage({.queue_count = 3, .piece_bytes_max = 4096});
  const DeviceTotals totals = copy_some(stage, 20);
  EXPECT_GT(totals.descriptors, 20U * kPieceMax);
  EXPECT_EQ(totals.errors, 0U);
  EXPECT_LE(totals.bytes, totals.descriptors * 4096);
}

TEST(DeviceCopy, WhatAPageFaultLeavesTheThreadCopies) {
  Stage stage(
      {.faults = {{.kind = emu::FaultKind::page_fault, .every = 2, .at_byte = 1000},
                  {.kind = emu::FaultKind::page_fault, .every = 3, .at_byte = 0, .write = true}}});
  const DeviceTotals totals = copy_some(stage, 50);
  EXPECT_GT(totals.page_faults, 20U);
  EXPECT_GT(totals.bytes, 0U);
  EXPECT_EQ(totals.errors, 0U);
  EXPECT_TRUE(stage.device().usable.load_relaxed());
}

TEST(DeviceCopy, AfterAPageFaultTheDeviceCopiesAll) {
  Stage stage({.faults = {{.kind = emu::FaultKind::page_fault, .nth = 1, .at_byte = 5000}}});
  Random random(test::seed());
  Bytes bytes((std::size_t{20} << 20U) + 77, random);
  const DeviceTotals first = stage.copy(bytes.target(), bytes.source(), bytes.size());
  bytes.expect_copied();
  EXPECT_EQ(first.page_faults, 1U);
  EXPECT_GE(first.bytes, bytes.size() - kFirstRoundBytes / kShareUnits * kShareMax);
  for (std::uint32_t i = 0; i < kTouchedCalls; ++i) {
    const DeviceTotals totals = stage.copy(bytes.target(), bytes.source(), bytes.size());
    EXPECT_GE(totals.bytes, bytes.size() - kDeviceBytesMin) << i;
  }
  bytes.expect_copied();
  // Then it checks whether that is still needed.
  EXPECT_LT(stage.copy(bytes.target(), bytes.source(), bytes.size()).bytes, bytes.size() - 4096);
}

/// The queues of a stage, before which each page of a descriptor must have been touched.
struct TouchedQueues {
  Stage& stage;
  const std::vector<const std::byte*>& touched;
  std::uint64_t pages = 0;

  bool enqueue(std::uint32_t portal, const dsa::Descriptor& descriptor) noexcept {
    for (const std::uint64_t begin :
         {std::uint64_t{descriptor.src_addr}, std::uint64_t{descriptor.dst_addr}}) {
      const std::uint64_t end = begin + descriptor.xfer_size;
      for (std::uint64_t page = begin / kPageBytes; page * kPageBytes < end; ++page, ++pages) {
        EXPECT_TRUE(std::ranges::any_of(touched, [page](const std::byte* at) {
          return reinterpret_cast<std::uintptr_t>(at) / kPageBytes == page;
        }));
      }
    }
    return stage.enqueue(portal, descriptor);
  }
  static void end_program() noexcept { ADD_FAILURE(); }
};

TEST(DeviceCopy, EveryPageOfBothSidesIsTouchedAheadOfTheDevice) {
  Stage stage;
  Random random(test::seed());
  for (int i = 0; i < 20; ++i) {
    stage.device().touched_calls_left.store_relaxed(1);
    Bytes bytes(kDeviceBytesMin + random.below(300'000), random);
    std::vector<const std::byte*> touched;
    const auto move = [&touched](std::byte* to, const std::byte* from, std::size_t count) noexcept {
      touched.insert(touched.end(), {to, from});
      std::memmove(to, from, count);
    };
    CopyTask task{bytes.target(), bytes.source(), move};
    TouchedQueues queues{stage, touched};
    DeviceWork(stage.device(), queues, task).run(bytes.size());
    bytes.expect_copied();
    EXPECT_GE(queues.pages, 2 * bytes.size() / kPageBytes);
  }
}

TEST(DeviceCopy, WhatNoQueueTakesTheThreadCopies) {
  Stage some({.faults = {{.kind = emu::FaultKind::queue_full, .every = 3}}});
  const DeviceTotals totals = copy_some(some, 50);
  EXPECT_GT(totals.retries, 10U);
  EXPECT_GT(totals.bytes, 0U);
  Stage all({.faults = {{.kind = emu::FaultKind::queue_full, .every = 1}}});
  EXPECT_EQ(copy_some(all, 20).descriptors, 0U);
  EXPECT_EQ(all.device().busy.load_relaxed(), 0U);
}

TEST(DeviceCopy, AfterErrorsWithoutAnEndTheDeviceIsLeftAlone) {
  Stage some(
      {.faults = {{.kind = emu::FaultKind::status, .every = 2, .raw_status = DSA_COMP_HW_ERR1}}});
  const DeviceTotals totals = copy_some(some, 60);
  EXPECT_GT(totals.errors, kErrorsMax);
  EXPECT_TRUE(some.device().usable.load_relaxed());
  Stage all(
      {.faults = {{.kind = emu::FaultKind::status, .every = 1, .raw_status = DSA_COMP_HW_ERR1}}});
  const DeviceTotals last = copy_some(all, 60);
  EXPECT_GE(last.errors, kErrorsMax);
  EXPECT_LT(last.errors, kErrorsMax + kPieceMax);
  EXPECT_EQ(last.bytes, 0U);
  EXPECT_FALSE(all.device().usable.load_relaxed());
}

TEST(DeviceCopy, WhatAResetTakesAwayTheThreadCopies) {
  Stage stage({.faults = {{.kind = emu::FaultKind::reset, .every = 7}}});
  EXPECT_GT(copy_some(stage, 50).errors, 0U);
}

constexpr auto kMoves = static_cast<std::int32_t>(dsa::Opcode::move);

TEST(DeviceCopy, WhatIsNotAnsweredButDrainedTheThreadCopiesAndTheDevicesAreLeftAlone) {
  Stage stage(
      {.pauses_max = 20'000,
       .faults = {{.kind = emu::FaultKind::lost_completion, .opcode = kMoves, .every = 1}}});
  const DeviceTotals totals = copy_some(stage, 10);
  EXPECT_GE(totals.lost, 1U);
  EXPECT_LE(totals.lost, kPieceMax);
  EXPECT_FALSE(stage.device().usable.load_relaxed());
  EXPECT_EQ(stage.device().busy.load_relaxed(), 0U);
  EXPECT_EQ(stage.end_count(), 0U);
}

TEST(DeviceCopy, WhatIsAnsweredTooLateIsNotWrittenToAfterTheCopy) {
  constexpr std::uint64_t kLate = 100'000'000;
  Stage stage(
      {.pauses_max = 1,
       .faults = {
           {.kind = emu::FaultKind::slow, .opcode = kMoves, .every = 1, .delay_ns = kLate}}});
  constexpr std::size_t kBytes = 100'000;
  const std::vector<std::byte> source(kBytes, std::byte{1});
  std::vector<std::byte> target(kBytes);
  const DeviceTotals totals = stage.copy(target.data(), source.data(), kBytes);
  EXPECT_EQ(target, source);
  std::ranges::fill(target, std::byte{2});
  // Late is not lost, and the devices stay in use; so this ends when all earlier copies have ended.
  EXPECT_EQ(totals.lost, 0U);
  EXPECT_GT(totals.bytes, 0U);
  std::vector<std::byte> other(kBytes);
  EXPECT_GT(stage.copy(other.data(), source.data(), kBytes).bytes, 0U);
  EXPECT_EQ(target, std::vector<std::byte>(kBytes, std::byte{2}));
  EXPECT_EQ(stage.device().busy.load_relaxed(), 0U);
  EXPECT_EQ(stage.end_count(), 0U);
}

TEST(DeviceCopy, AProgramWithATargetOfADeviceThatAnswersNothingEnds) {
  Stage stage({.pauses_max = 20'000,
               .drain_pauses_max = 20'000,
               .faults = {{.kind = emu::FaultKind::halt, .every = 1}}});
  const DeviceTotals totals = copy_some(stage, 10);
  EXPECT_GE(totals.lost, 1U);
  EXPECT_EQ(stage.end_count(), totals.lost);
  EXPECT_FALSE(stage.device().usable.load_relaxed());
  // The device may still write to their records.
  EXPECT_EQ(static_cast<std::uint64_t>(std::popcount(stage.device().busy.load_relaxed())),
            totals.lost);
}

TEST(DeviceCopy, AComparisonWithADeviceThatAnswersNothingIsTheThreads) {
  Stage stage({.pauses_max = 20'000,
               .drain_pauses_max = 20'000,
               .faults = {{.kind = emu::FaultKind::halt, .every = 1}}});
  const std::vector<std::byte> left(100'000);
  std::vector<std::byte> right(left);
  right[70] = std::byte{1};
  CompareTask task{
      left.data(), right.data(),
      [](const std::byte* one, const std::byte* other, std::size_t count) noexcept {
        return static_cast<std::size_t>(std::mismatch(one, one + count, other).first - one);
      }};
  EXPECT_GE(stage.run(task, left.size()).lost, 1U);
  EXPECT_EQ(task.difference, 70U);
  EXPECT_EQ(stage.end_count(), 0U);
  EXPECT_NE(stage.device().busy.load_relaxed(), 0U);
}

/// Fills a number of lengths; returns the bytes filled by devices.
std::uint64_t fill_some(Stage& stage, int rounds) {
  Random random(test::seed());
  std::uint64_t bytes = 0;
  for (int i = 0; i < rounds; ++i) {
    constexpr std::byte kBefore{0x11};
    const std::size_t length = random.below(400'000);
    const std::size_t begin = random.below(64);
    std::vector<std::byte> room(length + 128, kBefore);
    const auto value = static_cast<unsigned char>(0x80U + random.below(128));
    FillTask task{room.data() + begin, value,
                  [](std::byte* to, unsigned char byte, std::size_t count) noexcept {
                    std::memset(to, byte, count);
                  }};
    bytes += stage.run(task, length).bytes;
    for (std::size_t at = 0; at < room.size(); ++at) {
      const bool inside = at >= begin && at < begin + length;
      if (room[at] == (inside ? std::byte{value} : kBefore)) continue;
      ADD_FAILURE() << at << " of " << begin << '+' << length;
      break;
    }
  }
  return bytes;
}

/// Compares ranges that are equal, or differ in one or more places; returns the bytes compared by
/// devices.
std::uint64_t compare_some(Stage& stage, int rounds) {
  Random random(test::seed());
  std::uint64_t bytes = 0;
  for (int i = 0; i < rounds; ++i) {
    const std::size_t length = 1 + random.below(400'000);
    std::vector<std::byte> left(length, std::byte{7});
    std::vector<std::byte> right(left);
    for (std::uint64_t count = random.below(4); count > 0; --count) {
      right[random.below(length)] = std::byte{0x80};
    }
    const auto same =
        static_cast<std::size_t>(std::ranges::mismatch(left, right).in1 - left.begin());
    CompareTask task{left.data(), right.data(),
                     [](const std::byte* one, const std::byte* other, std::size_t count) noexcept {
                       std::size_t at = 0;
                       while (at < count && one[at] == other[at]) ++at;
                       return at;
                     }};
    bytes += stage.run(task, length).bytes;
    EXPECT_EQ(task.difference, same == length ? SIZE_MAX : same) << length;
  }
  return bytes;
}

TEST(DeviceCopy, FillsAndComparisonsAreRightWhateverTheDeviceDoes) {
  const std::vector<std::vector<emu::FaultRule>> troubles = {
      {},
      {{.kind = emu::FaultKind::page_fault, .every = 2, .at_byte = 1000}},
      {{.kind = emu::FaultKind::queue_full, .every = 3}},
      {{.kind = emu::FaultKind::status, .every = 2, .raw_status = DSA_COMP_HW_ERR1}},
      {{.kind = emu::FaultKind::reset, .every = 7}},
  };
  for (const std::vector<emu::FaultRule>& faults : troubles) {
    Stage stage({.queue_count = 2, .faults = faults});
    EXPECT_GT(fill_some(stage, 30), 0U);
    EXPECT_GT(compare_some(stage, 60), 0U);
    EXPECT_EQ(stage.device().busy.load_relaxed(), 0U);
  }
}

TEST(DeviceCopy, AChildOfForkWaitsForNothingOfItsParents) {
  // Between submission and the wait a handler forks: in the child all of the memory is zero, and a
  // fork handler may have reopened the portals. A wait would end as a lost completion.
  for (const bool opened_anew : {false, true}) {
    Stage stage({.pauses_max = 20'000'000,
                 .drain_pauses_max = 20'000,
                 .faults = {{.kind = emu::FaultKind::halt, .every = 1}}});
    Random random(test::seed());
    Bytes bytes(300'000, random);
    Device& device = stage.device();
    bool forked = false;
    const auto move = [&](std::byte* to, const std::byte* from, std::size_t count) noexcept {
      std::memmove(to, from, count);
      if (std::exchange(forked, true)) return;
      device.usable.store_relaxed(false);
      device.busy.store_relaxed(std::uint64_t{1} << 40U);  // A slot of the child's own.
      device.generation.store_relaxed(opened_anew ? device.generation.load_relaxed() + 1 : 0);
    };
    CopyTask task{bytes.target(), bytes.source(), move};
    const DeviceTotals totals = stage.run(task, bytes.size());
    EXPECT_GE(totals.descriptors, 1U);
    EXPECT_EQ(totals.lost, 0U);
    bytes.expect_copied();
    EXPECT_EQ(device.busy.load_relaxed(), std::uint64_t{1} << 40U);
  }
}

TEST(DeviceCopy, WithoutAFreeSlotTheThreadCopies) {
  Stage stage;
  stage.device().busy.store_relaxed(~std::uint64_t{0});
  EXPECT_EQ(copy_some(stage, 5).descriptors, 0U);
  stage.device().busy.store_relaxed(~std::uint64_t{0} >> 1U);  // Only the last one is free.
  EXPECT_GT(copy_some(stage, 5).descriptors, 0U);
  EXPECT_EQ(stage.device().busy.load_relaxed(), ~std::uint64_t{0} >> 1U);
}

TEST(DeviceCopy, TheShareFollowsWhoIsWaiting) {
  Stage slow({.faults = {{.kind = emu::FaultKind::slow, .every = 1, .delay_ns = 2'000'000}}});
  copy_some(slow, 20);
  EXPECT_LT(slow.device().share.load_relaxed(), kShareUnits / 2);
  EXPECT_GE(slow.device().share.load_relaxed(), kShareMin);
}

TEST(DeviceCopy, ThreadsTakeSlotsOfTheirOwn) {
  Stage stage({.queue_count = 2});
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&stage, i] {
      Random random(test::seed() + i);
      for (int round = 0; round < 20; ++round) {
        Bytes bytes(random.below(400'000), random);
        static_cast<void>(stage.copy(bytes.target(), bytes.source(), bytes.size()));
        bytes.expect_copied();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stage.device().busy.load_relaxed(), 0U);
}

TEST(DeviceCopy, ADedicatedQueueGetsNoMoreThanItHolds) {
  // Slow, so that four threads submit more than there is room for; a dropped descriptor would never
  // complete.
  Stage stage({.queue_count = 2,
               .dedicated_entries = 3,
               .faults = {{.kind = emu::FaultKind::slow, .every = 1, .delay_ns = 200'000}}});
  Atomic<std::uint64_t> device_bytes{0};
  Atomic<std::uint64_t> lost{0};
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      Random random(test::seed() + i);
      for (int round = 0; round < 20; ++round) {
        Bytes bytes(random.below(400'000), random);
        const DeviceTotals totals = stage.copy(bytes.target(), bytes.source(), bytes.size());
        bytes.expect_copied();
        device_bytes.fetch_add_relaxed(totals.bytes);  // A count, as the next.
        lost.fetch_add_relaxed(totals.lost);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(device_bytes.load_relaxed(), 0U);
  EXPECT_EQ(lost.load_relaxed(), 0U);
  for (const auto& each : stage.device().entries_used) EXPECT_EQ(each.load_relaxed(), 0U);
}

TEST(DeviceCopy, WhatADedicatedQueueHasDrainedGivesItsEntryBack) {
  Stage drained(
      {.dedicated_entries = 2,
       .pauses_max = 20'000,
       .faults = {{.kind = emu::FaultKind::lost_completion, .opcode = kMoves, .every = 1}}});
  EXPECT_GE(copy_some(drained, 10).lost, 1U);
  EXPECT_EQ(drained.device().entries_used[0].load_relaxed(), 0U);
  EXPECT_EQ(drained.end_count(), 0U);
  Stage silent({.dedicated_entries = 2,
                .pauses_max = 20'000,
                .drain_pauses_max = 20'000,
                .faults = {{.kind = emu::FaultKind::halt, .every = 1}}});
  EXPECT_GE(copy_some(silent, 10).lost, 1U);
  EXPECT_EQ(silent.device().entries_used[0].load_relaxed(), 2U);
}

TEST(DeviceCopy, RangesWithACommonByteAreNotDisjoint) {
  std::byte bytes[64];
  EXPECT_TRUE(is_disjoint(bytes, bytes + 32, 32));
  EXPECT_TRUE(is_disjoint(bytes + 32, bytes, 32));
  EXPECT_FALSE(is_disjoint(bytes, bytes + 31, 32));
  EXPECT_FALSE(is_disjoint(bytes + 31, bytes, 32));
  EXPECT_FALSE(is_disjoint(bytes, bytes, 32));
}

}  // namespace
}  // namespace headrace::preload
