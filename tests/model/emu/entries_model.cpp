// SPDX-License-Identifier: Apache-2.0
// The entries of WQs in a model checker: the code of emu/device/entries.hpp, in the interleavings
// that Search selects, with every value that a load may see. Slots and counts, plain memory in the
// device, are rl::var here, whose data races are reported. Not for: engines, doorbells, batches.
//
// Invariants of every model, besides its own assertions:
//   each accepted descriptor ends once, completed or aborted, unless its client was killed; entries
//   taken = entries given back by their holder + by reapers; none is held at rest; reads of a slot
//   return what was written for the entry's current holder; no push ever waits.
#include <gtest/gtest.h>

#include <array>

#include "emu/device/entries.hpp"
#include "explore.hpp"

namespace headrace::emu {
namespace {

using test::explore;
using test::Search;

/// One preemption fewer than elsewhere: each of these models has some 20 operations per thread.
unsigned three_threads() {
  return test::preemption_max() - 1;
}

// As QueuePhase in emu/device/device.hpp.
enum : std::uint32_t { kDisabled, kEnabled, kDraining };

constexpr Owner kFirst = owner_of(0, 1);
constexpr Owner kSecond = owner_of(1, 1);
/// The next client in the first one's place.
constexpr Owner kFirstAgain = owner_of(0, 2);

/// A WQ, and what its clients do with it.
template <std::size_t kCount>
struct Stage {
  static constexpr std::size_t kNumberMax = 4;
  using Claim = typename Entries<kCount>::Claim;
  struct Slot {
    rl::var<unsigned> number;
    rl::var<std::uint64_t> generation;
  };
  /// One client's state for the WQ, as in Scheduler.
  struct Client {
    explicit Client(Owner word) : owner(word) {}
    Owner owner;
    EntryRing<kCount> ring;
    Slot slots[kCount];
    rl::mutex mutex;
  };

  Stage() : phase(PhaseWord::make(1, kEnabled).bits), setting(1) {}

  /// Setting of the WQ in a generation; changing it takes two generations.
  static std::uint32_t setting_of(std::uint64_t generation) { return generation < 3 ? 1 : 2; }

  // No client corrupts the words here, so a slot is free whenever its entry is.
  static bool reserve(std::uint32_t) { return true; }
  static void cancel(std::uint32_t) {}

  /// As Client::submit.
  Claim submit(Client& client, unsigned number) {
    const PhaseWord seen = load_phase(phase);
    if (seen.phase() != kEnabled) return Claim::changed;
    const std::uint32_t found = setting.load_relaxed();
    std::uint32_t entry = 0;
    const Claim claim = entries.claim(phase, seen, kCount, client.owner, entry, reserve, cancel);
    if (claim != Claim::taken) return claim;
    RL_ASSERT(found == setting_of(seen.generation()));
    ++taken_count;
    generations[number] = seen.generation();
    client.slots[entry].number($) = number;
    client.slots[entry].generation($) = seen.generation();
    client.ring.push(entry);
    return claim;
  }
  /// As Scheduler::take with start(), and Runner until the record is written. False: no work.
  bool work(Client& client) {
    client.mutex.lock($);
    const std::optional<std::uint32_t> entry = client.ring.front();
    if (!entry) {
      client.mutex.unlock($);
      return false;
    }
    client.ring.pop();
    const unsigned number = client.slots[*entry].number($);
    const std::uint64_t generation = client.slots[*entry].generation($);
    client.mutex.unlock($);
    RL_ASSERT(generation == generations[number]);
    if (load_phase(phase).generation() == generation) {
      RL_ASSERT(setting.load_relaxed() == setting_of(generation));
      ++completed[number];
    } else {
      ++aborted[number];
    }
    ++ended_count;
    moved[number]($) = 1;
    RL_ASSERT(entries.give_back(*entry, client.owner));
    ++given_back_count;
    records[number].store_release(1);
    return true;
  }
  void work_until(Client& client, const bool& closed) {
    while (!closed || ended_count < taken_count) {
      if (!work(client)) rl::yield(1, $);
    }
  }
  void await_record(unsigned number) {
    while (records[number].load_acquire() == 0) rl::yield(1, $);
  }
  void await_empty() {
    while (entries.occupancy() != 0) rl::yield(1, $);
  }
  /// Every descriptor accepted in a generation before `now` has ended, and its writes are visible.
  bool none_left_before(std::uint64_t now) {
    for (unsigned i = 0; i < kNumberMax; ++i) {
      if (generations[i] == 0 || generations[i] >= now) continue;
      if (completed[i] + aborted[i] == 0 || moved[i]($) != 1) return false;
    }
    return true;
  }
  void check_at_rest() {
    for (unsigned i = 0; i < kNumberMax; ++i) {
      RL_ASSERT(completed[i] + aborted[i] == (generations[i] != 0 ? 1 : 0));
    }
    RL_ASSERT(taken_count == given_back_count);
    RL_ASSERT(entries.occupancy() == 0);
  }

  Atomic<std::uint64_t> phase;
  Atomic<std::uint32_t> setting;  ///< Stands for the WQ's configuration.
  Entries<kCount> entries;
  Atomic<std::uint32_t> records[kNumberMax];
  rl::var<int> moved[kNumberMax];              ///< Stands for what a descriptor writes.
  std::uint64_t generations[kNumberMax] = {};  ///< 0: not accepted.
  int completed[kNumberMax] = {};
  int aborted[kNumberMax] = {};
  unsigned taken_count = 0;
  unsigned given_back_count = 0;
  unsigned ended_count = 0;
};

/// Two submitters with together as many descriptors in flight as there are entries: a client that
/// counts credits by its records never finds the WQ full.
struct CreditsByRecords : rl::test_suite<CreditsByRecords, 3>, Stage<2> {
  void thread(unsigned index) {
    if (index == 0) {
      RL_ASSERT(submit(client, 0) == Claim::taken);
      await_record(0);
      RL_ASSERT(submit(client, 1) == Claim::taken);
      closed = true;
    } else if (index == 1) {
      RL_ASSERT(submit(client, 2) == Claim::taken);
    } else {
      while (ended_count < 3) {
        if (!work(client)) rl::yield(1, $);
      }
    }
  }
  void after() { check_at_rest(); }
  Client client{kFirst};
  bool closed = false;
};

/// Two workers of a client whose only entry is reused.
struct TwoWorkers : rl::test_suite<TwoWorkers, 3>, Stage<1> {
  void thread(unsigned index) {
    if (index == 0) {
      for (unsigned number = 0; number < 2; ++number) {
        Claim claim = Claim::full;
        while ((claim = submit(client, number)) == Claim::full) rl::yield(1, $);
        RL_ASSERT(claim == Claim::taken);
      }
      closed = true;
    } else {
      work_until(client, closed);
    }
  }
  void after() { check_at_rest(); }
  Client client{kFirst};
  bool closed = false;
};

/// Two descriptors in flight while a controller runs `Scenario::command()`.
template <typename Scenario>
struct InTheMiddle : rl::test_suite<Scenario, 3>, Stage<2> {
  void thread(unsigned index) {
    if (index == 0) {
      for (unsigned number = 0; number < 2; ++number) static_cast<void>(submit(client, number));
      closed = true;
    } else if (index == 1) {
      work_until(client, closed);
    } else {
      static_cast<Scenario*>(this)->command();
    }
  }
  void after() { check_at_rest(); }
  Client client{kFirst};
  bool closed = false;
};

/// A reset during work: when it sees the WQ empty, descriptors accepted before it have ended; later
/// ones are carried out.
struct AResetInTheMiddle : InTheMiddle<AResetInTheMiddle> {
  void command() {  // Control::reset.
    renew(phase);
    await_empty();
    RL_ASSERT(none_left_before(2));
  }
  void after() {
    check_at_rest();
    for (unsigned i = 0; i < 2; ++i) RL_ASSERT(generations[i] != 2 || completed[i] == 1);
  }
};

/// A WQ is disabled, reconfigured and enabled: no descriptor runs with the setting of another
/// generation, and those accepted before have ended.
struct ADisableInTheMiddle : InTheMiddle<ADisableInTheMiddle> {
  void command() {  // Control::disable_device, configure, enable_queue.
    change_phase(phase, kDisabled, true);
    await_empty();
    RL_ASSERT(none_left_before(2));
    setting.store_relaxed(2);
    change_phase(phase, kEnabled, true);
  }
};

/// The same with time to drain: nothing is aborted.
struct ADrainInTheMiddle : InTheMiddle<ADrainInTheMiddle> {
  void command() {  // Control::disable_queue.
    change_phase(phase, kDraining, false);
    await_empty();
    RL_ASSERT(none_left_before(2));
    change_phase(phase, kDisabled, true);
    setting.store_relaxed(2);
    change_phase(phase, kEnabled, true);
  }
  void after() {
    check_at_rest();
    for (unsigned i = 0; i < 2; ++i) RL_ASSERT(aborted[i] == 0);
  }
};

/// A client that is killed at each point that differs for others: it holds an unused entry, a used
/// one, or no longer any.
template <std::size_t kCount>
struct Killing : Stage<kCount> {
  using typename Stage<kCount>::Claim;
  void live_and_die() {
    const unsigned steps = rl::rand(3);
    std::uint32_t entry = 0;
    const auto claim = this->entries.claim(this->phase, load_phase(this->phase), kCount, kFirst,
                                           entry, Stage<kCount>::reserve, Stage<kCount>::cancel);
    if (claim == Claim::taken) {
      ++this->taken_count;
      if (steps == 2) {
        RL_ASSERT(this->entries.give_back(entry, kFirst));
        ++this->given_back_count;
      }
    }
    // The kernel reports the death to any process that asks.
    dead.store_release(1);
  }
  bool reap() {
    if (dead.load_acquire() == 0) return false;
    this->given_back_count += this->entries.give_back_all(kFirst);
    return true;
  }
  /// A client that submits, and reaps if the WQ is full; no other thread gives back its entry.
  void use(typename Stage<kCount>::Client& client, unsigned number) {
    auto claim = Claim::full;
    while ((claim = this->submit(client, number)) == Claim::full) {
      static_cast<void>(reap());
      rl::yield(1, $);
    }
    if (claim == Claim::taken) RL_ASSERT(this->work(client));
  }
  Atomic<std::uint32_t> dead;
};

/// A client is killed; a reaper and another client reap it at the same time, and the other client
/// takes the entry.
template <Owner kOther>
struct AKilledClientAndTwoReapers : rl::test_suite<AKilledClientAndTwoReapers<kOther>, 3>,
                                    Killing<1> {
  void thread(unsigned index) {
    if (index == 0) {
      live_and_die();
    } else if (index == 1) {
      while (!reap()) rl::yield(1, $);
    } else {
      use(other, 0);
    }
  }
  void after() { check_at_rest(); }
  Client other{kOther};
};

/// A WQ is disabled while a client is killed and another one submits: the controller reaps, and so
/// terminates.
struct AKilledClientAndADisable : rl::test_suite<AKilledClientAndADisable, 3>, Killing<2> {
  void thread(unsigned index) {
    if (index == 0) {
      live_and_die();
    } else if (index == 1) {
      use(other, 0);
    } else {
      change_phase(phase, kDisabled, true);
      while (entries.occupancy() != 0) {
        static_cast<void>(reap());
        rl::yield(1, $);
      }
      RL_ASSERT(none_left_before(2));
      setting.store_relaxed(2);
      change_phase(phase, kEnabled, true);
    }
  }
  void after() {
    reap();  // What it took after the WQ was enabled again.
    check_at_rest();
  }
  Client other{kSecond};
};

/// Two clients and an entry that a third one has just given back; explored in full.
struct AClaimAndADisable : rl::test_suite<AClaimAndADisable, 2>, Stage<1> {
  void thread(unsigned index) {
    if (index == 0) {
      if (submit(client, 0) == Claim::taken) RL_ASSERT(work(client));
    } else {
      change_phase(phase, kDisabled, true);
      if (entries.occupancy() == 0) {
        RL_ASSERT(none_left_before(2));
        setting.store_relaxed(2);
        change_phase(phase, kEnabled, true);
      }
    }
  }
  void after() { check_at_rest(); }
  Client client{kFirst};
};

TEST(EntriesModel, AClaimAndADisable) {
  explore<AClaimAndADisable>("a claim, a disable", Search::full);
}
TEST(EntriesModel, CreditsByRecords) {
  explore<CreditsByRecords>("two submitters with two credits, a worker", Search::bounded,
                            three_threads());
}
TEST(EntriesModel, TwoWorkers) {
  explore<TwoWorkers>("a submitter with one entry, two workers", Search::bounded, three_threads());
}
TEST(EntriesModel, AResetInTheMiddle) {
  explore<AResetInTheMiddle>("a submitter, a worker, a reset", Search::bounded, three_threads());
}
TEST(EntriesModel, ADisableInTheMiddle) {
  explore<ADisableInTheMiddle>("a submitter, a worker, a disable and enable", Search::bounded,
                               three_threads());
}
TEST(EntriesModel, ADrainInTheMiddle) {
  explore<ADrainInTheMiddle>("a submitter, a worker, a drain and enable", Search::bounded,
                             three_threads());
}
TEST(EntriesModel, AKilledClientAndTwoReapers) {
  explore<AKilledClientAndTwoReapers<kSecond>>("a killed client, a reaper, another client",
                                               Search::bounded, three_threads());
}
TEST(EntriesModel, AKilledClientWhosePlaceIsTakenAgain) {
  explore<AKilledClientAndTwoReapers<kFirstAgain>>("a killed client, a reaper, its successor",
                                                   Search::bounded, three_threads());
}
TEST(EntriesModel, AKilledClientAndADisable) {
  explore<AKilledClientAndADisable>("a killed client, another client, a disable", Search::bounded,
                                    three_threads());
}

}  // namespace
}  // namespace headrace::emu
