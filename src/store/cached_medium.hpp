// SPDX-License-Identifier: Apache-2.0
// CachedMedium: pmem's Medium (protocol.hpp) for the headers of a file on a device with a volatile
// cache, which may reorder and tear what is written until it is flushed. The table of headers is a
// copy in this process.
//
//   store        changes the copy: lost when the process ends
//   hand_over    writes what was stored to the device: survives the process
//   drain        also flushes the device: what was stored, and whatever else was written to the
//                device before, is durable
//
// hand_over() appends one record to the log, and a copy of it in case the disk damages one: the
// headers stored since the record before. The state of the file is its table with all records of
// the series that page 0 names, up to the first of which neither is whole. Each flush makes every
// record before it durable, so nothing acknowledged is behind one that is not whole. When a half of
// the log is full, a checkpoint: each step is durable before the next begins:
//   1. the pages of the table that have changed since the checkpoint before, and a first record of
//      another series in the other half, with the headers in pages that the device refuses
//   2. page 0, which names that series
// A crash in step 1 leaves a table of which some headers are newer than the log; the records of the
// old series make these old again, and none of the newer ones was acknowledged. A series has a
// random number, so that no older record in its half can be taken for one of it.
//
// A checkpoint follows also if the device refuses a record, if a flush fails, which may have lost
// one, and at opening, before the first record.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "headrace/base/mutex.hpp"
#include "headrace/pmem/medium.hpp"
#include "layout.hpp"

namespace headrace::store::detail {

/// The rules of the log. For each, tests/unit/store/crash_test.cpp has a protocol that breaks it,
/// and the explorer must find it.
// NOLINTBEGIN(readability-identifier-naming): each is a rule, named by a sentence about the log.
struct LogRules {
  static constexpr bool flushes_before_it_names = true;
  static constexpr bool leaves_what_a_flush_lost = true;
  static constexpr bool carries_what_is_refused = true;
  static constexpr bool begins_with_a_checkpoint = true;
  static constexpr bool draws_the_series = true;  ///< Else counts.
};
// NOLINTEND(readability-identifier-naming)

/// `Device` has `std::optional<std::vector<std::size_t>> write(std::vector<Page>,
/// std::vector<std::size_t> offsets)`, which returns the offsets of pages that fail (nothing: the
/// device does not answer), and `bool flush()`.
///
/// Threading: shared; drain() confined.
template <typename Device, typename Rules = LogRules>
class CachedMedium {
 public:
  /// `slots` is a copy of what the file has before the data.
  CachedMedium(Device& device, const Slots& slots) : device_(device), slots_(slots) {}
  /// Brings the copy, once it has been read, to where the log has it.
  void replay() {
    const Lock lock(mutex_);
    for (const SlotNumber slot : detail::replay(slots_)) note(slot);
    changed_.clear();  // The log has them.
  }
  /// For Durability::process, once the file says so: drain() only hands over.
  void stop_flushing() { flushes_ = false; }

  void store(std::byte* target, std::span<const std::byte> source) {
    const Lock lock(mutex_);
    std::memcpy(target, source.data(), source.size());
    if (target < slots_.header(1)) {
      has_changed_ = true;
    } else {
      note(slots_.slot_at(target));
    }
  }
  void store_word(std::uint64_t& target, std::uint64_t value) {
    auto* const place = reinterpret_cast<std::byte*>(&target);
    {
      const Lock lock(mutex_);
      if (target == value) return;  // The device has it, or gets it with the next record.
      // A header that could not be read may be older than one whose check is taken away.
      if (value == 0 && place >= slots_.header(1)) {
        for (const std::size_t page : std::exchange(unread_, {})) note_all(page, changed_);
        carried_.clear();
      }
    }
    store(place, std::as_bytes(std::span(&value, 1)));
  }
  /// Everything stored is written by the next hand_over().
  void flush(const void* /*begin*/, std::size_t /*byte_count*/) {}
  /// False if what was stored may not survive the process: the device does not answer, or refuses
  /// the log and a checkpoint.
  bool hand_over() {
    // Of two records the newer must be behind.
    const Lock order(order_);
    mutex_.lock();
    if (!has_changed_ && changed_.empty()) {
      mutex_.unlock();
      return true;
    }
    has_changed_ = false;
    const std::set<SlotNumber> changed = std::exchange(changed_, {});
    mutex_.unlock();
    if (!needs_checkpoint_ && append(changed, slots_.series())) return true;
    needs_checkpoint_ = true;
    if (checkpoint()) return true;
    const Lock lock(mutex_);
    has_changed_ = true;
    return false;
  }
  void drain() {
    const bool done = hand_over() && (!flushes_ || device_.flush());
    // A checkpoint's flush may have failed meanwhile, or before, and this one not report the loss.
    const Lock order(order_);
    const bool is_lost = std::exchange(has_lost_, false);
    fault_ = done && !is_lost ? pmem::Fault::none : pmem::Fault::sync_failed;
    if (fault_ == pmem::Fault::none) return;
    needs_checkpoint_ = Rules::leaves_what_a_flush_lost;
    const Lock lock(mutex_);
    has_changed_ = true;
  }
  void persist(const void* /*begin*/, std::size_t /*byte_count*/) { drain(); }
  /// What was written before is not acknowledged, whatever the next drain reports.
  void forget_losses() {
    const Lock order(order_);
    has_lost_ = false;
  }
  /// Makes a checkpoint, which empties the log: if a byte of the log of a closed file changed, all
  /// later records would be lost. If the checkpoint fails, the log stays.
  void close() {
    const Lock order(order_);
    mutex_.lock();
    const bool has_log = !dirty_.empty();
    mutex_.unlock();
    if (has_log) static_cast<void>(checkpoint());
  }
  void label(const char* text) {
    if constexpr (requires { device_.label(text); }) device_.label(text);
  }
  /// Of the last drain.
  [[nodiscard]] pmem::Fault fault() const { return fault_; }
  /// The page could not be read: it is not written either, as it may have headers.
  void mark_unread(std::size_t offset) {
    const Lock lock(mutex_);
    unread_.insert(offset / kPageBytes);
  }
  /// Whether the header there could not be read.
  [[nodiscard]] bool is_unread(const std::byte* place) const {
    const Lock lock(mutex_);
    return unread_.contains(page_of(place));
  }

 private:
  [[nodiscard]] std::size_t page_of(const std::byte* place) const {
    return static_cast<std::size_t>(place - slots_.bytes.data()) / kPageBytes;
  }
  void note(SlotNumber slot) HEADRACE_REQUIRES(mutex_) {
    const std::size_t page = page_of(slots_.header(slot));
    changed_.insert(slot);
    if (unread_.contains(page)) {
      carried_.insert(slot);
    } else {
      dirty_.insert(page);
    }
  }
  /// Adds the slots whose headers are in a page.
  void note_all(std::size_t page, std::set<SlotNumber>& slots) HEADRACE_REQUIRES(mutex_) {
    dirty_.insert(page);
    SlotNumber slot = slots_.slot_at(slots_.bytes.data() + page * kPageBytes);
    for (std::size_t i = 0; i < kPageBytes / kSlotHeaderBytes; ++i, ++slot) {
      if (slot <= slots_.head.slot_count) slots.insert(slot);
    }
  }
  /// Writes a record. False if the device does not take it, or there is no room.
  bool append(const std::set<SlotNumber>& changed, std::uint64_t series) HEADRACE_REQUIRES(order_) {
    mutex_.lock();
    std::vector<Page> pages =
        log_record(slots_, std::vector(changed.begin(), changed.end()), series, position_);
    mutex_.unlock();
    const std::size_t end = position_ + pages.size();
    if (end > slots_.head.log_bytes / kPageBytes) return false;
    std::vector<std::size_t> offsets;
    for (std::size_t page = position_; page < end; ++page) {
      offsets.push_back(slots_.log_offset(series) + page * kPageBytes);
    }
    const auto failed = device_.write(std::move(pages), std::move(offsets));
    if (!failed || !failed->empty()) return false;
    position_ = end;
    return true;
  }
  bool checkpoint() HEADRACE_REQUIRES(order_) {
    if (next_ == 0) {
      std::random_device random;
      const std::uint64_t half = (slots_.series() + 1) % 2;
      next_ = Rules::draws_the_series ? std::uint64_t{random()} << 32U | (random() & ~1U) | half
                                      : slots_.series() + 1;
      next_position_ = 0;
      in_next_.clear();
    }
    mutex_.lock();
    std::set<std::size_t> written = std::exchange(dirty_, {});
    mutex_.unlock();
    const std::optional<std::set<std::size_t>> refused = write(written);
    if (refused) {
      // Also what only an attempt before carried: its record would undo what the pages have now.
      mutex_.lock();
      if (Rules::carries_what_is_refused) {
        in_next_.insert(carried_.begin(), carried_.end());
        for (const std::size_t page : *refused) note_all(page, in_next_);
      }
      mutex_.unlock();
      position_ = next_position_;
      if ((in_next_.empty() || append(in_next_, next_)) &&
          (!Rules::flushes_before_it_names || flush())) {
        next_position_ = position_;
        if (name(next_)) {
          next_ = 0;
          needs_checkpoint_ = false;
          return true;
        }
      }
    }
    const Lock lock(mutex_);
    dirty_.merge(written);
    return false;
  }
  /// Writes page 0 with the series, durably.
  bool name(std::uint64_t series) HEADRACE_REQUIRES(order_) {
    mutex_.lock();
    const std::uint64_t before = std::exchange(slots_.series(), series);
    mutex_.unlock();
    const std::optional<std::set<std::size_t>> refused = write({0});
    if (refused && refused->empty() && flush()) return true;
    // Either series may be named now: the next attempt keeps both.
    const Lock lock(mutex_);
    slots_.series() = before;
    return false;
  }
  bool flush() HEADRACE_REQUIRES(order_) {
    const bool done = !flushes_ || device_.flush();
    has_lost_ = has_lost_ || !done;
    return done;
  }
  /// Returns the pages that the device refuses; nothing if it does not answer.
  std::optional<std::set<std::size_t>> write(const std::set<std::size_t>& pages)
      HEADRACE_REQUIRES(order_) {
    std::vector<Page> images(pages.size());
    std::vector<std::size_t> offsets;
    mutex_.lock();
    for (const std::size_t page : pages) {
      std::memcpy(&images[offsets.size()], slots_.bytes.data() + page * kPageBytes, kPageBytes);
      offsets.push_back(page * kPageBytes);
    }
    mutex_.unlock();
    const auto failed = device_.write(std::move(images), std::move(offsets));
    if (!failed) return std::nullopt;
    std::set<std::size_t> refused;
    for (const std::size_t offset : *failed) refused.insert(offset / kPageBytes);
    return refused;
  }

  Device& device_;
  const Slots slots_;
  bool flushes_ = true;
  pmem::Fault fault_ = pmem::Fault::none;
  Mutex order_;
  bool needs_checkpoint_ HEADRACE_GUARDED_BY(order_) = Rules::begins_with_a_checkpoint;
  bool has_lost_ HEADRACE_GUARDED_BY(order_) = false;  ///< In a checkpoint, since the last drain.
  std::size_t position_ HEADRACE_GUARDED_BY(order_) = 0;  ///< In the half, in pages.
  /// The series of a checkpoint that did not succeed, and the end of its records that are durable.
  std::uint64_t next_ HEADRACE_GUARDED_BY(order_) = 0;
  std::size_t next_position_ HEADRACE_GUARDED_BY(order_) = 0;
  std::set<SlotNumber> in_next_ HEADRACE_GUARDED_BY(order_);  ///< What its records have.
  mutable Mutex mutex_;
  std::set<SlotNumber> changed_ HEADRACE_GUARDED_BY(mutex_);  ///< Since the last record.
  bool has_changed_ HEADRACE_GUARDED_BY(mutex_) = false;  ///< Page 0 has, or all shall be written.
  std::set<std::size_t> dirty_ HEADRACE_GUARDED_BY(mutex_);  ///< Since the last checkpoint.
  std::set<std::size_t> unread_ HEADRACE_GUARDED_BY(mutex_);
  std::set<SlotNumber> carried_
      HEADRACE_GUARDED_BY(mutex_);  ///< In pages not read: in the log only.
};

}  // namespace headrace::store::detail
