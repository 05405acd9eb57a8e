// SPDX-License-Identifier: Apache-2.0
// A job that ends while others are submitted after it, in a model checker: the code of
// src/engine/dependants.hpp, in the interleavings that Search selects. Completions and operations,
// plain memory in the engine, are rl::var here, whose data races are reported.
//
// Invariants of every model, besides its own assertions:
//   each dependant begins once, after all its predecessors have ended, sees what they wrote, and
//   begins as failed if one of them failed; a thread that saw a job end may reuse its memory.
#include <gtest/gtest.h>

#include "dependants.hpp"
#include "explore.hpp"

namespace headrace::engine {
namespace {

using test::explore;
using test::Search;

/// The part of a job that the code under test accesses; initially running.
struct Item {
  Item() : word(detail::word_of(JobState::running)) {}
  Atomic<std::uint32_t> word;
  Atomic<DependantLink*> dependants{nullptr};
  Atomic<std::uint32_t> left;
  DependantLink links[2];
  rl::var<int> operation;  ///< Written by the submitter, read by the thread that begins it.
  rl::var<int> done;       ///< Its completion: 1 if done; and what it wrote.
  int begun_count = 0;
  bool begun_as_failed = false;
};

struct Stage {
  /// As EngineState::begin.
  static void begin(Item& item) {
    RL_ASSERT(item.operation($) == 1);
    ++item.begun_count;
    item.begun_as_failed = (item.left.load_relaxed() & detail::kPredecessorFailed) != 0;
  }
  static DependantLink* end_word(Item& item, bool done) {
    const JobState state = done ? JobState::done : JobState::failed;
    std::uint32_t seen = 0;
    if (detail::end_word(item.word, state, seen)) return nullptr;
    return detail::end_word_and_list(item.word, item.dependants, state, seen);
  }
  /// As EngineState::end_job.
  static void end(Item& item, bool done) {
    item.done($) = done ? 1 : 0;
    for (DependantLink* link = end_word(item, done); link != nullptr;) {
      DependantLink* const next = link->next;
      Item& dependant = *reinterpret_cast<Item*>(link->job);
      if (detail::note_ended(dependant.left, 1, done)) begin(dependant);
      link = next;
    }
  }
  /// As EngineState::hold_back.
  template <std::size_t kCount>
  static void submit(Item& item, Item* const (&after)[kCount]) {
    item.operation($) = 1;
    for (DependantLink& link : item.links) link.job = reinterpret_cast<Job*>(&item);
    item.left.store_relaxed(kCount + 1);
    std::uint32_t ended_count = 1;
    bool done = true;
    for (std::size_t i = 0; i < kCount; ++i) {
      if (detail::add_dependant(after[i]->word, after[i]->dependants, item.links[i])) continue;
      ++ended_count;
      done = done && after[i]->done($) == 1;
    }
    if (detail::note_ended(item.left, ended_count, done)) begin(item);
  }
  /// Waits for the end and reuses the memory.
  static void reuse(Item& item) {
    while (detail::is_running(item.word.load_acquire())) rl::yield(1, $);
    item.done($) = 7;
    item.dependants.store_relaxed(nullptr);
  }
};

/// A job ends while another is submitted after it, and its memory is then reused.
struct AnEndAndASubmission : rl::test_suite<AnEndAndASubmission, 2>, Stage {
  void thread(unsigned index) {
    if (index == 0) {
      bytes($) = 1;
      end(first, true);
    } else {
      submit(second, {&first});
      reuse(first);
    }
  }
  void after() { RL_ASSERT(second.begun_count == 1 && !second.begun_as_failed && bytes($) == 1); }
  Item first;
  Item second;
  rl::var<int> bytes;
};

/// A job with two predecessors, which two threads end, one of them as failed.
struct TwoEndsAndASubmission : rl::test_suite<TwoEndsAndASubmission, 3>, Stage {
  void thread(unsigned index) {
    if (index == 2) {
      submit(last, {&ends[0], &ends[1]});
    } else {
      bytes[index]($) = 1;
      end(ends[index], index == 0);
    }
  }
  void after() { RL_ASSERT(last.begun_count == 1 && last.begun_as_failed); }
  Item ends[2];
  Item last;
  rl::var<int> bytes[2];
};

/// The thread that begins the dependant sees what both predecessors wrote, though only one of them
/// released it.
struct ADiamond : rl::test_suite<ADiamond, 3>, Stage {
  void before() {
    submit(last, {&ends[0], &ends[1]});
    RL_ASSERT(last.begun_count == 0);
  }
  void thread(unsigned index) {
    if (index == 2) {
      while (last.begun_seen.load_relaxed() == 0) rl::yield(1, $);
      return;
    }
    bytes[index]($) = 1;
    ends[index].done($) = 1;
    const DependantLink* const taken = end_word(ends[index], true);
    RL_ASSERT(taken != nullptr && taken->next == nullptr);
    if (!detail::note_ended(last.left, 1, true)) return;
    begin(last);
    RL_ASSERT(bytes[0]($) == 1 && bytes[1]($) == 1);
    last.begun_seen.store_relaxed(1);
  }
  void after() { RL_ASSERT(last.begun_count == 1 && !last.begun_as_failed); }
  struct Seen : Item {
    Atomic<std::uint32_t> begun_seen;
  };
  Item ends[2];
  Seen last;
  rl::var<int> bytes[2];
};

/// Two jobs are submitted after one that ends.
struct AnEndAndTwoSubmissions : rl::test_suite<AnEndAndTwoSubmissions, 3>, Stage {
  void thread(unsigned index) {
    if (index == 0) {
      end(first, false);
    } else {
      submit(others[index - 1], {&first});
    }
  }
  void after() {
    for (const Item& other : others) RL_ASSERT(other.begun_count == 1 && other.begun_as_failed);
  }
  Item first;
  Item others[2];
};

TEST(DependantsModel, AnEndAndASubmission) {
  explore<AnEndAndASubmission>("an end, a submission that names it", Search::full);
}
TEST(DependantsModel, TwoEndsAndASubmission) {
  explore<TwoEndsAndASubmission>("two ends, a submission that names both", Search::bounded);
}
TEST(DependantsModel, ADiamond) {
  explore<ADiamond>("two ends of what one waits for", Search::bounded);
}
TEST(DependantsModel, AnEndAndTwoSubmissions) {
  explore<AnEndAndTwoSubmissions>("an end, two submissions that name it", Search::bounded);
}

}  // namespace
}  // namespace headrace::engine
