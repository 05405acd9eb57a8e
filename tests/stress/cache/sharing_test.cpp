// SPDX-License-Identifier: Apache-2.0
// On the paths that many processors take at once, no thread writes a line that another thread's
// same path reads or writes: such a line would travel between processors at each call. Sixteen
// threads do the same in turn, on however many processors, and every access is recorded.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/dsa/queue.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/message/queue.hpp"
#include "headrace/store/store.hpp"
#include "support/accesses.hpp"
#include "support/cache_stage.hpp"

namespace headrace {
namespace {

constexpr std::size_t kThreads = 16;
constexpr std::size_t kBytes = 256;

/// Completes every descriptor in submit(), and writes nothing else.
///
/// Threading: shared.
class InstantDevice final : public dsa::Portal {
 public:
  [[nodiscard]] const dsa::QueueInfo& info() const override { return info_; }
  [[nodiscard]] bool submit(const dsa::Descriptor& descriptor) noexcept override {
    store_relaxed(*reinterpret_cast<std::uint8_t*>(descriptor.completion_addr),
                  std::uint8_t{DSA_COMP_SUCCESS});  // Relaxed: the submitting thread polls.
    return true;
  }

 private:
  dsa::QueueInfo info_{.name = "instant",
                       .entry_count = 63,
                       .batch_max = 32,
                       .transfer_bytes_max = 2U << 20U,
                       .block_on_fault = true};
};

std::unique_ptr<engine::Engine> engine_of_a_device() {
  std::vector<std::unique_ptr<engine::Mover>> movers;
  movers.push_back(engine::DsaQueue::make(std::make_unique<InstantDevice>(), {}).value());
  return std::move(engine::Engine::make(std::move(movers)).value());
}

struct Touched {
  std::set<std::uintptr_t> read;
  std::set<std::uintptr_t> written;
  std::map<std::uintptr_t, std::uintptr_t> writer;  ///< An instruction that writes the line.
};

constexpr std::uintptr_t kLineBytes = 64;

/// What a thread does on a path: what `make` returns, made and called on that thread.
using Path = std::function<std::function<void()>(std::size_t thread)>;

/// The lines that the path of each thread touches, once all threads have taken it.
std::vector<Touched> lines_of(const Path& path) {
  std::vector<Touched> all(kThreads);
  std::barrier together(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < kThreads; ++index) {
    threads.emplace_back([&, index] {
      const std::function<void()> call = path(index);
      test::AccessRecorder recorder;
      for (int i = 0; i < 3; ++i) call();
      for (std::size_t turn = 0; turn < kThreads; ++turn) {
        together.arrive_and_wait();
        if (turn != index) continue;
        for (const test::Access& access : recorder.record(call)) {
          const std::uintptr_t last = access.address + access.byte_count - 1;
          for (std::uintptr_t line = access.address / kLineBytes; line <= last / kLineBytes;
               ++line) {
            (access.write ? all[index].written : all[index].read).insert(line);
            if (access.write) all[index].writer.emplace(line, access.code);
          }
        }
      }
      together.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

/// Lines that one thread writes and `others_min` others touch, as text: those of the thread that
/// has most.
std::vector<std::string> shared_lines(const Path& path, std::ptrdiff_t others_min = 1) {
  const std::vector<Touched> all = lines_of(path);
  std::vector<std::string> most;
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_FALSE(all[i].written.empty());
    std::vector<std::string> texts;
    for (const std::uintptr_t line : all[i].written) {
      const auto others = std::ranges::count_if(all, [&](const Touched& each) {
        return &each != &all[i] && (each.written.contains(line) || each.read.contains(line));
      });
      if (others < others_min) continue;
      const std::uintptr_t code = all[i].writer.at(line);
      Dl_info module{};
      ::dladdr(reinterpret_cast<const void*>(code), &module);
      std::ostringstream text;  // For addr2line.
      text << "line 0x" << std::hex << line * kLineBytes << ", written at 0x"
           << code - reinterpret_cast<std::uintptr_t>(module.dli_fbase) << " of "
           << module.dli_fname;
      texts.push_back(text.str());
    }
    if (texts.size() > most.size()) most = texts;
  }
  return most;
}

/// Buffers of one thread.
struct alignas(128) Own {
  std::array<std::byte, kBytes> source{};
  std::array<std::byte, kBytes> target{};
};

/// Memory of which each thread has a part in a shard of its own (see CacheState::shard_of).
class SourcesByShard {
 public:
  SourcesByShard() {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory_.get());
    std::set<std::uint64_t> shards;
    for (std::uintptr_t stripe = (begin >> kStripeBits) + 1; parts_.size() < kThreads; ++stripe) {
      if (!shards.insert((stripe ^ stripe >> 5U) % 32).second) continue;
      parts_.push_back({memory_.get() + ((stripe << kStripeBits) - begin)});
    }
    HEADRACE_CHECK(parts_.back().next + kStripeBytes <= memory_.get() + kSourceBytes,
                   "enough memory");
  }
  /// What the thread accesses next, in a line of its own.
  [[nodiscard]] const std::byte*& next_of(std::size_t thread) { return parts_[thread].next; }

 private:
  static constexpr unsigned kStripeBits = 22;
  static constexpr std::size_t kStripeBytes = std::size_t{1} << kStripeBits;
  static constexpr std::size_t kSourceBytes = 256 * kStripeBytes;
  std::unique_ptr<std::byte[]> memory_{new std::byte[kSourceBytes]};  // Few pages are touched.
  struct alignas(128) Part {
    const std::byte* next;
  };
  std::vector<Part> parts_;
};

using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::SizeIs;

TEST(Sharing, ACounterOfAllThreadsIsFound) {
  Atomic<int> counter{0};
  const Path path = [&](std::size_t) {
    return [&] { counter.fetch_add_relaxed(1); };  // Only counted.
  };
  EXPECT_EQ(shared_lines(path).size(), 1U);
}

TEST(Sharing, AJobOnADeviceWritesNoLineOfAnotherThreads) {
  const auto engine = engine_of_a_device();
  const Path path = [&](std::size_t) -> std::function<void()> {
    const auto own = std::make_shared<Own>();
    const auto job = std::shared_ptr<engine::Job>(new (std::align_val_t{128}) engine::Job,
                                                  [](engine::Job* each) {
                                                    each->~Job();
                                                    ::operator delete(each, std::align_val_t{128});
                                                  });
    return [&engine, own, job] {
      if (engine->submit_copy(*job, {.target = own->target, .source = own->source}) !=
          engine::Submit::accepted) {
        std::abort();
      }
      while (!job->poll()) {
      }
      if (engine->submit_copy(*job, {.target = own->target, .source = own->source}) !=
          engine::Submit::accepted) {
        std::abort();
      }
      job->wait();
    };
  };
  EXPECT_THAT(shared_lines(path), IsEmpty());
}

TEST(Sharing, ACopyOnTheCallingThreadWritesNoLineOfAnotherThreads) {
  const auto engine = engine_of_a_device();
  const Path path = [&](std::size_t) -> std::function<void()> {
    const auto own = std::make_shared<Own>();
    return [&engine, own] {
      engine::Completion end;
      if (engine->run(engine::Operation::copy(own->target, own->source), end,
                      {.path = engine::Path::cpu}) != engine::Submit::accepted) {
        std::abort();
      }
    };
  };
  EXPECT_THAT(shared_lines(path), IsEmpty());
}

TEST(Sharing, AHitWritesNoLineOfAnotherThreads) {
  std::vector<std::unique_ptr<engine::Mover>> movers;
  movers.push_back(std::make_unique<test::StagedMover>(test::StagedMover::Mode::at_once));
  const auto engine = std::move(engine::Engine::make(std::move(movers)).value());
  cache::CacheOptions options;
  options.placement = cache::placement::on(NodeId(0));
  options.memory = std::make_shared<test::CountedMemory>();
  const auto cache =
      std::move(cache::Cache::make(test::hand_made_machine(), *engine, std::move(options)).value());
  const std::vector<std::byte> source(4096);
  for (int i = 0; i < 8; ++i) cache->access(source).wait();  // Its use count is at its maximum.
  const Path path = [&](std::size_t) -> std::function<void()> {
    return [&] {
      const cache::Entry entry = cache->access(source);
      if (!entry.cached() || entry.data().size() != source.size()) std::abort();
    };
  };
  EXPECT_THAT(shared_lines(path), IsEmpty());
}

/// Shared on purpose: the room of the node, the lock and the slab of its memory (one or two
/// lines), and the count of waits. All else belongs to a shard.
TEST(Sharing, AMissWritesFewLinesOfAnotherThreads) {
  const auto engine = engine_of_a_device();
  cache::CacheOptions options;
  options.placement = cache::placement::on(NodeId(0));
  options.check_sources = false;
  options.capacity_per_node = gib(4);
  const auto cache =
      std::move(cache::Cache::make(test::hand_made_machine(), *engine, std::move(options)).value());
  SourcesByShard sources;
  const Path path = [&](std::size_t thread) -> std::function<void()> {
    return [&cache, &page = sources.next_of(thread)] {
      const cache::Entry entry = cache->access({page, 4096});
      entry.wait();
      if (!entry.cached()) std::abort();
      page += 4096;
    };
  };
  EXPECT_THAT(shared_lines(path), SizeIs(Le(5)));
}

/// Memory that no thread reads or writes.
///
/// Threading: shared.
class Addresses final : public cache::MemorySource {
 public:
  Result<std::span<std::byte>> allocate(std::size_t byte_count, NodeId /*node*/) override {
    return std::span(reinterpret_cast<std::byte*>(std::uintptr_t{1} << 45U), byte_count);
  }
  void free(std::span<std::byte> /*memory*/) noexcept override {}
};

/// Shared on purpose: three lines of the device's queue, and the count of waits. Each thread has
/// memory of evicted entries for its next misses, so only one in eight of this length writes the
/// room of the node.
TEST(Sharing, AMissIntoAFullNodeWritesFewLinesOfAnotherThreads) {
  constexpr std::size_t kRegionBytes = std::size_t{256} << 10U;
  const auto engine = engine_of_a_device();
  cache::CacheOptions options;
  options.placement = cache::placement::on(NodeId(0));
  options.memory = std::make_shared<Addresses>();
  options.check_sources = false;
  options.capacity_per_node = gib(2);
  const auto cache =
      std::move(cache::Cache::make(test::hand_made_machine(), *engine, std::move(options)).value());
  for (std::uintptr_t i = 0; i < gib(2).count() / kRegionBytes; ++i) {
    const auto* const source =
        reinterpret_cast<const std::byte*>((std::uintptr_t{1} << 44U) + i * kRegionBytes);
    const cache::Entry entry = cache->access({source, kRegionBytes});
    ASSERT_TRUE(entry.wait_for(std::chrono::seconds(60)));
  }
  SourcesByShard sources;
  const Path path = [&](std::size_t thread) -> std::function<void()> {
    return [&cache, &at = sources.next_of(thread)] {
      const cache::Entry entry = cache->access({at, kRegionBytes});
      entry.wait();
      if (!entry.cached()) std::abort();
      at += kRegionBytes;
    };
  };
  EXPECT_THAT(shared_lines(path), SizeIs(Le(4)));
  EXPECT_GT(cache->statistics().evictions, 0U);
}

/// Two threads in three hit pages of one array, the others miss pages of others. One shard; the
/// addresses are such that the arrays share no line of the index.
TEST(Sharing, AMissWritesNoLineThatHitsElsewhereRead) {
  constexpr std::size_t kInLine = 16;
  constexpr std::size_t kPages = 1024;
  auto held = std::make_unique<test::StagedMover>(test::StagedMover::Mode::held);
  test::StagedMover& mover = *held;  // Copies nothing: there are no sources.
  std::vector<std::unique_ptr<engine::Mover>> movers;
  movers.push_back(std::move(held));
  const auto engine = std::move(engine::Engine::make(std::move(movers)).value());
  cache::CacheOptions options;
  options.placement = cache::placement::on(NodeId(0));
  options.memory = std::make_shared<Addresses>();
  options.check_sources = false;
  options.capacity_per_node = mib(8);
  const auto cache =
      std::move(cache::Cache::make(test::hand_made_machine(), *engine, std::move(options)).value());
  const auto access = [&](std::uintptr_t page) {
    const std::uintptr_t address = (std::uintptr_t{1} << 44U) + page * 4096;
    static_cast<void>(cache->access({reinterpret_cast<const std::byte*>(address), 4096}));
  };
  for (std::size_t i = 0; i < kPages; ++i) access(i);
  const auto hits = [](std::size_t thread) { return thread % 3 != 0; };
  const std::vector<Touched> all = lines_of([&](std::size_t thread) -> std::function<void()> {
    return [&, thread, page = hits(thread) ? thread * kInLine : (thread + 1) << 21U]() mutable {
      // Each step of a miss is recorded, which takes time: a few in each new line.
      for (std::size_t i = 0; i < (hits(thread) ? kInLine : 4); ++i) access(page + i);
      if (!hits(thread)) page += kInLine;
    };
  });
  for (std::size_t i = 0; i < kThreads; ++i) {
    for (std::size_t k = 0; k < kThreads; ++k) {
      if (hits(i) || !hits(k)) continue;
      std::vector<std::uintptr_t> both;
      std::ranges::set_intersection(all[i].written, all[k].read, std::back_inserter(both));
      EXPECT_THAT(both, IsEmpty()) << "written by " << i << ", read by " << k;
    }
  }
  mover.release(engine::Cause::device_error);
}

/// Shared by all threads on purpose: the mover and the shard, but not the many lines of a job. Each
/// of four lists of moves serves a quarter of the threads.
TEST(Sharing, AMissUsesAMoveOfItsThread) {
  std::vector<std::unique_ptr<engine::Mover>> movers;
  movers.push_back(std::make_unique<test::StagedMover>(test::StagedMover::Mode::at_once));
  const auto engine = std::move(engine::Engine::make(std::move(movers)).value());
  cache::CacheOptions options;
  options.placement = cache::placement::on(NodeId(0));
  options.memory = std::make_shared<test::CountedMemory>();
  options.check_sources = false;
  options.capacity_per_node = mib(8);
  const auto cache =
      std::move(cache::Cache::make(test::hand_made_machine(), *engine, std::move(options)).value());
  const std::vector<std::byte> source(kThreads * 4096 * 4);
  const Path path = [&](std::size_t thread) -> std::function<void()> {
    return [&, at = source.data() + thread * 4 * 4096]() mutable {
      cache->access({at, 64}).wait();  // Each byte that the mover copies is a step.
      at += 4096;
    };
  };
  EXPECT_THAT(shared_lines(path, kThreads / 3), SizeIs(Le(12)));
}

/// Shared on purpose, as one mutex guards a store: the line of the mutex and of the counts beside
/// it, that of the bytes put in, and that of the tier's counts of slots and of puts. Which threads'
/// objects lie side by side in the heap is chance: few threads have such a line in common, and
/// another store has other neighbours.
TEST(Sharing, APutWritesFewLinesOfAnotherThreads) {
  constexpr std::size_t kShared = 3;
  std::vector<std::unique_ptr<engine::Mover>> movers;
  movers.push_back(std::make_unique<test::StagedMover>(test::StagedMover::Mode::at_once));
  const auto engine = std::move(engine::Engine::make(std::move(movers)).value());
  store::TierOptions memory;
  memory.capacity = mib(1);
  std::vector<std::unique_ptr<store::Store>> stores;  // All are kept.
  std::vector<std::string> least;
  while (stores.size() < 4 && (stores.empty() || least.size() > kShared)) {
    store::StoreOptions options;
    options.block_bytes = kib(4);
    options.tiers.push_back(memory);
    stores.push_back(std::move(store::Store::make(*engine, std::move(options)).value()));
    const Path path = [&](std::size_t thread) -> std::function<void()> {
      const auto own = std::make_shared<Own>();
      return [&store = *stores.back(), own, key = std::to_string(thread)] {
        if (store.put(key, own->source).outcome != store::Outcome::done) std::abort();
      };
    };
    const std::vector<std::string> found = shared_lines(path, kThreads / 2);
    if (stores.size() == 1 || found.size() < least.size()) least = found;
  }
  EXPECT_THAT(least, SizeIs(Le(kShared)));
}

TEST(Sharing, AMessageWritesNoLineOfAnotherQueues) {
  const Path path = [](std::size_t) -> std::function<void()> {
    struct alignas(128) Ends {
      message::Queue queue;
      message::Producer producer;
      message::Consumer consumer;
      std::array<std::byte, 64> bytes{};
    };
    message::Queue queue = std::move(
        message::Queue::make(
            {.framing = message::Framing::fixed, .message_bytes = 64, .capacity = Bytes(4096)})
            .value());
    message::Producer producer = std::move(queue.producer().value());
    message::Consumer consumer = std::move(queue.consumer().value());
    const auto ends =
        std::make_shared<Ends>(Ends{std::move(queue), std::move(producer), std::move(consumer)});
    return [ends] {
      std::size_t byte_count = 0;
      if (ends->producer.try_send(ends->bytes) != message::Outcome::done ||
          ends->consumer.try_receive(ends->bytes, byte_count) != message::Outcome::done) {
        std::abort();
      }
    };
  };
  EXPECT_THAT(shared_lines(path), IsEmpty());
}

/// A cache of as many pages, all of them in use: every further access is refused.
TEST(Sharing, ARefusedAccessAllocatesNothingAndCallsNoKernel) {
  constexpr std::size_t kPages = 8;
  std::vector<std::unique_ptr<engine::Mover>> movers;
  movers.push_back(std::make_unique<test::StagedMover>(test::StagedMover::Mode::at_once));
  const auto engine = std::move(engine::Engine::make(std::move(movers)).value());
  cache::CacheOptions options;
  options.placement = cache::placement::on(NodeId(0));
  options.memory = std::make_shared<test::CountedMemory>();
  options.check_sources = false;  // Which is a system call.
  options.capacity_per_node = Bytes(kPages * 4096);
  const auto cache =
      std::move(cache::Cache::make(test::hand_made_machine(), *engine, std::move(options)).value());
  const std::vector<std::byte> source((kPages + 1) * 4096);
  const auto page = [&](std::size_t i) { return std::span(source).subspan(i * 4096, 4096); };
  std::vector<cache::Entry> held;
  for (std::size_t i = 0; i < kPages; ++i) held.push_back(cache->access(page(i)));
  EXPECT_FALSE(cache->access(page(kPages)).cached());
  test::AccessRecorder recorder;
  static_cast<void>(recorder.record([&] { static_cast<void>(cache->access(page(kPages))); }));
  EXPECT_EQ(cache->statistics().refused, 2U);
  EXPECT_EQ(cache->statistics().evictions, 0U);
  EXPECT_EQ(recorder.system_call_count(), 0U);
  EXPECT_EQ(recorder.allocation_count(), 0U);
  // A handle that is dropped makes room at once.
  held.pop_back();
  EXPECT_TRUE(cache->access(page(kPages)).cached());
}

}  // namespace
}  // namespace headrace
