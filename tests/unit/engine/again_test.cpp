// SPDX-License-Identifier: Apache-2.0
// Jobs that are submitted again: an engine knows most of what a job has from its submission before,
// and must not when that was of another kind or by another engine.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "fixtures.hpp"
#include "told_portal.hpp"

namespace headrace::engine {
namespace {

using test::Buffers;
using test::ToldPortal;

/// Devices that do what copies and fills of eight bytes ask for, and count.
struct Devices {
  explicit Devices(std::size_t count) : counts(count) {
    for (std::size_t i = 0; i < count; ++i) {
      portals.push_back(std::make_unique<ToldPortal>([this, i](const dsa::Descriptor& descriptor) {
        ++counts[i];
        auto* const target = reinterpret_cast<std::byte*>(descriptor.dst_addr);
        if (descriptor.opcode == static_cast<std::uint8_t>(dsa::Opcode::move)) {
          const auto* const source = reinterpret_cast<const std::byte*>(descriptor.src_addr);
          std::copy_n(source, descriptor.xfer_size, target);
        } else {
          std::fill_n(target, descriptor.xfer_size,
                      static_cast<std::byte>(descriptor.src_addr & 0xffU));
        }
        test::answer(descriptor, DSA_COMP_SUCCESS);
      }));
    }
  }
  [[nodiscard]] std::unique_ptr<Engine> make_engine() const {
    std::vector<std::unique_ptr<Mover>> movers;
    for (const auto& portal : portals) movers.push_back(DsaQueue::make(*portal, {}).value());
    return Engine::make(std::move(movers), {}).value();
  }
  std::vector<int> counts;
  std::vector<std::unique_ptr<ToldPortal>> portals;
};

TEST(Again, AJobGoesToAllDevicesInTurn) {
  const Devices devices(3);
  const auto engine = devices.make_engine();
  Job job;
  for (int i = 0; i < 12; ++i) {
    Buffers buffers(8192, static_cast<std::uint64_t>(i));
    ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
    ASSERT_EQ(job.wait().state, JobState::done);
    EXPECT_FALSE(job.completion().fell_back);
    EXPECT_TRUE(buffers.equal());
  }
  EXPECT_EQ(devices.counts, (std::vector<int>{4, 4, 4}));
  EXPECT_EQ(engine->statistics().jobs_done, 12U);
  EXPECT_EQ(engine->statistics().bytes_by_device, 12U * 8192U);
}

TEST(Again, AJobGoesFromEngineToEngine) {
  // Each engine may have the address of the one before, and has other devices.
  Job job;
  for (const std::size_t count : {4U, 1U, 2U, 1U, 3U, 1U}) {
    const Devices devices(count);
    const auto engine = devices.make_engine();
    for (int i = 0; i < 5; ++i) {
      Buffers buffers(8192, static_cast<std::uint64_t>(i));
      ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
      ASSERT_EQ(job.wait().state, JobState::done);
      EXPECT_TRUE(buffers.equal());
    }
    EXPECT_EQ(engine->statistics().jobs_done, 5U);
  }
}

TEST(Again, AJobChangesItsKind) {
  const Devices devices(2);
  const auto engine = devices.make_engine();
  int call_count = 0;
  const auto called = [](void* context, const Completion&) noexcept {
    ++*static_cast<int*>(context);
  };
  Job job;
  for (int i = 0; i < 4; ++i) {
    Buffers buffers(8192, static_cast<std::uint64_t>(i));
    ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
    ASSERT_EQ(job.wait().state, JobState::done);
    ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
    ASSERT_TRUE(job.poll());
    EXPECT_TRUE(buffers.equal());
    ASSERT_EQ(engine->submit_copy(job, buffers.plan(),
                                  {.callback = called, .callback_context = &call_count}),
              Submit::accepted);
    ASSERT_EQ(job.wait().state, JobState::done);
    EXPECT_EQ(call_count, 4 * i + 1);
    Buffers others(8192);
    ASSERT_EQ(engine->submit(job, Operation::fill(others.target, 0x0707'0707'0707'0707),
                             {.callback = called, .callback_context = &call_count}),
              Submit::accepted);
    ASSERT_EQ(job.wait().state, JobState::done);
    EXPECT_EQ(others.target[8191], std::byte{7});
    EXPECT_EQ(call_count, 4 * i + 2);
    const std::array list{Operation::copy(others.target, buffers.source)};
    ASSERT_EQ(engine->submit_batch(job, {list, {}},
                                   {.callback = called, .callback_context = &call_count}),
              Submit::accepted);
    ASSERT_EQ(job.wait().state, JobState::done);
    ASSERT_EQ(engine->submit_copy(job, buffers.plan(),
                                  {.callback = called, .callback_context = &call_count}),
              Submit::accepted);
    ASSERT_EQ(job.wait().state, JobState::done);
    EXPECT_EQ(call_count, 4 * i + 4);
    EXPECT_TRUE(job.batch().operations.empty());
  }
}

}  // namespace
}  // namespace headrace::engine
