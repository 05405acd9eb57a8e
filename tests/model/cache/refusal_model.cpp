// SPDX-License-Identifier: Apache-2.0
// A thread reads bytes that it has changed while an entry that contains them is refused, in a model
// checker: the code of src/cache/dirty_ranges.cpp and end_refused(), in the interleavings that
// Search selects. Not for: the index, the leases (lease_model.cpp), the engine.
#include <gtest/gtest.h>

#include "dirty_ranges.hpp"
#include "entry.hpp"
#include "explore.hpp"
#include "pool.hpp"

namespace headrace::cache::detail {
namespace {

using test::explore;
using test::Search;

/// Two changes of different bytes are live when the *submitter* has listed an entry that contains
/// both. The *changer* ends the first and reads its bytes; the *other* ends the second.
struct AChangerAndARefusal {
  static constexpr Region kWide{4096, 1024};
  static constexpr Region kDirty{4096, 100};
  static constexpr Region kOther{5000, 100};

  AChangerAndARefusal() {
    own = entry_of(kDirty);
    others = entry_of(kOther);
    wide = entry_of(kWide);
    source($) = 0;
    copy($) = 0;
    wide_copy($) = 0;
    const auto is_listed = [] { return true; };
    RL_ASSERT(dirty.begin(kDirty, own, range, is_listed) == DirtyRanges::Begin::done);
    RL_ASSERT(dirty.begin(kOther, others, other_range, is_listed) == DirtyRanges::Begin::done);
    pool[wide].progress.expect_submission();
    list_again(pool[wide]);
  }
  ~AChangerAndARefusal() {
    // The pool does not destroy entries; the checker requires that every atomic is destroyed.
    for (std::uint32_t number = 1; number <= kMadeCount; ++number) pool[number].~EntryState();
  }
  /// Entries that the pool constructs at once.
  static constexpr std::uint32_t kMadeCount = 16;

  std::uint32_t entry_of(const Region& region) {
    const std::uint32_t number = pool.take_entry(stash).number;
    pool[number].address.store_relaxed(region.address);
    pool[number].byte_count.store_relaxed(region.byte_count);
    return number;
  }
  /// As Cache::State::write_back_overlapping.
  bool write_back_overlapping() {
    if (!dirty.any()) return true;
    for (;;) {
      DirtyRanges::Range claimed;
      switch (dirty.claim_overlapping(kWide, claimed)) {
        case DirtyRanges::Claim::busy:
          return false;
        case DirtyRanges::Claim::none:
          return true;
        case DirtyRanges::Claim::done:
          if (claimed.entry == own) source($) = static_cast<int>(copy($));
          dirty.mark_clean(claimed);
      }
    }
  }
  /// As Cache::State::start_move and place.
  void submit() {
    EntryState& entry = pool[wide];
    if (write_back_overlapping()) {
      wide_copy($) = static_cast<int>(source($));
      entry.progress.end(Phase::copied);
    } else {
      end_refused(entry.progress, [&] { mark_dropped(entry); }, [&] { write_back_overlapping(); });
    }
  }
  /// As Cache::State::access and Entry::data, without a wait. Nothing else writes to the source
  /// while the phase is `moving`, which is left out.
  int read_at_once() {
    EntryState& entry = pool[wide];
    // relaxed: as in read().
    const bool is_found = entry.listing.load_relaxed() == Listing::listed;
    const Phase phase = entry.progress.now();
    if (is_found && phase == Phase::copied) return wide_copy($);
    if (!is_found || phase == Phase::pending) write_back_overlapping();
    return source($);
  }
  /// As Cache::State::access, wait and data.
  int read() {
    EntryState& entry = pool[wide];
    // relaxed: as Shard::find; no lease, because nothing is freed here.
    if (entry.listing.load_relaxed() != Listing::listed || entry.progress.now() == Phase::left) {
      write_back_overlapping();
      return source($);
    }
    while (!ended(entry.progress.now())) entry.progress.await_submission();
    return entry.progress.now() == Phase::copied ? wide_copy($) : source($);
  }
  void change_and_read(bool waits) {
    copy($) = 1;
    RL_ASSERT(!dirty.end(range));
    RL_ASSERT((waits ? read() : read_at_once()) == 1);
  }

  Pool pool;
  Pool::Stash stash;
  DirtyRanges dirty{pool};
  std::uint32_t own = 0;
  std::uint32_t others = 0;
  std::uint32_t wide = 0;
  DirtyRanges::Range range;
  DirtyRanges::Range other_range;
  rl::var<int> source;
  rl::var<int> copy;
  rl::var<int> wide_copy;
};

template <unsigned kThreadCount, bool kWaits = true>
struct Refusal : rl::test_suite<Refusal<kThreadCount, kWaits>, kThreadCount> {
  void before() { stage = new AChangerAndARefusal; }
  void thread(unsigned index) {
    if (index == 0) {
      stage->submit();
    } else if (index == 1) {
      stage->change_and_read(kWaits);
    } else {
      RL_ASSERT(!stage->dirty.end(stage->other_range));
    }
  }
  void after() { delete stage; }
  AChangerAndARefusal* stage = nullptr;
};

TEST(RefusalModel, AChangerReadsItsBytesWhileAnotherChangeIsAlive) {
  explore<Refusal<2>>("a change and a read, a refusal", Search::bounded);
}
TEST(RefusalModel, AChangerReadsItsBytesAtOnceWhileAnotherChangeIsAlive) {
  explore<Refusal<2, false>>("a change and a read that does not wait, a refusal", Search::bounded);
}
TEST(RefusalModel, AChangerReadsItsBytesWhileAnotherChangeEnds) {
  explore<Refusal<3>>("a change and a read, a refusal, the end of another change", Search::bounded,
                      2);
}

}  // namespace
}  // namespace headrace::cache::detail
