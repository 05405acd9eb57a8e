// SPDX-License-Identifier: Apache-2.0
// The space of copies that can be generated: one value describes one copy.
// Not for running one: generated.hpp makes the code.
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

/// What the bytes travel through.
enum class Register : std::uint8_t {
  rep_movsb,  ///< Microcode, byte-wise.
  rep_movsq,  ///< Microcode, by 8 bytes.
  word,       ///< General registers of 8 bytes.
  mmx,        ///< 8 bytes, of the registers that MMX has in common with the x87.
  xmm,        ///< 16 bytes.
  ymm,        ///< 32 bytes.
  zmm,        ///< 64 bytes: a whole line.
};
/// Into which caches lines are asked for ahead of their use.
enum class Prefetch : std::uint8_t { none, t0, t1, t2, nta };
/// Which side the loop is aligned to a line on; the other side is as it comes.
enum class Align : std::uint8_t { none, target, source };
enum class Direction : std::uint8_t { forward, backward };
/// Of which side the next page is asked for, by one line of it, while the copy is in the page
/// before: for the sake of its translation, which takes a walk of page tables if it is not known,
/// and which neither the prefetchers of processors nor stores past the caches see to.
enum class Touch : std::uint8_t { none, source, target, both };

/// One copy. A turn of its loop prefetches, then copies what the prefetches of an earlier turn
/// asked for, a block at a time: all of a block is loaded before it is stored, as far as there are
/// registers.
///
/// Threading: immutable.
struct Variant {
  Register through = Register::ymm;
  /// On ordinary memory most processors load so as they always do.
  bool load_nontemporal = false;
  /// The target goes past the caches; the next reader fetches it from memory.
  bool store_nontemporal = false;
  Prefetch prefetch = Prefetch::none;
  /// Lines that a turn asks for in one go: whole blocks.
  std::uint8_t prefetch_line_count = 0;
  /// Lines between what a turn copies and what it asks for.
  std::uint8_t prefetch_distance_lines = 0;
  /// The target's lines are asked for as well, to be written.
  bool prefetch_target = false;
  std::uint8_t block_line_count = 4;
  Align align = Align::target;
  Direction direction = Direction::forward;
  /// Pages that are copied side by side.
  std::uint8_t stream_count = 1;
  Touch touch = Touch::none;

  friend bool operator==(const Variant&, const Variant&) = default;
};

inline constexpr std::uint8_t kPrefetchLinesMax = 16;
/// String moves start slowly: a turn of theirs is longer.
inline constexpr std::uint8_t kStringPrefetchLinesMax = 64;
inline constexpr std::uint8_t kPrefetchDistanceLinesMax = 128;
inline constexpr std::uint8_t kBlockLinesMax = 8;
inline constexpr std::uint8_t kStreamsMax = 4;

/// Text such as "zmm load=t store=nt prefetch=t0:4@16+target block=4 align=target forward
/// streams=1 touch=both"; on one line, read again by parse_variant. What touches no pages does not
/// say so.
[[nodiscard]] HEADRACE_API std::string to_text(const Variant& variant);
/// Fails: invalid_argument, naming the word that is wrong, or what cannot be combined.
[[nodiscard]] HEADRACE_API Result<Variant> parse_variant(std::string_view text);

/// Fails: invalid_argument if no code can be generated for this combination, saying why.
[[nodiscard]] HEADRACE_API Result<void> check(const Variant& variant);
/// True if this processor has the instructions and this build the generator.
///
/// Threading: shared.
[[nodiscard]] HEADRACE_API bool can_run(const Variant& variant);

/// The grid that a search walks: every valid combination of some values of each parameter that this
/// processor can run. Copies of less than `byte_count` are not asked of them, so what would need
/// longer ones is left out. In a fixed order.
[[nodiscard]] HEADRACE_API std::vector<Variant> variants_for(std::size_t byte_count);

}  // namespace headrace::copy
