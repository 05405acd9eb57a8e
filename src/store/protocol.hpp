// SPDX-License-Identifier: Apache-2.0
// The order of stores to a tier's file, for any memory with Medium's interface: a mapped file, and
// the recorder of the crash explorer (tests/unit/store/crash_test.cpp).
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
// After a fault no step follows. A killed process may have done a step without making it durable:
// adopt() does that before anything acts on the step.
//
// Durability::process makes no step durable. The mark of the file says so, durably and before the
// first store; the next adopt() decides by it which headers may be believed:
//   0           all: every step was durable before the next began
//   this boot   all: the page cache still has every store
//   another     those whose data matches their checksum: the machine has restarted since, or the
//               file is a copy, so a header may be on the disk without its data
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

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

/// The steps for many slots, with two drains.
///
/// Threading: confined.
template <typename Medium, typename Rules = FileRules>
class Round {
 public:
  Round(Medium& medium, const Slots& slots) : medium_(medium), slots_(slots) {}

  /// Step 1 for a slot.
  void retire(SlotNumber slot) {
    invalidate(medium_, slots_.header(slot));
    if (Rules::flushes_the_checks) medium_.flush(slots_.header(slot), sizeof(std::uint64_t));
  }
  /// Step 2 for `data`, which the engine has already made durable unless the granularity is page.
  void add(std::span<const std::byte> data) {
    const bool is_durable = medium_.granularity() != pmem::Granularity::page;
    if (!is_durable && Rules::flushes_the_data) medium_.flush(data.data(), data.size());
  }
  /// Ends steps 1 and 2. False after a fault: then nothing may be published.
  [[nodiscard]] bool flush() {
    medium_.label("flush");
    medium_.drain();
    return !Rules::stops_at_a_fault || medium_.fault() == pmem::Fault::none;
  }
  /// Step 3 for a slot.
  void publish(SlotNumber slot, const SlotHeader& header) {
    medium_.label("publish");
    medium_.store(slots_.header(slot), std::as_bytes(std::span(&header, 1)));
    medium_.flush(slots_.header(slot), sizeof(header));
  }
  /// Ends step 3. False after a fault: then nothing is acknowledged.
  [[nodiscard]] bool finish() {
    medium_.drain();
    return medium_.fault() == pmem::Fault::none;
  }

 private:
  Medium& medium_;
  const Slots slots_;
};

/// Makes every whole header of the file one that may be acted on, and sets the mark for stores with
/// `durability`. `boot` identifies the file and this run of the machine. `matches` compares the
/// data of a slot with the checksum in its header. Returns the number of dropped entries; they
/// count only if `medium` has no fault afterwards.
template <typename Rules = FileRules, typename Medium, typename Matches>
[[nodiscard]] std::uint64_t adopt(Medium& medium, const Slots& slots, Durability durability,
                                  std::uint64_t boot, const Matches& matches) {
  const std::uint64_t before = slots.mark();
  const std::uint64_t after =
      durability == Durability::process && Rules::marks_what_is_not_flushed ? boot : 0;
  std::uint64_t dropped = 0;
  if (before != 0) {
    for (SlotNumber slot = 1; slot <= slots.head.slot_count; ++slot) {
      SlotHeader header;
      if (slots.read(slot, header) != SlotState::whole) continue;
      if (before != boot && (header.has_crc == 0 || !matches(slot, header))) {
        invalidate(medium, slots.header(slot));
        ++dropped;
      } else if (durability == Durability::power) {
        medium.flush(slots.data(slot, header.byte_count).data(), header.byte_count);
      }
    }
  }
  if (durability == Durability::power && Rules::makes_the_table_durable) {
    medium.label("adopt");
    medium.persist(slots.table().data(), slots.table().size());
  }
  if (before != after && medium.fault() == pmem::Fault::none) {
    medium.label("mark");
    medium.store_word(slots.mark(), after);
    medium.persist(&slots.mark(), sizeof(std::uint64_t));
  }
  return dropped;
}

}  // namespace headrace::store::detail
