// SPDX-License-Identifier: Apache-2.0
// No heap allocation per operation. A separate executable, as it replaces operator new.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "engine/dsa/queue.hpp"
#include "fixtures.hpp"
#include "headrace/base/atomic.hpp"

namespace {

headrace::Atomic<std::size_t> allocation_count;
/// Per thread: allocations that succeed before one fails.
thread_local std::size_t succeed_count = ~std::size_t{0};

}  // namespace

// Out of line, or GCC reports free() in an inlined delete as a mismatch with new.
[[gnu::noinline]] void* operator new(std::size_t byte_count) {
  allocation_count.fetch_add_relaxed(1);  // Relaxed: an independent counter.
  if (succeed_count-- == 0) throw std::bad_alloc();
  if (void* const memory = std::malloc(byte_count)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t byte_count, std::align_val_t alignment) {
  allocation_count.fetch_add_relaxed(1);  // Relaxed: an independent counter.
  if (succeed_count-- == 0) throw std::bad_alloc();
  const auto unit = static_cast<std::size_t>(alignment);
  void* const memory = std::aligned_alloc(unit, (byte_count + unit - 1) / unit * unit);
  if (memory != nullptr) return memory;
  throw std::bad_alloc();
}
// The standard library's version calls the first; AddressSanitizer's does not, and then reports a
// mismatched delete.
[[gnu::noinline]] void* operator new(std::size_t byte_count, const std::nothrow_t&) noexcept {
  allocation_count.fetch_add_relaxed(1);  // Relaxed: an independent counter.
  return succeed_count-- == 0 ? nullptr : std::malloc(byte_count);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace headrace::engine {
namespace {

TEST(Allocation, IsSeenByThisTest) {
  const std::size_t before = allocation_count.load_relaxed();  // Relaxed: same thread.
  // Called by name: Clang elides a new-expression whose memory is unused.
  ::operator delete(::operator new(100));
  EXPECT_GT(allocation_count.load_relaxed(), before);
}

TEST(Allocation, NoneIsMadeBySubmittingMovingWaitingPollingAndStopping) {
  auto made = Engine::make(test::this_machine(4), {.threads_per_node = 1, .policy = movers::all});
  ASSERT_TRUE(made.has_value());
  Engine& engine = **made;
  const MoverPolicy policy = movers::near_target;
  test::Buffers buffers(1U << 20U);
  int callback_count = 0;
  const auto round = [&] {
    Job job;
    for (const MoverPolicy* const chosen : {static_cast<const MoverPolicy*>(nullptr), &policy}) {
      const SubmitOptions options{
          .target_node = NodeId(2),
          .policy = chosen,
          .callback = [](void* context,
                         const Completion&) noexcept { ++*static_cast<int*>(context); },
          .callback_context = &callback_count};
      ASSERT_EQ(engine.submit_copy(job, buffers.plan(), options), Submit::accepted);
      static_cast<void>(job.poll());
      ASSERT_EQ(job.wait().state, JobState::done);
      ASSERT_EQ(engine.submit_copy(job, buffers.plan(), options), Submit::accepted);
      job.stop();
      ASSERT_NE(job.wait().state, JobState::running);
    }
  };
  round();  // Warm-up: allocations of the C library at first use.
  const std::size_t before = allocation_count.load_relaxed();  // Relaxed: the workers have ended
                                                               // their jobs.
  for (int i = 0; i < 200; ++i) round();
  EXPECT_EQ(allocation_count.load_relaxed() - before, 0U);
  EXPECT_EQ(callback_count, 201 * 4);
}

/// A queue that accepts nothing.
class FullQueue final : public dsa::Portal {
 public:
  [[nodiscard]] const dsa::QueueInfo& info() const override { return info_; }
  [[nodiscard]] bool submit(const dsa::Descriptor&) noexcept override { return false; }

 private:
  dsa::QueueInfo info_{.name = "full/wq0.0",
                       .mode = dsa::QueueMode::shared,
                       .entry_count = 8,
                       .batch_max = 32,
                       .transfer_bytes_max = 1U << 21U};
};

TEST(Allocation, AChannelThatFindsNoMemoryLeavesTheQueueAsItWas) {
  FullQueue queue;
  auto mover = DsaQueue::make(queue, {});
  ASSERT_TRUE(mover.has_value());
  std::vector<std::unique_ptr<Mover>> movers;
  movers.push_back(std::move(*mover));
  const auto engine = std::move(Engine::make(std::move(movers), {}).value());
  // Some failures are tolerated, such as in a sort that can do without a buffer.
  std::size_t failed_count = 0;
  for (std::size_t i = 0; i < 10; ++i) {
    succeed_count = i;
    try {
      const auto channel = engine->open_channel({.depth = 7});
      succeed_count = ~std::size_t{0};
      EXPECT_TRUE(channel.has_value()) << "entries were lost before attempt " << i;
    } catch (const std::bad_alloc&) {
      ++failed_count;
    }
    succeed_count = ~std::size_t{0};
  }
  EXPECT_GT(failed_count, 1U);
}

}  // namespace
}  // namespace headrace::engine
