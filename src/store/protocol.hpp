// SPDX-License-Identifier: Apache-2.0
// The order of stores to a tier's file, for any memory with Medium's interface: a mapped file, and
// the recorder of the crash explorer (tests/unit/store/crash_test.cpp).
//
// A slot holds a block if the check of its header matches the rest of the header. Each step is
// durable before the next begins:
//   1. the check in the header of a given-up slot is set to 0 (invalidate, settle)
//   2. other data is written to the slot and made durable (the engine, settle)
//   3. the header is stored and made durable                    (publish, drain): acknowledged
// So whenever power fails, a header whose check matches belongs to the data of its slot: before
// step 1 is durable the slot still has the data of the old header, and step 3 begins after step 2.
// The check of a torn header does not match. Of two entries of a key, that with the greater
// sequence is valid.
//
// Durability::process makes no step durable. The mark of the file says so, durably and before the
// first store; the next adopt() decides by it which headers may be believed:
//   0           all: every step was durable before the next began
//   this boot   all: the page cache still has every store
//   another     those whose data matches their checksum: the machine has restarted since, or the
//               file is a copy, so a header may be on the disk without its data
#pragma once

#include "headrace/pmem/medium.hpp"
#include "layout.hpp"

namespace headrace::store::detail {

/// The rules of the protocol. For each, tests/unit/store/crash_test.cpp has a protocol that breaks
/// it, and the explorer must find it.
// NOLINTBEGIN(readability-identifier-naming): each is a rule, named by a sentence about the file.
struct FileRules {
  static constexpr bool marks_what_is_not_flushed = true;
};
// NOLINTEND(readability-identifier-naming)

/// Step 1, first half: one store, which survives the end of the process at once.
template <typename Medium>
void invalidate(Medium& medium, std::byte* place) {
  medium.label("take the check away");
  medium.store_word(*reinterpret_cast<std::uint64_t*>(place), 0);
}

/// Step 1, second half, for `given_up`; step 2 for `data`, which the engine has already made
/// durable unless the granularity is page.
template <typename Medium>
void settle(Medium& medium, std::span<std::byte* const> given_up,
            std::span<const std::span<const std::byte>> data) {
  medium.label("settle");
  for (const std::byte* const place : given_up) medium.flush(place, sizeof(std::uint64_t));
  if (medium.granularity() == pmem::Granularity::page) {
    for (const std::span<const std::byte> each : data) medium.flush(each.data(), each.size());
  }
  if (!given_up.empty() || !data.empty()) medium.drain();
}

/// Step 3 for one header; durable after drain().
template <typename Medium>
void publish(Medium& medium, std::byte* place, const SlotHeader& header) {
  medium.label("publish");
  medium.store(place, std::as_bytes(std::span(&header, 1)));
  medium.flush(place, sizeof(header));
}

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
    if (durability == Durability::power) {
      medium.label("adopt");
      medium.persist(slots.table().data(), slots.table().size());
    }
  }
  if (before != after && medium.fault() == pmem::Fault::none) {
    medium.label("mark");
    medium.store_word(slots.mark(), after);
    medium.persist(&slots.mark(), sizeof(std::uint64_t));
  }
  return dropped;
}

}  // namespace headrace::store::detail
