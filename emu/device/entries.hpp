// SPDX-License-Identifier: Apache-2.0
// Entries: which client holds which entry of a WQ, whether the WQ has changed since the entry was
// claimed, and the path of an entry number from its submitter to a worker. Contains only the
// protocol, so that tests/model/emu runs this code in a model checker; registers.hpp and
// scheduler.hpp use it. Does not handle descriptors.
//
// Progress:   claiming and releasing are lock-free; push waits only for a killed process.
// Agents:     submitters, workers, the controller, reapers: see registers.hpp. Each may be killed
//             between any two instructions.
// Invariants: an entry word is kNobody or its holder's word, and passes through kNobody between two
//             holders; it is released once, by its holder or, if that is dead, by one reaper; no
//             entry is held in a generation that the controller has ended and then seen empty.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "emu/platform/wait.hpp"
#include "headrace/base/atomic.hpp"

namespace headrace::emu {

/// Holder of an entry or an engine: kNobody, or a client's place and incarnation.
using Owner = std::uint32_t;
inline constexpr Owner kNobody = 0;
[[nodiscard]] constexpr Owner owner_of(std::uint32_t client_index, std::uint32_t incarnation) {
  return (incarnation << 9U) | (client_index + 1);
}
[[nodiscard]] constexpr std::uint32_t client_index_of(Owner owner) {
  return (owner & 0x1ffU) - 1;
}

/// Phase in the low two bits, generation above. In one word, so that a submission that reads a
/// phase also reads its generation.
struct PhaseWord {
  std::uint64_t bits = 0;
  [[nodiscard]] constexpr std::uint64_t generation() const { return bits >> 2U; }
  [[nodiscard]] constexpr std::uint32_t phase() const {
    return static_cast<std::uint32_t>(bits & 3U);
  }
  [[nodiscard]] static constexpr PhaseWord make(std::uint64_t generation, std::uint32_t phase) {
    return {generation << 2U | phase};
  }
};

[[nodiscard]] inline PhaseWord load_phase(const Atomic<std::uint64_t>& word) noexcept {
  // edge: emu-phase (acquire)
  return {word.load_acquire()};
}

/// Sets the phase of a WQ or device; begins a new generation if requested.
inline void change_phase(Atomic<std::uint64_t>& word, std::uint32_t phase,
                         bool new_generation) noexcept {
  std::uint64_t found = word.load_relaxed();  // the exchange decides
  while (true) {
    const PhaseWord now{found};
    const PhaseWord then = PhaseWord::make(now.generation() + (new_generation ? 1 : 0), phase);
    // edge: emu-phase (acq_rel)
    if (word.compare_exchange_acq_rel(found, then.bits)) return;
  }
}

/// Begins a new generation in the same phase.
inline void renew(Atomic<std::uint64_t>& word) noexcept {
  // edge: emu-phase (acq_rel)
  word.fetch_add_acq_rel(PhaseWord::make(1, 0).bits);
}

/// The entries of a WQ, one word per entry that names its holder.
///
/// Threading: shared, also between processes.
template <std::size_t kCount>
class Entries {
 public:
  enum class Claim : std::uint8_t { taken, full, changed };

  /// Takes one of the first `limit` entries for `owner`, if the WQ is still in the phase `seen`.
  /// `reserve(entry)` reserves the owner's private slot for it, and returns false if that slot is
  /// in use: then the owner already held the entry, and another client has overwritten its word.
  /// `cancel(entry)` undoes the reservation. Async-signal-safe if both are.
  template <typename Reserve, typename Cancel>
  [[nodiscard]] Claim claim(Atomic<std::uint64_t>& phase, PhaseWord seen, std::uint32_t limit,
                            Owner owner, std::uint32_t& entry, Reserve reserve,
                            Cancel cancel) noexcept {
    for (entry = 0;; ++entry) {
      // The limit is in memory that clients can write to.
      if (entry >= limit || entry >= kCount) return Claim::full;
      Owner expected = words_[entry].load_relaxed();  // the exchange decides
      if (expected != kNobody) continue;
      // edge: emu-entry (acq_rel)
      if (!words_[entry].compare_exchange_acq_rel(expected, owner)) continue;
      if (reserve(entry)) break;
    }
    // A read-modify-write, not a load: either it precedes the change of phase, and the thread that
    // changed the phase sees our entry, or it sees the change.
    // edge: emu-phase (acq_rel)
    if (phase.fetch_add_acq_rel(0) == seen.bits) return Claim::taken;
    cancel(entry);  // first: the next owner of the entry must find the slot free
    give_back(entry, owner);
    return Claim::changed;
  }

  /// Returns false, and changes nothing, if `owner` does not hold the entry.
  bool give_back(std::uint32_t entry, Owner owner) noexcept {
    Owner expected = owner;
    // edge: emu-entry (acq_rel)
    return words_[entry].compare_exchange_acq_rel(expected, kNobody);
  }

  /// Releases all entries of `owner`, which is dead or exiting. Threads may call it concurrently;
  /// each returns the number of entries that it released.
  std::uint32_t give_back_all(Owner owner) noexcept {
    std::uint32_t count = 0;
    for (std::uint32_t entry = 0; entry < kCount; ++entry) {
      if (words_[entry].load_relaxed() != owner) continue;  // the exchange decides
      if (give_back(entry, owner)) ++count;
    }
    return count;
  }

  /// Releases the entries of owners for which `is_orphan(owner)` is true. Returns their number.
  template <typename IsOrphan>
  std::uint32_t give_back_orphans(IsOrphan is_orphan) noexcept {
    std::uint32_t count = 0;
    for (std::uint32_t entry = 0; entry < kCount; ++entry) {
      // edge: emu-entry (acquire)
      const Owner owner = words_[entry].load_acquire();
      if (is_orphan(owner) && give_back(entry, owner)) ++count;
    }
    return count;
  }

  [[nodiscard]] std::uint32_t occupancy() const noexcept {
    std::uint32_t count = 0;
    for (const Atomic<Owner>& word : words_) {
      // edge: emu-entry (acquire)
      count += word.load_acquire() == kNobody ? 0 : 1;
    }
    return count;
  }

  /// For tests, which overwrite them as a stray store would.
  [[nodiscard]] std::span<Atomic<Owner>, kCount> words() noexcept { return words_; }
  /// A hint.
  [[nodiscard]] bool any_but(Owner owner) const noexcept {
    for (const Atomic<Owner>& word : words_) {
      const Owner found = word.load_relaxed();  // a hint
      if (found != kNobody && found != owner) return true;
    }
    return false;
  }

 private:
  std::array<Atomic<Owner>, kCount> words_;
};

/// A FIFO of the entries that one client holds and no worker has taken. Never full: there are as
/// many cells as entries, and each pushing thread holds one.
///
/// Threading: push and has_queued are shared and async-signal-safe; front and pop are serialised by
///            a mutex that no submitter locks.
template <std::size_t kCount>
class EntryRing {
 public:
  void push(std::uint32_t entry) noexcept {
    // edge: emu-ring-lap (acq_rel)
    const std::uint64_t at = tail_.fetch_add_acq_rel(1);
    Atomic<std::uint32_t>& cell = cells_[at % kCount];
    // A lap and our push are more pushes than there are entries, so two of them used the same
    // entry: the later claim followed the worker that had emptied our cell, and our push follows
    // both. So this never spins. Relaxed: because of that order.
    while (cell.load_relaxed() != 0) platform::pause();
    cell.store_release(entry + 1);  // edge: emu-ring (release)
  }
  [[nodiscard]] std::optional<std::uint32_t> front() const noexcept {
    const std::uint64_t head = head_.load_relaxed();  // ours, under the mutex
    // edge: emu-ring (acquire)
    const std::uint32_t cell = cells_[head % kCount].load_acquire();
    if (cell == 0) return std::nullopt;
    return cell - 1;
  }
  void pop() noexcept {
    const std::uint64_t head = head_.load_relaxed();  // ours, under the mutex
    cells_[head % kCount].store_relaxed(0);           // published when the entry is released
    head_.store_relaxed(head + 1);                    // ours
  }
  /// Relaxed: the caller's doorbell orders this load after the push.
  [[nodiscard]] bool has_queued() const noexcept {
    return tail_.load_relaxed() != head_.load_relaxed();
  }

 private:
  alignas(64) Atomic<std::uint64_t> tail_;
  alignas(64) Atomic<std::uint64_t> head_;
  std::array<Atomic<std::uint32_t>, kCount> cells_;  // 0, or a number + 1.
};

}  // namespace headrace::emu
