// SPDX-License-Identifier: Apache-2.0
// The slots of a DSA mover in a model checker: the code of src/engine/dsa/slot_words.hpp, in the
// interleavings that Search selects, with every value that a load may see. The content of a slot,
// plain memory in the engine, is rl::var here, whose data races are reported; the device is a
// thread. Not for: completing requests (tests/unit/engine/dsa_test.cpp).
//
// Invariants of every model, besides its own assertions:
//   each accepted operation ends once; reads of a slot return what its current owner, or the device
//   for it, has written; every waiting thread terminates.
#include <gtest/gtest.h>

#include "dsa/slot_words.hpp"
#include "explore.hpp"

namespace headrace::engine {
namespace {

using test::explore;
using test::Search;

/// One preemption fewer than elsewhere: threads poll in loops here.
unsigned three_threads() {
  return test::preemption_max() - 1;
}

/// A mover and its device.
template <std::uint32_t kCount>
struct Stage {
  static constexpr unsigned kNumberMax = 3;
  struct Slot {
    rl::var<unsigned> number;  ///< Stands for descriptor and stripe.
    rl::var<unsigned> body;    ///< Stands for the rest of the record.
    Atomic<std::uint32_t> status;
    Atomic<std::uint32_t> door;  ///< Stands for the portal.
  };

  /// As DsaQueue::submit. False: full, or closed.
  bool submit(unsigned number) {
    const std::uint32_t index = words.take();
    if (index == SlotWords::kNoSlot) return false;
    ++accepted_count;
    send(index, number);
    words.post(index);
    return true;
  }
  void send(std::uint32_t index, unsigned number) {
    lost[index]($) = false;
    slots[index].number($) = number;
    slots[index].status.store_relaxed(0);
    slots[index].door.store_release(1);
  }
  /// Runs the device once. The target is written before the status.
  void answer(std::uint32_t index) {
    Slot& slot = slots[index];
    if (slot.door.load_acquire() == 0) return;
    slot.door.store_relaxed(0);
    const unsigned number = slot.number($);
    moved[number]($) = 1;
    slot.body($) = number;
    slot.status.store_release(1);
  }
  void answer_until(const unsigned& ended, unsigned count) {
    while (ended < count) {
      for (std::uint32_t i = 0; i < kCount; ++i) answer(i);
      rl::yield(1, $);
    }
  }
  /// As DsaQueue::look_at; `due`: the timeout has expired.
  void look_at(std::uint32_t index, bool due) {
    Slot& slot = slots[index];
    // A lost slot does not expire again.
    const auto is_ready = [&] {
      return slot.status.load_acquire() != 0 || (due && (words.lost() >> index & 1U) == 0);
    };
    if (!words.claim(index, is_ready)) return;
    if (lost[index]($)) {
      lost[index]($) = false;
      words.free(index);
      ++found_count;
      return;
    }
    const bool answered = slot.status.load_acquire() != 0;
    const unsigned number = slot.number($);
    RL_ASSERT(ends[number] == 0);
    ++ends[number];
    if (answered) {
      take_answer(slot, number);
      words.free(index);
    } else {
      lose(index);
    }
    ++ended_count;
  }
  void lose(std::uint32_t index) {
    lost[index]($) = true;
    words.lose(index);
  }
  void take_answer(Slot& slot, unsigned number) {
    RL_ASSERT(slot.body($) == number);
    RL_ASSERT(moved[number]($) == 1);
  }
  /// As DsaQueue::poll.
  void poll(bool due = false) {
    const std::uint64_t posted = words.posted();
    for (std::uint32_t i = 0; i < kCount; ++i) {
      if ((posted >> i & 1U) != 0) look_at(i, due);
    }
  }
  void poll_until(const unsigned& ended, unsigned count) {
    while (ended < count) {
      poll();
      rl::yield(1, $);
    }
  }

  SlotWords words{kCount};
  Slot slots[kCount];
  rl::var<bool> lost[kCount];      ///< Stands for Slot::lost.
  rl::var<int> moved[kNumberMax];  ///< Stands for the target.
  int ends[kNumberMax] = {};
  unsigned accepted_count = 0;
  unsigned ended_count = 0;
  unsigned found_count = 0;
};

/// A slot is reused: the submitter polls until it is free, while another thread polls too.
struct ASlotGoesRound : rl::test_suite<ASlotGoesRound, 3>, Stage<1> {
  void thread(unsigned index) {
    if (index == 0) {
      for (unsigned number = 0; number < 2; ++number) {
        while (!submit(number)) {
          poll();
          rl::yield(1, $);
        }
      }
    } else if (index == 1) {
      answer_until(ended_count, 2);
    } else {
      poll_until(ended_count, 2);
    }
  }
  void after() { RL_ASSERT(words.count() == 0); }
};

/// A slot is reused after a poller saw its answer and before the poller claims it. Explored in
/// full, with a device that answers at once or never.
struct ALookThatComesTooLate : rl::test_suite<ALookThatComesTooLate, 2>, Stage<1> {
  void thread(unsigned index) {
    if (index == 0) {
      RL_ASSERT(submit(0));
      answer(0);
      poll();
      if (submit(1) && rl::rand(2) == 1) answer(0);
    } else {
      poll();
    }
  }
  void after() {
    while (ended_count < accepted_count) {
      answer(0);
      poll();
    }
    RL_ASSERT(words.count() == 0);
  }
};

/// The device answers after the timeout: one thread marks the slot lost, another finds the answer
/// and reuses the slot.
struct AnAnswerThatComesTooLate : rl::test_suite<AnAnswerThatComesTooLate, 3>, Stage<1> {
  void thread(unsigned index) {
    if (index == 0) {
      if (submit(0)) poll(true);
      poll();
    } else if (index == 1) {
      answer(0);
      answer(0);
    } else {
      poll();
      if (submit(1)) poll();
    }
  }
  void after() {
    answer(0);
    poll();
    RL_ASSERT(words.count() == 0 && ended_count == accepted_count);
  }
};

/// The mover is stopped: afterwards no slot is accessed, and every accepted operation has ended.
struct AStop : rl::test_suite<AStop, 3>, Stage<2> {
  void thread(unsigned index) {
    if (index == 0) {
      if (submit(0)) poll();
      static_cast<void>(submit(1));
    } else if (index == 1) {
      while (!stopped) {
        for (std::uint32_t i = 0; i < 2; ++i) answer(i);
        rl::yield(1, $);
      }
    } else {
      words.close();
      while (!words.is_idle()) {
        poll();
        rl::yield(1, $);
      }
      RL_ASSERT(ended_count == accepted_count);
      for (Slot& slot : slots) slot.number($) = 0;  // Stands for the end of the mover.
      stopped = true;
    }
  }
  void after() { RL_ASSERT(words.is_closed() && ended_count == accepted_count); }
  bool stopped = false;
};

/// A channel releases its slot, a job takes it, and the mover is stopped: the stop does not wait
/// for the channel but waits for the job. A submission that the gate let in may take the slot after
/// the mover is idle: the engine's stop polls until it has ended.
struct AChannelAndAStop : rl::test_suite<AChannelAndAStop, 3>, Stage<2> {
  void thread(unsigned index) {
    if (index == 0) {
      const std::uint64_t kept = words.reserve(1);
      if (kept == 0) return;
      const auto slot_index = static_cast<std::uint32_t>(std::countr_zero(kept));
      send(slot_index, 2);
      answer(slot_index);
      while (slots[slot_index].status.load_acquire() == 0) rl::yield(1, $);
      take_answer(slots[slot_index], 2);
      words.give_back(kept);
    } else if (index == 1) {
      for (unsigned number = 0; number < 2 && !gate_closed; ++number) {
        ++inside;
        const std::uint32_t slot_index = words.take();
        if (slot_index == SlotWords::kNoSlot) {
          --inside;
          continue;
        }
        ++accepted_count;
        send(slot_index, number);
        answer(slot_index);
        words.post(slot_index);
      }
    } else {
      gate_closed = true;
      words.close();
      while (!words.is_idle() || inside != ended_count) {
        poll();
        rl::yield(1, $);
      }
      RL_ASSERT(ended_count == accepted_count);
    }
  }
  void after() { RL_ASSERT(!words.has_reserved() && words.count() == 0); }
  bool gate_closed = false;
  unsigned inside = 0;
};

/// A channel's slot is lost, found, and reserved by another channel.
struct AChannelLosesASlot : rl::test_suite<AChannelLosesASlot, 3>, Stage<2> {
  void thread(unsigned index) {
    if (index == 0) {
      const std::uint64_t kept = words.reserve(1);
      if (kept == 0) return;
      const auto slot_index = static_cast<std::uint32_t>(std::countr_zero(kept));
      lost_one = true;
      send(slot_index, 2);
      lose(slot_index);
    } else if (index == 1) {
      for (int i = 0; i < 2; ++i) {
        answer(0);
        answer(1);
      }
    } else {
      poll();
      kept_last = words.reserve(1);
    }
  }
  void after() {
    for (std::uint32_t i = 0; i < 2; ++i) answer(i);
    poll();
    RL_ASSERT(words.has_reserved() == (kept_last != 0));
    if (kept_last != 0) words.give_back(kept_last);
    RL_ASSERT(words.count() == 0 && !words.has_reserved() && words.lost() == 0);
    RL_ASSERT(found_count == (lost_one ? 1 : 0));
  }
  std::uint64_t kept_last = 0;
  bool lost_one = false;
};

/// A channel holds one slot while a submitter, which has lost the other, wants one.
struct ALossBesideAChannel : rl::test_suite<ALossBesideAChannel, 2>, Stage<2> {
  void thread(unsigned index) {
    if (index == 0) {
      const std::uint64_t kept = words.reserve(1);
      while (!told) rl::yield(1, $);
      if (kept != 0) words.give_back(kept);
    } else {
      if (submit(0)) poll(true);
      // Full means that a slot will become free.
      while (!submit(1) && !words.is_all_lost()) rl::yield(1, $);
      told = true;
    }
  }
  void after() { RL_ASSERT(!words.has_reserved()); }
  bool told = false;
};

TEST(SlotsModel, ALookThatComesTooLate) {
  explore<ALookThatComesTooLate>("two pollers, a slot that is used again", Search::full);
}
TEST(SlotsModel, ASlotGoesRound) {
  explore<ASlotGoesRound>("a submitter with one slot, a device, a poller", Search::bounded,
                          three_threads());
}
TEST(SlotsModel, AnAnswerThatComesTooLate) {
  explore<AnAnswerThatComesTooLate>("a submitter that gives up, a device, a poller",
                                    Search::bounded, three_threads());
}
TEST(SlotsModel, AStop) {
  explore<AStop>("a submitter, a device, a stop", Search::bounded, three_threads());
}
TEST(SlotsModel, AChannelAndAStop) {
  explore<AChannelAndAStop>("a channel, a submitter, a stop", Search::bounded, three_threads());
}
TEST(SlotsModel, ALossBesideAChannel) {
  explore<ALossBesideAChannel>("a channel, a submitter that gives up and comes again",
                               Search::bounded, three_threads());
}
TEST(SlotsModel, AChannelLosesASlot) {
  explore<AChannelLosesASlot>("a channel that gives up, a device, a submitter", Search::bounded,
                              three_threads());
}

}  // namespace
}  // namespace headrace::engine
