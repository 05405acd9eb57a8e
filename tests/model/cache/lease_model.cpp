// SPDX-License-Identifier: Apache-2.0
// Leases, phases and flags of the cache in a model checker: the code of src/cache/lease.hpp and
// entry.hpp, in the interleavings that Search selects, with every value that a load may see. Plain
// memory of the cache - the bytes of a copy, the fields of a job - is an rl::var here, whose data
// races are reported. Not for: the index, the mutexes, the engine.
#include <gtest/gtest.h>

#include "entry.hpp"
#include "explore.hpp"
#include "lease.hpp"

namespace headrace::cache::detail {
namespace {

using test::explore;
using test::Search;

/// One entry, and a slot for each of two readers, in separate chunks.
template <Barriers kBarriers>
struct Stage {
  Stage() {
    for (std::size_t i = 0; i < 2; ++i) {
      chunks[i].slot_count = 1;
      chunks[i].slots = &slots[i];
      chunks[i].presence = &presences[i];
    }
  }
  void list() {
    copy($) = 1;
    for (Presence& presence : presences) {
      if (kBarriers == Barriers::unequal) presence.state.store_relaxed(Presence::kActive);
    }
    for (Chunk& chunk : chunks) {
      chunk.used_count.store_relaxed(1);
      registry.add(chunk);
    }
    list_again(entry);
  }
  /// As Core::end: frees the copy.
  void end() {
    RL_ASSERT(!ended);
    ended = true;
    copy($) = 0;
  }
  void use(Slot& slot) { RL_ASSERT(copy($) == 1 && slot.entry() == &entry); }
  [[nodiscard]] bool find(Slot& slot) { return occupy(slot, entry, presences[&slot - slots]); }
  void hit(Slot& slot) {
    if (find(slot)) {
      use(slot);
      if (give_back(slot) != nullptr) end();
    } else if (vacate(slot) != nullptr) {
      end();
    }
  }
  /// As Shard::evict and, later, CacheState::evict_ahead: without a barrier, if the readers have
  /// seen the turn.
  void evict_ahead() {
    mark_leaving(entry, 0, 0);
    mark_dropped(entry);
    const std::uint64_t turn = registry.begin_turn();
    if (registry.is_seen(turn)) drop_off(turn);
  }
  /// As Core::drop_off.
  void drop_off(std::uint64_t turn) {
    is_dropped = true;
    const std::uint32_t dropper = dropper_of(turn);
    claim_dropped(entry, dropper);
    registry.for_each_lease([&](Slot& slot, std::uintptr_t word) {
      if (is_leaving(entry, dropper)) mark(slot, word, entry);
    });
    mark_dropped(entry);
    if (leave_to_holders(entry)) end();
  }
  /// As Shard::drop and Cache::State::end.
  void drop() {
    mark_leaving(entry, 0, 1);
    registry.separate();
    registry.for_each_lease([&](Slot& slot, std::uintptr_t word) {
      if (Slot::entry_of(word) == &entry) mark(slot, word, entry);
    });
    mark_dropped(entry);
    if (leave_to_holders(entry)) end();
  }
  /// As Shard::drop_unheld: keeps the entry if it is held. Returns whether it was dropped.
  bool flush(bool is_retired = false) {
    mark_leaving(entry, 0, 0);
    registry.separate();
    bool held = false;
    registry.for_each_lease(
        [&](Slot&, std::uintptr_t word) { held = held || Slot::entry_of(word) == &entry; });
    if (held && is_retired) {
      mark_dropped(entry);
    } else if (held) {
      list_again(entry);
    } else {
      entry.holder_count.store_relaxed(1);
      mark_dropped(entry);
    }
    if (!held && leave_to_holders(entry)) end();
    return !held;
  }
  /// As a later Shard::drop_all, after the mutex is released and before the entry ends.
  void scan_again() {
    registry.separate();
    registry.for_each_lease([&](Slot& slot, std::uintptr_t word) {
      if (is_leaving(entry, 0)) mark(slot, word, entry);
    });
  }

  Registry registry{kBarriers};
  LeasedEntry entry;
  Slot slots[2];
  Presence presences[2]{Presence(kBarriers), Presence(kBarriers)};
  Chunk chunks[2];
  rl::var<int> copy;
  bool ended = false;
  bool is_dropped = false;
};

/// Two hits on an entry while it is dropped (invalidate, clear): it ends once, after its last use.
template <Barriers kBarriers>
struct TwoHitsAndADrop : rl::test_suite<TwoHitsAndADrop<kBarriers>, 3>, Stage<kBarriers> {
  void before() { this->list(); }
  void thread(unsigned index) {
    if (index < 2) {
      this->hit(this->slots[index]);
    } else {
      this->drop();
    }
  }
  void after() { RL_ASSERT(this->ended); }
};

/// Two hits on an entry while it is flushed or evicted: it is removed only if no thread uses it.
template <Barriers kBarriers>
struct TwoHitsAndAFlush : rl::test_suite<TwoHitsAndAFlush<kBarriers>, 3>, Stage<kBarriers> {
  void before() { this->list(); }
  void thread(unsigned index) {
    if (index < 2) {
      this->hit(this->slots[index]);
    } else {
      gone = this->flush();
    }
  }
  void after() { RL_ASSERT(this->ended == gone); }
  bool gone = false;
};

/// A hit on an entry that is flushed and then found by the next dropper: it ends once.
struct AHitAndTwoDroppers : rl::test_suite<AHitAndTwoDroppers, 2>, Stage<Barriers::unequal> {
  void before() { list(); }
  void thread(unsigned index) {
    if (index == 0) {
      hit(slots[0]);
    } else {
      gone = flush();
      scan_again();
    }
  }
  void after() { RL_ASSERT(ended == gone); }
  bool gone = false;
};

/// One hit and one drop.
template <Barriers kBarriers>
struct AHitAndADrop : rl::test_suite<AHitAndADrop<kBarriers>, 2>, Stage<kBarriers> {
  void before() { this->list(); }
  void thread(unsigned index) { index == 0 ? this->hit(this->slots[0]) : this->drop(); }
  void after() { RL_ASSERT(this->ended); }
};
/// A hit on an entry that invalidate() takes off and drops later (Shard::retire_overlapping).
template <Barriers kBarriers>
struct AHitAndALaterDrop : rl::test_suite<AHitAndALaterDrop<kBarriers>, 2>, Stage<kBarriers> {
  void before() { this->list(); }
  void thread(unsigned index) {
    if (index == 0) {
      this->hit(this->slots[0]);
    } else {
      mark_dropped(this->entry);
      this->drop();
    }
  }
  void after() { RL_ASSERT(this->ended); }
};
/// A hit on an entry that invalidate() takes off; an eviction drops it, or finds it held, and then
/// it is dropped later (Shard::propose, Shard::drop_retired).
template <Barriers kBarriers>
struct AHitAndAnEvictionOfWhatIsRetired
    : rl::test_suite<AHitAndAnEvictionOfWhatIsRetired<kBarriers>, 2>,
      Stage<kBarriers> {
  void before() { this->list(); }
  void thread(unsigned index) {
    if (index == 0) {
      this->hit(this->slots[0]);
    } else {
      mark_dropped(this->entry);
      if (!this->flush(true)) this->drop();
    }
  }
  void after() { RL_ASSERT(this->ended); }
};
template <Barriers kBarriers>
struct AHitAndAFlush : rl::test_suite<AHitAndAFlush<kBarriers>, 2>, Stage<kBarriers> {
  void before() { this->list(); }
  void thread(unsigned index) {
    if (index == 0) {
      this->hit(this->slots[0]);
    } else {
      gone = this->flush();
    }
  }
  void after() { RL_ASSERT(this->ended == gone); }
  bool gone = false;
};

/// A reader changes the copy (DirtyRanges::begin) while the entry is flushed: a dirty entry stays.
/// The flag is checked after the leases, as in Shard::drop_unheld.
template <Barriers kBarriers>
struct AChangeAndAFlush : rl::test_suite<AChangeAndAFlush<kBarriers>, 2>, Stage<kBarriers> {
  void before() { this->list(); }
  void thread(unsigned index) {
    if (index == 0) {
      Slot& slot = this->slots[0];
      if (this->find(slot)) {
        this->use(slot);
        changed.store_relaxed(1);
        if (give_back(slot) != nullptr) this->end();
      } else if (vacate(slot) != nullptr) {
        this->end();
      }
      return;
    }
    mark_leaving(this->entry, 0, 0);
    this->registry.separate();
    bool held = false;
    this->registry.for_each_lease(
        [&](Slot&, std::uintptr_t word) { held = held || Slot::entry_of(word) == &this->entry; });
    if (held || changed.load_relaxed() != 0) {
      list_again(this->entry);
    } else {
      this->end();
    }
  }
  void after() { RL_ASSERT(!this->ended || changed.load_relaxed() == 0); }
  Atomic<std::uint32_t> changed{0};
};

/// An entry is listed while a reader that found it in its previous use looks at it.
struct AHitAndAnInsertion : rl::test_suite<AHitAndAnInsertion, 2>, Stage<Barriers::unequal> {
  void before() { copy($) = 0; }
  void thread(unsigned index) {
    if (index == 0) {
      hit(slots[0]);
    } else {
      copy($) = 1;
      list_again(entry);
    }
  }
};

/// A handle is copied to another thread; both release it while the entry is dropped.
struct AHandleInTwoThreadsAndADrop : rl::test_suite<AHandleInTwoThreadsAndADrop, 3>,
                                     Stage<Barriers::unequal> {
  void before() {
    list();
    RL_ASSERT(find(slots[0]));
    share(slots[0]);
  }
  void thread(unsigned index) {
    if (index == 2) return drop();
    use(slots[0]);
    if (give_back(slots[0]) != nullptr) end();
  }
  void after() { RL_ASSERT(ended); }
};

/// A thread releases another thread's lease, whose owner reuses the slot for its next hit.
struct ASlotThatIsUsedAgain : rl::test_suite<ASlotThatIsUsedAgain, 3>, Stage<Barriers::unequal> {
  void before() {
    list();
    RL_ASSERT(find(slots[0]));
  }
  void thread(unsigned index) {
    if (index == 2) return drop();
    if (index == 1) {
      use(slots[0]);
      if (give_back(slots[0]) != nullptr) end();
    } else if (slots[0].word.load_acquire() == 0) {
      hit(slots[0]);
    }
  }
  void after() { RL_ASSERT(ended); }
};

/// A new thread registers its slots while an entry is dropped.
struct ANewReaderAndADrop : rl::test_suite<ANewReaderAndADrop, 3>, Stage<Barriers::unequal> {
  void before() {
    copy($) = 1;
    list_again(entry);
  }
  void thread(unsigned index) {
    if (index == 2) return drop();
    registry.add(chunks[index]);
    chunks[index].used_count.exchange_seq_cst(1);
    hit(slots[index]);
  }
  void after() { RL_ASSERT(ended); }
};

/// Readers without light barriers, and a dropper that has no heavy one. The second reader is
/// parked.
struct WithoutBarriers : Stage<Barriers::unequal> {
  WithoutBarriers() { light_barriers = LightBarriers::nothing; }
  ~WithoutBarriers() { light_barriers = LightBarriers::full; }
  void before() {
    list();
    presences[1].state.store_relaxed(Presence::kParked);
  }
  void after() { RL_ASSERT(ended == is_dropped); }
};

/// A reader holds an entry while it sees a turn, and looks for it again, while it is evicted.
struct AHitThatSeesATurn : rl::test_suite<AHitThatSeesATurn, 2>, WithoutBarriers {
  void before() { WithoutBarriers::before(); }
  void after() { WithoutBarriers::after(); }
  void thread(unsigned index) {
    if (index == 1) return evict_ahead();
    const bool is_found = find(slots[0]);
    presences[0].see(registry.turn());
    if (is_found) use(slots[0]);
    if (vacate(slots[0]) != nullptr) end();
    hit(slots[0]);
  }
};

/// A parked reader hits an entry while it is evicted.
struct AHitOfAParkedReader : rl::test_suite<AHitOfAParkedReader, 2>, WithoutBarriers {
  void before() {
    WithoutBarriers::before();
    presences[0].state.store_relaxed(Presence::kParked);
  }
  void after() { WithoutBarriers::after(); }
  void thread(unsigned index) {
    if (index == 1) return evict_ahead();
    hit(slots[1]);
  }
};

/// A thread ends, and the next one with its reader hits an entry, while it is evicted.
struct AThreadThatEnds : rl::test_suite<AThreadThatEnds, 2>, WithoutBarriers {
  void before() { WithoutBarriers::before(); }
  void after() { WithoutBarriers::after(); }
  void thread(unsigned index) {
    if (index == 1) return evict_ahead();
    hit(slots[0]);
    presences[0].state.exchange_seq_cst(Presence::kParked);
    hit(slots[0]);
  }
};

/// A dropper parks a reader while another one evicts the entry that the reader hits. The reader's
/// light barriers are nothing but for the interrupt of the heavy one.
struct AHitWhileItsReaderIsParked : rl::test_suite<AHitWhileItsReaderIsParked, 3>, WithoutBarriers {
  void before() {
    WithoutBarriers::before();
    light_barriers = LightBarriers::interrupted;
    interrupt_state = &state;
    state($).store(int{Interrupt::none}, rl::mo_relaxed);
  }
  void after() { WithoutBarriers::after(); }
  void thread(unsigned index) {
    if (index == 1) return registry.separate_and_park(registry.begin_turn());
    if (index == 2) return evict_ahead();
    interrupt();
    hit(slots[0]);
    interrupt(Interrupt::not_running);
  }
  rl::atomic<int> state;
};

/// The last dirty bytes of an entry are written back; the thread that then drops it frees its copy.
struct AWriteBackAndADrop : rl::test_suite<AWriteBackAndADrop, 2> {
  void before() {
    copy($) = 1;
    entry.mark_dirty();
  }
  void thread(unsigned index) {
    if (index == 0) {  // Core::write_back, and DirtyRanges::erase.
      RL_ASSERT(copy($) == 1);
      entry.mark_clean();
    } else if (!entry.is_dirty()) {  // Shard::evict.
      copy($) = 0;
    }
  }
  EntryState entry;
  rl::var<int> copy;
};

/// The last dirty bytes of the cache are written back; a thread that then moves them takes no lock.
struct AWriteBackAndAMove : rl::test_suite<AWriteBackAndAMove, 2> {
  void before() {
    source($) = 1;
    count.set(1);
  }
  void thread(unsigned index) {
    if (index == 0) {  // Core::write_back, and DirtyRanges::erase.
      source($) = 2;
      count.set(0);
    } else if (!count.any()) {  // Cache::State::write_back_overlapping.
      RL_ASSERT(source($) == 2);
    }
  }
  DirtyCount count;
  rl::var<int> source;
};

/// The submitter notifies its job while a waiter sleeps or looks; the waiter then finds the job.
struct NotifyAndWait : rl::test_suite<NotifyAndWait, 2> {
  void before() { progress.expect_submission(); }
  void thread(unsigned index) {
    if (index == 0) {  // InFlightMoves::RegisteredMove::submit.
      job($) = 1;
      progress.notify_submission();
    } else {  // Core::wait.
      while (progress.now() == Phase::pending) progress.await_submission();
      RL_ASSERT(progress.now() == Phase::moving && job($) == 1);
    }
  }
  Progress progress;
  rl::var<int> job;
};

/// The submitter notifies a job that may already have ended; a reader looks at any moment.
struct NotifyEndAndRead : rl::test_suite<NotifyEndAndRead, 3> {
  void before() { progress.expect_submission(); }
  void thread(unsigned index) {
    if (index == 0) {
      progress.notify_submission();
    } else if (index == 1) {
      copy($) = 7;
      progress.end(Phase::copied);
    } else if (progress.now() == Phase::copied) {
      RL_ASSERT(copy($) == 7);
    }
  }
  void after() { RL_ASSERT(progress.now() == Phase::copied); }
  Progress progress;
  rl::var<int> copy;
};

struct EndAndRead : rl::test_suite<EndAndRead, 2> {
  void before() { progress.expect_submission(); }
  void thread(unsigned index) {
    if (index == 0) {
      copy($) = 7;
      progress.end(Phase::copied);
    } else if (progress.now() == Phase::copied) {
      RL_ASSERT(copy($) == 7);
    }
  }
  Progress progress;
  rl::var<int> copy;
};

/// A submission that is refused: the submitter ends the phase, and two waiters wake.
struct RefuseAndWait : rl::test_suite<RefuseAndWait, 3> {
  void before() { progress.expect_submission(); }
  void thread(unsigned index) {
    if (index == 0) {
      progress.end(Phase::left);
    } else {
      while (!ended(progress.now())) progress.await_submission();
    }
  }
  Progress progress;
};

TEST(LeaseModel, AHitAndADrop) {
  explore<AHitAndADrop<Barriers::unequal>>("a hit, a drop", Search::full);
}
TEST(LeaseModel, AHitAndADropWithoutHeavyBarriers) {
  explore<AHitAndADrop<Barriers::equal>>("a hit, a drop, equal barriers", Search::long_full);
}
TEST(LeaseModel, AHitAndALaterDrop) {
  explore<AHitAndALaterDrop<Barriers::unequal>>("a hit, a later drop", Search::long_full);
}
TEST(LeaseModel, AHitAndALaterDropWithoutHeavyBarriers) {
  explore<AHitAndALaterDrop<Barriers::equal>>("a hit, a later drop, equal barriers",
                                              Search::long_full);
}
TEST(LeaseModel, AHitAndAnEvictionOfWhatIsRetired) {
  explore<AHitAndAnEvictionOfWhatIsRetired<Barriers::unequal>>("a hit, an eviction, a later drop",
                                                               Search::long_full);
}
TEST(LeaseModel, AHitAndAnEvictionOfWhatIsRetiredWithoutHeavyBarriers) {
  explore<AHitAndAnEvictionOfWhatIsRetired<Barriers::equal>>(
      "a hit, an eviction, a later drop, equal barriers", Search::bounded);
}
TEST(LeaseModel, AHitAndAFlush) {
  explore<AHitAndAFlush<Barriers::unequal>>("a hit, a flush", Search::full);
}
TEST(LeaseModel, AHitAndAFlushWithoutHeavyBarriers) {
  explore<AHitAndAFlush<Barriers::equal>>("a hit, a flush, equal barriers", Search::full);
}
TEST(LeaseModel, AHitAndTwoDroppers) {
  explore<AHitAndTwoDroppers>("a hit, a flush, the next dropper", Search::long_full);
}
TEST(LeaseModel, AChangeAndAFlush) {
  explore<AChangeAndAFlush<Barriers::unequal>>("a change, a flush", Search::full);
}
TEST(LeaseModel, AChangeAndAFlushWithoutHeavyBarriers) {
  explore<AChangeAndAFlush<Barriers::equal>>("a change, a flush, equal barriers", Search::full);
}
TEST(LeaseModel, TwoHitsAndADrop) {
  explore<TwoHitsAndADrop<Barriers::unequal>>("two hits, a drop", Search::bounded);
}
TEST(LeaseModel, TwoHitsAndAFlush) {
  explore<TwoHitsAndAFlush<Barriers::unequal>>("two hits, a flush", Search::bounded);
}
TEST(LeaseModel, AHandleInTwoThreadsAndADrop) {
  explore<AHandleInTwoThreadsAndADrop>("a handle in two threads, a drop", Search::bounded);
}
TEST(LeaseModel, ASlotThatIsUsedAgain) {
  explore<ASlotThatIsUsedAgain>("a slot that is used again, a drop", Search::bounded);
}
TEST(LeaseModel, ANewReaderAndADrop) {
  explore<ANewReaderAndADrop>("two new readers, a drop", Search::bounded);
}
TEST(LeaseModel, AHitThatSeesATurn) {
  explore<AHitThatSeesATurn>("a hit, a turn, an eviction without a barrier", Search::bounded);
}
TEST(LeaseModel, AHitOfAParkedReader) {
  explore<AHitOfAParkedReader>("a hit of a parked reader, an eviction", Search::bounded);
}
TEST(LeaseModel, AThreadThatEnds) {
  explore<AThreadThatEnds>("a thread that ends, an eviction without a barrier", Search::bounded);
}
TEST(LeaseModel, AHitWhileItsReaderIsParked) {
  explore<AHitWhileItsReaderIsParked>("a hit while its reader is parked, an eviction",
                                      Search::bounded);
}
TEST(LeaseModel, AHitAndAnInsertion) {
  explore<AHitAndAnInsertion>("a hit, an insertion", Search::full);
}
TEST(ChangeModel, AWriteBackAndADrop) {
  explore<AWriteBackAndADrop>("a write-back, a drop", Search::full);
}
TEST(ChangeModel, AWriteBackAndAMove) {
  explore<AWriteBackAndAMove>("a write-back, a move", Search::full);
}
TEST(PhaseModel, EndAndRead) {
  explore<EndAndRead>("end, read", Search::full);
}
TEST(PhaseModel, NotifyAndWait) {
  explore<NotifyAndWait>("notify, wait", Search::full);
}
TEST(PhaseModel, NotifyEndAndRead) {
  explore<NotifyEndAndRead>("notify, end, read", Search::full);
}
TEST(PhaseModel, RefuseAndWait) {
  explore<RefuseAndWait>("refuse, two waits", Search::full);
}

}  // namespace
}  // namespace headrace::cache::detail
