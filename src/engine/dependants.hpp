// SPDX-License-Identifier: Apache-2.0
// How a job that ends meets those that wait for it. Not for: what becomes of them then
// (graph.cpp).
//
// Each job has a list of its dependants, linked through them, and a flag in its word that says
// whether any thread has looked at the list. The agents are the *finisher* of the job and
// *submitters* that name it.
//
//   submitter: sets the flag, unless the job has ended; adds its link, unless the list is closed.
//   finisher:  ends the job by exchanging a word without the flag. Where there is one it takes all
//              links and closes the list first.
//
// So a job without dependants ends by one exchange, as if there were no lists, and of one that has
// some each link is taken once: a submitter that came too late for the word or the
// list knows that the job has ended, and from its completion how. Wait-free for the finisher but
// for changes of the word by others; links are only added one by one and taken all at once, so no
// address can be mistaken for an older one (ABA).
// Model: tests/model/engine/dependants_model.cpp.
#pragma once

#include <cstdint>

#include "job_word.hpp"

namespace headrace::engine::detail {

/// Where a list that takes no more begins.
inline DependantLink closed_list;

/// Adds `link` to those that wait for the job of `word` and `list`. Returns false if that has
/// ended, or is about to: its completion is there and says how.
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

/// Ends the job of `word`, which runs. The last touch of it. Returns false, and has changed
/// nothing, if a job waits for it; else `seen` is the previous word.
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

/// As end_word(), for a job with dependants: takes them from `list`, the last one first.
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

/// In the number of predecessors that have not ended: one of them was not done.
inline constexpr std::uint32_t kPredecessorFailed = 1U << 31U;

/// `count` of those that `left` counts have ended. Returns true if they were the last: the job may
/// begin, and belongs to the caller until it does.
[[nodiscard]] inline bool note_ended(Atomic<std::uint32_t>& left, std::uint32_t count, bool done) {
  // Relaxed: it reaches the last one with the subtraction, which follows it in the same word.
  if (!done) static_cast<void>(left.fetch_or_relaxed(kPredecessorFailed));
  // edge: predecessors-ended (acq_rel)
  return (left.fetch_sub_acq_rel(count) & ~kPredecessorFailed) == count;
}

}  // namespace headrace::engine::detail
