// SPDX-License-Identifier: Apache-2.0
// EntryState: one region, its copy, and the progress of its move. All handles (Entry) on a region
// share one. It takes one cache line, because there may be millions: the job that fills the copy is
// in in_flight.hpp, and only while the move runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "headrace/base/atomic.hpp"
#include "headrace/base/units.hpp"
#include "headrace/cache/cache.hpp"
#include "lease.hpp"

namespace headrace::cache::detail {

/// Progress of an entry. It only goes forward:
///
///     idle -> pending -> moving -> copied | left
///                   \-----------> copied | left
///
/// idle: not shared yet; pending: before others can find it, until the engine has the job; moving:
/// waiters wait for the job. No phase is entered twice. Each is described in
/// docs/internals/memory-order.d/cache.md.
enum class Phase : std::uint32_t { idle, pending, moving, copied, left };

/// True if no move is pending or running.
[[nodiscard]] constexpr bool ended(Phase phase) {
  return phase != Phase::pending && phase != Phase::moving;
}

/// The phase and the threads that wait for it.
///
/// Threading: shared.
class Progress {
 public:
  [[nodiscard]] Phase now() const {
    // edge: entry-submitted (acquire)
    // edge: entry-ended (acquire)
    return phase_.load_acquire();
  }
  /// Sleeps while the phase is pending.
  void await_submission() const {
    // edge: entry-submitted (acquire)
    // edge: entry-ended (acquire)
    phase_.wait_acquire(Phase::pending);
  }
  /// -> pending, from idle or at the start of another life. Only while no other thread can find the
  /// entry.
  // relaxed: `listed` publishes the entry.
  void expect_submission() { phase_.store_relaxed(Phase::pending); }
  /// pending -> moving, unless the move has ended already.
  void notify_submission() {
    // relaxed: if it has ended there is nothing to notify, and the exchange decides the rest.
    Phase expected = phase_.load_relaxed();
    if (expected != Phase::pending) return;
    // edge: entry-submitted (acq_rel)
    if (phase_.compare_exchange_acq_rel(expected, Phase::moving)) phase_.notify_all();
  }
  /// -> copied or left; wakes all waiting threads.
  void end(Phase last) {
    phase_.store_release(last);  // edge: entry-ended (release)
    phase_.notify_all();
  }

 private:
  Atomic<Phase> phase_{Phase::idle};
};

/// Ends an entry that will not be moved, in the only correct order. A thread that found it reads
/// the source once its phase has ended, and must see every change there that ended before its
/// lookup. So first `erase()`: from then on no thread finds it; then `write_back()` of earlier
/// changes, even if another change is live; only then the phase ends.
template <typename Erase, typename WriteBack>
void end_refused(Progress& progress, Erase erase, WriteBack write_back) {
  erase();
  write_back();
  progress.end(Phase::left);
}

/// A region of memory as integers: readers look at entries that may change concurrently.
struct Region {
  std::uintptr_t address = 0;
  std::uint64_t byte_count = 0;

  [[nodiscard]] static Region of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<std::uintptr_t>(bytes.data()), bytes.size()};
  }
  /// No region is longer: addresses have 57 bits at most.
  static constexpr std::uint64_t kByteCountMax = std::uint64_t{1} << 57U;

  /// False for an empty region, and for a length that no region can have.
  [[nodiscard]] bool is_possible() const {
    return byte_count != 0 && byte_count <= kByteCountMax && last() >= address;
  }
  /// The last byte; the region must not be empty.
  [[nodiscard]] std::uintptr_t last() const { return address + (byte_count - 1); }
  [[nodiscard]] bool contains(const Region& other) const {
    return address <= other.address && other.byte_count <= byte_count &&
           other.address - address <= byte_count - other.byte_count;
  }
  [[nodiscard]] bool overlaps(const Region& other) const {
    return address <= other.last() && other.address <= last();
  }
};

/// Threading: shared, per field:
///   listing, holder_count  see lease.hpp.
///   progress                see Phase.
///   address, byte_count     written while the entry is absent; read by any thread, trusted only
///                           with a lease.
///   next                    written under the shard's mutex, read by any thread.
///   marks                   written by readers and the eviction policy.
///   copy                    written by the submitter while the phase is pending; read by others
///                           once it is copied (edge entry-ended), and by the thread that ends the
///                           entry (edge entry-released).
///   older, newer, queue     shard's mutex; `older` also chains entries that left the shard.
///   moving                  mutex of InFlightMoves.
///   shard                   as address.
///   flags                   pinned: under the shard's mutex; dirty: under that of DirtyRanges,
///                           by a holder of a lease; kept: by the thread that moved the copy,
///                           before the move has ended or been decided.
struct alignas(64) EntryState : LeasedEntry {
  Progress progress;
  /// Hit history for the eviction policy; see Marks.
  Atomic<std::uint32_t> marks{0};
  Atomic<std::uintptr_t> address{0};
  Atomic<std::uint64_t> byte_count{0};
  std::byte* copy = nullptr;
  /// References to the next entry of the same bucket, for the first and the last block of the
  /// region; see Index.
  std::array<Atomic<std::uint32_t>, 2> next{};
  std::uint32_t older = 0;
  std::uint32_t newer = 0;
  std::uint32_t moving = 0;
  Atomic<std::uint16_t> shard{0};
  std::uint8_t queue = 0;
  Atomic<std::uint8_t> flags{0};

  /// Values of queue for entries that were taken off: without a move, or with one.
  static constexpr std::uint8_t kOff = 254;
  static constexpr std::uint8_t kHeldBack = 255;

  static constexpr std::uint8_t kPinned = 1;  ///< Bits of flags.
  static constexpr std::uint8_t kDirty = 2;
  static constexpr std::uint8_t kKept = 4;

  [[nodiscard]] bool is_pinned() const {
    return (flags.load_relaxed() & kPinned) != 0;  // relaxed: under the shard's mutex.
  }
  /// A set flag is certain to be seen once the lease of the thread that set it was found gone.
  [[nodiscard]] bool is_dirty() const {
    return (flags.load_acquire() & kDirty) != 0;  // edge: dirty-written-back (acquire)
  }
  // relaxed: the end of the caller's lease publishes it.
  void mark_dirty() { flags.fetch_or_relaxed(kDirty); }
  void mark_clean() {
    // edge: dirty-written-back (acq_rel)
    flags.fetch_and_acq_rel(static_cast<std::uint8_t>(~kDirty));
  }

  /// The memory of the copy is never freed, because an abandoned device may still use it.
  void keep_memory() {
    flags.fetch_or_relaxed(
        kKept);  // relaxed: the end of the move or of the write-back publishes it.
  }
  [[nodiscard]] bool is_memory_kept() const {
    return (flags.load_relaxed() & kKept) != 0;  // relaxed: by the thread that ends the entry.
  }

  /// The region, reliable only with a lease.
  [[nodiscard, gnu::always_inline]] Region region() const {
    // relaxed: trusted only once the lease has been acquired.
    return {address.load_relaxed(), byte_count.load_relaxed()};
  }
  /// The number of the shard, reliable as region().
  [[nodiscard]] std::uint16_t shard_number() const {
    return shard.load_relaxed();  // relaxed: as region().
  }
  [[nodiscard]] const std::byte* source() const {
    return reinterpret_cast<const std::byte*>(region().address);
  }
};

/// The number of ranges, so that any() needs no lock.
///
/// Threading: shared.
class DirtyCount {
 public:
  /// Written under one mutex.
  // edge: dirty-written-back (release)
  void set(std::size_t count) { count_.store_release(count); }
  [[nodiscard]] bool any() const {
    return count_.load_acquire() != 0;  // edge: dirty-written-back (acquire)
  }

 private:
  Atomic<std::size_t> count_{0};
};

/// Bytes of memory that a copy of `byte_count` bytes takes.
[[nodiscard]] inline std::uint64_t footprint_bytes(std::size_t byte_count,
                                                   std::size_t granule_bytes) {
  const std::uint64_t mask = granule_bytes - 1;
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  // Saturate: an impossible length must not wrap around to a small one.
  return byte_count > kMax - mask ? kMax : (std::uint64_t{byte_count} + mask) & ~mask;
}

}  // namespace headrace::cache::detail
