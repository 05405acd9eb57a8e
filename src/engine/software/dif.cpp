// SPDX-License-Identifier: Apache-2.0
// Integrity fields (T10 DIF): check, insert, strip, update, block by block; guards by ISA-L. A
// block counts as done once it is checked and written whole; a bad one is not written.
#include <isa-l/crc.h>

#include <cstring>

#include "software.hpp"

namespace headrace::engine::software {
namespace {

// A field is a big-endian word: guard, application tag, reference tag, from the highest bit.
constexpr std::uint64_t kGuardBits = 0xffff'0000'0000'0000;
constexpr std::uint64_t kApplicationBits = 0x0000'ffff'0000'0000;
constexpr std::uint64_t kReferenceBits = 0x0000'0000'ffff'ffff;

constexpr std::uint64_t field_of(std::uint16_t guard, const DifTags& tags) {
  return std::uint64_t{guard} << 48U | std::uint64_t{tags.application} << 32U | tags.reference;
}

std::uint64_t load_field(const std::byte* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return __builtin_bswap64(word);
}

void store_field(std::byte* at, std::uint64_t field) {
  const std::uint64_t word = __builtin_bswap64(field);
  std::memcpy(at, &word, sizeof word);
}

std::uint16_t guard_of(const std::byte* block, std::size_t byte_count, const DifFormat& format) {
  const std::uint16_t guard = crc16_t10dif(
      format.invert_seed ? 0xffff : 0, reinterpret_cast<const unsigned char*>(block), byte_count);
  return format.invert_guard ? static_cast<std::uint16_t>(~guard) : guard;
}

/// The errors of a field that differs from the expected one in the bits `wrong`.
std::uint8_t errors_of(std::uint64_t field, std::uint64_t wrong, const DifSource& expected) {
  const auto is_all_ones = [&](std::uint64_t bits) { return (field & bits) == bits; };
  if (expected.skip_ones_in_field && is_all_ones(~std::uint64_t{0})) {
    return expected.ones_in_field_are_an_error ? dif_error::all_ones : std::uint8_t{0};
  }
  if ((expected.skip_ones_in_tags && is_all_ones(kApplicationBits | kReferenceBits)) ||
      (expected.skip_ones_in_application && is_all_ones(kApplicationBits))) {
    return 0;
  }
  const unsigned errors = ((wrong & kGuardBits) != 0 ? dif_error::guard : 0U) |
                          ((wrong & kApplicationBits) != 0 ? dif_error::application : 0U) |
                          ((wrong & kReferenceBits) != 0 ? dif_error::reference : 0U);
  return static_cast<std::uint8_t>(errors);
}

constexpr std::uint64_t masked_out(const DifTags& tags) {
  return std::uint64_t{tags.application_mask} << 32U;
}

/// The bits of a field that a check compares.
std::uint64_t compared_bits(const DifSource& expected) {
  return (expected.check_guard ? kGuardBits : 0) | (kApplicationBits & ~masked_out(expected.tags)) |
         (expected.check_reference ? kReferenceBits : 0);
}

/// The bits of a field that an update keeps from the source.
std::uint64_t kept_bits(const DifTarget& made) {
  return (made.keep_guard ? kGuardBits : 0) | (made.keep_application ? kApplicationBits : 0) |
         (made.keep_reference ? kReferenceBits : 0);
}

void step(DifTags& tags, bool increment_application, bool fixed_reference) {
  if (increment_application) ++tags.application;
  if (!fixed_reference) ++tags.reference;
}

/// One function per kind: next to ISA-L's few instructions for a block, branches on the kind are
/// significant.
template <OperationKind kKind>
Completion carry_out(const Operation& operation) noexcept {
  constexpr bool kHasField = kKind != OperationKind::dif_insert;
  constexpr bool kMakesField =
      kKind == OperationKind::dif_insert || kKind == OperationKind::dif_update;
  const DifFormat format = operation.dif_format();
  const DifSource expected = kHasField ? operation.dif_source() : DifSource{};
  const DifTarget made = kMakesField ? operation.dif_target() : DifTarget{};
  // Copies of the options that change, so that they can be in registers.
  // NOLINTBEGIN(misc-const-correctness): each is written by some of the kinds.
  DifTags expected_tags = expected.tags;
  DifTags made_tags = made.tags;
  const std::size_t block = block_bytes(format.block);
  const std::size_t source_unit = kHasField ? block + kDifFieldBytes : block;
  const std::size_t target_unit = kMakesField ? block + kDifFieldBytes : block;
  const std::byte* source = operation.source().data();
  std::byte* target = operation.target().data();
  // NOLINTEND(misc-const-correctness)
  const std::uint64_t compared = kHasField ? compared_bits(expected) : 0;
  // An insertion keeps nothing.
  const std::uint64_t kept = kHasField ? kept_bits(made) : 0;
  const std::uint64_t cleared = masked_out(made.tags);
  const bool needs_guard =
      (compared & kGuardBits) != 0 || (kMakesField && (kept & kGuardBits) == 0);
  // A field with the expected tags and guard is valid, except all ones if that is an error.
  const bool looks_at_all = expected.skip_ones_in_field && expected.ones_in_field_are_an_error;

  Completion outcome;
  const std::byte* const end = source + operation.byte_count();
  while (source != end) {
    // ISA-L's function that also copies is slower than this one and a copy.
    const std::uint16_t guard = needs_guard ? guard_of(source, block, format) : std::uint16_t{0};
    std::uint64_t field = 0;
    if constexpr (kHasField) {
      field = load_field(source + block);
      const std::uint64_t wrong = (field ^ field_of(guard, expected_tags)) & compared;
      if (wrong != 0 || looks_at_all) {
        outcome.result.dif_errors = errors_of(field, wrong, expected);
        if (outcome.result.dif_errors != 0) {
          outcome.cause = Cause::integrity_error;
          break;
        }
      }
    }
    if constexpr (kKind != OperationKind::dif_check) {
      std::memcpy(target, source, block);
      if constexpr (kMakesField) {
        const std::uint64_t fresh = field_of(guard, made_tags) & ~cleared;
        store_field(target + block, (field & kept) | (fresh & ~kept));
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
