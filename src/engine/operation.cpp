// SPDX-License-Identifier: Apache-2.0
// Operations: construction, validation, and cutting into parts.
#include "headrace/engine/operation.hpp"

#include <algorithm>
#include <limits>

#include "headrace/base/check.hpp"
#include "headrace/base/names.hpp"

namespace headrace::engine {
namespace {

/// An option of integrity fields and its bit in the device's flag byte.
template <typename Options>
struct Flag {
  bool Options::* option;
  unsigned bit;
  bool inverted = false;  ///< The bit is set if the option is off.
};
constexpr std::array<Flag<DifFormat>, 2> kFormatFlags{
    {{&DifFormat::invert_seed, 1U << 2U}, {&DifFormat::invert_guard, 1U << 3U}}};
constexpr std::array<Flag<DifSource>, 8> kSourceFlags{
    {{&DifSource::ones_in_field_are_an_error, 1U << 0U},
     {&DifSource::skip_ones_in_field, 1U << 1U},
     {&DifSource::skip_ones_in_application, 1U << 2U},
     {&DifSource::skip_ones_in_tags, 1U << 3U},
     {&DifSource::increment_application, 1U << 4U},
     {&DifSource::check_guard, 1U << 5U, true},
     {&DifSource::check_reference, 1U << 6U, true},
     {&DifSource::fixed_reference, 1U << 7U}}};
constexpr std::array<Flag<DifTarget>, 5> kTargetFlags{
    {{&DifTarget::keep_application, 1U << 3U},
     {&DifTarget::increment_application, 1U << 4U},
     {&DifTarget::keep_guard, 1U << 5U},
     {&DifTarget::keep_reference, 1U << 6U},
     {&DifTarget::fixed_reference, 1U << 7U}}};

template <typename Options, std::size_t kCount>
std::uint32_t pack(const Options& options, const std::array<Flag<Options>, kCount>& flags) {
  std::uint32_t bits = 0;
  for (const Flag<Options>& flag : flags) {
    if (options.*flag.option != flag.inverted) bits |= flag.bit;
  }
  return bits;
}

template <typename Options, std::size_t kCount>
Options unpack(Options made, std::uint32_t bits, const std::array<Flag<Options>, kCount>& flags) {
  for (const Flag<Options>& flag : flags) {
    made.*flag.option = ((bits & flag.bit) != 0) != flag.inverted;
  }
  return made;
}

// Tags in the layout of a descriptor.
constexpr std::uint64_t pack(const DifTags& tags) {
  return tags.reference | std::uint64_t{tags.application_mask} << 32U |
         std::uint64_t{tags.application} << 48U;
}

constexpr DifTags unpack(std::uint64_t word) {
  return {static_cast<std::uint32_t>(word), static_cast<std::uint16_t>(word >> 48U),
          static_cast<std::uint16_t>(word >> 32U)};
}

std::uintptr_t address(std::span<const std::byte> bytes) {
  return reinterpret_cast<std::uintptr_t>(bytes.data());
}

bool overlap(std::span<const std::byte> one, std::span<const std::byte> other) {
  const std::uintptr_t first = address(one);
  const std::uintptr_t second = address(other);
  return first < second ? second - first < one.size() : first - second < other.size();
}

bool is_null(std::span<const std::byte> bytes) {
  return bytes.data() == nullptr && !bytes.empty();
}

/// True if the span passes the end of the address space.
bool wraps(std::span<const std::byte> bytes) {
  return bytes.size() > std::numeric_limits<std::uintptr_t>::max() - address(bytes);
}

/// Alignment of the addresses and lengths of a delta.
bool are_multiples(std::initializer_list<std::uintptr_t> values) {
  return std::ranges::all_of(values,
                             [](std::uintptr_t value) { return value % kDeltaUnitBytes == 0; });
}

constexpr OperationSet kDifKinds{OperationKind::dif_check, OperationKind::dif_insert,
                                 OperationKind::dif_strip, OperationKind::dif_update};

constexpr auto kSubmitMeanings = make_meanings<Submit>({
    {Submit::accepted, "The job was accepted."},
    {Submit::full, "The queues are full: wait for a job, or poll, and submit again."},
    {Submit::closed,
     "The engine was stopped: make a new one. From a channel: the device does not respond; submit "
     "jobs instead, which other movers run."},
    {Submit::forked, "The engine was made before this process was forked: make one in the child."},
    {Submit::null_address, "A span that is not empty has a null address: pass valid memory."},
    {Submit::empty,
     "The operation has 0 bytes, or the batch has no operations: there is nothing to do, do not "
     "submit it."},
    {Submit::too_large,
     "The operation is larger than its kind allows: split it (a delta takes at most 512 KiB; no "
     "span may pass the end of the address space)."},
    {Submit::length_differs,
     "Spans that must match have different lengths: pass equal lengths (with integrity fields, 8 "
     "bytes more for each block)."},
    {Submit::overlapping,
     "A target overlaps another span: use separate buffers (a copy may have its source as target, "
     "nothing else may)."},
    {Submit::misaligned,
     "An address or length is not a multiple of what the operation requires: use multiples of 8 "
     "for a delta and of 10 for its record, whole blocks for integrity fields, and for a dualcast "
     "targets with the same lowest 12 bits."},
    {Submit::bad_option,
     "An option has an invalid value: use one that the documentation of the operation lists."},
    {Submit::bad_predecessor,
     "A predecessor was never submitted, belongs to another engine or is the job itself: name jobs "
     "that this engine has accepted."},
    {Submit::too_many_predecessors,
     "A job can have at most eight predecessors: combine more of them with jobs that do nothing "
     "(no_op)."},
});

}  // namespace

std::string_view explain(Submit submit) {
  return meaning(kSubmitMeanings, submit, "unknown");
}

Operation Operation::dif(OperationKind kind, std::span<std::byte> target,
                         std::span<const std::byte> source, const DifFormat& format,
                         const DifSource* check, const DifTarget* make) {
  // An invalid block would set the bits of other options: make an unknown kind, which validate()
  // refuses.
  const bool known = format.block <= DifBlock::bytes_4104;
  Operation made(known ? kind : static_cast<OperationKind>(kOperationKindCount), target, source);
  if (!known) return made;
  made.flags_ = static_cast<std::uint32_t>(format.block) | pack(format, kFormatFlags);
  if (check != nullptr) {
    made.words_[0] = pack(check->tags);
    made.flags_ |= pack(*check, kSourceFlags) << 8U;
  }
  if (make != nullptr) {
    made.words_[1] = pack(make->tags);
    made.flags_ |= pack(*make, kTargetFlags) << 16U;
  }
  return made;
}

DifFormat Operation::dif_format() const {
  return unpack(DifFormat{.block = static_cast<DifBlock>(flags_ & 3U)}, flags_, kFormatFlags);
}

DifSource Operation::dif_source() const {
  return unpack(DifSource{.tags = unpack(words_[0])}, flags_ >> 8U, kSourceFlags);
}

DifTarget Operation::dif_target() const {
  return unpack(DifTarget{.tags = unpack(words_[1])}, flags_ >> 16U, kTargetFlags);
}

Submit Operation::find_fault() const {
  if (kind() == OperationKind::no_op || kind() == OperationKind::drain) return Submit::accepted;
  const std::size_t byte_count = source_.size();
  if (kind() == OperationKind::copy && target_.size() != byte_count) return Submit::length_differs;
  if (is_null(target_) || is_null(source_) || is_null(second_)) return Submit::null_address;
  if (wraps(target_) || wraps(source_) || wraps(second_)) return Submit::too_large;
  const bool has_source = kind() != OperationKind::fill && kind() != OperationKind::cache_flush;
  if ((has_source ? byte_count : target_.size()) == 0) return Submit::empty;
  if (static_cast<std::size_t>(kind()) >= kOperationKindCount) return Submit::bad_option;
  constexpr OperationSet kTargetAsLong{OperationKind::dualcast, OperationKind::copy_crc};
  constexpr OperationSet kSecondAsLong{OperationKind::compare, OperationKind::create_delta,
                                       OperationKind::dualcast};
  if ((kTargetAsLong.has(kind()) && target_.size() != byte_count) ||
      (kSecondAsLong.has(kind()) && second_.size() != byte_count)) {
    return Submit::length_differs;
  }
  switch (kind()) {
    case OperationKind::create_delta:
      if (byte_count > kDeltaBytesMax || target_.size() > UINT32_MAX) return Submit::too_large;
      if (target_.size() < kDeltaRoomMin) return Submit::length_differs;
      if (!are_multiples({byte_count, address(source_), address(second_), address(target_)})) {
        return Submit::misaligned;
      }
      break;
    case OperationKind::apply_delta:
      if (target_.empty()) return Submit::empty;
      if (target_.size() > kDeltaBytesMax || byte_count > UINT32_MAX) return Submit::too_large;
      if (byte_count % kDeltaEntryBytes != 0 ||
          !are_multiples({target_.size(), address(source_), address(target_)})) {
        return Submit::misaligned;
      }
      break;
    case OperationKind::dualcast:
      if (((address(target_) ^ address(second_)) & 0xfffU) != 0) return Submit::misaligned;
      if (overlap(second_, source_)) return Submit::overlapping;
      break;
    case OperationKind::dif_check:
    case OperationKind::dif_insert:
    case OperationKind::dif_strip:
    case OperationKind::dif_update:
      if (byte_count % dif_units().source != 0) return Submit::misaligned;
      if (kind() == OperationKind::dif_check) break;
      if (target_.size() != byte_count / dif_units().source * dif_units().target) {
        return Submit::length_differs;
      }
      break;
    default:
      break;
  }
  if (kind() == OperationKind::copy && target_.data() == source_.data()) return Submit::accepted;
  // Unused operands are empty and overlap nothing.
  return overlap(target_, source_) || overlap(target_, second_) ? Submit::overlapping
                                                                : Submit::accepted;
}

std::size_t Operation::cut_bytes() const {
  constexpr OperationSet kWhole{OperationKind::no_op, OperationKind::drain,
                                OperationKind::create_delta, OperationKind::apply_delta};
  if (kWhole.has(kind())) return 0;
  if (kDifKinds.has(kind())) return dif_units().source;
  const bool repeats = kind() == OperationKind::fill || kind() == OperationKind::compare_pattern;
  return repeats ? pattern_bytes() : 1;
}

Operation Operation::part(std::size_t offset_bytes, std::size_t byte_count,
                          const OperationResult& before) const {
  if (offset_bytes == 0 && byte_count == this->byte_count()) return *this;
  const std::size_t cut = cut_bytes();
  HEADRACE_CHECK(cut != 0 && offset_bytes % cut == 0 && offset_bytes <= this->byte_count() &&
                     byte_count <= this->byte_count() - offset_bytes,
                 "an operation is cut where it can be", offset_bytes, byte_count, cut);
  Operation made = *this;
  if (source_.data() != nullptr) made.source_ = source_.subspan(offset_bytes, byte_count);
  if (second_.data() != nullptr) made.second_ = second_.subspan(offset_bytes, byte_count);
  if (target_.data() != nullptr) {
    const DifUnits units = kDifKinds.has(kind()) ? dif_units() : DifUnits{1, 1};
    made.target_ = target_.subspan(offset_bytes / units.source * units.target,
                                   byte_count / units.source * units.target);
  }
  if (offset_bytes > 0 && !has_independent_parts()) {
    if (kDifKinds.has(kind())) {
      made.words_ = {pack(before.source_tags), pack(before.target_tags)};
    } else {
      made.words_[0] = before.crc;
    }
  }
  return made;
}

}  // namespace headrace::engine
