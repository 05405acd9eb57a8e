// SPDX-License-Identifier: Apache-2.0
#include "support/operation_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <ostream>

#include "support/guarded_buffer.hpp"

namespace headrace::test {
namespace {

using engine::Cause;
using engine::CrcOptions;
using engine::DifBlock;
using engine::DifFormat;
using engine::DifSource;
using engine::DifTags;
using engine::DifTarget;
using engine::Operation;
using engine::OperationKind;

constexpr std::size_t kRoomBytes = 320U << 10U;
constexpr std::size_t kAroundBytes = 4096;

constexpr std::array kKinds{OperationKind::copy,         OperationKind::fill,
                            OperationKind::compare,      OperationKind::compare_pattern,
                            OperationKind::create_delta, OperationKind::apply_delta,
                            OperationKind::dualcast,     OperationKind::crc,
                            OperationKind::copy_crc,     OperationKind::dif_check,
                            OperationKind::dif_insert,   OperationKind::dif_strip,
                            OperationKind::dif_update,   OperationKind::cache_flush};

std::span<std::byte> room(std::size_t index) {
  static std::deque<GuardedBuffer> rooms;
  while (rooms.size() <= index) rooms.emplace_back(kRoomBytes);
  return rooms[index].bytes();
}

void fill_randomly(std::span<std::byte> bytes, Random& random) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, std::min(sizeof word, bytes.size() - at));
  }
}

/// CRC with the T10 polynomial, one bit at a time.
std::uint16_t guard_of(std::span<const std::byte> block, const DifFormat& format) {
  unsigned guard = format.invert_seed ? 0xffffU : 0U;
  for (const std::byte value : block) {
    guard ^= std::to_integer<unsigned>(value) << 8U;
    for (int bit = 0; bit < 8; ++bit) {
      guard = (guard & 0x8000U) != 0 ? (guard << 1U ^ 0x8bb7U) & 0xffffU : guard << 1U & 0xffffU;
    }
  }
  return static_cast<std::uint16_t>(format.invert_guard ? ~guard : guard);
}

void store_big(std::byte* place, std::uint64_t value, unsigned byte_count) {
  for (unsigned i = 0; i < byte_count; ++i) {
    place[i] = static_cast<std::byte>(value >> (8U * (byte_count - 1 - i)));
  }
}

}  // namespace

std::span<const OperationKind> kinds_with_operands() {
  return kKinds;
}

Finding finding_of(const engine::Completion& outcome) {
  return {outcome.cause, outcome.bytes_done, outcome.result};
}

void PrintTo(const Finding& finding, std::ostream* stream) {
  const engine::OperationResult& r = finding.result;
  *stream << fmt::format(
      "cause {} done {} different {} at {} full {} delta {} crc {:#x} dif {:#x} source tags "
      "{:#x}/{:#x}/{:#x} target tags {:#x}/{:#x}/{:#x}",
      engine::name(finding.cause), finding.bytes_done, r.different, r.difference_offset,
      r.record_full, r.delta_bytes, r.crc, r.dif_errors, r.source_tags.reference,
      r.source_tags.application, r.source_tags.application_mask, r.target_tags.reference,
      r.target_tags.application, r.target_tags.application_mask);
}

std::string shown(const Operation& operation) {
  return fmt::format("{} of {} bytes, options {:#x}, target {}+{}, source {}+{}, second {}+{}",
                     engine::name(operation.kind()), operation.byte_count(),
                     operation.option_bits(), fmt::ptr(operation.target().data()),
                     operation.target().size(), fmt::ptr(operation.source().data()),
                     operation.source().size(), fmt::ptr(operation.second_source().data()),
                     operation.second_source().size());
}

OperationCase::OperationCase(OperationKind kind, std::size_t byte_count, Random& random,
                             std::size_t memory)
    : random_(random), memory_(memory), operation_(make(kind, byte_count)) {}

/// Returns random bytes in a separate room with random surroundings. `phase`: offset within a page.
std::span<std::byte> OperationCase::place(std::size_t byte_count, bool written,
                                          std::size_t alignment, std::size_t phase) {
  const std::span<std::byte> all = room(memory_ * operands_.size() + operand_count_);
  std::size_t offset = 0;
  if (phase != kAnyPhase) {
    offset = phase;  // Rooms are page-aligned.
  } else if (random_.chance(1, 4)) {
    offset = (all.size() - byte_count) / alignment * alignment;
  } else {
    offset = random_.below(all.size() - byte_count + 1) / alignment * alignment;
  }
  const std::size_t first = offset - std::min(offset, kAroundBytes);
  const std::size_t end = std::min(offset + byte_count + kAroundBytes, all.size());
  Operand& operand = operands_.at(operand_count_++);
  operand = {all.subspan(offset, byte_count), all.subspan(first, end - first), written};
  fill_randomly(operand.region, random_);
  return operand.bytes;
}

std::vector<std::byte> OperationCase::snapshot() const {
  std::vector<std::byte> all;
  for (const Operand& operand : operands_) {
    all.insert(all.end(), operand.region.begin(), operand.region.end());
  }
  return all;
}

void OperationCase::restore(std::span<const std::byte> snapshot) {
  for (const Operand& operand : operands_) {
    std::ranges::copy(snapshot.first(operand.region.size()), operand.region.begin());
    snapshot = snapshot.subspan(operand.region.size());
  }
}

bool OperationCase::is_target(std::size_t index) const {
  for (const Operand& operand : operands_) {
    if (index < operand.region.size()) {
      const auto first = static_cast<std::size_t>(operand.bytes.data() - operand.region.data());
      return operand.written && index >= first && index - first < operand.bytes.size();
    }
    index -= operand.region.size();
  }
  return false;
}

/// Flips zero to three bits.
void OperationCase::spoil(std::span<std::byte> bytes) {
  const std::uint64_t count = random_.below(4);
  for (std::uint64_t i = 0; i < count; ++i) {
    bytes[random_.below(bytes.size())] ^= static_cast<std::byte>(1U << random_.below(8));
  }
}

Operation OperationCase::make(OperationKind kind, std::size_t byte_count) {
  switch (kind) {
    case OperationKind::copy: {
      if (random_.chance(1, 16)) {
        const std::span<std::byte> same = place(byte_count, true);
        return Operation::copy(same, same);
      }
      const std::span<std::byte> source = place(byte_count, false);
      return Operation::copy(place(byte_count, true), source);
    }
    case OperationKind::fill: {
      const std::span<std::byte> target = place(byte_count, true);
      switch (random_.below(4)) {
        case 0:
          return Operation::fill(target, random_(), random_());
        case 1:
          return Operation::fill(target, random_.below(256) * 0x0101010101010101U);
        default:
          return Operation::fill(target, random_());
      }
    }
    case OperationKind::compare: {
      const std::span<std::byte> one = place(byte_count, false);
      const std::span<std::byte> other = place(byte_count, false);
      std::ranges::copy(one, other.begin());
      spoil(other);
      return Operation::compare(one, other);
    }
    case OperationKind::compare_pattern: {
      const std::uint64_t pattern = random_();
      const std::span<std::byte> source = place(byte_count, false);
      for (std::size_t i = 0; i < byte_count; ++i) {
        source[i] = static_cast<std::byte>(pattern >> (i % 8 * 8));
      }
      spoil(source);
      return Operation::compare_pattern(source, pattern);
    }
    case OperationKind::create_delta:
      return make_delta(byte_count);
    case OperationKind::apply_delta:
      return make_apply(byte_count);
    case OperationKind::dualcast: {
      const std::span<std::byte> source = place(byte_count, false);
      const std::span<std::byte> target = place(byte_count, true);
      const auto phase = reinterpret_cast<std::uintptr_t>(target.data()) % 4096;
      return Operation::dualcast(target, place(byte_count, true, 1, phase), source);
    }
    case OperationKind::crc:
    case OperationKind::copy_crc: {
      const CrcOptions options{static_cast<std::uint32_t>(random_()), random_.chance(1, 2),
                               random_.chance(1, 2)};
      const std::span<std::byte> source = place(byte_count, false);
      if (kind == OperationKind::crc) return Operation::crc(source, options);
      return Operation::copy_crc(place(byte_count, true), source, options);
    }
    case OperationKind::dif_check:
    case OperationKind::dif_insert:
    case OperationKind::dif_strip:
    case OperationKind::dif_update:
      return make_dif(kind, byte_count);
    case OperationKind::cache_flush:
      return Operation::cache_flush(place(byte_count, true));
    case OperationKind::no_op:
    case OperationKind::drain:
      break;
  }
  return Operation::no_op();
}

Operation OperationCase::make_delta(std::size_t byte_count) {
  byte_count = (byte_count + 7) / 8 * 8;
  const std::span<std::byte> before = place(byte_count, false, 8);
  const std::span<std::byte> after = place(byte_count, false, 8);
  std::ranges::copy(before, after.begin());
  const std::uint64_t change_count = random_.below(random_.chance(1, 2) ? 3 : 400);
  for (std::uint64_t i = 0; i < change_count; ++i) spoil(after);
  const std::size_t room_bytes =
      std::max(engine::kDeltaRoomMin, random_.below(byte_count / 2 + 2000));
  return Operation::create_delta(place(room_bytes, true, 8), before, after);
}

Operation OperationCase::make_apply(std::size_t byte_count) {
  const std::size_t unit_count = (byte_count + 7) / 8;
  std::vector<std::size_t> units;
  const std::uint64_t distance = 1 + random_.below(200);
  for (std::size_t at = random_.below(unit_count); at < unit_count;
       at += 1 + random_.below(distance)) {
    units.push_back(at);
  }
  if (random_.chance(1, 8)) units.back() = unit_count + random_.below(3);
  if (random_.chance(1, 8)) units.push_back(units.front());
  if (random_.chance(1, 8)) units[random_.below(units.size())] = random_.below(unit_count);
  const std::span<std::byte> record = place(units.size() * engine::kDeltaEntryBytes, false, 8);
  for (std::size_t i = 0; i < units.size(); ++i) {
    record[i * engine::kDeltaEntryBytes] = static_cast<std::byte>(units[i]);
    record[i * engine::kDeltaEntryBytes + 1] = static_cast<std::byte>(units[i] >> 8U);
  }
  return Operation::apply_delta(place(unit_count * 8, true, 8), record);
}

DifTags OperationCase::any_tags() {
  constexpr std::array<std::uint32_t, 3> kEdges{0, 0xffff'fffe, 0xffff'ffff};
  const std::uint32_t drawn = static_cast<std::uint32_t>(random_());
  return {random_.chance(1, 4) ? kEdges.at(random_.below(3)) : drawn,
          static_cast<std::uint16_t>(random_.chance(1, 4) ? 0xffffU - random_.below(3)
                                                          : random_.below(0x10000)),
          static_cast<std::uint16_t>(random_.chance(1, 2) ? 0U : random_.below(0x10000))};
}

/// Corrupts the data, field or tags of some blocks.
void OperationCase::spoil_fields(std::span<std::byte> blocks, std::size_t block_bytes) {
  const std::size_t whole = block_bytes + engine::kDifFieldBytes;
  if (random_.chance(1, 3)) return;
  const bool often = random_.chance(1, 2);
  for (std::size_t at = 0; at < blocks.size(); at += whole) {
    if (!random_.chance(1, often ? 8 : 100)) continue;
    const std::span<std::byte> field = blocks.subspan(at + block_bytes, engine::kDifFieldBytes);
    switch (random_.below(7)) {
      case 0:
        spoil(blocks.subspan(at, block_bytes));
        break;
      case 1:
        spoil(field);
        break;
      case 2:
        std::ranges::fill(field.subspan(2, 2), std::byte{0xff});
        break;
      case 3:
        std::ranges::fill(field.subspan(2), std::byte{0xff});
        break;
      case 4:
        std::ranges::fill(field, std::byte{0xff});
        break;
      case 5:
        std::ranges::fill(field.first(4), std::byte{0xff});
        break;
      default:
        spoil(field.first(2));
        break;
    }
  }
}

Operation OperationCase::make_dif(OperationKind kind, std::size_t byte_count) {
  const DifFormat format{static_cast<DifBlock>(random_.below(4)), random_.chance(1, 2),
                         random_.chance(1, 2)};
  const std::size_t block = engine::block_bytes(format.block);
  const std::size_t whole = block + engine::kDifFieldBytes;
  const std::size_t count = 1 + byte_count / whole;
  const DifTarget target{any_tags(),           random_.chance(1, 2), random_.chance(1, 2),
                         random_.chance(1, 2), random_.chance(1, 2), random_.chance(1, 2)};
  if (kind == OperationKind::dif_insert) {
    const std::span<std::byte> source = place(count * block, false);
    return Operation::dif_insert(place(count * whole, true), source, format, target);
  }
  // Some switches are rarely set: together they would disable all checks.
  const DifSource check{any_tags(),           random_.chance(7, 8), random_.chance(7, 8),
                        random_.chance(1, 2), random_.chance(1, 2), random_.chance(1, 4),
                        random_.chance(1, 4), random_.chance(1, 4), random_.chance(1, 4)};
  const std::span<std::byte> source = place(count * whole, false);
  DifTags tags = check.tags;
  for (std::size_t at = 0; at < source.size(); at += whole) {
    std::byte* const field = source.data() + at + block;
    store_big(field, guard_of(source.subspan(at, block), format), 2);
    // Masked-out bits stay random.
    const unsigned masked =
        std::to_integer<unsigned>(field[2]) << 8U | std::to_integer<unsigned>(field[3]);
    store_big(
        field + 2,
        (tags.application & ~unsigned{tags.application_mask}) | (masked & tags.application_mask),
        2);
    store_big(field + 4, tags.reference, 4);
    if (check.increment_application) ++tags.application;
    if (!check.fixed_reference) ++tags.reference;
  }
  spoil_fields(source, block);
  if (kind == OperationKind::dif_check) return Operation::dif_check(source, format, check);
  if (kind == OperationKind::dif_strip) {
    return Operation::dif_strip(place(count * block, true), source, format, check);
  }
  return Operation::dif_update(place(count * whole, true), source, format, check, target);
}

}  // namespace headrace::test
