// SPDX-License-Identifier: Apache-2.0
// The lock-free list between a completing job and its dependants. graph.cpp starts them.
//
// Each job has an intrusive list of dependants, and a flag in its word that is set before the list
// is used. The agents are the *finisher*, which completes the job, and *submitters* that name the
// job as a predecessor.
//
//   submitter: sets the flag, unless the job has ended; adds its link, unless the list is closed.
//   finisher:  ends the job by exchanging a word without the flag. Where there is one it takes all
//              links and closes the list first.
//
// A job without dependants completes with one exchange, as if there were no list. Each link of the
// others is taken exactly once: a submitter that finds the job ended or the list closed reads the
// outcome from its completion. The finisher retries only when other threads change the word. Links
// are pushed one by one and taken all at once, so there is no ABA.
// Model: tests/model/engine/dependants_model.cpp.
#pragma once

#include <cstdint>

#include "job_word.hpp"

namespace headrace::engine {

/// Node of a predecessor's list of dependants; a member of the dependant.
struct DependantLink {
  DependantLink* next = nullptr;
  Job* job = nullptr;
};

namespace detail {

/// The head of a closed list.
inline DependantLink closed_list;

/// Adds `link` to the dependants of the job with `word` and `list`. Returns false if the job has
/// completed or is about to; its completion can be read.
[[nodiscard]] inline bool add_dependant(Atomic<std::uint32_t>& word, Atomic<DependantLink*>& list,
                                        DependantLink& link) {
  if (set_flag(word, kDependantFlag) == 0) {
    static_cast<void>(word.load_acquire());  // edge: job-ended (acquire)
    return false;
  }
  // edge: dependants-taken (acquire)
  DependantLink* first = list.load_acquire();
  do {
    if (first == &closed_list) return false;
    link.next = first;
    // edge: dependants-taken (acq_rel)
  } while (!list.compare_exchange_acq_rel(first, &link));
  return true;
}

/// Completes the running job of `word`, which must not be accessed afterwards. Returns false and
/// changes nothing if the job has dependants; otherwise `seen` is the previous word.
[[nodiscard]] inline bool end_word(Atomic<std::uint32_t>& word, JobState state,
                                   std::uint32_t& seen) {
  const std::uint32_t change = word_of(state) - word_of(JobState::running);
  seen = word.load_relaxed();  // The exchange below decides.
  while ((seen & kDependantFlag) == 0) [[likely]] {
    // edge: job-ended (acq_rel)
    // edge: job-visited (acq_rel)
    if (word.compare_exchange_acq_rel(seen, seen + change)) return true;
  }
  return false;
}

/// end_word() for a job with dependants: returns them, the last one first.
[[nodiscard]] inline DependantLink* end_word_and_list(Atomic<std::uint32_t>& word,
                                                      Atomic<DependantLink*>& list, JobState state,
                                                      std::uint32_t& seen) {
  // edge: dependants-taken (acq_rel)
  DependantLink* const taken = list.exchange_acq_rel(&closed_list);
  // edge: job-ended (acq_rel)
  // edge: job-visited (acq_rel)
  seen = word.fetch_add_acq_rel(word_of(state) - word_of(JobState::running));
  return taken;
}

/// A flag in the count of unfinished predecessors: one of them failed or was stopped.
inline constexpr std::uint32_t kPredecessorFailed = 1U << 31U;

/// Subtracts `count` completed predecessors from `left`. Returns true if they were the last: the
/// caller owns the job until it starts.
[[nodiscard]] inline bool note_ended(Atomic<std::uint32_t>& left, std::uint32_t count, bool done) {
  // Relaxed: published by the subtraction that follows on the same word.
  if (!done) static_cast<void>(left.fetch_or_relaxed(kPredecessorFailed));
  // edge: predecessors-ended (acq_rel)
  return (left.fetch_sub_acq_rel(count) & ~kPredecessorFailed) == count;
}

}  // namespace detail
}  // namespace headrace::engine
