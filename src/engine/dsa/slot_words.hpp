// SPDX-License-Identifier: Apache-2.0
// SlotWords: ownership of the slots of a DSA mover, as bits in a few words. slot.hpp has the
// contents of a slot, queue.hpp what its owner does.
//
// Progress: lock-free. Agents: submitters and pollers, any number of threads; channels, each of one
// thread; one thread that closes. The device does not see these words: it meets pollers at the
// completion record in the slot.
//
// States of a slot. Everything in it belongs to one thread at a time:
//
//   busy  posted   whose                                       next
//   0     0        free                                        a submitter sets busy: its own
//   1     0        the thread that took it, or claimed it      it sets posted, or clears busy
//   1     1        the device's, until its record has a        a poller clears posted: its own
//                  status; pollers read only the status
//                  and the time of posting
//   1     1, lost  as before, but no thread waits for it      a poller that finds a status frees
//                  (the bit in lost_)                         it
//   1     0, kept  a channel's (the bit in reserved_)          it gives it back, or loses it
//
// A poller reads the status and then claims by clearing `posted`. In between the slot may have been
// claimed, reused and posted by other threads (ABA), so the poller checks the status again after
// the claim and posts the slot again if it claimed it wrongly.
//
// Rejected: a mutex, shared by all threads that submit to a queue. Model:
// tests/model/engine/slots_model.cpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "headrace/base/atomic.hpp"

namespace headrace::engine {

/// Threading: shared.
class SlotWords {
 public:
  // Bits 0 to 62.
  static constexpr std::size_t kSlotMax = 63;
  static constexpr std::uint32_t kNoSlot = ~0U;

  /// `slot_count` is at most kSlotMax.
  explicit SlotWords(std::uint32_t slot_count) : mask_((std::uint64_t{1} << slot_count) - 1) {}

  /// Takes a slot, which the caller owns; kNoSlot if none is free or after close().
  [[nodiscard]] std::uint32_t take() noexcept {
    std::uint64_t busy = busy_.load_relaxed();  // The exchange below decides.
    while (true) {
      const std::uint64_t free = ~busy & mask_;
      if ((busy & kClosed) != 0 || free == 0) return kNoSlot;
      // edge: slot-freed (acq_rel)
      if (busy_.compare_exchange_acq_rel(busy, busy | (free & (~free + 1)))) {
        return static_cast<std::uint32_t>(std::countr_zero(free));
      }
    }
  }
  /// Called by the owner.
  void free(std::uint32_t index) noexcept {
    // edge: slot-freed (acq_rel)
    busy_.fetch_and_acq_rel(~bit(index));
  }

  /// Posts a slot of the caller: pollers may claim it.
  void post(std::uint32_t index) noexcept {
    // edge: slot-posted (acq_rel)
    posted_.fetch_or_acq_rel(bit(index));
  }
  /// A snapshot.
  [[nodiscard]] std::uint64_t posted() const noexcept {
    return posted_.load_relaxed();  // The claim decides.
  }
  /// Returns true if the caller now owns the slot and `is_ready()`, which reads only what pollers
  /// may read, holds.
  template <typename IsReady>
  [[nodiscard]] bool claim(std::uint32_t index, IsReady is_ready) noexcept {
    if (!is_ready()) return false;
    // edge: slot-posted (acq_rel)
    if ((posted_.fetch_and_acq_rel(~bit(index)) & bit(index)) == 0) return false;
    // The slot may have been reused since the first check.
    if (is_ready()) return true;
    post(index);
    return false;
  }

  /// Called by the owner, a job's poller or a channel, if the device may still write to the slot.
  /// The slot is not reused until it does; the poller that then claims it calls free_lost().
  void lose(std::uint32_t index) noexcept {
    // Before it can be claimed: afterwards another channel may reserve it. No other thread changes
    // this bit.
    reserved_.fetch_and_relaxed(~bit(index));
    // Relaxed: published by post().
    lost_.fetch_or_relaxed(bit(index));
    post(index);
  }
  void free_lost(std::uint32_t index) noexcept {
    // Before another thread can take the slot. No other thread changes this bit.
    lost_.fetch_and_relaxed(~bit(index));
    free(index);
  }
  /// A snapshot.
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_.load_relaxed(); }
  /// True if every slot is lost or reserved and at least one is lost: jobs may never get a slot
  /// again.
  [[nodiscard]] bool is_all_lost() const noexcept {
    const std::uint64_t all_lost = lost();
    // Not one snapshot: a hint that sends a request to another mover.
    return all_lost != 0 && ((all_lost | reserved_.load_relaxed()) & mask_) == mask_;
  }
  /// Takes `count` slots for a channel. Returns their bits; 0 if none would be left for jobs, or
  /// after close().
  [[nodiscard]] std::uint64_t reserve(std::size_t count) noexcept {
    std::uint64_t busy = busy_.load_relaxed();  // The exchange below decides.
    while (true) {
      std::uint64_t free = ~busy & mask_;
      if ((busy & kClosed) != 0 || static_cast<std::size_t>(std::popcount(free)) <= count) return 0;
      std::uint64_t taken = 0;
      for (std::size_t i = 0; i < count; ++i, free &= free - 1) taken |= free & (~free + 1);
      // edge: slot-freed (acq_rel)
      if (!busy_.compare_exchange_acq_rel(busy, busy | taken)) continue;
      // No other thread changes these bits. Until it sees them, is_idle() waits for the slots.
      reserved_.fetch_or_relaxed(taken);
      return taken;
    }
  }
  /// Frees slots taken by reserve().
  void give_back(std::uint64_t slots) noexcept {
    // Before a job can take them. No other thread changes these bits.
    reserved_.fetch_and_relaxed(~slots);
    // edge: slot-freed (acq_rel)
    busy_.fetch_and_acq_rel(~slots);
  }
  [[nodiscard]] bool has_reserved() const noexcept {
    return reserved_.load_relaxed() != 0;  // No concurrent callers.
  }

  /// take() and reserve() fail from now on.
  void close() noexcept {
    // edge: slot-freed (acq_rel)
    busy_.fetch_or_acq_rel(kClosed);
  }
  /// A hint; take() decides.
  [[nodiscard]] bool is_closed() const noexcept { return (busy_.load_relaxed() & kClosed) != 0; }
  /// After close(): true once all slots are free, lost or reserved.
  [[nodiscard]] bool is_idle() const noexcept {
    // edge: slot-freed (acquire)
    const std::uint64_t busy = busy_.load_acquire();
    // The bit of a lost or reserved slot was cleared before the slot was freed.
    return (busy & mask_ & ~lost_.load_relaxed() & ~reserved_.load_relaxed()) == 0;
  }
  /// Slots that are not free; a snapshot.
  [[nodiscard]] std::size_t count() const noexcept {
    return static_cast<std::size_t>(std::popcount(busy_.load_relaxed() & mask_));
  }

 private:
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63U;
  static constexpr std::uint64_t bit(std::uint32_t index) noexcept {
    return std::uint64_t{1} << index;
  }

  const std::uint64_t mask_;
  Atomic<std::uint64_t> busy_{0};
  Atomic<std::uint64_t> posted_{0};
  Atomic<std::uint64_t> lost_{0};
  /// Subset of busy_: slots of channels, which are never posted.
  Atomic<std::uint64_t> reserved_{0};
};

}  // namespace headrace::engine
