// SPDX-License-Identifier: Apache-2.0
// The space of copies that can be generated: one value describes one copy.
// Not for running one: generated.hpp generates the code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.hpp"
#include "headrace/base/line.hpp"
#include "headrace/base/result.hpp"

namespace headrace::copy {

/// Registers or instruction that move the bytes.
enum class Register : std::uint8_t {
  rep_movsb,  ///< Microcode, byte-wise.
  rep_movsq,  ///< Microcode, by 8 bytes.
  word,       ///< General registers of 8 bytes.
  mmx,        ///< 8 bytes; MMX registers, shared with the x87.
  xmm,        ///< 16 bytes.
  ymm,        ///< 32 bytes.
  zmm,        ///< 64 bytes: a whole line.
};
/// Hint of the prefetch instruction: into which caches lines are fetched.
enum class Prefetch : std::uint8_t { none, t0, t1, t2, nta };
/// Whether the loop aligns the target to a line; the source stays unaligned.
enum class Align : std::uint8_t { none, target };
/// Side whose next page the copy touches, by a prefetch of one line, while it is in the page
/// before. This loads the page's translation into the TLB: hardware prefetchers do not, and
/// non-temporal stores wait for the page walk.
enum class Touch : std::uint8_t { none, source, target, both };

/// One copy. An iteration of its loop prefetches, then copies what an earlier iteration prefetched,
/// a block at a time: all of a block is loaded before it is stored, as far as registers suffice.
///
/// Threading: immutable.
struct Variant {
  Register through = Register::ymm;
  /// Stores bypass the caches; the next reader fetches the target from memory.
  bool store_nontemporal = false;
  Prefetch prefetch = Prefetch::none;
  /// Lines prefetched in each iteration: whole blocks.
  std::uint8_t prefetch_line_count = 0;
  /// Lines between those that an iteration copies and those that it prefetches.
  std::uint8_t prefetch_distance_lines = 0;
  /// Also prefetch the target's lines, for writing.
  bool prefetch_target = false;
  std::uint8_t block_line_count = 4;
  Align align = Align::target;
  /// Number of pages copied interleaved.
  std::uint8_t stream_count = 1;
  Touch touch = Touch::none;

  friend bool operator==(const Variant&, const Variant&) = default;
};

inline constexpr std::uint8_t kPrefetchLinesMax = 16;
/// String moves start slowly, so their iterations are longer.
inline constexpr std::uint8_t kStringPrefetchLinesMax = 64;
inline constexpr std::uint8_t kPrefetchDistanceLinesMax = 128;
inline constexpr std::uint8_t kBlockLinesMax = 8;
inline constexpr std::uint8_t kStreamsMax = 4;

/// Text such as "zmm load=t store=nt prefetch=t0:4@16+target block=4 align=target forward
/// streams=1 touch=both", on one line, for parse_variant. "touch=none" is omitted; "load=t" and
/// "forward" are fixed.
[[nodiscard]] HEADRACE_API std::string to_text(const Variant& variant);
/// Fails: invalid_argument, naming the wrong word or the invalid combination; unsupported for one
///        of the words load=nt, backward and align=source, which older profiles may have.
[[nodiscard]] HEADRACE_API Result<Variant> parse_variant(std::string_view text);

/// Fails: invalid_argument if no code can be generated for this combination, with the reason.
[[nodiscard]] HEADRACE_API Result<void> check(const Variant& variant);
/// True if this processor has the instructions and this build has the generator.
///
/// Threading: shared.
[[nodiscard]] HEADRACE_API bool can_run(const Variant& variant);

/// The search grid: every valid combination of some values of each parameter that this processor
/// can run and whose loop needs no more than `byte_count` bytes. In a fixed order.
[[nodiscard]] HEADRACE_API std::vector<Variant> variants_for(std::size_t byte_count);

}  // namespace headrace::copy
