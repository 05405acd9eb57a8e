// SPDX-License-Identifier: Apache-2.0
// A process with a store on a file is killed a hundred times in the middle of puts and removals:
// every acknowledged block is present, none is torn, and no removed block reappears.
//
// Each change of a key has a number, noted before the change begins and when it is acknowledged.
// After a kill the key has the result of some change between the two numbers.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "headrace/base/atomic.hpp"
#include "support/seed.hpp"
#include "support/store_stage.hpp"

namespace headrace::store {
namespace {

using test::block_bytes;
using test::version_of;

constexpr int kKills = 100;
constexpr std::uint64_t kKeys = 24;
constexpr std::size_t kBatch = 8;
constexpr std::size_t kBlockBytes = 8192;
/// One change in kRemovalOf removes the block.
constexpr std::uint64_t kRemovalOf = 5;

/// In memory that outlives the process.
struct Notes {
  std::array<Atomic<std::uint64_t>, kKeys> begun;
  std::array<Atomic<std::uint64_t>, kKeys> acknowledged;
  Atomic<std::uint64_t> changes;  ///< Acknowledged ones, of all keys.
};

Notes& make_notes() {
  void* const mapped =
      ::mmap(nullptr, sizeof(Notes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) std::abort();
  return *new (mapped) Notes;
}

bool is_removal(std::uint64_t change) {
  return change % kRemovalOf == 0;
}

StoreOptions options(const std::string& path) {
  // Room for every key twice and for a batch: nothing is evicted.
  return {.block_bytes = Bytes(kBlockBytes),
          .tiers = {{.capacity = Bytes(80 * kBlockBytes), .path = path}}};
}

int change_blocks(const std::string& path, Notes& notes, std::uint64_t seed) {
  const auto engine = test::worker_engine();
  const auto store = test::make_store(*engine, options(path));
  if (store == nullptr) return 1;
  Random random(seed);
  // Words of other processes: each is looked at when this one has ended.
  while (true) {
    std::vector<std::uint64_t> numbers;
    std::vector<std::string> names;
    std::vector<std::vector<std::byte>> bytes;
    for (std::uint64_t key = random.below(kKeys); numbers.size() < kBatch;
         key = (key + 1) % kKeys) {
      const std::uint64_t change = notes.begun[key].load_relaxed() + 1;
      notes.begun[key].store_relaxed(change);
      if (is_removal(change)) {
        store->remove(std::to_string(key));
        notes.acknowledged[key].store_relaxed(change);
        continue;
      }
      numbers.push_back(key);
      names.push_back(std::to_string(key));
      bytes.push_back(block_bytes(key, change, 16 + random.below(kBlockBytes - 15)));
    }
    std::vector<PutBlock> blocks;
    for (std::size_t i = 0; i < kBatch; ++i) blocks.push_back({names[i], bytes[i]});
    const Transfer put = store->put(blocks);
    put.wait();
    if (!put.all_done()) return 2;
    for (const std::uint64_t key : numbers) {
      notes.acknowledged[key].store_relaxed(notes.begun[key].load_relaxed());
    }
    notes.changes.fetch_add_relaxed(kBatch);
  }
}

void expect_whole(const std::string& path, const Notes& notes) {
  const auto engine = test::worker_engine();
  const auto store = test::make_store(*engine, options(path));
  ASSERT_NE(store, nullptr);
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    const std::uint64_t first = notes.acknowledged[key].load_relaxed();
    const std::uint64_t last = notes.begun[key].load_relaxed();
    std::vector<std::byte> bytes(kBlockBytes);
    const BlockEnd end = store->get(std::to_string(key), bytes);
    if (end.outcome == Outcome::unknown_key) {
      bool removed = first == 0;
      for (std::uint64_t change = first; change <= last; ++change) {
        removed = removed || is_removal(change);
      }
      EXPECT_TRUE(removed) << "key " << key << ", change " << first << ", is lost";
      continue;
    }
    ASSERT_EQ(end.outcome, Outcome::done) << name(end.outcome);
    const auto version = version_of(key, std::span(bytes).first(end.byte_count));
    ASSERT_TRUE(version.has_value()) << "key " << key << " is torn";
    EXPECT_GE(*version, first) << "key " << key << " is old, or was removed";
    EXPECT_LE(*version, last);
    EXPECT_FALSE(is_removal(*version));
  }
}

TEST(StoreKill, AcknowledgedBlocksAreThereAndNoneIsTorn) {
  const test::Folder folder;
  const std::string path = folder.file("blocks");
  Notes& notes = make_notes();
  Random random(test::seed());
  for (int i = 0; i < kKills && !::testing::Test::HasFailure(); ++i) {
    const std::uint64_t before = notes.changes.load_relaxed();  // Relaxed: a counter.
    const std::uint64_t wanted = before + 1 + random.below(4) * kBatch;
    const std::uint64_t seed = random();
    const pid_t child = ::fork();
    if (child == 0) ::_exit(change_blocks(path, notes, seed));
    int status = 0;
    while (notes.changes.load_relaxed() < wanted && ::waitpid(child, &status, WNOHANG) == 0) {
      std::this_thread::yield();
    }
    for (std::uint64_t spin = random.below(20'000); spin > 0; --spin) {
      static_cast<void>(notes.changes.load_relaxed());
    }
    ::kill(child, SIGKILL);
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    EXPECT_FALSE(WIFEXITED(status)) << WEXITSTATUS(status);
    expect_whole(path, notes);
  }
  EXPECT_GT(notes.changes.load_relaxed(), static_cast<std::uint64_t>(kKills));
}

}  // namespace
}  // namespace headrace::store
