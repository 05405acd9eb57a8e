// SPDX-License-Identifier: Apache-2.0
// The cache on a machine with many nodes: copies are on the policy's node, capacity and exhaustion
// of a node are respected, and dropped copies free its memory. Runs in a guest (scripts/guest), so
// not for timing. Tests that need no nodes: tests/unit/cache.
#include "headrace/cache/cache.hpp"

#include <sched.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "guest.hpp"
#include "headrace/platform/thread.hpp"
#include "headrace/topo/machine.hpp"
#include "support/cache_stage.hpp"

namespace headrace::cache {
namespace {

using test::equal;
using test::free_bytes;
using test::numbered_bytes;
using test::pages_by_node;

/// Memory that the kernel itself may allocate or free on a node during a test.
constexpr std::uint64_t kSlackBytes = 6 << 20;
constexpr std::size_t kRegionBytes = 1 << 20;

class CacheOnNodes : public test::InGuest {
 protected:
  void SetUp() override {
    InGuest::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(sched_getaffinity(0, sizeof(processors_), &processors_), 0);
    machine_ = topo::discover({.find_movers = false}).value();
    engine_ = std::move(engine::Engine::make(machine_, {}).value());
  }
  /// A machine is what the discovering thread may use.
  void TearDown() override { sched_setaffinity(0, sizeof(processors_), &processors_); }
  [[nodiscard]] std::unique_ptr<Cache> make(PlacementPolicy placement, Bytes capacity = gib(1)) {
    CacheOptions options;
    options.placement = std::move(placement);
    options.capacity_per_node = capacity;
    return std::move(Cache::make(machine_, *engine_, std::move(options)).value());
  }
  /// Runs on the processor of `tile` from now on.
  void go_to(std::uint32_t tile) const {
    const std::array cpus{machine_.nodes[tile].cpus.front()};
    ASSERT_TRUE(platform::pin_this_thread(cpus).has_value());
    ASSERT_EQ(platform::current_node(), NodeId(tile));
  }
  /// Accesses `source`, waits, and expects the whole copy on `node`.
  static void expect_on(Cache& cache, std::span<const std::byte> source, std::uint32_t node,
                        const std::string& how) {
    const Entry entry = cache.access(source);
    entry.wait();
    ASSERT_TRUE(entry.cached()) << how;
    EXPECT_EQ(entry.node(), NodeId(node)) << how;
    EXPECT_TRUE(equal(entry.data(), source)) << how;
    std::string found;
    std::size_t page_count = 0;
    for (const auto& [place, count] : pages_by_node(entry.data())) {
      EXPECT_EQ(place, static_cast<int>(node)) << how;
      page_count += count;
      found += " " + std::to_string(count) + " on node " + std::to_string(place);
    }
    std::printf("%-34s -> node %2u; pages found:%s of %zu\n", how.c_str(), node, found.c_str(),
                page_count);
  }

  cpu_set_t processors_{};
  topo::Machine machine_;
  std::unique_ptr<engine::Engine> engine_;
};

TEST_F(CacheOnNodes, EveryPageOfAnEntryLiesOnTheNodeOfThePolicy) {
  const auto source = numbered_bytes(kRegionBytes);
  const auto fastest = make(placement::fastest);
  const auto local = make(placement::local);
  for (std::uint32_t tile = 0; tile < tiles_; ++tile) {
    go_to(tile);
    const std::string from = ", asked by processor " + std::to_string(tile);
    expect_on(*fastest, source, tile + tiles_, "fastest" + from);
    expect_on(*local, source, tile, "local" + from);
  }
  // One entry on each node: the policies do not share.
  EXPECT_EQ(fastest->statistics().misses, tiles_);
  EXPECT_EQ(local->statistics().misses, tiles_);
  for (std::uint32_t node = 0; node < 2 * tiles_; ++node) {
    const auto on = make(placement::on(NodeId(node)));
    expect_on(*on, source, node, "on(" + std::to_string(node) + ")");
  }
  const auto none = make(placement::none);
  const Entry entry = none->access(source);
  EXPECT_EQ(entry.data().data(), source.data());
  EXPECT_EQ(entry.node(), std::nullopt);
}

TEST_F(CacheOnNodes, TheDeviceOfTheThreadMovesIntoTheHbmNearIt) {
  machine_ = topo::discover().value();
  engine_ = std::move(engine::Engine::make(machine_, {.path = engine::Path::dsa}).value());
  const auto cache = make(placement::fastest);
  const auto source = numbered_bytes(kRegionBytes / 2);
  auto before = engine_->device_statistics();
  for (std::uint32_t tile = 0; tile < tiles_; ++tile) {
    go_to(tile);
    expect_on(*cache, source, tile + tiles_, "by devices, asked by " + std::to_string(tile));
    const auto now = engine_->device_statistics();
    std::vector<std::optional<NodeId>> used;
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (now[i].descriptors > before[i].descriptors) used.push_back(engine_->movers()[i].node);
      EXPECT_EQ(now[i].bytes_on_cpu, 0U);
    }
    EXPECT_EQ(used, std::vector{std::optional(NodeId(tile))});
    before = now;
  }
  EXPECT_EQ(engine_->statistics().bytes_by_device, tiles_ * source.size());
}

TEST_F(CacheOnNodes, TheCapacityIsWhatANodeLoses) {
  const std::uint32_t node = 2 * tiles_ - 1;
  const auto source = numbered_bytes(32 * kRegionBytes);
  const auto cache = make(placement::on(NodeId(node)), mib(8));
  const std::uint64_t free_before = free_bytes(node);
  for (std::size_t i = 0; i < 32; ++i) {
    const auto region = std::span(source).subspan(i * kRegionBytes, kRegionBytes);
    const Entry entry = cache->access(region);
    entry.wait();
    ASSERT_TRUE(entry.cached()) << i;
    ASSERT_TRUE(equal(entry.data(), region)) << i;
    ASSERT_LE(free_before - std::min(free_before, free_bytes(node)), mib(8).count() + kSlackBytes);
  }
  EXPECT_EQ(cache->statistics().evictions, 24U);
  EXPECT_EQ(cache->statistics().bytes_cached, mib(8).count());
}

TEST_F(CacheOnNodes, AnExhaustedNodeRefusesAndKillsNobody) {
  // The capacity exceeds the node's; everything is held, so nothing can be evicted.
  const std::uint32_t node = tiles_;
  const auto cache = make(placement::on(NodeId(node)), gib(4));
  const auto source = numbered_bytes(kRegionBytes);
  const std::size_t count = machine_.nodes[node].capacity.count() / kRegionBytes + 8;
  std::vector<std::vector<std::byte>> sources;
  std::vector<Entry> held;
  for (std::size_t i = 0; i < count && cache->statistics().refused < 3; ++i) {
    held.push_back(cache->access(sources.emplace_back(source)));
    held.back().wait();
    ASSERT_EQ(std::memcmp(held.back().data().data(), source.data(), kRegionBytes), 0);
  }
  EXPECT_EQ(cache->statistics().refused, 3U);
  EXPECT_FALSE(held.back().cached());
  std::size_t there = 0;
  for (const Entry& entry : held) {
    if (!entry.cached()) continue;
    ++there;
    for (const auto& [place, pages] : pages_by_node(entry.data())) {
      EXPECT_EQ(place, static_cast<int>(node)) << pages << " pages of entry " << there;
    }
    // A page that was given back to the kernel would be there again, but empty.
    EXPECT_TRUE(equal(entry.data(), source)) << there;
  }
  std::printf("node %u took %zu MiB and refused the next\n", node, there);
  EXPECT_GT(there, 24U);
  // Releasing them makes room again.
  held.clear();
  EXPECT_EQ(cache->flush(NodeId(node)), there);
  const Entry again = cache->access(source);
  again.wait();
  EXPECT_TRUE(again.cached());
}

TEST_F(CacheOnNodes, WhenANodeIsExhaustedUnusedEntriesMakeRoom) {
  const std::uint32_t node = tiles_;
  const auto cache = make(placement::on(NodeId(node)), gib(4));
  const std::size_t count = machine_.nodes[node].capacity.count() / kRegionBytes + 8;
  // One buffer as many regions that overlap except for one page.
  const std::size_t page_bytes = platform::page_bytes();
  const auto source = numbered_bytes(kRegionBytes + count * page_bytes);
  for (std::size_t i = 0; i < count; ++i) {
    const Entry entry = cache->access(std::span(source).subspan(i * page_bytes, kRegionBytes));
    entry.wait();
    ASSERT_TRUE(entry.cached()) << i;
  }
  EXPECT_GT(cache->statistics().evictions, 0U);
  EXPECT_EQ(cache->statistics().refused, 0U);
}

TEST_F(CacheOnNodes, LongCopiesLieOnHugePagesOfTheirNode) {
  const std::uint32_t node = tiles_;
  CacheOptions options;
  options.placement = placement::on(NodeId(node));
  options.memory = huge_pages();
  const auto cache = std::move(Cache::make(machine_, *engine_, std::move(options)).value());
  const auto source = numbered_bytes(8 << 20);
  const std::uint64_t before = test::huge_page_bytes_of_this_process();
  const Entry entry = cache->access(source);
  entry.wait();
  ASSERT_TRUE(entry.cached());
  EXPECT_TRUE(equal(entry.data(), source));
  EXPECT_EQ(test::huge_page_bytes_of_this_process() - before, source.size());
  EXPECT_EQ(pages_by_node(entry.data()).size(), 1U);
  EXPECT_EQ(pages_by_node(entry.data()).count(static_cast<int>(node)), 1U);
}

TEST_F(CacheOnNodes, FlushOfANodeFreesThatNodeAndNoOther) {
  const auto source = numbered_bytes(16 * kRegionBytes);
  auto cache = make(placement::fastest);
  std::vector<std::uint64_t> free_before;
  for (std::uint32_t node = 0; node < 2 * tiles_; ++node) free_before.push_back(free_bytes(node));
  const auto fill_from = [&](std::uint32_t tile) {
    go_to(tile);
    for (std::size_t i = 0; i < 16; ++i) {
      cache->access(std::span(source).subspan(i * kRegionBytes, kRegionBytes)).wait();
    }
  };
  for (const std::uint32_t tile : {0U, tiles_ - 1}) fill_from(tile);
  const std::uint32_t one = tiles_;
  const std::uint32_t other = 2 * tiles_ - 1;
  const auto lost = [&](std::uint32_t node) {
    return static_cast<double>(free_before[node]) - static_cast<double>(free_bytes(node));
  };
  constexpr auto kCopies = static_cast<double>(16 * kRegionBytes);
  constexpr auto kSlack = static_cast<double>(kSlackBytes);
  EXPECT_NEAR(lost(one), kCopies, kSlack);
  EXPECT_NEAR(lost(other), kCopies, kSlack);
  EXPECT_EQ(cache->flush(NodeId(one)), 16U);
  // The cache keeps freed memory of a node, for the next copies there.
  fill_from(0);
  EXPECT_NEAR(lost(one), kCopies, kSlack);
  EXPECT_NEAR(lost(other), kCopies, kSlack);
  EXPECT_EQ(cache->flush(), 32U);
  cache.reset();
  EXPECT_NEAR(lost(one), 0, kSlack);
  EXPECT_NEAR(lost(other), 0, kSlack);
}

}  // namespace
}  // namespace headrace::cache
