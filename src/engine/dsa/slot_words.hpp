// SPDX-License-Identifier: Apache-2.0
// SlotWords: ownership of the slots of a DSA mover, as one word for each. slot.hpp has the contents
// of a slot, queue.hpp what its owner does.
//
// Progress: lock-free. Agents: submitters and pollers, any number of threads; channels, each of one
// thread; one thread that closes. The device does not see these words: it meets pollers at the
// completion record in the slot.
//
// States of a slot. Everything in it belongs to one thread at a time:
//
//   state     whose                                        next
//   free      no thread's                                  taken, by a submitter; kept, by a
//                                                          channel; closed
//   taken     the thread that took it, or claimed it       posted, lost or free, by that thread
//   posted    the device's, until its record has a         taken, by the poller that claims it
//             status; pollers read only the status and
//             the time of posting
//   lost      as posted, but no thread waits for it        taken, by the poller that finds a status
//   kept      a channel's                                  free or lost, by the channel
//   closed    no thread's                                  none
//
// Only taking, claiming and closing compete with other threads: each is one compare-and-exchange.
// The owner of a slot leaves its state by a store.
//
// A poller reads the status and then claims. In between the slot may have been claimed, reused and
// posted by other threads (ABA): each posting has a number in the word, so that the exchange fails.
//
// Each word has a line of its own, and a request asks first for the slot that it had before:
// threads that reuse their jobs share no line. Rejected: bits of all slots in one word, which each
// submission and each completion writes twice. Model: tests/model/engine/slots_model.cpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "headrace/base/atomic.hpp"

namespace headrace::engine {

/// Threading: shared.
class SlotWords {
 public:
  /// Snapshots have one bit for each slot.
  static constexpr std::size_t kSlotMax = 63;
  static constexpr std::uint32_t kNoSlot = ~0U;

  /// `slot_count` is at most kSlotMax.
  explicit SlotWords(std::uint32_t slot_count)
      : slot_count_(slot_count), lines_(new Line[slot_count]) {}

  /// Takes a slot, which the caller owns: `preferred` (modulo their number), or the next free one;
  /// kNoSlot if none is free or after close().
  [[nodiscard, gnu::always_inline]] std::uint32_t take(std::uint32_t preferred = 0) noexcept {
    if (preferred < slot_count_ && take_as(preferred, State::taken)) [[likely]]
      return preferred;
    return take_next(preferred);
  }
  /// Called by the owner.
  void free(std::uint32_t index) noexcept { leave(index, State::free); }

  /// Posts a slot of the caller: pollers may claim it.
  void post(std::uint32_t index) noexcept { leave(index, State::posted); }
  /// A snapshot.
  [[nodiscard]] std::uint64_t posted() const noexcept {
    return those([](State state) { return state == State::posted || state == State::lost; });
  }
  /// Returns true if the slot was posted, `is_ready()`, which reads only what pollers may read,
  /// held, and the caller now owns it.
  template <typename IsReady>
  [[nodiscard]] bool claim(std::uint32_t index, IsReady is_ready) noexcept {
    // edge: slot-posted (acquire)
    std::uint64_t word = lines_[index].word.load_acquire();
    const State state = state_of(word);
    if (state != State::posted && state != State::lost) return false;
    // Relaxed: the load has acquired this posting, and no other has its number.
    return is_ready() &&
           lines_[index].word.compare_exchange_relaxed(word, with(word, State::taken));
  }

  /// Called by the owner, a job's poller or a channel, if the device may still write to the slot.
  /// The slot is not reused until it does; the poller that then claims it calls free().
  void lose(std::uint32_t index) noexcept { leave(index, State::lost); }
  /// A snapshot.
  [[nodiscard]] std::uint64_t lost() const noexcept {
    return those([](State state) { return state == State::lost; });
  }
  /// True if every slot is lost or a channel's and at least one is lost: jobs may never get a slot
  /// again.
  [[nodiscard]] bool is_all_lost() const noexcept {
    // Not one snapshot: a hint that sends a request to another mover.
    return lost() != 0 &&
           those([](State state) { return state != State::lost && state != State::kept; }) == 0;
  }
  /// Takes `count` slots for a channel. Returns their bits; 0 if none would be left for jobs, or
  /// after close(). One thread at a time.
  [[nodiscard]] std::uint64_t reserve(std::size_t count) noexcept {
    std::uint64_t taken = 0;
    std::uint32_t last = 0;
    for (std::size_t left = count + 1; last < slot_count_; ++last) {
      if (!take_as(last, State::kept)) continue;
      if (--left == 0) {
        free(last);
        return taken;
      }
      taken |= bit(last);
    }
    give_back(taken);
    return 0;
  }
  /// Frees slots taken by reserve().
  void give_back(std::uint64_t slots) noexcept {
    for (; slots != 0; slots &= slots - 1) {
      free(static_cast<std::uint32_t>(std::countr_zero(slots)));
    }
  }
  [[nodiscard]] bool has_reserved() const noexcept {
    return those([](State state) { return state == State::kept; }) != 0;
  }

  /// take() and reserve() fail from now on, except for slots that is_idle() has not yet closed.
  void close() noexcept { closed_.store_relaxed(true); }  // A hint.
  /// A hint; the states decide.
  [[nodiscard]] bool is_closed() const noexcept { return closed_.load_relaxed(); }
  /// After close(): closes the free slots. Returns true once all are closed, lost or a channel's.
  [[nodiscard]] bool is_idle() noexcept {
    bool idle = true;
    for (std::uint32_t i = 0; i < slot_count_; ++i) {
      const bool left = take_as(i, State::closed) || [&] {
        const State state = state_of(lines_[i].word.load_relaxed());  // As of the exchange.
        return state == State::closed || state == State::lost || state == State::kept;
      }();
      idle = idle && left;
    }
    return idle;
  }
  /// Slots that are in use; a snapshot.
  [[nodiscard]] std::size_t count() const noexcept {
    return static_cast<std::size_t>(std::popcount(
        those([](State state) { return state != State::free && state != State::closed; })));
  }

 private:
  enum class State : std::uint8_t { free, taken, posted, lost, kept, closed };
  static constexpr std::uint64_t kStateMask = 7;
  /// A state in the lowest bits, and the number of postings.
  struct alignas(64) Line {
    Atomic<std::uint64_t> word{0};
  };

  static constexpr std::uint64_t bit(std::uint32_t index) noexcept {
    return std::uint64_t{1} << index;
  }
  static State state_of(std::uint64_t word) noexcept { return State(word & kStateMask); }
  static std::uint64_t with(std::uint64_t word, State state) noexcept {
    return (word & ~kStateMask) | static_cast<std::uint64_t>(state);
  }

  [[gnu::noinline]] std::uint32_t take_next(std::uint32_t index) noexcept {
    if (slot_count_ == 0) return kNoSlot;
    index %= slot_count_;
    for (std::uint32_t i = 0; i < slot_count_; ++i) {
      if (take_as(index, State::taken)) return index;
      if (++index == slot_count_) index = 0;
    }
    return kNoSlot;
  }
  [[nodiscard]] bool take_as(std::uint32_t index, State state) noexcept {
    std::uint64_t word = lines_[index].word.load_relaxed();  // The exchange below decides.
    if (state_of(word) != State::free) return false;
    // edge: slot-freed (acquire)
    return lines_[index].word.compare_exchange_acq_rel(word, with(word, state));
  }
  /// The caller owns the slot, so that no other thread writes its word.
  void leave(std::uint32_t index, State state) noexcept {
    Atomic<std::uint64_t>& word = lines_[index].word;
    // Counted always: only the numbers of two postings must differ.
    const std::uint64_t next = word.load_relaxed() + kStateMask + 1;  // The caller's.
    // edge: slot-posted (release)
    // edge: slot-freed (release)
    word.store_release(with(next, state));
  }
  template <typename Condition>
  [[nodiscard]] std::uint64_t those(Condition condition) const noexcept {
    std::uint64_t found = 0;
    for (std::uint32_t i = 0; i < slot_count_; ++i) {
      if (condition(state_of(lines_[i].word.load_relaxed()))) found |= bit(i);  // A snapshot.
    }
    return found;
  }

  const std::uint32_t slot_count_;
  const std::unique_ptr<Line[]> lines_;
  Atomic<bool> closed_{false};
};

}  // namespace headrace::engine
