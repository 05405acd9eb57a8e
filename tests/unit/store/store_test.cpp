// SPDX-License-Identifier: Apache-2.0
// The contracts in the store's header, one sentence per test.
#include "headrace/store/store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <set>
#include <stdexcept>
#include <thread>

#include "headrace/base/atomic.hpp"
#include "headrace/topo/machine.hpp"
#include "support/store_stage.hpp"
#include "support/watchdog.hpp"

namespace headrace::store::store_test {
namespace {

using test::block_bytes;
using test::version_of;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr std::size_t kBlockBytes = 4096;

TEST(StoreOfAThrowingPolicy, FailsTheBlocksKeepsTheOthersAndEnds) {
  test::expect_ends([] {
    Atomic<bool> throws{false};
    const engine::MoverPolicy policy = [&](const engine::MoveContext&, engine::MoverChoice& made) {
      if (throws.load_relaxed()) throw std::runtime_error("policy");  // relaxed: one thread.
      made.add(0);
    };
    const auto engine = engine::Engine::make(topo::discover().value(), {.policy = policy}).value();
    const auto store = test::make_store(
        *engine,
        {.block_bytes = Bytes(kBlockBytes), .tiers = {{.capacity = mib(1)}}, .inline_max = {}});
    const std::vector<std::byte> first = block_bytes(1, 1, kBlockBytes);
    std::vector<std::byte> seen(kBlockBytes);
    EXPECT_EQ(store->put("a", first).outcome, Outcome::done);
    throws.store_relaxed(true);
    EXPECT_EQ(store->put("a", block_bytes(1, 2, kBlockBytes)).outcome, Outcome::failed);
    EXPECT_EQ(store->get("a", seen).outcome, Outcome::failed);
    const std::array<PutBlock, 2> both = {PutBlock{.key = "b", .source = first},
                                          PutBlock{.key = "c", .source = first}};
    Transfer transfer = store->put(both);
    transfer.wait();
    for (const BlockEnd& end : transfer.ends()) EXPECT_EQ(end.outcome, Outcome::failed);
    throws.store_relaxed(false);
    EXPECT_EQ(store->get("a", seen).outcome, Outcome::done);
    EXPECT_EQ(seen, first);
    EXPECT_EQ(store->get("b", seen).outcome, Outcome::unknown_key);
    EXPECT_EQ(store->put("b", first).outcome, Outcome::done);
  });
}

/// Copies by workers, or short ones by the calling thread.
class InMemory : public ::testing::TestWithParam<Bytes> {
 protected:
  void make(StoreOptions options) {
    options.block_bytes = Bytes(kBlockBytes);
    options.inline_max = inline_max_;
    store_ = test::make_store(*engine_, std::move(options));
    ASSERT_NE(store_, nullptr);
  }
  void make(std::size_t capacity) {
    make({.tiers = {{.capacity = Bytes(capacity * kBlockBytes)}}});
  }
  [[nodiscard]] Outcome put(const std::string& key, std::uint64_t version, std::size_t tier = 0) {
    return store_->put(key, block_bytes(1, version, kBlockBytes), tier).outcome;
  }
  /// Returns its version; 0 if there is no such key.
  [[nodiscard]] std::uint64_t get(const std::string& key) {
    std::vector<std::byte> bytes(kBlockBytes);
    const BlockEnd end = store_->get(key, bytes);
    if (end.outcome == Outcome::unknown_key) return 0;
    EXPECT_EQ(end.outcome, Outcome::done) << name(end.outcome);
    return version_of(1, std::span(bytes).first(end.byte_count)).value_or(~0U);
  }

  Bytes inline_max_ = GetParam();
  std::unique_ptr<engine::Engine> engine_ = test::worker_engine();
  std::unique_ptr<Store> store_;
};

INSTANTIATE_TEST_SUITE_P(Copies, InMemory, ::testing::Values(Bytes(0), StoreOptions().inline_max),
                         [](const auto& each) {
                           return each.param == Bytes(0) ? "handed_over" : "inline";
                         });

TEST_P(InMemory, ABlockThatWasPutIsThere) {
  make(8);
  EXPECT_EQ(put("a", 7), Outcome::done);
  EXPECT_EQ(get("a"), 7U);
  EXPECT_EQ(store_->length("a"), kBlockBytes);
  EXPECT_EQ(store_->length("b"), std::nullopt);
  EXPECT_EQ(put("a", 8), Outcome::done);
  EXPECT_EQ(get("a"), 8U);
  EXPECT_THAT(store_->keys(), UnorderedElementsAre("a"));
}

TEST_P(InMemory, WhatIsRemovedIsGone) {
  make(8);
  EXPECT_EQ(put("a", 1), Outcome::done);
  EXPECT_EQ(put("b", 2), Outcome::done);
  EXPECT_EQ(store_->remove("a"), Outcome::done);
  EXPECT_EQ(store_->remove("a"), Outcome::unknown_key);
  EXPECT_EQ(get("a"), 0U);
  EXPECT_EQ(store_->clear(), 1U);
  EXPECT_TRUE(store_->keys().empty());
  EXPECT_EQ(store_->statistics().misses, 1U);
}

TEST_P(InMemory, ShorterBlocksKeepTheirLength) {
  make(8);
  EXPECT_EQ(store_->put("a", block_bytes(3, 1, 100)).outcome, Outcome::done);
  EXPECT_EQ(store_->length("a"), 100U);
  std::vector<std::byte> bytes(100);
  EXPECT_EQ(store_->get("a", bytes).byte_count, 100U);
  EXPECT_EQ(version_of(3, bytes), 1U);
}

TEST_P(InMemory, WrongUseIsRefusedByName) {
  make(8);
  const std::vector<std::byte> long_block(kBlockBytes + 1);
  EXPECT_EQ(store_->put("a", long_block).outcome, Outcome::wrong_length);
  EXPECT_EQ(store_->put("a", {}).outcome, Outcome::wrong_length);
  EXPECT_EQ(store_->put("", block_bytes(1, 1, 16)).outcome, Outcome::bad_key);
  EXPECT_EQ(store_->put(std::string(kKeyBytesMax + 1, 'k'), block_bytes(1, 1, 16)).outcome,
            Outcome::bad_key);
  EXPECT_EQ(store_->put("a", block_bytes(1, 1, 16), 1).outcome, Outcome::no_such_tier);
  EXPECT_EQ(put("a", 1), Outcome::done);
  std::vector<std::byte> short_target(kBlockBytes - 1);
  EXPECT_EQ(store_->get("a", short_target).outcome, Outcome::wrong_length);
  EXPECT_EQ(store_->get("b", short_target).outcome, Outcome::unknown_key);
  EXPECT_FALSE(store_->pin("b"));
  EXPECT_FALSE(store_->unpin("a"));
  EXPECT_EQ(put(std::string(kKeyBytesMax, 'k'), 1), Outcome::done);
}

TEST_P(InMemory, OptionsThatMakeNoSenseAreRefused) {
  const auto refuses = [&](StoreOptions options, Code code, const std::string& cause) {
    const auto made = Store::make(*engine_, std::move(options));
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code, code);
    EXPECT_THAT(made.error().message(), HasSubstr(cause));
  };
  refuses({}, Code::invalid_argument, "0 tiers");
  refuses({.tiers = std::vector<TierOptions>(5)}, Code::invalid_argument, "5 tiers");
  refuses({.block_bytes = Bytes(0), .tiers = {{.capacity = mib(1)}}}, Code::invalid_argument,
          "0 bytes");
  refuses({.block_bytes = gib(2), .tiers = {{.capacity = gib(4)}}}, Code::invalid_argument,
          "blocks have");
  refuses({.tiers = {{.capacity = kib(4)}}}, Code::invalid_argument, "0 blocks");
  refuses({.tiers = {{.capacity = mib(1), .node = NodeId(0), .path = "x"}}}, Code::invalid_argument,
          "a path and a node");
}

TEST_P(InMemory, ABatchEndsWithOneEndForEachBlock) {
  make(64);
  std::vector<std::vector<std::byte>> bytes;
  std::vector<std::string> keys;
  std::vector<PutBlock> blocks;
  for (std::uint64_t i = 0; i < 64; ++i) {
    keys.push_back(std::to_string(i));
    bytes.push_back(block_bytes(i, i + 1, kBlockBytes));
  }
  for (std::size_t i = 0; i < 64; ++i) blocks.push_back({keys[i], bytes[i]});
  blocks.push_back({"", bytes[0]});
  const Transfer put = store_->put(blocks);
  put.wait();
  ASSERT_EQ(put.ends().size(), 65U);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(put.ends()[i].outcome, Outcome::done);
  EXPECT_EQ(put.ends()[64].outcome, Outcome::bad_key);
  EXPECT_FALSE(put.all_done());

  std::vector<std::vector<std::byte>> targets(64, std::vector<std::byte>(kBlockBytes));
  std::vector<GetBlock> gets;
  for (std::size_t i = 0; i < 64; ++i) gets.push_back({keys[i], targets[i]});
  const Transfer get = store_->get(gets);
  get.wait();
  EXPECT_TRUE(get.all_done());
  EXPECT_EQ(targets, bytes);
}

TEST_P(InMemory, AnEmptyBatchHasEnded) {
  make(8);
  EXPECT_TRUE(store_->put({}, 0, {}).all_done());
  EXPECT_TRUE(store_->get(std::span<const GetBlock>()).all_done());
  EXPECT_TRUE(Transfer().poll());
}

TEST_P(InMemory, ACallbackAndADescriptorTellOfTheEnd) {
  make(8);
  const Result<int> descriptor = store_->event_descriptor();
  ASSERT_TRUE(descriptor.has_value());
  struct Told {
    Atomic<std::uint32_t> calls;
    Atomic<std::uint32_t> done;
  } told;
  const std::vector<std::byte> bytes = block_bytes(1, 1, kBlockBytes);
  const PutBlock block{.key = "a", .source = bytes};
  const Transfer transfer =
      store_->put({&block, 1}, 0,
                  {.on_done =
                       [](void* context, std::span<const BlockEnd> ends) noexcept {
                         auto& seen = *static_cast<Told*>(context);
                         seen.done.fetch_add_relaxed(ends[0].outcome == Outcome::done ? 1 : 0);
                         seen.calls.fetch_add_relaxed(1);
                       },
                   .context = &told});
  transfer.wait();
  EXPECT_EQ(told.calls.load_relaxed(), 1U);
  EXPECT_EQ(told.done.load_relaxed(), 1U);
  pollfd waited{.fd = *descriptor, .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&waited, 1, 60'000), 1);
  std::uint64_t count = 0;
  EXPECT_EQ(::read(*descriptor, &count, sizeof(count)), 8);
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(store_->event_descriptor().value(), *descriptor);
}

TEST_P(InMemory, AFullStoreDropsWhatWasNotRead) {
  make(10);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(put(std::to_string(i), 1), Outcome::done);
  EXPECT_EQ(store_->keys().size(), 10U);
  EXPECT_EQ(store_->statistics().dropped, 90U);
  EXPECT_EQ(store_->statistics().tiers[0].evictions, 90U);
}

TEST_P(InMemory, AKeyThatIsPutAgainIsInUse) {
  make(10);
  for (std::uint64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(put("again", i + 1), Outcome::done);
    ASSERT_EQ(put(std::to_string(i), 1), Outcome::done);
  }
  // Keys that are put once make way for each other.
  for (int i = 0; i < 20; ++i) ASSERT_EQ(put(std::to_string(i), 1), Outcome::done);
  EXPECT_EQ(get("again"), 100U);
}

TEST_P(InMemory, WhatIsPinnedStays) {
  make(4);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(put(std::to_string(i), 1), Outcome::done);
    ASSERT_TRUE(store_->pin(std::to_string(i)));
  }
  EXPECT_EQ(put("more", 1), Outcome::full);
  EXPECT_TRUE(store_->unpin("2"));
  EXPECT_EQ(put("more", 1), Outcome::done);
  EXPECT_EQ(get("2"), 0U);
  for (const char* key : {"0", "1", "3"}) EXPECT_EQ(get(key), 1U);
}

TEST_P(InMemory, ABlockThatIsReadIsNotReplacedUnderTheReader) {
  inline_max_ = {};
  engine_ = test::faulty_engine({});
  make(2);
  ASSERT_EQ(put("a", 1), Outcome::done);
  std::vector<std::byte> bytes(kBlockBytes);
  const GetBlock asked{.key = "a", .target = bytes};
  const Transfer get = store_->get({&asked, 1});
  EXPECT_EQ(store_->remove("a"), Outcome::done);
  // One slot is free, one is read: the second put waits for it.
  const std::vector<std::byte> one = block_bytes(1, 2, kBlockBytes);
  const PutBlock blocks[2] = {{.key = "b", .source = one}, {.key = "c", .source = one}};
  const Transfer put = store_->put(blocks);
  get.wait();
  put.wait();
  EXPECT_TRUE(put.all_done());
  ASSERT_TRUE(get.all_done());
  EXPECT_EQ(version_of(1, bytes), 1U);
}

TEST_P(InMemory, ABlockGoesDownForRoomAndUpForReads) {
  make({.tiers = {{.capacity = Bytes(4 * kBlockBytes)}, {.capacity = Bytes(64 * kBlockBytes)}}});
  for (int i = 0; i < 32; ++i) ASSERT_EQ(put(std::to_string(i), 1), Outcome::done);
  StoreStatistics statistics = store_->statistics();
  EXPECT_EQ(statistics.blocks, 32U);
  EXPECT_EQ(statistics.dropped, 0U);
  EXPECT_GE(statistics.tiers[1].demotions, 28U);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(get(std::to_string(i)), 1U);
  // A promotion runs in the background, and needs a slot that is free by then.
  for (int i = 0; i < 100'000 && store_->statistics().tiers[0].promotions == 0; ++i) {
    EXPECT_EQ(get("0"), 1U);
  }
  EXPECT_GT(store_->statistics().tiers[0].promotions, 0U);
  EXPECT_EQ(store_->statistics().blocks, 32U);
}

TEST_P(InMemory, ABatchLargerThanTheTierIsTakenInTurns) {
  make(4);
  const std::vector<std::byte> bytes = block_bytes(1, 1, kBlockBytes);
  std::vector<std::string> keys;
  for (int i = 0; i < 100; ++i) keys.push_back(std::to_string(i));
  std::vector<PutBlock> blocks;
  for (const std::string& key : keys) blocks.push_back({key, bytes});
  const Transfer put = store_->put(blocks);
  put.wait();
  EXPECT_TRUE(put.all_done());
  EXPECT_EQ(store_->keys().size(), 4U);
}

TEST_P(InMemory, ADifferentByteIsFoundByTheChecksum) {
  make({.tiers = {{.capacity = Bytes(4 * kBlockBytes)}}, .checksums = true});
  ASSERT_EQ(put("a", 1), Outcome::done);
  EXPECT_EQ(get("a"), 1U);
  EXPECT_EQ(store_->statistics().corrupt, 0U);
}

TEST_P(InMemory, RoomThatADeviceMayStillWriteToIsNotUsedAgain) {
  inline_max_ = {};
  engine_ = test::faulty_engine({.failed_of = 1, .late_writes = true});
  make(2);
  EXPECT_EQ(put("a", 1), Outcome::late_write);
  EXPECT_EQ(put("b", 1), Outcome::late_write);
  EXPECT_EQ(put("c", 1), Outcome::full);
  EXPECT_EQ(store_->statistics().tiers[0].blocks_lost, 2U);
  EXPECT_EQ(store_->statistics().failed, 2U);
}

TEST_P(InMemory, AWaitEndsHoweverTheEngineIsToldToWait) {
  const topo::Machine machine = topo::discover().value();
  for (const engine::Waiting waiting : {engine::Waiting::adaptive, engine::Waiting::spin,
                                        engine::Waiting::umwait, engine::Waiting::sleep}) {
    store_.reset();
    engine_ =
        engine::Engine::make(machine, {.devices = {.use = false}, .waiting = waiting}).value();
    make(8);
    EXPECT_EQ(put("a", 1), Outcome::done);
    EXPECT_EQ(get("a"), 1U);
  }
}

TEST_P(InMemory, AStoppedEngineClosesTransfers) {
  make(8);
  ASSERT_EQ(put("a", 1), Outcome::done);
  engine_->stop();
  EXPECT_EQ(put("b", 1), Outcome::closed);
  std::vector<std::byte> bytes(kBlockBytes);
  EXPECT_EQ(store_->get("a", bytes).outcome, Outcome::closed);
}

TEST_P(InMemory, AChildOfForkIsRefused) {
  make(8);
  ASSERT_EQ(put("a", 1), Outcome::done);
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<std::byte> bytes(kBlockBytes);
    const Transfer flushed = store_->flush();
    flushed.wait();
    const bool refused = store_->get("a", bytes).outcome == Outcome::closed &&
                         !flushed.all_done() && flushed.ends().size() == 1 &&
                         store_->put("b", bytes).outcome == Outcome::closed &&
                         !store_->length("a").has_value() && store_->keys().empty();
    store_.reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(get("a"), 1U);
}

TEST_P(InMemory, EndsWithTransfersInFlight) {
  make(64);
  const std::vector<std::byte> bytes = block_bytes(1, 1, kBlockBytes);
  struct Count {
    Atomic<std::uint32_t> ended;
  } count;
  std::vector<Transfer> transfers;
  for (int i = 0; i < 32; ++i) {
    const std::string key = std::to_string(i);
    const PutBlock block{.key = key, .source = bytes};
    transfers.push_back(store_->put({&block, 1}, 0,
                                    {.on_done =
                                         [](void* context, std::span<const BlockEnd>) noexcept {
                                           static_cast<Count*>(context)->ended.fetch_add_relaxed(1);
                                         },
                                     .context = &count}));
  }
  store_.reset();
  EXPECT_EQ(count.ended.load_relaxed(), 32U);
  for (const Transfer& transfer : transfers) EXPECT_TRUE(transfer.all_done());
}

TEST_P(InMemory, ThreadsShareIt) {
  make({.tiers = {{.capacity = Bytes(8 * kBlockBytes)}, {.capacity = Bytes(24 * kBlockBytes)}}});
  Atomic<std::uint32_t> wrong;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      Random random(t + 1);
      std::vector<std::byte> target(kBlockBytes);
      for (std::uint64_t i = 0; i < 400; ++i) {
        const std::uint64_t number = random.below(40);
        const std::string key = std::to_string(number);
        if (random.chance(1, 2)) {
          static_cast<void>(store_->put(key, block_bytes(number, i, 1024), random.below(2)));
        } else if (random.chance(1, 10)) {
          store_->remove(key);
        } else {
          const BlockEnd end = store_->get(key, target);
          const bool right =
              end.outcome == Outcome::unknown_key ||
              (end.outcome == Outcome::done &&
               version_of(number, std::span(target).first(end.byte_count)).has_value());
          if (!right) wrong.fetch_add_relaxed(1);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load_relaxed(), 0U);
}

/// Whether the calling thread copies `block_count` blocks, so that the submission returns with the
/// transfer done.
bool copies_inline(Store& store, std::size_t block_count, bool puts) {
  std::vector<std::byte> bytes(block_count * kBlockBytes);
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < block_count; ++i) keys.push_back(std::to_string(i));
  std::vector<PutBlock> put;
  std::vector<GetBlock> get;
  for (std::size_t i = 0; i < block_count; ++i) {
    const auto block = std::span(bytes).subspan(i * kBlockBytes, kBlockBytes);
    put.push_back({keys[i], block});
    get.push_back({keys[i], block});
  }
  std::thread::id ended_by;
  const TransferOptions options{.on_done =
                                    [](void* context, std::span<const BlockEnd>) noexcept {
                                      *static_cast<std::thread::id*>(context) =
                                          std::this_thread::get_id();
                                    },
                                .context = &ended_by};
  const Transfer transfer = puts ? store.put(put, 0, options) : store.get(get, options);
  transfer.wait();
  EXPECT_TRUE(transfer.all_done());
  return ended_by == std::this_thread::get_id();
}

TEST(PutsInFlight, OfABatchThatNoMoverTakesAreNotDone) {
  static Atomic<bool> refuses{false};
  engine::EngineOptions options{.threads_per_node = 1, .devices = {.use = false}};
  options.policy = [](const engine::MoveContext&, engine::MoverChoice& choice) {
    if (!refuses.load_relaxed()) choice.add(0);  // Relaxed: publishes nothing.
  };
  const auto engine = engine::Engine::make(topo::discover().value(), options).value();
  const auto store = test::make_store(*engine, {.block_bytes = Bytes(kBlockBytes),
                                                .tiers = {{.capacity = Bytes(8 * kBlockBytes)}},
                                                .inline_max = {}});
  ASSERT_NE(store, nullptr);
  const std::vector<std::byte> bytes = block_bytes(1, 1, kBlockBytes);
  const PutBlock puts[] = {{"a", bytes}, {"b", bytes}};
  const PutBlock others[] = {{"c", bytes}, {"d", bytes}};
  EXPECT_TRUE([&] {
    Transfer put = store->put(puts);
    put.wait();
    return put.all_done();
  }());
  refuses.store_relaxed(true);
  const Transfer refused = store->put(others);
  refused.wait();
  for (const BlockEnd& end : refused.ends()) EXPECT_EQ(end.outcome, Outcome::failed);
  EXPECT_THAT(store->keys(), UnorderedElementsAre("a", "b"));
}

TEST(PutsInFlight, TheLaterOfTwoStays) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    // A mover that ends its jobs in any order.
    const auto engine = test::faulty_engine({.seed = seed});
    const auto store = test::make_store(*engine, {.block_bytes = Bytes(kBlockBytes),
                                                  .tiers = {{.capacity = Bytes(8 * kBlockBytes)}},
                                                  .inline_max = {}});
    ASSERT_NE(store, nullptr);
    const std::vector<std::byte> first = block_bytes(1, 1, kBlockBytes);
    const std::vector<std::byte> second = block_bytes(1, 2, kBlockBytes);
    const PutBlock puts[] = {{"a", first}, {"a", second}};
    Transfer one = store->put({&puts[0], 1});
    Transfer other = store->put({&puts[1], 1});
    one.wait();
    other.wait();
    EXPECT_TRUE(one.all_done() && other.all_done());
    std::vector<std::byte> bytes(kBlockBytes);
    EXPECT_EQ(store->get("a", bytes).outcome, Outcome::done);
    EXPECT_EQ(version_of(1, bytes), 2U);
    EXPECT_EQ(store->statistics().tiers[0].blocks, 1U);
  }
}

TEST(WhoCopies, UpToALengthTheCallerBetweenMemoryAndNeverAFile) {
  const std::unique_ptr<engine::Engine> engine = test::worker_engine();
  const test::Folder folder;
  for (const bool is_file : {false, true}) {
    const std::unique_ptr<Store> store =
        test::make_store(*engine, {.block_bytes = Bytes(kBlockBytes),
                                   .tiers = {{.capacity = Bytes(32 * kBlockBytes),
                                              .path = is_file ? folder.file("tier") : "",
                                              .durability = Durability::process}},
                                   .inline_max = Bytes(2 * kBlockBytes)});
    ASSERT_NE(store, nullptr);
    for (const bool puts : {true, false}) {
      EXPECT_EQ(copies_inline(*store, 1, puts), !is_file);
      EXPECT_EQ(copies_inline(*store, 2, puts), !is_file);
      EXPECT_FALSE(copies_inline(*store, 3, puts));
    }
  }
}

TEST(WhoCopies, WhatACallbackPutsInASubmissionIsHandedOver) {
  const std::unique_ptr<engine::Engine> engine = test::worker_engine();
  const std::unique_ptr<Store> store = test::make_store(
      *engine, {.block_bytes = Bytes(kBlockBytes), .tiers = {{.capacity = mib(1)}}});
  ASSERT_NE(store, nullptr);
  struct Chain {
    Store& store;
    std::vector<std::byte> bytes = std::vector<std::byte>(kBlockBytes);
    std::vector<std::thread::id> threads = {};
    Transfer second = {};

    Transfer put() {
      const PutBlock block{.key = "a", .source = bytes};
      return store.put({&block, 1}, 0,
                       {.on_done =
                            [](void* context, std::span<const BlockEnd>) noexcept {
                              auto& chain = *static_cast<Chain*>(context);
                              chain.threads.push_back(std::this_thread::get_id());
                              if (chain.threads.size() == 1) chain.second = chain.put();
                            },
                        .context = this});
    }
  } chain{*store};
  const Transfer first = chain.put();
  first.wait();
  chain.second.wait();
  ASSERT_EQ(chain.threads.size(), 2U);
  EXPECT_EQ(chain.threads[0], std::this_thread::get_id());
  EXPECT_NE(chain.threads[1], std::this_thread::get_id());
}

TEST(StoreOutcome, EachHasANameAndARemedy) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(Outcome::closed); ++i) {
    names.insert(name(static_cast<Outcome>(i)));
    EXPECT_THAT(std::string(explain(static_cast<Outcome>(i))), HasSubstr("."));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(Outcome::closed) + 1);
  EXPECT_EQ(name(static_cast<Outcome>(99)), "unknown");
}

}  // namespace
}  // namespace headrace::store::store_test
