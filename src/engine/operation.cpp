// SPDX-License-Identifier: Apache-2.0
// Making operations, checking them, and cutting them into parts.
#include "headrace/engine/operation.hpp"

#include <algorithm>
#include <limits>

#include "headrace/base/check.hpp"
#include "headrace/base/names.hpp"
#include "headrace/platform/line_flush.hpp"

namespace headrace::engine {
namespace {

// Bits of the three bytes that say how integrity fields are meant, as the device has them.
constexpr unsigned kFormatInvertSeed = 1U << 2U;
constexpr unsigned kFormatInvertGuard = 1U << 3U;
constexpr unsigned kSourceOnesAreAnError = 1U << 0U;
constexpr unsigned kSourceOnesInField = 1U << 1U;
constexpr unsigned kSourceOnesInApplication = 1U << 2U;
constexpr unsigned kSourceOnesInTags = 1U << 3U;
constexpr unsigned kIncrementApplication = 1U << 4U;
constexpr unsigned kSourceSkipGuard = 1U << 5U;
constexpr unsigned kSourceSkipReference = 1U << 6U;
constexpr unsigned kFixedReference = 1U << 7U;
constexpr unsigned kTargetKeepApplication = 1U << 3U;
constexpr unsigned kTargetKeepGuard = 1U << 5U;
constexpr unsigned kTargetKeepReference = 1U << 6U;

constexpr unsigned bit(bool set, unsigned value) {
  return set ? value : 0U;
}

// Tags as a descriptor has them.
constexpr std::uint64_t pack(const DifTags& tags) {
  return tags.reference | std::uint64_t{tags.application_mask} << 32U |
         std::uint64_t{tags.application} << 48U;
}

constexpr DifTags unpack(std::uint64_t word) {
  return {static_cast<std::uint32_t>(word), static_cast<std::uint16_t>(word >> 48U),
          static_cast<std::uint16_t>(word >> 32U)};
}

bool overlap(std::span<const std::byte> one, std::span<const std::byte> other) {
  const auto first = reinterpret_cast<std::uintptr_t>(one.data());
  const auto second = reinterpret_cast<std::uintptr_t>(other.data());
  return first < second ? second - first < one.size() : first - second < other.size();
}

bool is_null(std::span<const std::byte> bytes) {
  return bytes.data() == nullptr && !bytes.empty();
}

/// The end of the address space is the end of every span.
bool wraps(std::span<const std::byte> bytes) {
  return bytes.size() > std::numeric_limits<std::uintptr_t>::max() -
                            reinterpret_cast<std::uintptr_t>(bytes.data());
}

bool is_multiple(const void* address, std::size_t of) {
  return reinterpret_cast<std::uintptr_t>(address) % of == 0;
}

constexpr auto kAnswers = make_names<Submit>({
    {Submit::accepted, "accepted", "The job has begun."},
    {Submit::full, "full", "The queues are full: wait for a job, or poll, and submit again."},
    {Submit::closed, "closed",
     "The engine has been stopped: make a new one. Or, where a channel says so of an engine that "
     "has not, its device does not answer: submit jobs, which others do then."},
    {Submit::forked, "forked",
     "The engine was made before this process was forked: make one in the child."},
    {Submit::null_address, "null_address",
     "A span that is not empty has no address: pass memory that exists."},
    {Submit::empty, "empty",
     "The operation has 0 bytes, or the batch no operation: there is nothing to do, do not submit "
     "it."},
    {Submit::too_large, "too_large",
     "The operation is larger than its kind allows: cut it into several (a delta takes at most 512 "
     "KiB; no span may pass the end of the address space)."},
    {Submit::length_differs, "length_differs",
     "Spans that belong together have different lengths: pass equal lengths (with integrity "
     "fields, 8 bytes more for each block)."},
    {Submit::overlapping, "overlapping",
     "A target overlaps another span: use separate buffers (a copy may have its source as target, "
     "nothing else may)."},
    {Submit::misaligned, "misaligned",
     "An address or length is not a multiple of what the operation demands: take multiples of 8 "
     "for "
     "a delta and of 10 for its record, whole blocks for integrity fields, and for a dualcast "
     "targets that agree in the lowest 12 bits."},
    {Submit::bad_option, "bad_option",
     "An option has a value that it cannot have: take one that the documentation of the operation "
     "lists."},
    {Submit::bad_predecessor, "bad_predecessor",
     "A job that this one shall come after was never submitted, belongs to another engine or is "
     "this one: name jobs that this engine has accepted."},
    {Submit::too_many_predecessors, "too_many_predecessors",
     "A job can come after eight others: gather more of them by jobs that do nothing (no_op)."},
});

constexpr auto kKinds =
    make_names<OperationKind>({{OperationKind::no_op, "no_op"},
                               {OperationKind::drain, "drain"},
                               {OperationKind::copy, "copy"},
                               {OperationKind::fill, "fill"},
                               {OperationKind::compare, "compare"},
                               {OperationKind::compare_pattern, "compare_pattern"},
                               {OperationKind::create_delta, "create_delta"},
                               {OperationKind::apply_delta, "apply_delta"},
                               {OperationKind::dualcast, "dualcast"},
                               {OperationKind::crc, "crc"},
                               {OperationKind::copy_crc, "copy_crc"},
                               {OperationKind::dif_check, "dif_check"},
                               {OperationKind::dif_insert, "dif_insert"},
                               {OperationKind::dif_strip, "dif_strip"},
                               {OperationKind::dif_update, "dif_update"},
                               {OperationKind::cache_flush, "cache_flush"}});

}  // namespace

std::string_view name(Submit submit) {
  return kAnswers.text(submit);
}

std::string_view explain(Submit submit) {
  const std::string_view text = kAnswers.meaning(submit);
  return text.empty() ? "An answer that has no name." : text;
}

std::string_view name(OperationKind kind) {
  return kKinds.text(kind);
}

Operation Operation::compare(std::span<const std::byte> one, std::span<const std::byte> other) {
  Operation made(OperationKind::compare);
  made.source(one);
  made.second(other);
  return made;
}

Operation Operation::compare_pattern(std::span<const std::byte> source, std::uint64_t pattern) {
  Operation made(OperationKind::compare_pattern);
  made.source(source);
  made.words_ = {pattern, pattern};
  return made;
}

Operation Operation::create_delta(std::span<std::byte> record, std::span<const std::byte> before,
                                  std::span<const std::byte> after) {
  Operation made(OperationKind::create_delta);
  made.target(record);
  made.source(before);
  made.second(after);
  return made;
}

Operation Operation::apply_delta(std::span<std::byte> target, std::span<const std::byte> record) {
  Operation made(OperationKind::apply_delta);
  made.target(target);
  made.source(record);
  return made;
}

Operation Operation::dualcast(std::span<std::byte> target, std::span<std::byte> second_target,
                              std::span<const std::byte> source) {
  Operation made(OperationKind::dualcast);
  made.target(target);
  made.second(second_target);
  made.source(source);
  return made;
}

Operation Operation::crc(std::span<const std::byte> source, const CrcOptions& options) {
  Operation made(OperationKind::crc);
  made.source(source);
  made.words_[0] = options.seed;
  made.flags_ = bit(options.raw, kCrcRaw) | bit(!options.reflect_data, kCrcUnreflected);
  return made;
}

Operation Operation::copy_crc(std::span<std::byte> target, std::span<const std::byte> source,
                              const CrcOptions& options) {
  Operation made = crc(source, options);
  made.kind_ = OperationKind::copy_crc;
  made.target(target);
  return made;
}

void Operation::dif(const DifFormat& format, const DifSource* check, const DifTarget* make) {
  // Its bits would be those of other options: an unknown kind, which is refused, instead.
  if (format.block > DifBlock::bytes_4104) {
    kind_ = static_cast<OperationKind>(kOperationKindCount);
    return;
  }
  flags_ = static_cast<unsigned>(format.block) | bit(format.invert_seed, kFormatInvertSeed) |
           bit(format.invert_guard, kFormatInvertGuard);
  if (check != nullptr) {
    words_[0] = pack(check->tags);
    const unsigned flags = bit(check->ones_in_field_are_an_error, kSourceOnesAreAnError) |
                           bit(check->skip_ones_in_field, kSourceOnesInField) |
                           bit(check->skip_ones_in_application, kSourceOnesInApplication) |
                           bit(check->skip_ones_in_tags, kSourceOnesInTags) |
                           bit(check->increment_application, kIncrementApplication) |
                           bit(!check->check_guard, kSourceSkipGuard) |
                           bit(!check->check_reference, kSourceSkipReference) |
                           bit(check->fixed_reference, kFixedReference);
    flags_ |= flags << 8U;
  }
  if (make != nullptr) {
    words_[1] = pack(make->tags);
    const unsigned flags = bit(make->keep_application, kTargetKeepApplication) |
                           bit(make->increment_application, kIncrementApplication) |
                           bit(make->keep_guard, kTargetKeepGuard) |
                           bit(make->keep_reference, kTargetKeepReference) |
                           bit(make->fixed_reference, kFixedReference);
    flags_ |= flags << 16U;
  }
}

Operation Operation::dif_check(std::span<const std::byte> source, const DifFormat& format,
                               const DifSource& check) {
  Operation made(OperationKind::dif_check);
  made.source(source);
  made.dif(format, &check, nullptr);
  return made;
}

Operation Operation::dif_insert(std::span<std::byte> target, std::span<const std::byte> source,
                                const DifFormat& format, const DifTarget& make) {
  Operation made(OperationKind::dif_insert);
  made.target(target);
  made.source(source);
  made.dif(format, nullptr, &make);
  return made;
}

Operation Operation::dif_strip(std::span<std::byte> target, std::span<const std::byte> source,
                               const DifFormat& format, const DifSource& check) {
  Operation made(OperationKind::dif_strip);
  made.target(target);
  made.source(source);
  made.dif(format, &check, nullptr);
  return made;
}

Operation Operation::dif_update(std::span<std::byte> target, std::span<const std::byte> source,
                                const DifFormat& format, const DifSource& check,
                                const DifTarget& make) {
  Operation made(OperationKind::dif_update);
  made.target(target);
  made.source(source);
  made.dif(format, &check, &make);
  return made;
}

Operation Operation::cache_flush(std::span<std::byte> target) {
  Operation made(OperationKind::cache_flush);
  made.target(target);
  return made;
}

DifFormat Operation::dif_format() const {
  return {static_cast<DifBlock>(flags_ & 3U), (flags_ & kFormatInvertSeed) != 0,
          (flags_ & kFormatInvertGuard) != 0};
}

DifSource Operation::dif_source() const {
  const unsigned flags = flags_ >> 8U & 0xffU;
  return {.tags = unpack(words_[0]),
          .check_guard = (flags & kSourceSkipGuard) == 0,
          .check_reference = (flags & kSourceSkipReference) == 0,
          .fixed_reference = (flags & kFixedReference) != 0,
          .increment_application = (flags & kIncrementApplication) != 0,
          .skip_ones_in_application = (flags & kSourceOnesInApplication) != 0,
          .skip_ones_in_tags = (flags & kSourceOnesInTags) != 0,
          .skip_ones_in_field = (flags & kSourceOnesInField) != 0,
          .ones_in_field_are_an_error = (flags & kSourceOnesAreAnError) != 0};
}

DifTarget Operation::dif_target() const {
  const unsigned flags = flags_ >> 16U & 0xffU;
  return {.tags = unpack(words_[1]),
          .fixed_reference = (flags & kFixedReference) != 0,
          .increment_application = (flags & kIncrementApplication) != 0,
          .keep_guard = (flags & kTargetKeepGuard) != 0,
          .keep_application = (flags & kTargetKeepApplication) != 0,
          .keep_reference = (flags & kTargetKeepReference) != 0};
}

Submit Operation::find_fault() const {
  if (is_durable() && !platform::has_line_flush(platform::LineFlush::clflush)) {
    return Submit::bad_option;
  }
  if (kind_ == OperationKind::no_op || kind_ == OperationKind::drain) return Submit::accepted;
  if (kind_ == OperationKind::copy) {
    if (target_bytes_ != source_bytes_) return Submit::length_differs;
    if (source_bytes_ == 0) return Submit::empty;
    if (target_ == nullptr || source_ == nullptr) return Submit::null_address;
    if (wraps(target()) || wraps(source())) return Submit::too_large;
    return overlap(target(), source()) && target_ != source_ ? Submit::overlapping
                                                             : Submit::accepted;
  }
  if (is_null(target()) || is_null(source()) || is_null(second_source())) {
    return Submit::null_address;
  }
  if (wraps(target()) || wraps(source()) || wraps(second_source())) return Submit::too_large;
  const bool has_source = kind_ != OperationKind::fill && kind_ != OperationKind::cache_flush;
  if ((has_source ? source_bytes_ : target_bytes_) == 0) return Submit::empty;
  switch (kind_) {
    case OperationKind::compare:
      return source_bytes_ == second_bytes_ ? Submit::accepted : Submit::length_differs;
    case OperationKind::create_delta:
      if (source_bytes_ != second_bytes_) return Submit::length_differs;
      if (source_bytes_ > kDeltaBytesMax || target_bytes_ > UINT32_MAX) return Submit::too_large;
      if (target_bytes_ < kDeltaRoomMin) return Submit::length_differs;
      if (source_bytes_ % kDeltaUnitBytes != 0 || !is_multiple(source_, kDeltaUnitBytes) ||
          !is_multiple(second_, kDeltaUnitBytes) || !is_multiple(target_, kDeltaUnitBytes)) {
        return Submit::misaligned;
      }
      return overlap(target(), source()) || overlap(target(), second_source()) ? Submit::overlapping
                                                                               : Submit::accepted;
    case OperationKind::apply_delta:
      if (target_bytes_ == 0) return Submit::empty;
      if (target_bytes_ > kDeltaBytesMax || source_bytes_ > UINT32_MAX) return Submit::too_large;
      if (target_bytes_ % kDeltaUnitBytes != 0 || source_bytes_ % kDeltaEntryBytes != 0 ||
          !is_multiple(source_, kDeltaUnitBytes) || !is_multiple(target_, kDeltaUnitBytes)) {
        return Submit::misaligned;
      }
      return overlap(target(), source()) ? Submit::overlapping : Submit::accepted;
    case OperationKind::dualcast:
      if (source_bytes_ != target_bytes_ || source_bytes_ != second_bytes_) {
        return Submit::length_differs;
      }
      if (((reinterpret_cast<std::uintptr_t>(target_) ^ reinterpret_cast<std::uintptr_t>(second_)) &
           0xfffU) != 0) {
        return Submit::misaligned;
      }
      return overlap(target(), source()) || overlap(second_target(), source()) ||
                     overlap(target(), second_target())
                 ? Submit::overlapping
                 : Submit::accepted;
    case OperationKind::copy_crc:
      if (source_bytes_ != target_bytes_) return Submit::length_differs;
      return overlap(target(), source()) ? Submit::overlapping : Submit::accepted;
    case OperationKind::dif_check:
    case OperationKind::dif_insert:
    case OperationKind::dif_strip:
    case OperationKind::dif_update: {
      const std::size_t block = block_bytes(dif_format().block);
      const std::size_t whole = block + kDifFieldBytes;
      const std::size_t unit = kind_ == OperationKind::dif_insert ? block : whole;
      if (source_bytes_ % unit != 0) return Submit::misaligned;
      if (kind_ == OperationKind::dif_check) return Submit::accepted;
      const std::size_t made = kind_ == OperationKind::dif_strip ? block : whole;
      if (target_bytes_ != source_bytes_ / unit * made) return Submit::length_differs;
      return overlap(target(), source()) ? Submit::overlapping : Submit::accepted;
    }
    default:
      return static_cast<std::size_t>(kind_) < kOperationKindCount ? Submit::accepted
                                                                   : Submit::bad_option;
  }
}

std::size_t Operation::cut_bytes() const {
  switch (kind_) {
    case OperationKind::copy:
    case OperationKind::compare:
    case OperationKind::dualcast:
    case OperationKind::crc:
    case OperationKind::copy_crc:
    case OperationKind::cache_flush:
      return 1;
    case OperationKind::fill:
    case OperationKind::compare_pattern:
      return pattern_bytes();
    case OperationKind::dif_check:
    case OperationKind::dif_strip:
    case OperationKind::dif_update:
      return block_bytes(dif_format().block) + kDifFieldBytes;
    case OperationKind::dif_insert:
      return block_bytes(dif_format().block);
    case OperationKind::no_op:
    case OperationKind::drain:
    case OperationKind::create_delta:
    case OperationKind::apply_delta:
      break;
  }
  return 0;
}

Operation Operation::part(std::size_t offset_bytes, std::size_t byte_count,
                          const OperationResult& before) const {
  if (offset_bytes == 0 && byte_count == this->byte_count()) return *this;
  const std::size_t cut = cut_bytes();
  HEADRACE_CHECK(cut != 0 && offset_bytes % cut == 0 && offset_bytes <= this->byte_count() &&
                     byte_count <= this->byte_count() - offset_bytes,
                 "an operation is cut where it can be", offset_bytes, byte_count, cut);
  Operation made = *this;
  if (source_ != nullptr) made.source(source().subspan(offset_bytes, byte_count));
  if (kind_ == OperationKind::dif_insert || kind_ == OperationKind::dif_strip) {
    const std::size_t block = block_bytes(dif_format().block);
    const std::size_t target_unit =
        kind_ == OperationKind::dif_strip ? block : block + kDifFieldBytes;
    made.target(target().subspan(offset_bytes / cut * target_unit, byte_count / cut * target_unit));
  } else if (target_ != nullptr) {
    made.target(target().subspan(offset_bytes, byte_count));
  }
  if (second_ != nullptr) made.second(second_source().subspan(offset_bytes, byte_count));
  if (offset_bytes > 0 && !has_independent_parts()) {
    if (kind_ == OperationKind::crc || kind_ == OperationKind::copy_crc) {
      made.words_[0] = before.crc;
    } else {
      made.words_ = {pack(before.source_tags), pack(before.target_tags)};
    }
  }
  return made;
}

}  // namespace headrace::engine
