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

/// A field as it lies in memory, big-endian: guard, application tag, reference tag.
constexpr std::uint64_t to_word(const Field& field) {
  return std::uint64_t{field.guard} << 48U | std::uint64_t{field.application} << 32U |
         field.reference;
}

constexpr Field to_field(std::uint64_t word) {
  return {static_cast<std::uint16_t>(word >> 48U), static_cast<std::uint16_t>(word >> 32U),
          static_cast<std::uint32_t>(word)};
}

std::uint64_t load_word(const std::byte* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return __builtin_bswap64(word);
}

void store_field(std::byte* at, const Field& field) {
  const std::uint64_t word = __builtin_bswap64(to_word(field));
  std::memcpy(at, &word, sizeof word);
}

std::uint16_t guard_of(const std::byte* block, std::size_t byte_count, const DifFormat& format) {
  const std::uint16_t guard = crc16_t10dif(
      format.invert_seed ? 0xffff : 0, reinterpret_cast<const unsigned char*>(block), byte_count);
  return format.invert_guard ? static_cast<std::uint16_t>(~guard) : guard;
}

std::uint16_t masked(std::uint16_t tag, std::uint16_t mask) {
  return static_cast<std::uint16_t>(tag & ~mask);
}

/// `computed`: the guard as it should be; any, if it is not checked.
/// `tags`: of this block.
std::uint8_t check(Field field, std::uint16_t computed, const DifSource& expected, DifTags tags) {
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
  const std::uint16_t mask = tags.application_mask;
  if (masked(field.application, mask) != masked(tags.application, mask)) {
    errors |= dif_error::application;
  }
  if (expected.check_reference && field.reference != tags.reference) {
    errors |= dif_error::reference;
  }
  return static_cast<std::uint8_t>(errors);
}

/// The bits of a field that a check compares with what is expected.
std::uint64_t compared_bits(const DifSource& expected) {
  return to_word({expected.check_guard ? std::uint16_t{0xffff} : std::uint16_t{0},
                  masked(0xffff, expected.tags.application_mask),
                  expected.check_reference ? ~std::uint32_t{0} : 0});
}

void step(DifTags& tags, bool increment_application, bool fixed_reference) {
  if (increment_application) ++tags.application;
  if (!fixed_reference) ++tags.reference;
}

/// A function for each kind: beside ISA-L's few instructions for a block, each that asks for the
/// kind counts.
template <OperationKind kKind>
Completion carry_out(const Operation& operation) noexcept {
  constexpr bool kHasField = kKind != OperationKind::dif_insert;
  constexpr bool kMakesField =
      kKind == OperationKind::dif_insert || kKind == OperationKind::dif_update;
  const DifFormat format = operation.dif_format();
  const DifSource expected = kHasField ? operation.dif_source() : DifSource{};
  const DifTarget made = kMakesField ? operation.dif_target() : DifTarget{};
  // Apart from the options, which are only read, so that they can be in registers.
  // NOLINTBEGIN(misc-const-correctness): each is written by some of the kinds.
  DifTags expected_tags = expected.tags;
  DifTags made_tags = made.tags;
  const std::size_t block = block_bytes(format.block);
  const std::size_t source_unit = kHasField ? block + kDifFieldBytes : block;
  const std::size_t target_unit = kMakesField ? block + kDifFieldBytes : block;
  const std::byte* source = operation.source().data();
  std::byte* target = operation.target().data();
  // NOLINTEND(misc-const-correctness)
  const bool checks_guard = kHasField && expected.check_guard;
  const bool makes_guard = kMakesField && (!kHasField || !made.keep_guard);
  const std::uint64_t compared = compared_bits(expected);
  // Whatever else is allowed, a field of the tags and the guard that are expected is good, but for
  // the one that is an error by itself.
  const bool looks_at_all = expected.skip_ones_in_field && expected.ones_in_field_are_an_error;

  Completion outcome;
  const std::byte* const end = source + operation.byte_count();
  while (source != end) {
    // ISA-L's function that copies on the way is slower than this one and a copy.
    const std::uint16_t guard =
        checks_guard || makes_guard ? guard_of(source, block, format) : std::uint16_t{0};
    Field field;
    if constexpr (kHasField) {
      const std::uint64_t found = load_word(source + block);
      const std::uint64_t good =
          to_word({guard, expected_tags.application, expected_tags.reference});
      field = to_field(found);
      if (((found ^ good) & compared) != 0 || looks_at_all) {
        outcome.result.dif_errors = check(field, guard, expected, expected_tags);
        if (outcome.result.dif_errors != 0) {
          outcome.cause = Cause::integrity_error;
          break;
        }
      }
    }
    if constexpr (kKind != OperationKind::dif_check) {
      std::memcpy(target, source, block);
      if constexpr (kMakesField) {
        if (makes_guard) field.guard = guard;
        if (!made.keep_application || !kHasField) {
          field.application = masked(made_tags.application, made_tags.application_mask);
        }
        if (!made.keep_reference || !kHasField) field.reference = made_tags.reference;
        store_field(target + block, field);
      }
      target += target_unit;
    }
    source += source_unit;
    if constexpr (kHasField) {
      step(expected_tags, expected.increment_application, expected.fixed_reference);
    }
    if constexpr (kMakesField) step(made_tags, made.increment_application, made.fixed_reference);
  }
  outcome.bytes_done = static_cast<std::size_t>(source - operation.source().data());
  if constexpr (kHasField) outcome.result.source_tags = expected_tags;
  if constexpr (kMakesField) outcome.result.target_tags = made_tags;
  return outcome;
}

}  // namespace

Completion dif(const Operation& operation) noexcept {
  switch (operation.kind()) {
    case OperationKind::dif_check:
      return carry_out<OperationKind::dif_check>(operation);
    case OperationKind::dif_insert:
      return carry_out<OperationKind::dif_insert>(operation);
    case OperationKind::dif_strip:
      return carry_out<OperationKind::dif_strip>(operation);
    default:
      return carry_out<OperationKind::dif_update>(operation);
  }
}

}  // namespace headrace::engine::software
