// SPDX-License-Identifier: Apache-2.0
// Generated code and its memory.
#include "headrace/copy/generated.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "generator.hpp"
#include "headrace/platform/executable.hpp"

namespace headrace::copy {
namespace {

/// Functions start at lines, so that their speed does not depend on other functions.
std::size_t round_up_to_lines(std::size_t byte_count) {
  return (byte_count + kLineBytes - 1) / kLineBytes * kLineBytes;
}

/// `room` from its first line boundary on.
std::span<std::byte> from_a_line_on(std::span<std::byte> room) {
  const auto begin = reinterpret_cast<std::uintptr_t>(room.data());
  return room.subspan(round_up_to_lines(begin) - begin);
}

Result<void> can_generate(const Variant& variant) {
  HEADRACE_TRY(check(variant));
  if (can_run(variant)) return {};
  return fail(Code::unsupported, fmt::format("generate a copy '{}'", to_text(variant)),
              detail::kHasGenerator ? "this processor lacks its instructions"
                                    : "this build generates no code",
              "choose another");
}

}  // namespace

struct GeneratedCode::State {
  std::optional<platform::ExecutablePages> pages;  ///< Nothing if there is no code.
  std::vector<Move> moves;
  std::size_t code_bytes = 0;
};

Move libc_move() {
  return &std::memmove;
}

Result<GeneratedCode> GeneratedCode::make(std::span<const Variant> variants, Move fallback) {
  const std::vector<Routine> routines(variants.begin(), variants.end());
  return make(routines, {}, fallback);
}

Result<GeneratedCode> GeneratedCode::make(std::span<const Routine> routines, const ColdProbe& probe,
                                          Move fallback, bool guards) {
  // Generate into scratch first: only then is the size of the pages known.
  std::vector<std::byte> scratch(kLineBytes + detail::kCodeBytesMax);
  const std::span<std::byte> room = from_a_line_on(scratch);
  std::vector<std::byte> code;
  /// Offsets of the functions; nothing is the fallback.
  struct Begins {
    std::optional<std::size_t> warm;
    std::optional<std::size_t> cold;
  };
  std::vector<Begins> begins;
  // The code may be moved: internal jumps are relative, external addresses absolute.
  const auto append = [&](std::size_t byte_count) {
    const std::size_t begin = code.size();
    code.insert(code.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(byte_count));
    code.resize(round_up_to_lines(code.size()));
    return begin;
  };
  if (guards) {
    // No other loop is faster there, measured on an EPYC (Zen 3) from 2 KiB to 1 MiB.
    const Variant loop{.block_line_count = 1};
    HEADRACE_TRY(can_generate(loop));
    if constexpr (detail::kHasGenerator) {
      detail::generate_guard(fallback, room);
      static_cast<void>(append(kLineBytes));
      static_cast<void>(append(detail::generate(loop, fallback, room)));
    }
  }
  std::size_t probe_count = 0;
  for (const Routine& routine : routines) {
    Begins& each = begins.emplace_back();
    for (const auto& variant : {routine.warm, routine.cold}) {
      if (!variant) continue;
      HEADRACE_TRY(can_generate(*variant));
    }
    if constexpr (detail::kHasGenerator) {
      if (routine.warm) each.warm = append(detail::generate(*routine.warm, fallback, room));
      if (routine.cold) each.cold = append(detail::generate(*routine.cold, fallback, room));
    }
    if (routine.cold) ++probe_count;
  }
  if (code.empty()) {
    return GeneratedCode(std::make_shared<const State>(
        State{.pages = {}, .moves = std::vector<Move>(routines.size(), fallback)}));
  }
  const std::size_t probes_begin = code.size();
  code.resize(probes_begin + probe_count * detail::kProbeCodeBytesMax);
  HEADRACE_TAKE(pages, platform::ExecutablePages::make(code.size()));
  std::memcpy(pages->bytes().data(), code.data(), code.size());
  const auto function_at = [&](std::optional<std::size_t> begin) {
    if (!begin && !guards) return fallback;
    return reinterpret_cast<Move>(pages->bytes().data() + begin.value_or(0));
  };
  std::vector<Move> moves;
  moves.reserve(begins.size());
  std::size_t next = probes_begin;
  for (const Begins& each : begins) {
    if (!each.cold) {
      moves.push_back(function_at(each.warm));
      continue;
    }
    if constexpr (detail::kHasGenerator) {
      detail::generate_probe(probe, function_at(each.warm), function_at(each.cold),
                             pages->bytes().subspan(next, detail::kProbeCodeBytesMax));
    }
    moves.push_back(function_at(next));
    next += detail::kProbeCodeBytesMax;
  }
  if (guards) moves.push_back(function_at(std::nullopt));
  HEADRACE_TRY(pages->seal());
  return GeneratedCode(std::make_shared<const State>(
      State{.pages = std::move(*pages), .moves = std::move(moves), .code_bytes = code.size()}));
}

Result<GeneratedCode> GeneratedCode::make_entry(std::span<const Range> ranges, Move fallback) {
  if constexpr (!detail::kHasGenerator) {
    return fail(Code::unsupported, "generate an entry", "this build generates no code",
                "call the fallback");
  } else {
    HEADRACE_TAKE(pages,
                  platform::ExecutablePages::make(detail::kEntryCodeBytesMax +
                                                  ranges.size() * detail::kRangeCodeBytesMax));
    const std::span<std::byte> room = pages->bytes();
    const auto place = reinterpret_cast<std::uintptr_t>(room.data());
    const std::size_t used = detail::generate_entry(ranges, fallback, room, place);
    HEADRACE_TRY(pages->seal());
    return GeneratedCode(
        std::make_shared<const State>(State{.pages = std::move(*pages),
                                            .moves = {reinterpret_cast<Move>(room.data())},
                                            .code_bytes = used}));
  }
}

std::span<const Move> GeneratedCode::moves() const {
  return state_->moves;
}

std::size_t GeneratedCode::code_bytes() const {
  return state_->code_bytes;
}

}  // namespace headrace::copy
