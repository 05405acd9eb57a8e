// SPDX-License-Identifier: Apache-2.0
// The lock-free part of a queue: how one producer and one consumer agree on positions in a ring.
// Not here: what lies at a position (queue.hpp), sleeping by the kernel (src/message/ends.cpp).
//
// Progress: wait-free on both sides; neither end ever waits for a step of the other.
// Agents:   the *producer* of a lane and the *consumer*, threads of any two processes. Each may be
//           killed between two instructions: one store publishes, so its work is there or is not.
// Trust:    none. The words may hold anything at any time. Each is read once, compared with private
//           copies, and refused if no honest peer could have written it. Own positions are private;
//           the shared words only publish them.
// ABA:      positions count from 0 in 64 bits and are never reduced, so no value comes again.
//
//   word          written by   holds
//   prod_tail     producer     units published so far
//   cons_head     consumer     units retired so far
//   invariant     head <= tail <= head + capacity, as 64-bit differences
//
// Stores: while the consumer holds the line of prod_tail, what a producer goes on to do waits in
// its store buffer, and all of it is seen at once. So a message that is sent alone costs few
// stores: its bytes, the position and the published one. With three more, short messages took twice
// as long (headrace bench message).
//
// Rejected: one flag a slot (FastForward), which needs one line less for a message that comes
// alone, because a flag has to be cleared by the consumer in the line that the producer writes, and
// a batch needs as many stores as it has messages. Rejected: one ring for several producers, with a
// state for each slot: a slot whose producer was killed has to be found and skipped. A lane for
// each producer has no such slot.
// Model: tests/model/message/cursor_model.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/base/atomic.hpp"
#include "headrace/base/export.hpp"
#include "headrace/base/light_barrier.hpp"

namespace headrace::message::detail {

/// Words of one lane, in shared memory. Each pair of lines has one writer, because processors fetch
/// lines in pairs.
struct LaneWords {
  /// Written by the producer.
  alignas(128) Atomic<std::uint64_t> prod_tail;
  /// Written by the producer: twice the number of attachments, plus 1 while one lasts.
  Atomic<std::uint64_t> prod_state;
  /// Written by the consumer.
  alignas(128) Atomic<std::uint64_t> cons_head;
  /// Set to 1 by the producer before it sleeps, to 0 by the consumer, which then wakes it.
  alignas(128) Atomic<std::uint32_t> prod_sleeps;
};

enum class Look : std::uint8_t {
  ready,
  not_yet,
  damaged,  ///< No honest peer could have written this.
};

/// The producer's side of a lane.
///
/// Threading: confined.
class ProducerCursor {
 public:
  ProducerCursor() = default;
  /// Goes on where the last producer of the lane was. `head` and `tail` were read from the words
  /// and found possible.
  ProducerCursor(LaneWords& words, std::uint64_t capacity, std::uint64_t head, std::uint64_t tail)
      : words_(&words), capacity_(capacity), staged_(tail), head_seen_(head) {}

  /// Whether `count` more units fit behind what is staged. The consumer's word is read only when
  /// what is known of it does not suffice.
  [[nodiscard]] Look room_for(std::uint64_t count) noexcept {
    if (has_room(count)) return Look::ready;
    // edge: message-retired (acquire)
    const std::uint64_t head = words_->cons_head.load_acquire();
    if (head - head_seen_ > published() - head_seen_) return Look::damaged;
    head_seen_ = head;
    return has_room(count) ? Look::ready : Look::not_yet;
  }
  /// The same, by what is known of the consumer.
  [[nodiscard]] bool has_room(std::uint64_t count) const noexcept {
    return staged_ + count - head_seen_ <= capacity_;
  }
  /// Position of the next unit to be written.
  [[nodiscard]] std::uint64_t position() const noexcept { return staged_; }
  [[nodiscard]] std::uint64_t published() const noexcept { return staged_ - unpublished_; }
  /// Adds units that are written; the consumer does not see them yet.
  void stage(std::uint64_t count) noexcept {
    staged_ += count;
    unpublished_ += count;
  }
  /// Makes everything that is staged visible, and `count` more units that are written, with one
  /// store.
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
  std::uint64_t unpublished_ = 0;  ///< How many of them are not published.
  std::uint64_t head_seen_ = 0;
};

/// The consumer's side of a lane.
///
/// Threading: confined.
class ConsumerCursor {
 public:
  ConsumerCursor() = default;
  /// As ProducerCursor's.
  ConsumerCursor(LaneWords& words, std::uint64_t capacity, std::uint64_t head)
      : words_(&words), capacity_(capacity), head_(head), next_(head), tail_seen_(head) {}

  /// Whether there is a unit that was not lent yet. The producer's word is read only when all that
  /// is known to be there has been lent.
  [[nodiscard]] Look look() noexcept {
    if (next_ != tail_seen_) return Look::ready;
    // edge: message-published (acquire)
    const std::uint64_t tail = words_->prod_tail.load_acquire();
    // Not before what was seen, and not more than fits.
    if (tail - tail_seen_ > capacity_ - (tail_seen_ - head_)) return Look::damaged;
    tail_seen_ = tail;
    return next_ != tail ? Look::ready : Look::not_yet;
  }
  /// Units that are there and not lent, as of the last look().
  [[nodiscard]] std::uint64_t count() const noexcept { return tail_seen_ - next_; }
  /// Whether the producer has at least seven eighths of the ring, as of the last look().
  [[nodiscard]] bool has_few() const noexcept { return tail_seen_ - head_ <= capacity_ / 8; }
  /// Position of the next unit to be lent.
  [[nodiscard]] std::uint64_t position() const noexcept { return next_; }
  /// `count` is at most count().
  void lend(std::uint64_t count) noexcept { next_ += count; }
  [[nodiscard]] bool has_lent() const noexcept { return head_ != next_; }
  /// Gives everything that was lent back to the producer, with one store.
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

/// The word of an end that may sleep. The sleeper sets it, passes a heavy barrier and looks again;
/// the other end writes what is waited for, passes a light one and looks at the word. So at least
/// one of the two sees the other (src/platform/barrier.hpp).
inline void announce_sleep(Atomic<std::uint32_t>& word) noexcept {
  word.store_relaxed(1);  // Ordered by the barrier that follows.
}
/// For the other end, after what it has published: true if it has to wake the sleeper.
[[nodiscard]] inline bool must_wake(Atomic<std::uint32_t>& word) noexcept {
  light_barrier();
  if (word.load_relaxed() != 1) return false;  // Ordered by the barrier.
  std::uint32_t sleeping = 1;
  return word.compare_exchange_relaxed(sleeping, 0);  // Only says who wakes.
}

}  // namespace headrace::message::detail
