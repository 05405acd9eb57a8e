// SPDX-License-Identifier: Apache-2.0
// Integrity fields (T10 DIF): check, insert, strip, update, block by block; guards by ISA-L. A
// block counts as done once it is checked and written whole; a bad one is not written.
#include <isa-l/crc.h>

#include <cstring>

#include "software.hpp"

namespace headrace::engine::software {
namespace {

struct Field {
  std::uint16_t guard = 0;
  std::uint16_t application = 0;
  std::uint32_t reference = 0;
};

/// Big-endian in memory.
Field load_field(const std::byte* at) {
  Field field;
  std::memcpy(&field.guard, at, 2);
  std::memcpy(&field.application, at + 2, 2);
  std::memcpy(&field.reference, at + 4, 4);
  return {__builtin_bswap16(field.guard), __builtin_bswap16(field.application),
          __builtin_bswap32(field.reference)};
}

void store_field(std::byte* at, const Field& field) {
  const std::uint16_t guard = __builtin_bswap16(field.guard);
  const std::uint16_t application = __builtin_bswap16(field.application);
  const std::uint32_t reference = __builtin_bswap32(field.reference);
  std::memcpy(at, &guard, 2);
  std::memcpy(at + 2, &application, 2);
  std::memcpy(at + 4, &reference, 4);
}

std::uint16_t guard_of(const std::byte* block, std::size_t byte_count, const DifFormat& format) {
  const std::uint16_t guard = crc16_t10dif(
      format.invert_seed ? 0xffff : 0, reinterpret_cast<const unsigned char*>(block), byte_count);
  return format.invert_guard ? static_cast<std::uint16_t>(~guard) : guard;
}

/// Copies the block on the way.
std::uint16_t guard_of_copied(std::byte* target, const std::byte* block, std::size_t byte_count,
                              const DifFormat& format) {
  // ISA-L only reads the source, whatever its signature says.
  auto* const source = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(block));
  const std::uint16_t guard =
      crc16_t10dif_copy(format.invert_seed ? 0xffff : 0, reinterpret_cast<unsigned char*>(target),
                        source, byte_count);
  return format.invert_guard ? static_cast<std::uint16_t>(~guard) : guard;
}

std::uint16_t masked(std::uint16_t tag, std::uint16_t mask) {
  return static_cast<std::uint16_t>(tag & ~mask);
}

/// `computed`: the guard as it should be; any, if it is not checked.
std::uint8_t check(const Field& field, std::uint16_t computed, const DifSource& expected) {
  const bool application_ones = field.application == 0xffff;
  const bool tags_ones = application_ones && field.reference == 0xffffffff;
  if (expected.skip_ones_in_field && tags_ones && field.guard == 0xffff) {
    return expected.ones_in_field_are_an_error ? dif_error::all_ones : std::uint8_t{0};
  }
  if ((expected.skip_ones_in_tags && tags_ones) ||
      (expected.skip_ones_in_application && application_ones)) {
    return 0;
  }
  unsigned errors = 0;
  if (expected.check_guard && field.guard != computed) errors |= dif_error::guard;
  const std::uint16_t mask = expected.tags.application_mask;
  if (masked(field.application, mask) != masked(expected.tags.application, mask)) {
    errors |= dif_error::application;
  }
  if (expected.check_reference && field.reference != expected.tags.reference) {
    errors |= dif_error::reference;
  }
  return static_cast<std::uint8_t>(errors);
}

void step(DifTags& tags, bool increment_application, bool fixed_reference) {
  if (increment_application) ++tags.application;
  if (!fixed_reference) ++tags.reference;
}

}  // namespace

ShareOutcome dif(const Operation& operation) noexcept {
  const OperationKind kind = operation.kind();
  const bool has_field = kind != OperationKind::dif_insert;
  const bool makes_field = kind == OperationKind::dif_insert || kind == OperationKind::dif_update;
  const DifFormat format = operation.dif_format();
  DifSource expected = operation.dif_source();
  DifTarget made = operation.dif_target();
  const std::size_t block = block_bytes(format.block);
  const std::size_t source_unit = has_field ? block + kDifFieldBytes : block;
  const std::size_t target_unit = makes_field ? block + kDifFieldBytes : block;
  const std::byte* source = operation.source().data();
  std::byte* target = operation.target().data();
  const bool checks_guard = has_field && expected.check_guard;
  const bool makes_guard = makes_field && (!has_field || !made.keep_guard);

  ShareOutcome outcome;
  for (; outcome.bytes_done < operation.byte_count(); outcome.bytes_done += source_unit) {
    std::uint16_t guard = checks_guard ? guard_of(source, block, format) : std::uint16_t{0};
    Field field;
    if (has_field) {
      field = load_field(source + block);
      outcome.result.dif_errors = check(field, guard, expected);
      if (outcome.result.dif_errors != 0) {
        outcome.cause = Cause::integrity_error;
        break;
      }
    }
    if (kind != OperationKind::dif_check) {
      if (makes_guard && !checks_guard) {
        guard = guard_of_copied(target, source, block, format);
      } else {
        std::memcpy(target, source, block);
      }
      if (makes_field) {
        if (makes_guard) field.guard = guard;
        if (!made.keep_application || !has_field) {
          field.application = masked(made.tags.application, made.tags.application_mask);
        }
        if (!made.keep_reference || !has_field) field.reference = made.tags.reference;
        store_field(target + block, field);
      }
      target += target_unit;
    }
    source += source_unit;
    if (has_field) step(expected.tags, expected.increment_application, expected.fixed_reference);
    if (makes_field) step(made.tags, made.increment_application, made.fixed_reference);
  }
  if (has_field) outcome.result.source_tags = expected.tags;
  if (makes_field) outcome.result.target_tags = made.tags;
  return outcome;
}

}  // namespace headrace::engine::software
