// SPDX-License-Identifier: Apache-2.0
// The lock-free part of a queue: how one producer and one consumer agree on positions in a ring.
// Not here: the messages (queue.hpp), sleeping in the kernel (src/message/ends.cpp).
//
// Progress: wait-free on both sides.
// Agents:   the *producer* of a lane and the *consumer*, threads of any two processes. Each may be
//           killed between two instructions: one store publishes, so its work is visible entirely
//           or not at all.
// Trust:    none. The words may hold anything at any time. Each is read once, checked against
//           private copies, and rejected if no correct peer could have written it. Each end keeps
//           its position in private memory; the shared words only publish it.
// ABA:      positions are 64-bit counts from 0 that only grow, so no value recurs.
//
//   word          written by   holds
//   prod_tail     producer     units published so far
//   cons_head     consumer     units retired so far
//   invariant     head <= tail <= head + capacity, as 64-bit differences
//
// Stores: while the consumer holds the line of prod_tail, the producer's later stores wait in its
// store buffer. So sending one message takes few stores: its bytes, the private position and the
// published one. With three more, short messages took twice as long (headrace bench message).
//
// Rejected: one flag per slot (FastForward). It saves a line for a single message, but the consumer
// must clear the flag in a line that the producer writes, and a batch needs one store per message.
// Rejected: one ring for several producers, with a state per slot: slots of killed producers would
// have to be found and skipped. With one lane per producer there are none.
// Model: tests/model/message/cursor_model.cpp.
#pragma once

#include <cstdint>

#include "headrace/base/atomic.hpp"
#include "headrace/base/export.hpp"
#include "headrace/base/light_barrier.hpp"

namespace headrace::message::detail {

/// Words of one lane, in shared memory. Words of different writers lie in different pairs of lines,
/// because processors fetch lines in pairs.
struct LaneWords {
  /// Written by the producer.
  alignas(128) Atomic<std::uint64_t> prod_tail;
  /// Written by the producer: twice the number of attachments, plus 1 while attached.
  Atomic<std::uint64_t> prod_state;
  /// Written by the consumer.
  alignas(128) Atomic<std::uint64_t> cons_head;
  /// Set to 1 by the producer before it sleeps, and to 0 by the consumer, which then wakes it.
  alignas(128) Atomic<std::uint32_t> prod_sleeps;
};

enum class Look : std::uint8_t {
  ready,
  not_yet,
  damaged,  ///< No correct peer could have written this.
};

/// The producer's side of a lane.
///
/// Threading: confined.
class ProducerCursor {
 public:
  ProducerCursor() = default;
  /// Continues where the last producer of the lane stopped. `head` and `tail` were read from the
  /// words and checked.
  ProducerCursor(LaneWords& words, std::uint64_t capacity, std::uint64_t head, std::uint64_t tail)
      : words_(&words), capacity_(capacity), staged_(tail), head_seen_(head) {}

  /// Whether `count` more units fit after the staged ones. Reads the consumer's word only if its
  /// last known value does not suffice.
  [[nodiscard]] Look room_for(std::uint64_t count) noexcept {
    if (has_room(count)) return Look::ready;
    // edge: message-retired (acquire)
    const std::uint64_t head = words_->cons_head.load_acquire();
    if (head - head_seen_ > published() - head_seen_) return Look::damaged;
    head_seen_ = head;
    return has_room(count) ? Look::ready : Look::not_yet;
  }
  /// The same, from the last known value.
  [[nodiscard]] bool has_room(std::uint64_t count) const noexcept {
    return staged_ + count - head_seen_ <= capacity_;
  }
  /// Position of the next unit to be written.
  [[nodiscard]] std::uint64_t position() const noexcept { return staged_; }
  [[nodiscard]] std::uint64_t published() const noexcept { return staged_ - unpublished_; }
  /// Adds written units, without publishing them.
  void stage(std::uint64_t count) noexcept {
    staged_ += count;
    unpublished_ += count;
  }
  /// Publishes all staged units, and `count` more that are written, with one store.
  void publish(std::uint64_t count = 0) noexcept {
    staged_ += count;
    if (unpublished_ != 0) unpublished_ = 0;
    // edge: message-published (release)
    words_->prod_tail.store_release(staged_);
  }

 private:
  LaneWords* words_ = nullptr;
  std::uint64_t capacity_ = 0;
  std::uint64_t staged_ = 0;       ///< Written; at most head_seen_ + capacity_.
  std::uint64_t unpublished_ = 0;  ///< Staged, not published.
  std::uint64_t head_seen_ = 0;
};

/// The consumer's side of a lane.
///
/// Threading: confined.
class ConsumerCursor {
 public:
  ConsumerCursor() = default;
  /// As for ProducerCursor.
  ConsumerCursor(LaneWords& words, std::uint64_t capacity, std::uint64_t head)
      : words_(&words), capacity_(capacity), head_(head), next_(head), tail_seen_(head) {}

  /// Whether there is a unit not yet lent. Reads the producer's word only if all known units are
  /// lent.
  [[nodiscard]] Look look() noexcept {
    if (next_ != tail_seen_) return Look::ready;
    // edge: message-published (acquire)
    const std::uint64_t tail = words_->prod_tail.load_acquire();
    // The tail must not go back, nor exceed the capacity.
    if (tail - tail_seen_ > capacity_ - (tail_seen_ - head_)) return Look::damaged;
    tail_seen_ = tail;
    return next_ != tail ? Look::ready : Look::not_yet;
  }
  /// Published units not yet lent, as of the last look().
  [[nodiscard]] std::uint64_t count() const noexcept { return tail_seen_ - next_; }
  /// Whether at least seven eighths of the ring are free for the producer, as of the last look().
  [[nodiscard]] bool has_few() const noexcept { return tail_seen_ - head_ <= capacity_ / 8; }
  /// Position of the next unit to be lent.
  [[nodiscard]] std::uint64_t position() const noexcept { return next_; }
  /// `count` is at most count().
  void advance(std::uint64_t count) noexcept { next_ += count; }
  [[nodiscard]] bool has_lent() const noexcept { return head_ != next_; }
  /// Returns all lent units to the producer, with one store.
  void retire() noexcept {
    head_ = next_;
    // edge: message-retired (release)
    words_->cons_head.store_release(head_);
  }

 private:
  LaneWords* words_ = nullptr;
  std::uint64_t capacity_ = 0;
  std::uint64_t head_ = 0;  ///< Retired; head_ <= next_ <= tail_seen_ <= head_ + capacity_.
  std::uint64_t next_ = 0;  ///< Lent.
  std::uint64_t tail_seen_ = 0;
};

/// `word` belongs to an end that may sleep. The sleeper sets it, executes a heavy barrier and
/// checks its condition again; the other end publishes, executes a light barrier and reads the
/// word. So at least one of them sees the other's store (src/platform/barrier.hpp).
inline void mark_asleep(Atomic<std::uint32_t>& word) noexcept {
  word.store_relaxed(1);  // Ordered by the barrier that follows.
}
/// Called by the other end after it publishes: true if it must wake the sleeper.
[[nodiscard]] inline bool must_wake(Atomic<std::uint32_t>& word) noexcept {
  light_barrier();
  if (word.load_relaxed() != 1) return false;  // Ordered by the barrier.
  std::uint32_t sleeping = 1;
  return word.compare_exchange_relaxed(sleeping, 0);  // Only decides who wakes.
}

}  // namespace headrace::message::detail
