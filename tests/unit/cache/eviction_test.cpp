// SPDX-License-Identifier: Apache-2.0
// The eviction order of each policy: its guarantees on short traces, and on random ones the exact
// order of a model written here from the description in docs/concepts/cache.md. Hints:
// hint_test.cpp; entries exempt from eviction: capacity_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "headrace/cache/cache.hpp"
#include "headrace/platform/memory.hpp"
#include "support/cache_stage.hpp"
#include "support/seed.hpp"

namespace headrace::cache {
namespace {

using test::CacheStage;
using test::StagedMover;

/// Pages, by their index.
using Pages = std::vector<std::size_t>;

constexpr std::size_t kPageCount = 512;

/// Pages that a cache with room for `capacity` pages evicts during `trace`, in order.
Pages evicted_by_cache(Eviction eviction, std::size_t capacity, const Pages& trace) {
  static const std::size_t kPageBytes = platform::page_bytes();
  static const std::vector<std::byte> kSource(kPageCount * kPageBytes);
  Pages evicted;
  CacheOptions options;
  options.capacity_per_node = Bytes(capacity * kPageBytes);
  options.eviction = eviction;
  options.observer = [&evicted](const Event& event) {
    if (event.kind != EventKind::evicted) return;
    const auto offset = static_cast<std::size_t>(event.region.data() - kSource.data());
    evicted.push_back(offset / kPageBytes);
  };
  CacheStage stage(StagedMover::Mode::at_once, std::move(options));
  for (const std::size_t page : trace) {
    const auto region = std::span(kSource).subspan(page * kPageBytes, kPageBytes);
    EXPECT_TRUE(stage.cache->access(region).cached()) << page;
    EXPECT_LE(stage.statistics().bytes_cached, capacity * kPageBytes);
  }
  return evicted;
}

/// A policy as documented. A page is inserted after the eviction that makes room for it.
class Model {
 public:
  virtual ~Model() = default;
  virtual void found(std::size_t page) = 0;
  virtual void came(std::size_t page) = 0;
  virtual std::size_t give_up() = 0;
};

/// Its clock advances by one per inserted page.
class LruModel final : public Model {
 public:
  void found(std::size_t page) override { times_[page] = now_; }
  void came(std::size_t page) override {
    times_[page] = ++now_;
    queue_.push_back(page);
  }
  std::size_t give_up() override {
    const auto end = queue_.begin() + std::min<std::ptrdiff_t>(8, std::ssize(queue_));
    const auto oldest = std::min_element(queue_.begin(), end, [this](std::size_t a, std::size_t b) {
      return times_[a] < times_[b];
    });
    const std::size_t page = *oldest;
    // Those before it are skipped; those behind it keep their place.
    std::rotate(queue_.begin(), oldest + 1, queue_.end());
    queue_.pop_back();
    return page;
  }

 private:
  std::uint64_t now_ = 0;
  std::map<std::size_t, std::uint64_t> times_;
  std::deque<std::size_t> queue_;
};

/// Forgets nothing: only for traces with so few pages that the cache does not, either.
class S3FifoModel final : public Model {
 public:
  void found(std::size_t page) override { uses_[page] = std::min(uses_[page] + 1, 3); }
  void came(std::size_t page) override {
    uses_[page] = 0;
    (ghosts_.erase(page) != 0 ? main_ : small_).push_back(page);
  }
  std::size_t give_up() override {
    while (true) {
      auto& queue = is_small_due() ? small_ : main_;
      const std::size_t page = queue.front();
      queue.pop_front();
      if (uses_[page] < (&queue == &small_ ? 2 : 1)) {
        if (&queue == &small_) ghosts_.insert(page);
        return page;
      }
      uses_[page] = &queue == &small_ ? 0 : uses_[page] - 1;
      main_.push_back(page);
    }
  }

 private:
  [[nodiscard]] bool is_small_due() const {
    if (main_.empty()) return true;
    // Includes the page to be inserted.
    const std::size_t count = small_.size() + 1;
    return !small_.empty() && count * 10 > count + main_.size();
  }

  std::deque<std::size_t> small_;
  std::deque<std::size_t> main_;
  std::map<std::size_t, int> uses_;
  std::set<std::size_t> ghosts_;
};

std::unique_ptr<Model> model_of(Eviction eviction) {
  switch (eviction) {
    case Eviction::lru:
      return std::make_unique<LruModel>();
    case Eviction::s3_fifo:
      return std::make_unique<S3FifoModel>();
  }
  return nullptr;
}

Pages evicted_by_model(Eviction eviction, std::size_t capacity, const Pages& trace) {
  const std::unique_ptr<Model> model = model_of(eviction);
  std::set<std::size_t> present;
  Pages evicted;
  for (const std::size_t page : trace) {
    if (!present.insert(page).second) {
      model->found(page);
      continue;
    }
    if (present.size() > capacity) {
      evicted.push_back(model->give_up());
      present.erase(evicted.back());
    }
    model->came(page);
  }
  return evicted;
}

/// `count` pages from `first`.
Pages scan(std::size_t first, std::size_t count) {
  Pages pages;
  for (std::size_t i = 0; i < count; ++i) pages.push_back(first + i);
  return pages;
}
Pages operator+(Pages first, const Pages& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}
bool contains(const Pages& pages, std::size_t page) {
  return std::find(pages.begin(), pages.end(), page) != pages.end();
}

class EveryEviction : public ::testing::TestWithParam<Eviction> {};

TEST_P(EveryEviction, GivesUpOnRandomTracesWhatItsModelGivesUp) {
  std::mt19937_64 random(test::seed());
  for (int round = 0; round < 60; ++round) {
    const std::size_t capacity = 1 + random() % (round % 2 == 0 ? 12 : 60);
    // Few enough pages for s3_fifo to remember all; a third of the rounds has hardly any reuse.
    const std::size_t page_count = capacity + 1 + random() % (capacity + 14);
    Pages trace;
    for (std::size_t i = 0; i < 40 * capacity; ++i) {
      const std::size_t page = random() % page_count;
      // The lower of two: some pages are more frequent than others.
      trace.push_back(round % 3 == 0 ? page : std::min(page, random() % page_count));
    }
    ASSERT_EQ(evicted_by_cache(GetParam(), capacity, trace),
              evicted_by_model(GetParam(), capacity, trace))
        << "room for " << capacity << " of " << page_count << " pages";
  }
}

TEST_P(EveryEviction, GivesUpInTheOrderOfTheirComingWhatIsAskedForOnce) {
  for (const std::size_t capacity : {1U, 2U, 9U, 40U}) {
    EXPECT_EQ(evicted_by_cache(GetParam(), capacity, scan(0, 100)), scan(0, 100 - capacity));
  }
}

TEST_P(EveryEviction, GivesNothingUpWhileEverythingFits) {
  Pages trace;
  for (int round = 0; round < 5; ++round) trace = trace + scan(0, 30);
  EXPECT_EQ(evicted_by_cache(GetParam(), 30, trace), Pages());
}

INSTANTIATE_TEST_SUITE_P(Eviction, EveryEviction,
                         ::testing::Values(Eviction::lru, Eviction::s3_fifo),
                         [](const auto& instance) { return std::string(name(instance.param)); });

TEST(Lru, GivesUpWhatWasFoundLongestAgo) {
  EXPECT_EQ(evicted_by_cache(Eviction::lru, 4, {0, 1, 2, 3, 0, 4, 2, 5, 6}), Pages({1, 3, 0}));
}

TEST(Lru, OfAsManyAsItLooksAtGivesUpOneThatWasFoundNoLaterThanAnyOther) {
  std::mt19937_64 random(test::seed());
  Pages trace;
  for (int i = 0; i < 4000; ++i) trace.push_back(std::min(random() % 24, random() % 24));
  const Pages evicted = evicted_by_cache(Eviction::lru, 7, trace);
  std::map<std::size_t, std::uint64_t> times;
  std::uint64_t now = 0;
  std::size_t evicted_count = 0;
  for (const std::size_t page : trace) {
    const bool has_come = !times.contains(page);
    times[page] = has_come ? ++now : now;
    if (times.size() <= 7) continue;
    const std::size_t gone = evicted.at(evicted_count++);
    ASSERT_TRUE(times.contains(gone));
    for (const auto& [other, time] : times) ASSERT_LE(times[gone], time) << gone << ' ' << other;
    times.erase(gone);
  }
  EXPECT_EQ(evicted_count, evicted.size());
}

TEST(Lru, EvictsHardlyMoreThanAnExactOneWhereItCannotLookAtAll) {
  std::mt19937_64 random(test::seed());
  Pages trace;
  for (int i = 0; i < 20'000; ++i) {
    trace.push_back(std::min({random() % 400, random() % 400, random() % 400}));
  }
  // Exact: the oldest of the times of all.
  std::map<std::size_t, std::size_t> times;
  std::size_t exact_count = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    times[trace[i]] = i;
    if (times.size() <= 100) continue;
    times.erase(std::min_element(times.begin(), times.end(),
                                 [](const auto& a, const auto& b) { return a.second < b.second; }));
    ++exact_count;
  }
  const std::size_t count = evicted_by_cache(Eviction::lru, 100, trace).size();
  EXPECT_LT(count, exact_count + exact_count / 20);
}

TEST(S3Fifo, AScanDoesNotDisplaceWhatWasFoundTwiceOnProbation) {
  const Pages evicted = evicted_by_cache(Eviction::s3_fifo, 20,
                                         scan(0, 10) + scan(0, 10) + scan(0, 10) + scan(100, 300));
  for (std::size_t page = 0; page < 10; ++page) EXPECT_FALSE(contains(evicted, page)) << page;
  EXPECT_EQ(evicted, scan(100, 290));
}

TEST(S3Fifo, WhatWasNotFoundTwiceOnProbationGoesWhateverElseIsThere) {
  // Half of the cache was hit twice and never again, but stays.
  const Pages trace = scan(0, 10) + scan(0, 10) + scan(0, 10) + scan(50, 10) + scan(50, 10);
  EXPECT_EQ(evicted_by_cache(Eviction::s3_fifo, 20, trace + scan(100, 10)), scan(50, 10));
}

TEST(S3Fifo, WhatIsPrefetchedAndReadDisplacesNothing) {
  Pages trace = scan(0, 10) + scan(0, 10) + scan(0, 10);
  for (std::size_t page = 100; page < 400; ++page) trace = trace + Pages{page, page};
  EXPECT_EQ(evicted_by_cache(Eviction::s3_fifo, 20, trace), scan(100, 290));
}

TEST(S3Fifo, WhatComesAgainSoonAfterItsProbationIsNotOnProbationAgain) {
  const Pages evicted =
      evicted_by_cache(Eviction::s3_fifo, 20, scan(0, 25) + Pages{0} + scan(100, 300));
  EXPECT_EQ(std::count(evicted.begin(), evicted.end(), 0U), 1);
}

TEST(S3Fifo, WhatComesAgainLateIsOnProbationLikeAnyOther) {
  const Pages evicted =
      evicted_by_cache(Eviction::s3_fifo, 20, scan(0, 200) + Pages{0} + scan(250, 100));
  EXPECT_EQ(std::count(evicted.begin(), evicted.end(), 0U), 2);
}

TEST(S3Fifo, WhatWasFoundOftenOutlivesWhatWasFoundOnce) {
  // Pages 0 to 9 are admitted; then 0 is hit often and the others once.
  Pages trace = scan(0, 10) + scan(0, 10) + scan(0, 10) + scan(50, 11) + scan(0, 10) + Pages(9, 0);
  // Pages hit on probation are admitted after them.
  for (std::size_t first = 100; first < 400; first += 2) {
    trace = trace + scan(first, 2) + scan(first, 2) + scan(first, 2);
  }
  const Pages evicted = evicted_by_cache(Eviction::s3_fifo, 20, trace);
  const auto place = [&](std::size_t page) {
    return std::find(evicted.begin(), evicted.end(), page) - evicted.begin();
  };
  EXPECT_TRUE(contains(evicted, 0)) << "it goes in the end";
  for (std::size_t page = 1; page < 10; ++page) EXPECT_LT(place(page), place(0)) << page;
}

}  // namespace
}  // namespace headrace::cache
