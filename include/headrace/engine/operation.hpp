// SPDX-License-Identifier: Apache-2.0
// Operation: what is to be done with bytes, as a value: copy them, fill, compare, check. What an
// operation finds out is its OperationResult. Every operation gives the same bytes and the same
// result whether a device or a processor carries it out.
// Not for: who does it (mover.hpp), and when it ends (job.hpp).
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

/// An enumerator of the engine as it is spelled here: "accepted"; else "unknown".
template <typename Enum>
  requires std::is_enum_v<Enum>
[[nodiscard]] constexpr std::string_view name(Enum value) {
  return enumerator_name(value);
}

/// What became of a submission. Nothing was started unless it is `accepted`.
enum class Submit : std::uint8_t {
  accepted,
  full,             ///< Queues are full: back-pressure, not an error. Slow down and try again.
  closed,           ///< The engine has been stopped; of a channel: or its device does not answer.
  forked,           ///< The engine belongs to the parent of this process: make one here.
  null_address,     ///< A span that is not empty has no address.
  empty,            ///< There is nothing to do: 0 bytes.
  too_large,        ///< More than the operation can take: a delta of more than kDeltaBytesMax.
  length_differs,   ///< Spans that belong together have different lengths.
  overlapping,      ///< A target overlaps another span in a way that the operation forbids.
  misaligned,       ///< An address or a length is not a multiple of what the operation demands.
  bad_option,       ///< An option or flag has a value that it cannot have.
  bad_predecessor,  ///< A job that this one shall come after is itself, of another engine, or idle.
  too_many_predecessors,  ///< More than Job::kPredecessorMax.
};
/// What the answer means and what to do about it, one sentence for a person.
[[nodiscard]] HEADRACE_API std::string_view explain(Submit submit);

enum class OperationKind : std::uint8_t {
  no_op,
  drain,  ///< Ends when everything that its mover took before has ended.
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

/// A set of kinds: what a mover can do.
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

/// CRC-32C. The defaults give the usual checksum of iSCSI, ext4 and RFC 3720; to go on where
/// another one ended, give its value as seed.
struct CrcOptions {
  std::uint32_t seed = 0;
  /// Take the seed and give the value as the register holds them, not inverted and not reflected.
  bool raw = false;
  /// False: the bits of each byte are taken from the highest to the lowest.
  bool reflect_data = true;
};

/// Bytes of data that a T10 integrity field protects; the field itself has kDifFieldBytes more.
enum class DifBlock : std::uint8_t { bytes_512, bytes_520, bytes_4096, bytes_4104 };
inline constexpr std::size_t kDifFieldBytes = 8;
[[nodiscard]] constexpr std::size_t block_bytes(DifBlock block) {
  constexpr std::array<std::size_t, 4> kBytes{512, 520, 4096, 4104};
  return kBytes[static_cast<std::size_t>(block) & 3U];
}

/// Of the guard of every block.
struct DifFormat {
  DifBlock block = DifBlock::bytes_512;
  bool invert_seed = false;
  bool invert_guard = false;
};

struct DifTags {
  std::uint32_t reference = 0;
  std::uint16_t application = 0;
  /// Bits of the application tag that are neither compared nor written (they become zero).
  std::uint16_t application_mask = 0;
  friend bool operator==(const DifTags&, const DifTags&) = default;
};

/// How the fields of a source are checked, and how its tags go from block to block.
struct DifSource {
  DifTags tags;  ///< Of the first block.
  bool check_guard = true;
  bool check_reference = true;
  bool fixed_reference = false;        ///< The reference tag of every block is that of the first.
  bool increment_application = false;  ///< The application tag counts blocks, too.
  bool skip_ones_in_application = false;    ///< No check where the application tag is all ones.
  bool skip_ones_in_tags = false;           ///< No check where both tags are.
  bool skip_ones_in_field = false;          ///< No check where the field is all ones, ...
  bool ones_in_field_are_an_error = false;  ///< ... or, with the above: an error of its own.
};

/// How the fields of a target are made.
struct DifTarget {
  DifTags tags;  ///< Of the first block.
  bool fixed_reference = false;
  bool increment_application = false;
  // dif_update only: keep what the source has.
  bool keep_guard = false;
  bool keep_application = false;
  bool keep_reference = false;
};

/// What a check of integrity fields found; all that apply to the first bad block.
namespace dif_error {
// NOLINTBEGIN(readability-identifier-naming): bits, named as those of descriptors are.
inline constexpr std::uint8_t guard = 1U << 0U;
inline constexpr std::uint8_t application = 1U << 1U;
inline constexpr std::uint8_t reference = 1U << 2U;
inline constexpr std::uint8_t all_ones = 1U << 3U;
// NOLINTEND(readability-identifier-naming)
}  // namespace dif_error

/// What an operation found out. What its kind does not speak of is zero.
struct OperationResult {
  /// compare, compare_pattern: where the first different byte is, if `different`.
  std::uint64_t difference_offset = 0;
  std::uint32_t crc = 0;          ///< crc, copy_crc: of all bytes done.
  std::uint32_t delta_bytes = 0;  ///< create_delta: of the record.
  DifTags source_tags;            ///< dif: of the block after the last one done.
  DifTags target_tags;
  bool different = false;       ///< compare, compare_pattern, create_delta.
  bool record_full = false;     ///< create_delta: the differences did not fit.
  std::uint8_t dif_errors = 0;  ///< dif_check, dif_strip, dif_update: bits of dif_error.
  friend bool operator==(const OperationResult&, const OperationResult&) = default;
};

/// A delta record is made of entries: an offset in units of 8 bytes, then the 8 bytes.
inline constexpr std::size_t kDeltaEntryBytes = 10;
inline constexpr std::size_t kDeltaUnitBytes = 8;
inline constexpr std::size_t kDeltaBytesMax = 0x80000;
/// Room that create_delta asks for at least.
inline constexpr std::size_t kDeltaRoomMin = 80;

/// One operation. Made without a check: submission checks it (validate()).
///
/// Ownership: borrows what the spans name until the job ends.
/// Threading: immutable.
class HEADRACE_API Operation {
 public:
  Operation() = default;  ///< no_op
  [[nodiscard]] static Operation no_op() { return {}; }
  [[nodiscard]] static Operation drain() { return {OperationKind::drain, {}, {}}; }
  /// The spans are equal or disjoint.
  [[nodiscard]] static Operation copy(std::span<std::byte> target,
                                      std::span<const std::byte> source) {
    return {OperationKind::copy, target, source};
  }
  /// Repeats the 8 bytes of `pattern`, the lowest first; the last repetition may be cut.
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
  /// Notes in `record` what has to be changed in `before` to make `after` of it. Addresses and
  /// length are multiples of 8.
  [[nodiscard]] static Operation create_delta(std::span<std::byte> record,
                                              std::span<const std::byte> before,
                                              std::span<const std::byte> after) {
    return {OperationKind::create_delta, record, before, after};
  }
  /// Changes `target` as `record` says, whose length is the delta_bytes of its creation.
  [[nodiscard]] static Operation apply_delta(std::span<std::byte> target,
                                             std::span<const std::byte> record) {
    return {OperationKind::apply_delta, target, record};
  }
  /// One source, two targets, whose addresses agree in their lowest 12 bits.
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
  /// Checks whole blocks with their fields. A bad one ends the job as failed with
  /// Cause::integrity_error, and bytes_done says where it is.
  [[nodiscard]] static Operation dif_check(std::span<const std::byte> source,
                                           const DifFormat& format, const DifSource& check) {
    return dif(OperationKind::dif_check, {}, source, format, &check, nullptr);
  }
  /// `target` has room for each block of `source` and its field.
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
  /// Writes the lines of `target` back to memory and drops them from the caches.
  [[nodiscard]] static Operation cache_flush(std::span<std::byte> target) {
    return {OperationKind::cache_flush, target, {}};
  }

  /// In a batch: begins after all operations before it have ended. If one of them failed, neither
  /// this nor any later one begins.
  [[nodiscard]] Operation fenced() const { return with_flag(kFence); }

  /// What is written lies in memory when the job has ended, and not only in a cache: on persistent
  /// memory it is durable then (docs/concepts/pmem.md). Beats into_cache(). No effect on what
  /// writes nothing; refused (bad_option) where processors cannot flush their caches.
  [[nodiscard]] Operation durable() const { return with_flag(kDurable); }

  /// The target is wanted in the last-level cache, not only in memory: a hint to a device.
  [[nodiscard]] Operation into_cache() const { return with_flag(kIntoCache); }

  /// Whether it may be submitted.
  ///
  /// Returns: accepted, or the first reason why not.
  [[nodiscard]] Submit validate() const {
    return is_simple_copy(kSimpleBytesMax) ? Submit::accepted : find_fault();
  }
  /// More than this validate() looks at again: sums of twice as much wrap.
  static constexpr std::size_t kSimpleBytesMax = SIZE_MAX / 2;
  /// True only for a valid plain copy of 1 to `byte_count_max` (at most kSimpleBytesMax) bytes that
  /// does not overlap. Takes fewer instructions than validate(), because it does not say what is
  /// wrong.
  [[nodiscard, gnu::always_inline]] bool is_simple_copy(std::size_t byte_count_max) const {
    return is_plain_copy() && target_.size() == source_.size() &&
           is_simple_copy(target_.data(), source_.data(), source_.size(), byte_count_max);
  }
  /// The same before the operation is made.
  [[nodiscard, gnu::always_inline]] static bool is_simple_copy(const void* target,
                                                               const void* source,
                                                               std::size_t byte_count,
                                                               std::size_t byte_count_max) {
    const auto to = reinterpret_cast<std::uintptr_t>(target);
    const auto from = reinterpret_cast<std::uintptr_t>(source);
    if (byte_count - 1 >= byte_count_max) return false;
    // One is null, or in the upper half and so perhaps near the end of all memory.
    if (static_cast<std::intptr_t>((to - 1) | (from - 1)) < 0) return false;
    // The distance, in either direction, is at least the length.
    return to - from + (byte_count - 1) > 2 * (byte_count - 1);
  }

  [[nodiscard]] OperationKind kind() const { return kind_; }
  [[nodiscard]] std::span<std::byte> target() const { return target_; }
  [[nodiscard]] std::span<const std::byte> source() const { return source_; }
  /// The second operand of compare and create_delta.
  [[nodiscard]] std::span<const std::byte> second_source() const { return second_; }
  [[nodiscard]] std::span<std::byte> second_target() const {
    return {const_cast<std::byte*>(second_.data()), second_.size()};  // NOLINT: was given as such.
  }
  /// What bytes_done of a completion counts: bytes of the source, or of the target where there is
  /// none, or of the record to apply. 0 for no_op and drain.
  [[nodiscard]] std::size_t byte_count() const {
    return source_.empty() ? target_.size() : source_.size();
  }
  [[nodiscard]] bool is_fenced() const { return (flags_ & kFence) != 0; }
  /// A copy without fence, hint and durability.
  [[nodiscard]] bool is_plain_copy() const { return kind_ == OperationKind::copy && flags_ == 0; }
  [[nodiscard]] bool is_durable() const { return (flags_ & kDurable) != 0; }
  [[nodiscard]] bool is_into_cache() const {
    return (flags_ & (kIntoCache | kDurable)) == kIntoCache;
  }
  /// The options of its kind as a descriptor has them: format, source and target flags of integrity
  /// fields in the three lowest bytes.
  [[nodiscard]] std::uint32_t option_bits() const { return flags_ & 0xff'ffffU; }

  // Operands of one kind or the other.
  [[nodiscard]] std::size_t pattern_bytes() const { return (flags_ & kLongPattern) != 0 ? 16 : 8; }
  [[nodiscard]] std::array<std::uint64_t, 2> pattern() const { return words_; }
  [[nodiscard]] CrcOptions crc_options() const {
    return {static_cast<std::uint32_t>(words_[0]), (flags_ & kCrcRaw) != 0,
            (flags_ & kCrcUnreflected) == 0};
  }
  [[nodiscard]] DifFormat dif_format() const;
  [[nodiscard]] DifSource dif_source() const;
  [[nodiscard]] DifTarget dif_target() const;

  /// Of a kind with integrity fields: bytes of a block, with its field or without, in the source
  /// and in the target.
  struct DifUnits {
    std::size_t source;
    std::size_t target;
  };
  [[nodiscard]] DifUnits dif_units() const {
    const std::size_t block = block_bytes(dif_format().block);
    const std::size_t whole = block + kDifFieldBytes;
    return {kind_ == OperationKind::dif_insert ? block : whole,
            kind_ == OperationKind::dif_strip ? block : whole};
  }

  /// The smallest number of bytes at whose multiples the operation may be cut; 0 if it cannot be.
  [[nodiscard]] std::size_t cut_bytes() const;
  /// True if parts may be done in any order: those of crc, copy_crc and dif need the result of the
  /// part before.
  [[nodiscard]] bool has_independent_parts() const {
    constexpr OperationSet kIndependent{OperationKind::copy,     OperationKind::fill,
                                        OperationKind::compare,  OperationKind::compare_pattern,
                                        OperationKind::dualcast, OperationKind::cache_flush};
    return kIndependent.has(kind_);
  }
  /// The part of `byte_count` bytes that begins at `offset_bytes`, both multiples of cut_bytes()
  /// (checked) unless it is the end. `before`: the result of all before it, of which a kind without
  /// independent parts takes its running values.
  [[nodiscard]] Operation part(std::size_t offset_bytes, std::size_t byte_count,
                               const OperationResult& before = {}) const;

 private:
  // Of flags_. The lowest byte is the format of integrity fields, then the flags of source and
  // target, all three as the device has them; the kinds above never meet those.
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
        kind_(kind) {}
  /// Without `check` or `make`: of a kind that has none.
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
  /// validate() of what is no simple copy.
  [[nodiscard]] Submit find_fault() const;

  std::span<std::byte> target_;
  std::span<const std::byte> source_;
  std::span<const std::byte> second_;
  /// fill, compare_pattern: the pattern; crc: the seed; dif: tags of source and target.
  std::array<std::uint64_t, 2> words_{};
  std::uint32_t flags_ = 0;
  OperationKind kind_ = OperationKind::no_op;
};

}  // namespace headrace::engine
