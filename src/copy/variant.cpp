// SPDX-License-Identifier: Apache-2.0
// Variants as text, their validity, and the search grid.
#include "headrace/copy/variant.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "generator.hpp"
#include "headrace/base/names.hpp"
#include "headrace/platform/cpu.hpp"

namespace headrace::copy {
namespace {

constexpr std::string_view kTried = "use a copy variant";

template <typename Enum>
bool read_word(std::string_view text, Enum& value) {
  const std::optional<Enum> found = find_name<Enum>(text);
  value = found.value_or(value);
  return found.has_value();
}

bool read_number(std::string_view text, std::uint8_t& value) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stop, problem] = std::from_chars(begin, end, value);
  return problem == std::errc() && stop == end;
}

/// "none", or TYPE:LINES@DISTANCE, optionally followed by "+target".
bool read_prefetch(std::string_view text, Variant& variant) {
  if (text == "none") return true;
  constexpr std::string_view kTarget = "+target";
  if (text.ends_with(kTarget)) {
    variant.prefetch_target = true;
    text.remove_suffix(kTarget.size());
  }
  const std::size_t colon = text.find(':');
  const std::size_t at = text.find('@');
  if (colon == std::string_view::npos || at == std::string_view::npos || at < colon) return false;
  return read_word(text.substr(0, colon), variant.prefetch) &&
         read_number(text.substr(colon + 1, at - colon - 1), variant.prefetch_line_count) &&
         read_number(text.substr(at + 1), variant.prefetch_distance_lines);
}

bool read_word_of_variant(std::string_view word, Variant& variant) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) {
    return word == "forward" || read_word(word, variant.through);
  }
  const std::string_view key = word.substr(0, equals);
  const std::string_view value = word.substr(equals + 1);
  if (key == "load") return value == "t";
  if (key == "store") {
    variant.store_nontemporal = value == "nt";
    return variant.store_nontemporal || value == "t";
  }
  if (key == "prefetch") return read_prefetch(value, variant);
  if (key == "block") return read_number(value, variant.block_line_count);
  if (key == "align") return read_word(value, variant.align);
  if (key == "streams") return read_number(value, variant.stream_count);
  if (key == "touch") return read_word(value, variant.touch);
  return false;
}

bool is_string_move(const Variant& variant) {
  return variant.through == Register::rep_movsb || variant.through == Register::rep_movsq;
}

bool is_power_of_two_up_to(std::uint8_t value, std::uint8_t value_max) {
  return value != 0 && value <= value_max && (value & (value - 1U)) == 0;
}

/// Why no code can be generated; nothing if it can.
std::optional<std::string_view> objection(const Variant& variant) {
  const bool prefetches = variant.prefetch_line_count != 0;
  if (!prefetches && variant.prefetch_distance_lines != 0) {
    return "a distance needs a prefetch";
  }
  if (is_string_move(variant)) {
    const bool plain =
        !variant.store_nontemporal && variant.stream_count == 1 && variant.touch == Touch::none;
    if (!plain) return "string moves store temporally, in one stream, and touch no pages";
    if (variant.block_line_count != 1) return "string moves have blocks of one line";
  }
  if (!is_power_of_two_up_to(variant.block_line_count, kBlockLinesMax)) {
    return "a block has 1, 2, 4 or 8 lines";
  }
  if (!is_power_of_two_up_to(variant.stream_count, kStreamsMax)) return "streams are 1, 2 or 4";
  const bool by_pages = variant.stream_count > 1 || variant.touch != Touch::none;
  const bool asks_for_nothing = variant.prefetch == Prefetch::none && !variant.prefetch_target;
  if (asks_for_nothing != !prefetches) return "a prefetch has a type and a number of lines";
  const std::uint8_t line_count_max =
      is_string_move(variant) ? kStringPrefetchLinesMax : kPrefetchLinesMax;
  if (variant.prefetch_line_count > line_count_max ||
      variant.prefetch_distance_lines > kPrefetchDistanceLinesMax) {
    return "a prefetch asks for at most 16 lines (string moves: 64), at most 128 ahead";
  }
  if (prefetches && variant.prefetch_line_count % variant.block_line_count != 0) {
    return "a prefetch asks for whole blocks";
  }
  if (by_pages && prefetches &&
      !is_power_of_two_up_to(variant.prefetch_line_count, kPrefetchLinesMax)) {
    return "with several streams or touched pages a prefetch asks for 1, 2, 4, 8 or 16 lines";
  }
  if (variant.store_nontemporal && variant.align != Align::target) {
    return "non-temporal stores need an aligned target";
  }
  return std::nullopt;
}

}  // namespace

std::string to_text(const Variant& variant) {
  std::string prefetch = "none";
  if (variant.prefetch_line_count != 0) {
    prefetch =
        fmt::format("{}:{}@{}{}", name(variant.prefetch), variant.prefetch_line_count,
                    variant.prefetch_distance_lines, variant.prefetch_target ? "+target" : "");
  }
  std::string touch;
  if (variant.touch != Touch::none) touch = fmt::format(" touch={}", name(variant.touch));
  return fmt::format("{} load=t store={} prefetch={} block={} align={} forward streams={}{}",
                     name(variant.through), variant.store_nontemporal ? "nt" : "t", prefetch,
                     variant.block_line_count, name(variant.align), variant.stream_count, touch);
}

Result<Variant> parse_variant(std::string_view text) {
  Variant variant;
  std::string_view rest = text.substr(0, 256);
  while (!rest.empty()) {
    const std::size_t space = std::min(rest.find(' '), rest.size());
    const std::string_view word = rest.substr(0, space);
    rest.remove_prefix(std::min(space + 1, rest.size()));
    if (word == "load=nt" || word == "backward" || word == "align=source") {
      return fail(Code::unsupported, std::string(kTried),
                  fmt::format("'{}' is not generated any more: it was never the fastest", word),
                  "make a new profile by 'headrace tune'");
    }
    if (!read_word_of_variant(word, variant)) {
      return fail(Code::invalid_argument, std::string(kTried),
                  fmt::format("'{}' is not understood", word),
                  fmt::format("write it as in '{}'", to_text(Variant{})));
    }
  }
  // Accept only the canonical form that to_text writes, so that equal variants have equal texts.
  if (to_text(variant) != text) {
    return fail(Code::invalid_argument, std::string(kTried),
                fmt::format("'{}' is not complete", text.substr(0, 256)),
                fmt::format("write it as in '{}'", to_text(Variant{})));
  }
  HEADRACE_TRY(check(variant));
  return variant;
}

Result<void> check(const Variant& variant) {
  if (const auto reason = objection(variant)) {
    return fail(Code::invalid_argument, std::string(kTried),
                fmt::format("'{}': {}", to_text(variant), *reason), "choose another");
  }
  return {};
}

bool can_run(const Variant& variant) {
  if (!detail::kHasGenerator) return false;
  const platform::CpuFeatures& features = platform::cpu_features();
  switch (variant.through) {
    case Register::rep_movsb:
      return features.erms;
    case Register::ymm:
      return features.avx2;
    case Register::zmm:
      return features.avx512;
    case Register::xmm:
    case Register::rep_movsq:
    case Register::word:
    case Register::mmx:
      return true;
  }
  return false;
}

namespace {

/// Values of each parameter in the grid. Not all valid ones: distances that differ by one line are
/// alike, and so are neighbours beyond 32 lines.
constexpr std::array kGridBlocks = std::to_array<std::uint8_t>({1, 2, 4, 8});
constexpr std::array kGridStreams = std::to_array<std::uint8_t>({1, 2, 4});
constexpr std::array kGridPrefetchLines =
    std::to_array<std::uint8_t>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
constexpr std::array kGridStringPrefetchLines = std::to_array<std::uint8_t>({16, 32, 64});
constexpr std::array kGridDistanceLines = std::to_array<std::uint8_t>(
    {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 64});
constexpr std::array kGridPrefetches = {Prefetch::none, Prefetch::t0, Prefetch::t1, Prefetch::t2,
                                        Prefetch::nta};

/// Collects the variants that this processor can run and whose loop a copy of this length reaches.
class Grid {
 public:
  explicit Grid(std::size_t byte_count) : byte_count_(byte_count) {}

  void offer(const Variant& variant) {
    if constexpr (detail::kHasGenerator) {
      if (!objection(variant) && can_run(variant) &&
          detail::loop_bytes_min(variant) <= byte_count_ && pages_fit(variant)) {
        variants_.push_back(variant);
      }
    }
  }
  void offer_prefetching(Variant variant, std::span<const std::uint8_t> line_counts) {
    for (const std::uint8_t line_count : line_counts) {
      for (const std::uint8_t distance_lines : kGridDistanceLines) {
        // Prefetches that would all be beyond the end are never made: a duplicate.
        if (std::size_t{distance_lines} + std::size_t{2} * line_count > byte_count_ / kLineBytes)
          continue;
        variant.prefetch_line_count = line_count;
        variant.prefetch_distance_lines = distance_lines;
        for (const Prefetch prefetch : kGridPrefetches) {
          for (const bool target : {false, true}) {
            variant.prefetch = prefetch;
            variant.prefetch_target = target;
            offer(variant);
          }
        }
      }
    }
  }
  [[nodiscard]] std::vector<Variant> take() { return std::move(variants_); }

 private:
  [[nodiscard]] bool pages_fit(const Variant& variant) const {
    constexpr std::size_t kPageBytes = 4096;
    const bool touched = variant.touch == Touch::none || kPageBytes <= byte_count_;
    const bool side_by_side = variant.stream_count == 1 ||
                              std::size_t{2} * variant.stream_count * kPageBytes <= byte_count_;
    return touched && side_by_side;
  }

  std::size_t byte_count_;
  std::vector<Variant> variants_;
};

}  // namespace

std::vector<Variant> variants_for(std::size_t byte_count) {
  Grid grid(byte_count);
  for (const Align align : {Align::none, Align::target}) {
    for (const Register through : {Register::rep_movsb, Register::rep_movsq}) {
      const Variant variant{.through = through, .block_line_count = 1, .align = align};
      grid.offer(variant);
      grid.offer_prefetching(variant, kGridStringPrefetchLines);
    }
    for (const Register through :
         {Register::word, Register::mmx, Register::xmm, Register::ymm, Register::zmm}) {
      for (const std::uint8_t block : kGridBlocks) {
        for (const bool store_nontemporal : {false, true}) {
          Variant variant{.through = through,
                          .store_nontemporal = store_nontemporal,
                          .block_line_count = block,
                          .align = align};
          for (const std::uint8_t streams : kGridStreams) {
            variant.stream_count = streams;
            grid.offer(variant);
            // One alignment suffices to compare prefetches.
            if (align == Align::target) grid.offer_prefetching(variant, kGridPrefetchLines);
          }
          variant.stream_count = 1;
          if (align == Align::target) {
            for (const Touch touch : {Touch::target, Touch::both}) {
              variant.touch = touch;
              grid.offer(variant);
              grid.offer_prefetching(variant, kGridPrefetchLines);
            }
          }
        }
      }
    }
  }
  return grid.take();
}

}  // namespace headrace::copy
