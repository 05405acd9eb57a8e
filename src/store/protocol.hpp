// SPDX-License-Identifier: Apache-2.0
// The order of stores to a tier's file, for any memory with Medium's interface: a mapped file, the
// table of headers of a file on a device with a volatile cache (cached_medium.hpp), and both in the
// crash explorer (tests/unit/store/crash_test.cpp).
//
// A slot holds a block if the check of its header matches the rest of the header. Each step is
// durable before the next begins:
//   1. the check in the header of a retired slot is set to 0    (invalidate, Round::flush)
//   2. other data is written to the slot and made durable        (the engine, Round::flush)
//   3. the header is stored and made durable                     (Round::finish): acknowledged
// So whenever power fails, a header whose check matches belongs to the data of its slot: before
// step 1 is durable the slot still has the data of the old header, and step 3 begins after step 2.
// The check of a torn header does not match. Of two entries of a key, that with the greater
// sequence is valid.
//
// If every block of a round has a checksum, steps 2 and 3 can share a flush: the headers have the
// number of the round, a stamp. The file has the greatest stamp whose flush has succeeded, written
// with the next round. After a crash adopt() compares the data of headers with greater stamps,
// which are those of a round or two, with their checksums.
//
// After a fault no step follows. A killed process may have done a step without making it durable:
// adopt() does that before anything acts on the step.
//
// Durability::process makes no step durable. The mark of the file says so, durably and before the
// first store; the next adopt() decides by it which headers may be believed:
//   0           all up to the proven stamp: every step was durable before the next began
//   this boot   the same: the page cache, and the cache of the device, still have every store
//   another     those whose data matches their checksum: the machine has restarted since, or the
//               file is a copy, so a header may be on the disk without its data
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "headrace/pmem/medium.hpp"
#include "layout.hpp"

namespace headrace::store::detail {

/// The rules of the protocol. For each, tests/unit/store/crash_test.cpp has a protocol that breaks
/// it, and the explorer must find it.
// NOLINTBEGIN(readability-identifier-naming): each is a rule, named by a sentence about the file.
struct FileRules {
  static constexpr bool flushes_the_checks = true;
  static constexpr bool flushes_the_data = true;
  static constexpr bool stops_at_a_fault = true;
  static constexpr bool checks_both_ends = true;  ///< Of a copy; else only its target.
  static constexpr bool orders_by_put = true;     ///< Else by publication.
  static constexpr bool makes_the_table_durable = true;
  static constexpr bool marks_what_is_not_flushed = true;
  static constexpr bool proves_after_the_flush = true;  ///< Else with it.
  static constexpr bool compares_what_is_not_proven = true;
};
// NOLINTEND(readability-identifier-naming)

/// Sequences of entries: greater for a later put, whenever its header is stored.
///
/// Threading: confined.
template <typename Rules = FileRules>
class Sequences {
 public:
  [[nodiscard]] std::uint64_t at_put() { return Rules::orders_by_put ? ++last_ : 0; }
  [[nodiscard]] std::uint64_t at_publication(std::uint64_t at_put) {
    return Rules::orders_by_put || at_put != 0 ? at_put : ++last_;
  }
  /// Later sequences are greater.
  void pass(std::uint64_t sequence) { last_ = std::max(last_, sequence); }

 private:
  std::uint64_t last_ = 0;
};

/// Whether a copy has what its source had: a page that cannot be read or written is replaced by
/// zeros, at either end.
template <typename Rules = FileRules>
[[nodiscard]] bool is_copied(pmem::Fault source, pmem::Fault target) {
  return target == pmem::Fault::none && (!Rules::checks_both_ends || source == pmem::Fault::none);
}

/// Step 1, first half: one store, which survives the end of the process at once.
template <typename Medium>
void invalidate(Medium& medium, std::byte* place) {
  medium.label("take the check away");
  medium.store_word(*reinterpret_cast<std::uint64_t*>(place), 0);
}

/// The steps for many slots, with two drains, or with one if the headers have a stamp.
///
/// Threading: confined.
template <typename Medium, typename Rules = FileRules>
class Round {
 public:
  /// `stamp` 0: no header counts before its data is durable.
  Round(Medium& medium, const Slots& slots, std::uint64_t stamp = 0)
      : medium_(medium), slots_(slots), stamp_(stamp) {}

  /// Step 1 for a slot.
  void retire(SlotNumber slot) {
    invalidate(medium_, slots_.header(slot));
    if (Rules::flushes_the_checks) medium_.flush(slots_.header(slot), sizeof(std::uint64_t));
  }
  /// Ends steps 1 and 2, unless the stamp lets them end with step 3. Data in mapped memory is
  /// durable before. False after a fault: then nothing may be published.
  [[nodiscard]] bool flush() {
    if (stamp_ != 0) return true;
    medium_.label("flush");
    if (Rules::flushes_the_data || !is_cached) medium_.drain();
    return !Rules::stops_at_a_fault || medium_.fault() == pmem::Fault::none;
  }
  /// Step 3 for a slot.
  void publish(SlotNumber slot, SlotHeader header) {
    medium_.label("publish");
    stamp(header, slot, stamp_);
    medium_.store(slots_.header(slot), std::as_bytes(std::span(&header, 1)));
    medium_.flush(slots_.header(slot), sizeof(header));
  }
  /// Ends step 3. False after a fault: then nothing is acknowledged.
  [[nodiscard]] bool finish() {
    if (!Rules::proves_after_the_flush && stamp_ != 0) prove();
    medium_.drain();
    if (medium_.fault() != pmem::Fault::none) return false;
    if (Rules::proves_after_the_flush && stamp_ != 0) prove();
    return true;
  }

 private:
  /// A medium that flushes all of its device, and so data that was not named to it.
  static constexpr bool is_cached = requires(Medium& medium) { medium.hand_over(); };

  void prove() {
    medium_.store_word(slots_.proven(), stamp_);
    medium_.flush(&slots_.proven(), sizeof(std::uint64_t));
  }

  Medium& medium_;
  const Slots slots_;
  const std::uint64_t stamp_;
};

/// Brings the headers of a mapped file to where its log has them, and ends the log: the file was on
/// a disk before. Also if there seems to be none: that may not be durable yet.
template <typename Medium>
void leave_log(Medium& medium, const Slots& slots) {
  const auto before_data = slots.bytes.first(slots.head.data_offset);
  std::vector<std::byte> copy(before_data.begin(), before_data.end());
  const Slots logged{.bytes = copy, .head = slots.head};
  const std::set<SlotNumber> changed = replay(logged);
  for (const SlotNumber slot : changed) {
    medium.store(slots.header(slot), {logged.header(slot), kSlotHeaderBytes});
  }
  medium.store_word(slots.mark(), logged.mark());
  medium.store_word(slots.proven(), logged.proven());
  medium.flush(&slots.mark(), 2 * sizeof(std::uint64_t));
  medium.persist(slots.table().data(), slots.table().size());
  medium.store_word(slots.series(), 0);  // Far from any that replay() would correct it to.
  medium.persist(&slots.series(), sizeof(std::uint64_t));
}

/// What adopt() found.
struct Adopted {
  std::uint64_t dropped = 0;  ///< Entries without their data.
  std::uint64_t stamp = 0;    ///< The greatest one.
};

/// Makes every whole header of the file one that may be acted on, and sets the mark for stores with
/// `durability`. `boot` identifies the file and this run of the machine. `matches` compares the
/// data of a slot with the checksum in its header. What it returns counts only if `medium` has no
/// fault afterwards.
template <typename Rules = FileRules, typename Medium, typename Matches>
[[nodiscard]] Adopted adopt(Medium& medium, const Slots& slots, Durability durability,
                            std::uint64_t boot, const Matches& matches) {
  constexpr bool kIsCached = requires { medium.hand_over(); };
  const std::uint64_t before = slots.mark();
  const std::uint64_t after =
      durability == Durability::process && Rules::marks_what_is_not_flushed ? boot : 0;
  const std::uint64_t proven = slots.proven();
  Adopted result{.stamp = proven};
  for (SlotNumber slot = 1; slot <= slots.head.slot_count; ++slot) {
    SlotHeader header;
    if (slots.read(slot, header) != SlotState::whole) continue;
    const bool is_doubted = (before != 0 && before != boot) ||
                            (Rules::compares_what_is_not_proven && header.stamp > proven);
    if (is_doubted && (header.has_crc == 0 || !matches(slot, header))) {
      invalidate(medium, slots.header(slot));
      ++result.dropped;
      continue;
    }
    result.stamp = std::max(result.stamp, header.stamp);
    if constexpr (!kIsCached) {
      if (durability == Durability::power && (before != 0 || header.stamp > proven)) {
        medium.flush(slots.data(slot, header.byte_count).data(), header.byte_count);
      }
    }
  }
  const bool is_power = durability == Durability::power && Rules::makes_the_table_durable;
  if (is_power) {
    medium.label("adopt");
    medium.persist(slots.table().data(), slots.table().size());
  }
  const bool proves = durability == Durability::power && result.stamp != proven;
  if ((before != after || proves) && medium.fault() == pmem::Fault::none) {
    medium.label("mark");
    medium.store_word(slots.mark(), after);
    if (proves) medium.store_word(slots.proven(), result.stamp);
    medium.persist(&slots.mark(), 2 * sizeof(std::uint64_t));
  }
  return result;
}

/// What is known of a key from the slots before.
struct Known {
  std::uint64_t sequence = 0;
  bool has_copy = false;  ///< In the same file.
};

enum class Verdict : std::uint8_t { free, drop, keep, replace };

/// What recovery does with a slot after adopt(), whatever the order of files and slots: of each key
/// the newest version stays, with one copy in a file. `replace` ends the older version first.
[[nodiscard]] inline Verdict judge(SlotState state, const SlotHeader& header,
                                   const std::optional<Known>& known) {
  if (state != SlotState::whole) return state == SlotState::empty ? Verdict::free : Verdict::drop;
  if (known && header.sequence > known->sequence) return Verdict::replace;
  const bool is_another = known && (header.sequence < known->sequence || known->has_copy);
  return is_another ? Verdict::drop : Verdict::keep;
}

}  // namespace headrace::store::detail
