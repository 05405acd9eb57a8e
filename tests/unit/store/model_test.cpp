// SPDX-License-Identifier: Apache-2.0
// Compares random operations on stores of every kind with a map: a get returns a value that its key
// could have had at submission. With faults, refusals and restarts.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>

#include "headrace/base/random.hpp"
#include "support/seed.hpp"
#include "support/store_stage.hpp"

namespace headrace::store::model_test {
namespace {

using test::block_bytes;
using test::version_of;

constexpr std::size_t kBlockBytes = 512;
constexpr std::uint64_t kAbsent = 0;

/// Possible versions of a key; kAbsent if it may have none.
using Possible = std::set<std::uint64_t>;

struct Case {
  std::string name;
  std::vector<std::size_t> capacities;  ///< Blocks of each tier.
  bool file = false;                    ///< The last tier is a file.
  std::size_t keys = 24;
  bool drops = false;  ///< Blocks may be dropped for room.
  bool faults = false;
  bool checksums = false;
};

class Model {
 public:
  Model(const Case& chosen, std::uint64_t seed)
      : case_(chosen), random_(seed), possible_(chosen.keys, Possible{kAbsent}) {
    engine_ = chosen.faults ? test::faulty_engine({.seed = seed, .refused_of = 7, .failed_of = 60})
                            : test::worker_engine();
    open();
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  ~Model() {
    in_flight_.clear();
    store_.reset();
  }

  void run(std::size_t steps) {
    for (std::size_t i = 0; i < steps && !::testing::Test::HasFailure(); ++i) step();
    flush();
    for (std::uint64_t key = 0; key < case_.keys; ++key) check_now(key);
    check_room();
  }

 private:
  struct InFlight {
    bool is_put = false;
    std::vector<std::uint64_t> keys;
    std::vector<std::uint64_t> versions;  ///< For a put.
    std::vector<Possible> allowed;        ///< For a get.
    std::vector<std::string> names;
    std::vector<std::vector<std::byte>> buffers;
    Transfer transfer;  ///< Last member: its destructor uses the others.
  };

  static std::string name_of(std::uint64_t key) { return "key " + std::to_string(key); }

  void open() {
    // Short transfers by the calling thread, longer ones by the mover.
    StoreOptions options{.block_bytes = Bytes(kBlockBytes),
                         .checksums = case_.checksums,
                         .inline_max = Bytes(2 * kBlockBytes)};
    for (const std::size_t capacity : case_.capacities) {
      options.tiers.push_back({.capacity = Bytes(capacity * kBlockBytes)});
    }
    if (case_.file) {
      options.tiers.back().path = folder_.file("tier");
      options.tiers.back().durability = Durability::process;
    }
    store_ = test::make_store(*engine_, options);
    ASSERT_NE(store_, nullptr);
  }

  void step() {
    switch (random_.below(20)) {
      case 0:
        return remove(random_.below(case_.keys));
      case 1:
        return flush();
      case 2:
        static_cast<void>(store_->pin(name_of(random_.below(4))));
        return;
      case 3:
        for (std::uint64_t key = 0; key < 4; ++key) store_->unpin(name_of(key));
        return;
      case 4:
        if (random_.chance(1, 20)) clear();
        if (random_.chance(1, 20)) restart();
        return;
      default:
        break;
    }
    auto batch = std::make_unique<InFlight>();
    batch->is_put = random_.chance(1, 2);
    const std::size_t count = 1 + random_.below(8);
    for (std::size_t i = 0; i < count; ++i) {
      // Few keys are frequent.
      const std::uint64_t key = random_.below(1 + random_.below(case_.keys));
      batch->keys.push_back(key);
      batch->names.push_back(name_of(key));
      if (batch->is_put) {
        batch->versions.push_back(++version_);
        batch->buffers.push_back(block_bytes(key, version_, 16 + random_.below(kBlockBytes - 15)));
        for (const std::uint64_t other : possible_[key]) {
          if (!pending_.contains(other)) continue;
          overlapped_.insert(other);
          overlapped_.insert(version_);
        }
        possible_[key].insert(version_);
        pending_.insert(version_);
      } else {
        batch->buffers.emplace_back(kBlockBytes);
        batch->allowed.push_back(possible_[key]);
      }
    }
    if (batch->is_put) {
      std::vector<PutBlock> blocks;
      for (std::size_t i = 0; i < count; ++i)
        blocks.push_back({batch->names[i], batch->buffers[i]});
      batch->transfer = store_->put(blocks, random_.below(case_.capacities.size()));
    } else {
      std::vector<GetBlock> blocks;
      for (std::size_t i = 0; i < count; ++i)
        blocks.push_back({batch->names[i], batch->buffers[i]});
      batch->transfer = store_->get(blocks);
    }
    in_flight_.push_back(std::move(batch));
    while (in_flight_.size() > 6 || (!in_flight_.empty() && in_flight_.front()->transfer.poll())) {
      end_first();
    }
  }

  void end_first() {
    InFlight& batch = *in_flight_.front();
    ASSERT_TRUE(batch.transfer.wait_for(std::chrono::seconds(100)));
    const std::span<const BlockEnd> ends = batch.transfer.ends();
    for (std::size_t i = 0; i < ends.size(); ++i) {
      const std::uint64_t key = batch.keys[i];
      if (batch.is_put) {
        end_put(key, batch.versions[i], ends[i].outcome);
      } else {
        end_get(key, batch, i);
      }
    }
    in_flight_.pop_front();
  }

  void end_put(std::uint64_t key, std::uint64_t version, Outcome outcome) {
    pending_.erase(version);
    if (outcome != Outcome::done) {
      EXPECT_TRUE(case_.faults || outcome == Outcome::full) << name(outcome);
      possible_[key].erase(version);
      return;
    }
    // Not overlapped by another put, it is the key's only version.
    if (!overlapped_.contains(version) && removed_[key] < version) possible_[key] = {version};
  }

  void end_get(std::uint64_t key, const InFlight& batch, std::size_t i) {
    const BlockEnd& end = batch.transfer.ends()[i];
    const Possible& allowed = batch.allowed[i];
    if (end.outcome == Outcome::unknown_key) {
      EXPECT_TRUE(may_be_absent(allowed)) << "key " << key << " was lost";
      return;
    }
    if (end.outcome != Outcome::done) {
      EXPECT_TRUE(case_.faults) << name(end.outcome);
      return;
    }
    const auto version = version_of(key, std::span(batch.buffers[i]).first(end.byte_count));
    ASSERT_TRUE(version.has_value()) << "key " << key << " has other bytes";
    EXPECT_TRUE(allowed.contains(*version)) << "key " << key << " has old version " << *version;
  }
  [[nodiscard]] bool may_be_absent(const Possible& allowed) const {
    // A demotion that fails again and again drops the block.
    return allowed.contains(kAbsent) || case_.drops || case_.faults;
  }

  void flush() {
    while (!in_flight_.empty() && !::testing::Test::HasFatalFailure()) end_first();
  }
  void remove(std::uint64_t key) {
    store_->remove(name_of(key));
    gone(key);
  }
  /// Pending versions may still appear.
  void gone(std::uint64_t key) {
    std::erase_if(possible_[key], [this](std::uint64_t each) { return !pending_.contains(each); });
    possible_[key].insert(kAbsent);
    removed_[key] = version_;
  }
  void clear() {
    store_->clear();
    for (std::uint64_t key = 0; key < case_.keys; ++key) gone(key);
  }
  void restart() {
    if (!case_.file) return;
    flush();
    const std::size_t before = store_->statistics().tiers.back().blocks;
    store_.reset();
    open();
    const std::size_t recovered = store_->statistics().tiers.back().recovered;
    if (case_.capacities.size() == 1 && !case_.drops) {
      EXPECT_EQ(recovered, before);
    }
    EXPECT_EQ(store_->statistics().tiers.back().dropped_torn, 0U);
    // Blocks only in memory are gone; with a file tier only, none is.
    if (case_.capacities.size() == 1) return;
    for (Possible& possible : possible_) possible.insert(kAbsent);
  }

  void check_now(std::uint64_t key) {
    for (int attempt = 0; attempt < 20; ++attempt) {
      std::vector<std::byte> bytes(kBlockBytes);
      const BlockEnd end = store_->get(name_of(key), bytes);
      if (end.outcome == Outcome::failed && case_.faults) continue;
      if (end.outcome == Outcome::unknown_key) {
        EXPECT_TRUE(may_be_absent(possible_[key])) << "key " << key << " was lost";
        return;
      }
      ASSERT_EQ(end.outcome, Outcome::done) << name(end.outcome);
      const auto version = version_of(key, std::span(bytes).first(end.byte_count));
      ASSERT_TRUE(version.has_value());
      EXPECT_TRUE(possible_[key].contains(*version));
      return;
    }
  }

  /// No slot has leaked: each tier takes exactly as many blocks as it has room for.
  void check_room() {
    store_->clear();
    for (std::size_t tier = 0; tier < case_.capacities.size(); ++tier) {
      const std::vector<std::byte> bytes = block_bytes(1, 1, kBlockBytes);
      for (std::size_t i = 0; i < case_.capacities[tier]; ++i) {
        const std::string key = std::to_string(tier) + "/" + std::to_string(i);
        Outcome outcome = Outcome::failed;
        while (outcome == Outcome::failed) outcome = store_->put(key, bytes, tier).outcome;
        ASSERT_EQ(outcome, Outcome::done) << key << ": " << name(outcome);
        ASSERT_TRUE(store_->pin(key));
      }
      Outcome outcome = Outcome::failed;
      while (outcome == Outcome::failed) outcome = store_->put("more", bytes, tier).outcome;
      EXPECT_EQ(outcome, Outcome::full) << name(outcome);
    }
  }

  const Case case_;
  Random random_;
  test::Folder folder_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<Store> store_;
  std::vector<Possible> possible_;  ///< By key.
  std::set<std::uint64_t> pending_;
  std::set<std::uint64_t> overlapped_;  ///< Another put of the key was in flight with it.
  std::map<std::uint64_t, std::uint64_t> removed_;  ///< By key, the last version before.
  std::deque<std::unique_ptr<InFlight>> in_flight_;
  std::uint64_t version_ = 0;
};

class AnyStore : public ::testing::TestWithParam<Case> {};

TEST_P(AnyStore, GivesWhatItsKeysHave) {
  Model model(GetParam(), test::seed());
  model.run(3000);
}

const std::array kCases = {
    Case{.name = "memory", .capacities = {200}},
    Case{.name = "memory_that_drops", .capacities = {16}, .drops = true},
    Case{.name = "three_tiers", .capacities = {6, 12, 200}},
    Case{.name = "three_tiers_that_drop", .capacities = {6, 8, 10}, .keys = 60, .drops = true},
    Case{.name = "file", .capacities = {200}, .file = true},
    Case{.name = "memory_and_file", .capacities = {10, 200}, .file = true},
    Case{.name = "memory_and_file_that_drop",
         .capacities = {10, 20},
         .file = true,
         .keys = 60,
         .drops = true,
         .checksums = true},
    Case{.name = "faults", .capacities = {10, 30}, .drops = true, .faults = true},
    Case{.name = "faults_and_file",
         .capacities = {10, 30},
         .file = true,
         .keys = 40,
         .drops = true,
         .faults = true,
         .checksums = true},
};

INSTANTIATE_TEST_SUITE_P(Kinds, AnyStore, ::testing::ValuesIn(kCases),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace headrace::store::model_test
