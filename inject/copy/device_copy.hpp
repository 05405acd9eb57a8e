// SPDX-License-Identifier: Apache-2.0
// A copy, fill or comparison that a DSA and the calling thread do together: the device gets the
// first part, the thread does the rest meanwhile, then waits. Synchronous, like its caller. Makes
// no calls, allocates nothing and takes no lock, so it may run in a signal handler, even one that
// interrupted it. device.hpp finds and opens devices.
//
// A device stops at a page that is not in memory. After the first such page fault the thread only
// touches one byte of each page, which loads both pages, and the device does all the copying. Not
// by madvise(MADV_POPULATE_WRITE): a program may have forbidden system calls. Not by block on
// fault: the device would wait for the kernel page by page, and delay other programs.
//
// Agents:     threads, their signal handlers, and the device. A thread owns a slot (descriptor and
//             record) from taking to freeing it; between submission and a non-zero status the
//             device owns the record.
// Progress:   wait-free except for the wait for the device, which is bounded. A descriptor without
//             an answer by then is drained, with a bound as well: a completed drain means that the
//             device has finished everything that its queue accepted earlier. If the drain is not
//             answered either, the device may still write at any time: a program whose target it
//             may write cannot continue (decision 13), and the slot is never reused. So slots are
//             not on the stack.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "headrace/base/atomic.hpp"
#include "headrace/dsa/descriptor.hpp"
#include "headrace/platform/cpu.hpp"

namespace headrace::preload {

inline constexpr std::size_t kPortalMax = 8;
inline constexpr std::size_t kSlotCount = 64;
/// Descriptors of one copy in flight at once.
inline constexpr std::size_t kPieceMax = 4;
/// A copy is split into several pieces only if each is at least this long.
inline constexpr std::size_t kPieceBytesMin = std::size_t{64} << 10U;
/// Shorter copies and remainders are not worth a descriptor.
inline constexpr std::size_t kDeviceBytesMin = 4096;
/// The unit of the device's share of a copy, which adapts to whether the thread or the device
/// waits.
inline constexpr std::uint32_t kShareUnits = 64;
inline constexpr std::uint32_t kShareMin = 8;
inline constexpr std::uint32_t kShareMax = 56;
/// Bytes started before the first page fault can be detected.
inline constexpr std::size_t kFirstRoundBytes = std::size_t{1} << 20U;
/// At most one piece is touched before the device has work.
inline constexpr std::size_t kTouchedPieceBytesMax = std::size_t{1} << 20U;
/// After a page fault this many calls touch pages from the start; the next call checks whether that
/// is still needed.
inline constexpr std::uint32_t kTouchedCalls = 16;
inline constexpr std::size_t kPageBytes = 4096;
/// Consecutive errors after which the devices are no longer used.
inline constexpr std::uint32_t kErrorsMax = 16;

struct alignas(128) DeviceSlot {
  dsa::Descriptor descriptor;
  dsa::CompletionRecord record;
  dsa::CompletionRecord drained;  ///< Of the drain behind an unanswered descriptor.
};
static_assert(sizeof(DeviceSlot) == 128);

/// A thread that leaves a copy without returning (siglongjmp in a handler) keeps its slots. When it
/// holds more than this, or none is free, it reclaims those whose records are answered. The value
/// only has to exceed what a copy and one in a handler need.
inline constexpr std::uint32_t kHeldSlotsMax = 2 * kPieceMax;

/// The devices of this process. All zero means none. In memory that is zeroed in a child of fork,
/// because the child does not inherit the portals (device.cpp).
///
/// Threading: shared.
struct Device {
  /// Written by the thread that opens the portals, and by any thread that finds them unusable.
  Atomic<bool> usable;
  /// Set while dedicated queues are left for the first long copy to open (open_dedicated()).
  Atomic<bool> unopened;
  /// Grows once, when the dedicated queues are opened; the fields of a portal are written before.
  Atomic<std::uint32_t> portal_count;
  std::array<std::byte*, kPortalMax> portals;
  /// Entries of a dedicated queue, which drops what does not fit; 0: shared, refuses when full.
  std::array<std::uint32_t, kPortalMax> entry_counts;
  /// Entries of a dedicated queue with unanswered descriptors.
  std::array<Atomic<std::uint32_t>, kPortalMax> entries_used;
  /// Portal whose entry the slot uses: 1 for the first, 0 for none. Written by the slot's holder.
  std::array<std::uint8_t, kSlotCount> slot_entries;
  std::uint64_t piece_bytes_max;   ///< A multiple of 64, at least kDeviceBytesMin.
  std::uint64_t pauses_max;        ///< Processor pauses to wait for an answer ...
  std::uint64_t drain_pauses_max;  ///< ... and then for the answer of a drain.
  std::uint32_t write_flags;       ///< Of descriptors that write: where the bytes go.
  /// Unique to each process that opened the portals. A waiting thread that sees it change is in a
  /// child of fork; the answer belongs to the parent.
  Atomic<std::uint64_t> generation;
  Atomic<std::uint64_t> busy;   ///< Bit n: slot n is taken.
  Atomic<std::uint32_t> share;  ///< Of kShareUnits, from kShareMin to kShareMax.
  Atomic<std::uint32_t> errors_in_row;
  Atomic<std::uint32_t> touched_calls_left;  ///< From kTouchedCalls down; a hint.
  /// How often each slot was taken or freed. A holder that finds another number has lost its slot
  /// to a handler of its own thread.
  std::array<Atomic<std::uint32_t>, kSlotCount> uses;
  std::array<DeviceSlot, kSlotCount> slots;
};

/// The slots of a thread, for running and for abandoned copies.
struct HeldSlots {
  std::uint64_t generation = 0;  ///< Of the devices that own these slots.
  std::uint64_t bits = 0;
};
[[gnu::tls_model("initial-exec")]] inline constinit thread_local HeldSlots held_slots;

/// Result of one copy.
struct DeviceTotals {
  std::uint64_t descriptors = 0;
  std::uint64_t bytes = 0;  ///< Moved by devices.
  std::uint64_t page_faults = 0;
  std::uint64_t retries = 0;  ///< Refused by every queue.
  std::uint64_t errors = 0;
  std::uint64_t lost = 0;  ///< Not answered in time.
};

/// True if the ranges are disjoint: neither agent then reads what the other writes.
[[nodiscard]] inline bool is_disjoint(const void* target, const void* source,
                                      std::size_t byte_count) noexcept {
  const auto distance =
      reinterpret_cast<std::uintptr_t>(target) - reinterpret_cast<std::uintptr_t>(source);
  return distance >= byte_count && std::uintptr_t{0} - distance >= byte_count;
}

/// A copy. `Move` is void(target, source, byte count) and does the thread's part.
///
/// Threading: owned.
template <typename Move>
struct CopyTask {
  static constexpr dsa::Opcode kOpcode = dsa::Opcode::move;
  static constexpr bool kWrites = true;
  std::byte* target;
  const std::byte* source;
  Move move;

  /// Source and target fields of a descriptor for the part from `at` on.
  [[nodiscard]] std::uint64_t source_word(std::size_t at) const noexcept {
    return reinterpret_cast<std::uintptr_t>(source + at);
  }
  [[nodiscard]] std::uint64_t target_word(std::size_t at) const noexcept {
    return reinterpret_cast<std::uintptr_t>(target + at);
  }
  /// Does this part on the thread.
  void work(std::size_t at, std::size_t byte_count) noexcept {
    move(target + at, source + at, byte_count);
  }
  /// Processes the record of a part that a device has done.
  void learn(std::size_t /*at*/, const dsa::CompletionRecord& /*record*/) noexcept {}
  /// True if the result is known.
  [[nodiscard]] bool is_decided() const noexcept { return false; }
};
// Clang 16 deduces nothing from the members of an aggregate.
template <typename Work>
CopyTask(std::byte*, const std::byte*, Work) -> CopyTask<Work>;

/// A fill with one byte. `Fill` is void(target, value, byte count).
///
/// Threading: owned.
template <typename Fill>
struct FillTask {
  static constexpr dsa::Opcode kOpcode = dsa::Opcode::fill;
  static constexpr bool kWrites = true;
  std::byte* target;
  unsigned char value;
  Fill fill;

  [[nodiscard]] std::uint64_t source_word(std::size_t /*at*/) const noexcept {
    return 0x0101010101010101U * value;
  }
  [[nodiscard]] std::uint64_t target_word(std::size_t at) const noexcept {
    return reinterpret_cast<std::uintptr_t>(target + at);
  }
  void work(std::size_t at, std::size_t byte_count) noexcept {
    fill(target + at, value, byte_count);
  }
  void learn(std::size_t /*at*/, const dsa::CompletionRecord& /*record*/) noexcept {}
  [[nodiscard]] bool is_decided() const noexcept { return false; }
};
template <typename Work>
FillTask(std::byte*, unsigned char, Work) -> FillTask<Work>;

/// Where two ranges first differ. `Find` is std::size_t(left, right, byte count): the offset of the
/// first difference, or the count.
///
/// Threading: owned.
template <typename Find>
struct CompareTask {
  static constexpr dsa::Opcode kOpcode = dsa::Opcode::compare;
  static constexpr bool kWrites = false;
  const std::byte* left;
  const std::byte* right;
  Find find;
  std::size_t difference = SIZE_MAX;  ///< The lowest one found so far.

  [[nodiscard]] std::uint64_t source_word(std::size_t at) const noexcept {
    return reinterpret_cast<std::uintptr_t>(left + at);
  }
  [[nodiscard]] std::uint64_t target_word(std::size_t at) const noexcept {
    return reinterpret_cast<std::uintptr_t>(right + at);
  }
  void work(std::size_t at, std::size_t byte_count) noexcept {
    if (at >= difference) return;
    const std::size_t same = find(left + at, right + at, byte_count);
    if (same < byte_count) difference = std::min(difference, at + same);
  }
  void learn(std::size_t at, const dsa::CompletionRecord& record) noexcept {
    if (record.result != 0) difference = std::min(difference, at + record.bytes_completed);
  }
  [[nodiscard]] bool is_decided() const noexcept { return difference != SIZE_MAX; }
};
template <typename Work>
CompareTask(const std::byte*, const std::byte*, Work) -> CompareTask<Work>;

/// One task. `Queues` has bool enqueue(portal index, const dsa::Descriptor&), true if the queue
/// accepted it, and void end_program(), called when a device may write to a target at any time from
/// now on.
///
/// Threading: owned.
template <typename Queues, typename Task>
class DeviceWork {
 public:
  DeviceWork(Device& device, Queues& queues, Task& task) noexcept
      : device_(device),
        queues_(queues),
        task_(task),
        generation_(device.generation.load_relaxed()),  // A count; see below.
        pauses_left_(device.pauses_max),
        drain_pauses_left_(device.drain_pauses_max) {}

  /// Processes operands that do not overlap. The thread itself accesses an invalid range, and so
  /// faults as without a device.
  ///
  /// Returns: what the devices did. No device still works on the task, unless end_program() was
  /// called or the task writes nothing.
  DeviceTotals run(std::size_t byte_count) noexcept {
    if (const std::uint32_t left = device_.touched_calls_left.load_relaxed(); left != 0) {
      touches_ = true;
      device_.touched_calls_left.store_relaxed(left - 1);  // A hint, as above.
    }
    const std::size_t first_bytes = touches_ ? 0 : std::min(byte_count, kFirstRoundBytes);
    do_range(0, first_bytes);
    do_range(first_bytes, byte_count - first_bytes);
    return totals_;
  }

 private:
  static constexpr std::uint32_t kNoSlot = UINT32_MAX;
  /// A refused drain is sent again after this many pauses.
  static constexpr std::uint64_t kPausesPerDrain = 4096;

  struct Piece {
    std::uint32_t slot;
    std::uint32_t use;  ///< Value of Device::uses.
    std::uint32_t portal;
    std::size_t at;
    std::size_t byte_count;
    bool is_touched;
  };

  void work(std::size_t at, std::size_t byte_count) noexcept {
    if (byte_count != 0) task_.work(at, byte_count);
  }

  void do_range(std::size_t at, std::size_t byte_count) noexcept {
    while (byte_count >= kDeviceBytesMin && !task_.is_decided() &&
           device_.usable.load_relaxed()) {  // Advice.
      const std::size_t done = do_round(at, byte_count);
      at += done;
      byte_count -= done;
    }
    work(at, byte_count);
  }

  /// Loads the pages of a part. Touches one byte per page length and the last byte, which covers
  /// every page of both operands whatever their alignment.
  void touch(std::size_t at, std::size_t byte_count) noexcept {
    for (std::size_t i = 0; i < byte_count; i += kPageBytes) work(at + i, 1);
    work(at + byte_count - 1, 1);
  }

  /// Processes as much as a few descriptors can carry, including the thread's part. Returns the
  /// bytes processed.
  std::size_t do_round(std::size_t begin, std::size_t byte_count) noexcept {
    const bool touches = touches_;
    // A hint: any value is right.
    const std::uint32_t share = touches ? kShareUnits : device_.share.load_relaxed();
    const std::uint64_t piece_bytes_max =
        touches ? std::min<std::uint64_t>(device_.piece_bytes_max, kTouchedPieceBytesMax)
                : device_.piece_bytes_max;
    const std::size_t most = kPieceMax * piece_bytes_max / share * kShareUnits;
    const std::size_t round_bytes = std::min(byte_count, most);
    const std::size_t device_bytes = round_bytes / kShareUnits * share;
    const std::size_t wanted = std::clamp<std::size_t>(device_bytes / kPieceBytesMin, 1, kPieceMax);
    const std::size_t even = (device_bytes / wanted + 63) & ~std::size_t{63};
    const std::size_t piece_bytes = std::min<std::size_t>(even, piece_bytes_max);

    std::array<Piece, kPieceMax> pieces;
    std::size_t piece_count = 0;
    std::size_t sent_bytes = 0;
    while (piece_count < kPieceMax && sent_bytes < device_bytes) {
      Piece& piece = pieces[piece_count];
      const std::size_t bytes = std::min(piece_bytes, device_bytes - sent_bytes);
      piece = {kNoSlot, 0, 0, begin + sent_bytes, bytes, touches};
      if (touches) touch(piece.at, bytes);
      if (!send(piece)) break;
      sent_bytes += bytes;
      ++piece_count;
    }
    work(begin + sent_bytes, round_bytes - sent_bytes);

    bool waited = false;
    for (std::size_t i = 0; i < piece_count; ++i) waited = finish(pieces[i]) || waited;
    if (touches) return round_bytes;
    if (piece_count != 0) {
      const std::uint32_t next = waited ? share - 1 : share + 1;
      // A hint: threads may overwrite each other's.
      device_.share.store_relaxed(std::clamp(next, kShareMin, kShareMax));
    }
    // Remainders of page faults. Done with no piece in flight, so that they need no extra slots.
    for (std::size_t i = 0; i < piece_count; ++i) do_range(pieces[i].at, pieces[i].byte_count);
    return round_bytes;
  }

  [[nodiscard]] HeldSlots& held() const noexcept {
    if (held_slots.generation != generation_) held_slots = {generation_, 0};
    return held_slots;
  }

  /// Frees this thread's slots whose records are answered: those of abandoned copies, and perhaps
  /// of one that a handler interrupted, which then finds another number in Device::uses and redoes
  /// its piece.
  void take_back_slots() noexcept {
    for (std::uint64_t left = held().bits; left != 0; left &= left - 1) {
      const auto index = static_cast<std::uint32_t>(std::countr_zero(left));
      if (status_of(device_.slots[index].record) != 0) free_slot(index);
    }
  }

  std::uint32_t take_slot() noexcept {
    if (static_cast<std::uint32_t>(std::popcount(held().bits)) > kHeldSlotsMax) take_back_slots();
    const std::uint32_t index = take_free_slot();
    if (index != kNoSlot || held().bits == 0) return index;
    take_back_slots();
    return take_free_slot();
  }

  std::uint32_t take_free_slot() noexcept {
    std::uint64_t busy = device_.busy.load_relaxed();  // The exchange below decides.
    while (~busy != 0) {
      // edge: device-slot (acq_rel)
      if (device_.busy.compare_exchange_acq_rel(busy, busy | (~busy & (busy + 1)))) {
        const auto index = static_cast<std::uint32_t>(std::countr_one(busy));
        device_.uses[index].fetch_add_relaxed(1);  // Only this thread's while it holds the slot.
        // Before it counts as held: a handler may reclaim only slots submitted and answered.
        clear_status(device_.slots[index].record);
        held().bits |= std::uint64_t{1} << index;
        return index;
      }
    }
    return kNoSlot;
  }

  void free_slot(std::uint32_t index) noexcept {
    if (const std::uint8_t entry = std::exchange(device_.slot_entries[index], 0); entry != 0) {
      device_.entries_used[entry - 1U].fetch_sub_relaxed(1);  // As below; already answered.
    }
    device_.uses[index].fetch_add_relaxed(1);  // As above.
    held().bits &= ~(std::uint64_t{1} << index);
    // edge: device-slot (acq_rel)
    device_.busy.fetch_and_acq_rel(~(std::uint64_t{1} << index));
  }

  static void write_descriptor(DeviceSlot& slot, dsa::Opcode opcode, std::uint32_t more_flags,
                               const dsa::CompletionRecord& record, std::uint64_t source_word,
                               std::uint64_t target_word, std::uint32_t byte_count) noexcept {
    const std::uint32_t flags =
        dsa::flag::record_address_valid | dsa::flag::request_record | more_flags;
    const std::array<std::uint64_t, 8> words{
        std::uint64_t{static_cast<unsigned>(opcode)} << 56U | std::uint64_t{flags} << 32U,
        reinterpret_cast<std::uintptr_t>(&record),
        source_word,
        target_word,
        byte_count,
        0,
        0,
        0};
    __builtin_memcpy(static_cast<void*>(&slot.descriptor), words.data(), sizeof words);
    clear_status(record);
  }

  static void clear_status(const dsa::CompletionRecord& record) noexcept {
    // Relaxed: the submission follows.
    store_relaxed(const_cast<std::uint8_t&>(record.status), std::uint8_t{0});
  }

  bool send(Piece& piece) noexcept {
    const std::uint32_t index = take_slot();
    if (index == kNoSlot) return false;
    DeviceSlot& slot = device_.slots[index];
    piece.use = device_.uses[index].load_relaxed();  // As in take_free_slot().
    write_descriptor(slot, Task::kOpcode, Task::kWrites ? device_.write_flags : 0, slot.record,
                     task_.source_word(piece.at), task_.target_word(piece.at),
                     static_cast<std::uint32_t>(piece.byte_count));
    // edge: device-opened (acquire)
    const std::uint32_t portal_count = device_.portal_count.load_acquire();
    for (std::uint32_t i = 0; i < portal_count; ++i) {
      const std::uint32_t portal = (index + i) % portal_count;
      if (!take_entry(portal, 1)) continue;
      // Before the queue accepts it: the thread that reclaims the slot releases the entry.
      if (device_.entry_counts[portal] != 0) {
        device_.slot_entries[index] = static_cast<std::uint8_t>(portal + 1);
      }
      if (queues_.enqueue(portal, slot.descriptor)) {
        ++totals_.descriptors;
        piece.slot = index;
        piece.portal = portal;
        return true;
      }
    }
    ++totals_.retries;
    free_slot(index);
    return false;
  }

  /// True if the queue is shared, or has a free entry and `spare` more.
  bool take_entry(std::uint32_t portal, std::uint32_t spare) noexcept {
    const std::uint32_t count = device_.entry_counts[portal];
    if (count == 0) return true;
    // Relaxed: a count. Records order the descriptors that it counts.
    if (device_.entries_used[portal].fetch_add_relaxed(1) + 1 + spare <= count) return true;
    device_.entries_used[portal].fetch_sub_relaxed(1);
    return false;
  }

  [[nodiscard]] static std::uint8_t status_of(const dsa::CompletionRecord& record) noexcept {
    // edge: completion-record (acquire)
    return headrace::load_acquire(const_cast<const std::uint8_t&>(record.status));
  }

  /// Waits for a piece and does what the device left, except after a page fault whose pages can be
  /// touched: then the piece is set to the remainder. Returns true if it had to wait.
  bool finish(Piece& piece) noexcept {
    const dsa::CompletionRecord& record = device_.slots[piece.slot].record;
    std::uint8_t status = status_of(record);
    const bool waited = status == 0;
    // Counts instead of reading a clock: a program may have forbidden the time-stamp counter and
    // system calls.
    for (; status == 0 && pauses_left_ != 0 && is_ours() && holds(piece); --pauses_left_) {
      platform::pause();
      status = status_of(record);
    }
    bool is_over = status != 0;
    if (!is_over && is_ours() && holds(piece)) {
      is_over = drain(piece);
      status = status_of(record);  // A late answer still counts.
      is_over = is_over || status != 0;
    }
    // A signal handler has forked and this is the child: all slots are zero here, and the record is
    // the parent's.
    if (!is_ours()) {
      work(piece.at, std::exchange(piece.byte_count, 0));
      return waited;
    }
    // Checked twice: a handler may reclaim the slot between the check and the copy, and the record
    // may then be another piece's.
    const bool held_before = holds(piece);
    const dsa::CompletionRecord answer = held_before ? record : dsa::CompletionRecord{};
    if (!held_before || !holds(piece)) {
      work(piece.at, std::exchange(piece.byte_count, 0));
      return waited;
    }
    const std::size_t done = take_record(piece, answer, status);
    totals_.bytes += done;
    if (is_over) {
      free_slot(piece.slot);
    } else if (Task::kWrites) {
      queues_.end_program();
    }
    piece.at += done;
    piece.byte_count -= done;
    if (is_page_fault(status) && !piece.is_touched) return waited;
    work(piece.at, std::exchange(piece.byte_count, 0));
    return waited;
  }

  /// True once everything that the piece's queue accepted up to the piece has finished.
  bool drain(const Piece& piece) noexcept {
    DeviceSlot& slot = device_.slots[piece.slot];
    // The device now owns two records: the slot must not be reclaimed when one is answered.
    held().bits &= ~(std::uint64_t{1} << piece.slot);
    write_descriptor(slot, dsa::Opcode::drain, 0, slot.drained, 0, 0, 0);
    const auto send_drain = [&] {
      return take_entry(piece.portal, 0) && queues_.enqueue(piece.portal, slot.descriptor);
    };
    bool is_sent = send_drain();
    std::uint8_t status = 0;
    for (; status == 0 && drain_pauses_left_ != 0 && is_ours(); --drain_pauses_left_) {
      // A refused submission costs many pauses.
      if (!is_sent && drain_pauses_left_ % kPausesPerDrain == 0) {
        is_sent = send_drain();
      }
      platform::pause();
      status = status_of(slot.drained);
    }
    if (status != 0 && device_.entry_counts[piece.portal] != 0) {
      device_.entries_used[piece.portal].fetch_sub_relaxed(1);  // As in take_entry().
    }
    return status == DSA_COMP_SUCCESS;
  }

  /// False if a handler of this thread has reclaimed the slot, which happens only after the device
  /// has answered.
  [[nodiscard]] bool holds(const Piece& piece) const noexcept {
    return device_.uses[piece.slot].load_relaxed() == piece.use;  // As in take_free_slot().
  }

  /// False in a child of fork, for its parent's work.
  [[nodiscard]] bool is_ours() const noexcept {
    return device_.generation.load_relaxed() == generation_;  // Set by this thread.
  }

  [[nodiscard]] static bool is_page_fault(std::uint8_t status) noexcept {
    const dsa::Status kind = dsa::status_of(status);
    return status != dsa::kStatusAborted &&
           (kind == dsa::Status::page_fault || kind == dsa::Status::page_fault_refused);
  }

  /// How many bytes of a piece are done.
  std::size_t take_record(const Piece& piece, const dsa::CompletionRecord& record,
                          std::uint8_t status) noexcept {
    if (status == 0) {
      ++totals_.lost;
      device_.usable.store_relaxed(false);  // Advice.
      return 0;
    }
    if (status == DSA_COMP_SUCCESS) {
      // An independent count, here and below.
      if (device_.errors_in_row.load_relaxed() != 0) device_.errors_in_row.store_relaxed(0);
      task_.learn(piece.at, record);
      return piece.byte_count;
    }
    if (is_page_fault(status)) {
      ++totals_.page_faults;
      touches_ = true;
      if (!piece.is_touched) device_.touched_calls_left.store_relaxed(kTouchedCalls);  // A hint.
      return std::min<std::size_t>(record.bytes_completed, piece.byte_count);
    }
    ++totals_.errors;
    if (device_.errors_in_row.fetch_add_relaxed(1) + 1 >= kErrorsMax) {
      device_.usable.store_relaxed(false);  // Advice.
    }
    return 0;
  }

  Device& device_;
  Queues& queues_;
  Task& task_;
  std::uint64_t generation_;
  bool touches_ = false;  ///< Touches pages ahead of the device.
  std::uint64_t pauses_left_;
  std::uint64_t drain_pauses_left_;
  DeviceTotals totals_;
};

}  // namespace headrace::preload
