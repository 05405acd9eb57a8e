// SPDX-License-Identifier: Apache-2.0
// Operation: a value that describes a copy, fill, comparison, checksum or the like, and its
// OperationResult. Devices and processors produce the same bytes and the same result.
// Not for: what executes it (mover.hpp), and when it ends (job.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "headrace/base/export.hpp"
#include "headrace/base/names.hpp"

namespace headrace::engine {

class EngineState;

using headrace::name;

/// Result of a submission: nothing was started unless `accepted`.
enum class Submit : std::uint8_t {
  accepted,
  full,             ///< Queues are full: back-pressure, not an error. Try again later.
  closed,           ///< The engine was stopped; of a channel: or its device does not respond.
  forked,           ///< The engine belongs to the parent of this process: make one here.
  null_address,     ///< A non-empty span is null.
  empty,            ///< 0 bytes, or a batch without operations.
  too_large,        ///< A delta above kDeltaBytesMax, or a span past the end of the address space.
  length_differs,   ///< Spans that belong together have different lengths.
  overlapping,      ///< A target overlaps another span, which the operation forbids.
  misaligned,       ///< An address or length is not a multiple of the required unit.
  bad_option,       ///< An option or flag has an invalid value.
  bad_predecessor,  ///< A predecessor is idle, of another engine, or the job itself.
  too_many_predecessors,  ///< More than Job::kPredecessorMax.
};
/// Meaning and remedy for a person.
[[nodiscard]] HEADRACE_API std::string_view explain(Submit submit);

enum class OperationKind : std::uint8_t {
  no_op,
  drain,  ///< Ends after everything that was submitted to its engine before it.
  copy,
  fill,
  compare,
  compare_pattern,
  create_delta,
  apply_delta,
  dualcast,
  crc,
  copy_crc,
  dif_check,
  dif_insert,
  dif_strip,
  dif_update,
  cache_flush,
};
inline constexpr std::size_t kOperationKindCount = 16;

/// A set of operation kinds, such as those a mover supports.
///
/// Threading: immutable.
class OperationSet {
 public:
  constexpr OperationSet(std::initializer_list<OperationKind> kinds = {}) {
    for (const OperationKind kind : kinds) bits_ |= 1U << static_cast<unsigned>(kind);
  }
  [[nodiscard]] static constexpr OperationSet all() {
    return OperationSet((1U << kOperationKindCount) - 1);
  }
  [[nodiscard]] constexpr OperationSet with(OperationKind kind) const {
    return OperationSet(bits_ | OperationSet{kind}.bits_);
  }
  [[nodiscard]] constexpr OperationSet without(OperationKind kind) const {
    return OperationSet(bits_ & ~OperationSet{kind}.bits_);
  }
  [[nodiscard]] constexpr bool has(OperationKind kind) const {
    return (bits_ >> static_cast<unsigned>(kind) & 1U) != 0;
  }
  [[nodiscard]] constexpr bool has_all(OperationSet kinds) const {
    return (kinds.bits_ & ~bits_) == 0;
  }
  friend constexpr bool operator==(OperationSet, OperationSet) = default;

 private:
  constexpr explicit OperationSet(std::uint32_t bits) : bits_(bits) {}
  std::uint32_t bits_ = 0;
};

/// CRC-32C. The defaults give the checksum of iSCSI (RFC 3720) and ext4; to continue a checksum,
/// pass its value as seed.
struct CrcOptions {
  std::uint32_t seed = 0;
  /// Seed and value are the register: neither inverted nor reflected.
  bool raw = false;
  /// False: process the bits of each byte from the highest to the lowest.
  bool reflect_data = true;
};

/// Bytes of data that a T10 integrity field protects; the field adds kDifFieldBytes.
enum class DifBlock : std::uint8_t { bytes_512, bytes_520, bytes_4096, bytes_4104 };
inline constexpr std::size_t kDifFieldBytes = 8;
[[nodiscard]] constexpr std::size_t block_bytes(DifBlock block) {
  constexpr std::array<std::size_t, 4> kBytes{512, 520, 4096, 4104};
  return kBytes[static_cast<std::size_t>(block) & 3U];
}

/// Block size, and how the guard (a CRC) of every block is computed.
struct DifFormat {
  DifBlock block = DifBlock::bytes_512;
  bool invert_seed = false;
  bool invert_guard = false;
};

struct DifTags {
  std::uint32_t reference = 0;
  std::uint16_t application = 0;
  /// Bits of the application tag that are not compared, and written as zero.
  std::uint16_t application_mask = 0;
  friend bool operator==(const DifTags&, const DifTags&) = default;
};

/// How the fields of a source are checked, and how its tags change from block to block.
struct DifSource {
  DifTags tags;  ///< Of the first block.
  bool check_guard = true;
  bool check_reference = true;
  bool fixed_reference = false;             ///< The reference tag does not count blocks.
  bool increment_application = false;       ///< The application tag counts blocks.
  bool skip_ones_in_application = false;    ///< No check where the application tag is all ones.
  bool skip_ones_in_tags = false;           ///< No check where both tags are.
  bool skip_ones_in_field = false;          ///< No check where the field is all ones.
  bool ones_in_field_are_an_error = false;  ///< With the above: a field of all ones is an error.
};

/// How the fields of a target are generated.
struct DifTarget {
  DifTags tags;  ///< Of the first block.
  bool fixed_reference = false;
  bool increment_application = false;
  // dif_update only: copy the source's value.
  bool keep_guard = false;
  bool keep_application = false;
  bool keep_reference = false;
};

/// Errors of the first bad block.
namespace dif_error {
// NOLINTBEGIN(readability-identifier-naming): bits, named as those of descriptors are.
inline constexpr std::uint8_t guard = 1U << 0U;
inline constexpr std::uint8_t application = 1U << 1U;
inline constexpr std::uint8_t reference = 1U << 2U;
inline constexpr std::uint8_t all_ones = 1U << 3U;
// NOLINTEND(readability-identifier-naming)
}  // namespace dif_error

/// What an operation computed or found. Fields of other kinds are zero.
struct OperationResult {
  /// compare, compare_pattern: offset of the first different byte, if `different`.
  std::uint64_t difference_offset = 0;
  std::uint32_t crc = 0;          ///< crc, copy_crc: over all bytes done.
  std::uint32_t delta_bytes = 0;  ///< create_delta: length of the record.
  DifTags source_tags;            ///< dif: for the block after the last one done.
  DifTags target_tags;
  bool different = false;       ///< compare, compare_pattern, create_delta.
  bool record_full = false;     ///< create_delta: the differences did not fit.
  std::uint8_t dif_errors = 0;  ///< dif_check, dif_strip, dif_update: bits of dif_error.
  friend bool operator==(const OperationResult&, const OperationResult&) = default;
};

/// An entry of a delta record: an offset in units of 8 bytes (2 bytes), then the 8 bytes.
inline constexpr std::size_t kDeltaEntryBytes = 10;
inline constexpr std::size_t kDeltaUnitBytes = 8;
inline constexpr std::size_t kDeltaBytesMax = 0x80000;
/// Smallest record that create_delta accepts.
inline constexpr std::size_t kDeltaRoomMin = 80;

/// One operation. Submission checks it (validate()); the factories do not.
///
/// Ownership: borrows the bytes of its spans until the job has ended.
/// Threading: immutable.
class HEADRACE_API Operation {
 public:
  Operation() = default;  ///< no_op
  [[nodiscard]] static Operation no_op() { return {}; }
  /// Ends after all jobs and calls of run that were submitted to the engine before it, by any
  /// thread and wherever they run; not after copies of channels. It needs no mover, and ends while
  /// a thread waits for it or polls. One at a time: a second one is `full` until the first has
  /// ended, which run() waits for. In a callback of a job, which ends behind it, it is refused as
  /// `bad_predecessor`; `then` may submit it. On a channel, and within a batch, it is the device's:
  /// it ends after the earlier descriptors of its queue.
  [[nodiscard]] static Operation drain() { return {OperationKind::drain, {}, {}}; }
  /// The spans must be equal or disjoint.
  [[nodiscard]] static Operation copy(std::span<std::byte> target,
                                      std::span<const std::byte> source) {
    return {OperationKind::copy, target, source};
  }
  /// Repeats the 8 bytes of `pattern`, the lowest first; the last repetition may be partial.
  [[nodiscard]] static Operation fill(std::span<std::byte> target, std::uint64_t pattern) {
    return fill(target, pattern, pattern);
  }
  /// Repeats 16 bytes: those of `low`, then those of `high`.
  [[nodiscard]] static Operation fill(std::span<std::byte> target, std::uint64_t low,
                                      std::uint64_t high) {
    return {OperationKind::fill, target, {}, {}, {low, high}, high != low ? kLongPattern : 0};
  }
  [[nodiscard]] static Operation compare(std::span<const std::byte> one,
                                         std::span<const std::byte> other) {
    return {OperationKind::compare, {}, one, other};
  }
  [[nodiscard]] static Operation compare_pattern(std::span<const std::byte> source,
                                                 std::uint64_t pattern) {
    return {OperationKind::compare_pattern, {}, source, {}, {pattern, pattern}};
  }
  /// Writes the changes from `before` to `after` to `record`. Addresses and length must be
  /// multiples of 8.
  [[nodiscard]] static Operation create_delta(std::span<std::byte> record,
                                              std::span<const std::byte> before,
                                              std::span<const std::byte> after) {
    return {OperationKind::create_delta, record, before, after};
  }
  /// Applies `record` to `target`. The length of `record` is the delta_bytes of its creation.
  [[nodiscard]] static Operation apply_delta(std::span<std::byte> target,
                                             std::span<const std::byte> record) {
    return {OperationKind::apply_delta, target, record};
  }
  /// Copies to two targets, whose addresses must agree in their lowest 12 bits.
  [[nodiscard]] static Operation dualcast(std::span<std::byte> target,
                                          std::span<std::byte> second_target,
                                          std::span<const std::byte> source) {
    return {OperationKind::dualcast, target, source, second_target};
  }
  [[nodiscard]] static Operation crc(std::span<const std::byte> source,
                                     const CrcOptions& options = {}) {
    return {OperationKind::crc, {}, source, {}, {options.seed}, crc_flags(options)};
  }
  [[nodiscard]] static Operation copy_crc(std::span<std::byte> target,
                                          std::span<const std::byte> source,
                                          const CrcOptions& options = {}) {
    return {OperationKind::copy_crc, target, source, {}, {options.seed}, crc_flags(options)};
  }
  /// Checks whole blocks with their fields. A bad block fails the job with Cause::integrity_error;
  /// bytes_done is its offset.
  [[nodiscard]] static Operation dif_check(std::span<const std::byte> source,
                                           const DifFormat& format, const DifSource& check) {
    return dif(OperationKind::dif_check, {}, source, format, &check, nullptr);
  }
  /// `target` holds each block of `source` and its field.
  [[nodiscard]] static Operation dif_insert(std::span<std::byte> target,
                                            std::span<const std::byte> source,
                                            const DifFormat& format, const DifTarget& make) {
    return dif(OperationKind::dif_insert, target, source, format, nullptr, &make);
  }
  [[nodiscard]] static Operation dif_strip(std::span<std::byte> target,
                                           std::span<const std::byte> source,
                                           const DifFormat& format, const DifSource& check) {
    return dif(OperationKind::dif_strip, target, source, format, &check, nullptr);
  }
  [[nodiscard]] static Operation dif_update(std::span<std::byte> target,
                                            std::span<const std::byte> source,
                                            const DifFormat& format, const DifSource& check,
                                            const DifTarget& make) {
    return dif(OperationKind::dif_update, target, source, format, &check, &make);
  }
  /// Writes the lines of `target` back to memory and evicts them from the caches.
  [[nodiscard]] static Operation cache_flush(std::span<std::byte> target) {
    return {OperationKind::cache_flush, target, {}};
  }

  /// In a batch: begins after all operations before it have ended. If one of them failed, this and
  /// all later ones are skipped.
  [[nodiscard]] Operation fenced() const { return with_flag(kFence); }

  /// Writes are in memory, not only in a cache, when the job has ended: on persistent memory they
  /// are durable (docs/concepts/pmem.md). Overrides into_cache(). No effect on operations that
  /// write nothing.
  [[nodiscard]] Operation durable() const { return with_flag(kDurable); }

  /// Hint to a device: place the target in the last-level cache.
  [[nodiscard]] Operation into_cache() const { return with_flag(kIntoCache); }

  /// Returns: accepted, or the first reason why a submission would refuse the operation.
  [[nodiscard]] Submit validate() const {
    return is_simple_copy(kSimpleBytesMax) ? Submit::accepted : find_fault();
  }
  /// Limit of is_simple_copy(): a sum of two larger sizes wraps.
  static constexpr std::size_t kSimpleBytesMax = SIZE_MAX / 2;
  /// True only for a valid plain copy, without overlap, of 1 to `byte_count_max` (at most
  /// kSimpleBytesMax) bytes. Cheaper than validate().
  [[nodiscard, gnu::always_inline]] bool is_simple_copy(std::size_t byte_count_max) const {
    return is_plain_copy() && target_.size() == source_.size() &&
           is_simple_copy(target_.data(), source_.data(), source_.size(), byte_count_max);
  }
  /// As above, before the operation is made.
  [[nodiscard, gnu::always_inline]] static bool is_simple_copy(const void* target,
                                                               const void* source,
                                                               std::size_t byte_count,
                                                               std::size_t byte_count_max) {
    const auto to = reinterpret_cast<std::uintptr_t>(target);
    const auto from = reinterpret_cast<std::uintptr_t>(source);
    if (byte_count - 1 >= byte_count_max) return false;
    // One is null, or in the upper half, where the span might pass the end of the address space.
    if (static_cast<std::intptr_t>((to - 1) | (from - 1)) < 0) return false;
    // The distance, in either direction, is at least the length.
    return to - from + (byte_count - 1) > 2 * (byte_count - 1);
  }

  [[nodiscard]] OperationKind kind() const { return static_cast<OperationKind>(kind_); }
  [[nodiscard]] std::span<std::byte> target() const { return target_; }
  [[nodiscard]] std::span<const std::byte> source() const { return source_; }
  /// The second operand of compare and create_delta.
  [[nodiscard]] std::span<const std::byte> second_source() const { return second_; }
  [[nodiscard]] std::span<std::byte> second_target() const {
    return {const_cast<std::byte*>(second_.data()), second_.size()};  // NOLINT: was given as such.
  }
  /// Bytes that bytes_done of a completion counts: of the source (for apply_delta the record), or
  /// of the target if there is no source. 0 for no_op and drain.
  [[nodiscard]] std::size_t byte_count() const {
    return source_.empty() ? target_.size() : source_.size();
  }
  [[nodiscard]] bool is_fenced() const { return (flags_ & kFence) != 0; }
  /// A copy without fence, hint and durability.
  [[nodiscard]] bool is_plain_copy() const {
    return kind_ == static_cast<std::uint32_t>(OperationKind::copy) && flags_ == 0;
  }
  [[nodiscard]] bool is_durable() const { return (flags_ & kDurable) != 0; }
  [[nodiscard]] bool is_into_cache() const {
    return (flags_ & (kIntoCache | kDurable)) == kIntoCache;
  }
  /// The options of its kind in the encoding of a descriptor: format, source and target flags of
  /// integrity fields in the three lowest bytes.
  [[nodiscard]] std::uint32_t option_bits() const { return flags_ & 0xff'ffffU; }

  // Operands of specific kinds.
  [[nodiscard]] std::size_t pattern_bytes() const { return (flags_ & kLongPattern) != 0 ? 16 : 8; }
  [[nodiscard]] std::array<std::uint64_t, 2> pattern() const { return words_; }
  [[nodiscard]] CrcOptions crc_options() const {
    return {static_cast<std::uint32_t>(words_[0]), (flags_ & kCrcRaw) != 0,
            (flags_ & kCrcUnreflected) == 0};
  }
  [[nodiscard]] DifFormat dif_format() const;
  [[nodiscard]] DifSource dif_source() const;
  [[nodiscard]] DifTarget dif_target() const;

  /// Bytes per block in the source and in the target, fields included where present.
  struct DifUnits {
    std::size_t source;
    std::size_t target;
  };
  [[nodiscard]] DifUnits dif_units() const {
    const std::size_t block = block_bytes(dif_format().block);
    const std::size_t whole = block + kDifFieldBytes;
    return {kind() == OperationKind::dif_insert ? block : whole,
            kind() == OperationKind::dif_strip ? block : whole};
  }

  /// The operation may be split at multiples of this; 0: it cannot be split.
  [[nodiscard]] std::size_t cut_bytes() const;
  /// True if parts may run in any order. Those of crc, copy_crc and dif need the result of the part
  /// before.
  [[nodiscard]] bool has_independent_parts() const {
    constexpr OperationSet kIndependent{OperationKind::copy,     OperationKind::fill,
                                        OperationKind::compare,  OperationKind::compare_pattern,
                                        OperationKind::dualcast, OperationKind::cache_flush};
    return kIndependent.has(kind());
  }
  /// The part of `byte_count` bytes at `offset_bytes`, both multiples of cut_bytes() except at the
  /// end (checked). `before`: the result of everything before it, from which kinds without
  /// independent parts continue.
  [[nodiscard]] Operation part(std::size_t offset_bytes, std::size_t byte_count,
                               const OperationResult& before = {}) const;

 private:
  friend class EngineState;
  /// Changes the operands of a plain copy.
  void copy_instead(std::span<std::byte> target, std::span<const std::byte> source) {
    target_ = target;
    source_ = source;
  }

  // Bits of flags_. For integrity fields the lowest three bytes are format, source and target flags
  // in the device's encoding; other kinds use their bits as below.
  static constexpr std::uint32_t kLongPattern = 1U << 0U;
  static constexpr std::uint32_t kCrcRaw = 1U << 0U;
  static constexpr std::uint32_t kCrcUnreflected = 1U << 1U;
  static constexpr std::uint32_t kDurable = 1U << 29U;
  static constexpr std::uint32_t kIntoCache = 1U << 30U;
  static constexpr std::uint32_t kFence = 1U << 31U;

  Operation(OperationKind kind, std::span<std::byte> target, std::span<const std::byte> source,
            std::span<const std::byte> second = {}, std::array<std::uint64_t, 2> words = {},
            std::uint32_t flags = 0)
      : target_(target),
        source_(source),
        second_(second),
        words_(words),
        flags_(flags),
        kind_(static_cast<std::uint32_t>(kind)) {}
  /// `check` or `make` is null for kinds without it.
  [[nodiscard]] static Operation dif(OperationKind kind, std::span<std::byte> target,
                                     std::span<const std::byte> source, const DifFormat& format,
                                     const DifSource* check, const DifTarget* make);
  [[nodiscard]] static std::uint32_t crc_flags(const CrcOptions& options) {
    return (options.raw ? kCrcRaw : 0) | (options.reflect_data ? 0 : kCrcUnreflected);
  }
  [[nodiscard]] Operation with_flag(std::uint32_t flag) const {
    Operation made = *this;
    made.flags_ |= flag;
    return made;
  }
  /// validate() for everything except simple copies.
  [[nodiscard]] Submit find_fault() const;

  std::span<std::byte> target_;
  std::span<const std::byte> source_;
  std::span<const std::byte> second_;
  /// fill, compare_pattern: the pattern; crc: the seed; dif: the tags of source and target.
  std::array<std::uint64_t, 2> words_{};
  std::uint32_t flags_ = 0;
  /// An OperationKind, as wide as flags_: is_plain_copy() compares both at once.
  std::uint32_t kind_ = static_cast<std::uint32_t>(OperationKind::no_op);
};

}  // namespace headrace::engine
