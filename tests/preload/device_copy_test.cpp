// SPDX-License-Identifier: Apache-2.0
// A copy shared with a device is right whatever the device does: carries all, part or none of it,
// refuses, fails, or never answers.
#include "preload/device_copy.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "emu/device/device.hpp"
#include "headrace/base/random.hpp"
#include "support/seed.hpp"

namespace headrace::preload {
namespace {

struct Options {
  std::uint32_t queue_count = 1;
  std::uint64_t piece_bytes_max = 2U << 20U;
  std::uint64_t pauses_max = UINT64_MAX;
  std::vector<emu::FaultRule> faults = {};
};

/// Devices that are emulated in this process, and what a program would know of them.
class Stage {
 public:
  explicit Stage(const Options& options = {}) {
    emu::DeviceConfig config = emu::default_device(options.queue_count, 0, 2, "test");
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
    device_->portal_count = options.queue_count;
    device_->piece_bytes_max = options.piece_bytes_max;
    device_->pauses_max = options.pauses_max;
    device_->share.store_relaxed(kShareUnits / 2);
    device_->usable.store_relaxed(true);
  }

  [[nodiscard]] Device& device() { return *device_; }
  [[nodiscard]] emu::Device& emulated() { return *emulated_; }

  DeviceTotals copy(std::byte* target, const std::byte* source, std::size_t byte_count) {
    const auto enqueue = [this](std::uint32_t portal, const dsa::Descriptor& descriptor) noexcept {
      return emulated_->portal(DeviceId(0), QueueId(portal)).submit(descriptor);
    };
    const auto move = [](std::byte* to, const std::byte* from, std::size_t count) noexcept {
      std::memmove(to, from, count);
    };
    return DeviceCopy(*device_, enqueue, move).run(target, source, byte_count);
  }

 private:
  std::unique_ptr<Device> device_ = std::make_unique<Device>();
  // Ends before the slots that it may write to.
  std::unique_ptr<emu::Device> emulated_;
};

/// Bytes that are copied, with a margin that must stay.
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

/// Copies a number of lengths; returns all that the device did.
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

TEST(DeviceCopy, ADeviceThatNeverAnswersIsGivenUpAndItsSlotIsNotGivenAgain) {
  std::vector<emu::FaultKind> kinds{emu::FaultKind::halt};
#if !defined(__SANITIZE_THREAD__)
  // Here the device has written what the thread writes again, and has not said so: a race, and what
  // giving it up means.
  kinds.push_back(emu::FaultKind::lost_completion);
#endif
  for (const emu::FaultKind kind : kinds) {
    Stage stage({.pauses_max = 200'000, .faults = {{.kind = kind, .every = 1}}});
    const DeviceTotals totals = copy_some(stage, 10);
    EXPECT_GE(totals.lost, 1U);
    EXPECT_LE(totals.lost, kPieceMax);
    EXPECT_FALSE(stage.device().usable.load_relaxed());
    EXPECT_EQ(static_cast<std::uint64_t>(std::popcount(stage.device().busy.load_relaxed())),
              totals.lost);
  }
}

TEST(DeviceCopy, WithoutAFreeSlotTheThreadCopies) {
  Stage stage;
  stage.device().busy.store_relaxed(~std::uint64_t{0});
  EXPECT_EQ(copy_some(stage, 5).descriptors, 0U);
  stage.device().busy.store_relaxed(~std::uint64_t{0} >> 1U);  // The last one alone.
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
