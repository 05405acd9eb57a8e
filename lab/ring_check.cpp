// SPDX-License-Identifier: Apache-2.0
// The subjects: the library's rings, and a gallery of rings that each break one rule, which the
// checker must notice.
#include "headrace/lab/ring_check.hpp"

#include <fmt/format.h>

#include <optional>
#include <variant>

#include "ring_crash_check.hpp"

namespace headrace::pmem::lab {
namespace {

using enum FlushInstruction;
using enum Acknowledgement;
using Ends = std::variant<PositionEnds, BlockEnds>;

constexpr Ends positions(FlushInstruction instruction, const PositionRules& rules = {}) {
  return PositionEnds{.instruction = instruction, .rules = {rules}};
}
constexpr Ends blocks(Acknowledgement acknowledgement, const BlockRules& rules = {}) {
  return BlockEnds{.acknowledgement = acknowledgement, .rules = {rules}};
}

CheckReport check(const std::optional<Ends>& ends, const CheckOptions& options) {
  if (ends.has_value()) {
    return std::visit([&](const auto& kind) { return RingCheck(kind, options).run(); }, *ends);
  }
  CheckReport report;
  CheckOptions half = options;
  double begin = 0;
  if (options.progress) {
    half.progress = [&](double share) { return options.progress(begin + share / 2); };
  }
  for (const Ends& half_ends : {blocks(each), blocks(lazy)}) {
    const CheckReport one = check(half_ends, half);
    report.states_tried += one.states_tried;
    report.states_bad += one.states_bad;
    report.moments += one.moments;
    report.moments_exhaustive += one.moments_exhaustive;
    report.runs += one.runs;
    report.second_crashes += one.second_crashes;
    if (report.first_bad.empty()) report.first_bad = one.first_bad;
    if (begin == 0) report.waste = one.waste;
    begin = 0.5;
  }
  return report;
}

struct Subject {
  const char* name;
  const char* summary;
  bool sound;
  std::optional<Ends> ends;  ///< Else those of both acknowledgements.
};

constexpr Subject kSubjects[] = {
    {"naive", "clflush of everything that is touched", true, positions(clflush)},
    {"clflushopt", "clflushopt and fences", true, positions(clflushopt)},
    {"clwb", "clwb and fences", true, positions(clwb)},
    {"optimised", "whole blocks past the caches, checksums, one fence; both acknowledgements", true,
     std::nullopt},
    {"naive-missing-flush", "the entry is not flushed", false,
     positions(clflush, {.flushes_the_entry = false})},
    {"naive-short-flush", "of the entry only the first line is flushed", false,
     positions(clflush, {.flushes_every_line = false})},
    {"naive-wrong-line", "the lines behind are flushed instead of the entry's", false,
     positions(clflush, {.flushes_the_right_lines = false})},
    {"naive-flush-before-store", "the entry is flushed before it is stored", false,
     positions(clflush, {.stores_before_it_flushes = false})},
    {"naive-flag-before-data", "the position is stored and flushed before the entry", false,
     positions(clflush, {.stores_the_position_last = false})},
    {"naive-missing-position-flush", "the write position is not flushed", false,
     positions(clflush, {.flushes_the_position = false})},
    {"naive-missing-read-flush", "the read position is not flushed", false,
     positions(clflush, {.flushes_the_read_position = false})},
    {"naive-early-read", "the read position moves when an entry is lent", false,
     positions(clflush, {.waits_for_the_acknowledgement = false})},
    {"naive-seen-too-soon", "the consumer acts on a position that is not durable", false,
     positions(clflush, {.flushes_what_it_sees = false})},
    {"clflushopt-missing-fence", "no fence between entry and position", false,
     positions(clflushopt, {.drains_after_the_entry = false})},
    {"clwb-missing-fence", "no fence between entry and position", false,
     positions(clwb, {.drains_after_the_entry = false})},
    {"clwb-missing-last-fence", "no fence after the position", false,
     positions(clwb, {.drains_after_the_position = false})},
    {"optimised-missing-fence", "no fence before enqueue returns", false,
     blocks(each, {.drains_before_it_returns = false})},
    {"optimised-cached-stores", "the entry goes through the caches and is not flushed", false,
     blocks(each, {.streams = false})},
    {"optimised-cached-tail", "the last lines of the entry go through the caches", false,
     blocks(each, {.streams_the_last_line = false})},
    {"optimised-torn-checksum", "the checksum is of the first line only", false,
     blocks(each, {.proves_the_whole_record = false})},
    {"optimised-no-checksum", "a header is believed without its checksum", false,
     blocks(each, {.checks_the_checksum = false})},
    {"optimised-old-lap", "recovery takes entries of an earlier lap", false,
     blocks(each, {.checks_the_position = false})},
    {"optimised-second-life", "what a crash left behind the end comes back to life", false,
     blocks(each, {.checks_the_generation = false})},
    {"optimised-early-reuse", "room is used again before the acknowledgement is durable", false,
     blocks(lazy, {.keeps_what_may_be_read_again = false})},
    {"optimised-missing-read-flush", "the read position is not flushed", false,
     blocks(each, {.flushes_the_read_position = false})},
    {"optimised-missing-read-fence", "no fence after the flush of the read position", false,
     blocks(each, {.drains_the_read_position = false})},
    {"optimised-early-read", "the read position moves when an entry is lent", false,
     blocks(each, {.waits_for_the_acknowledgement = false})},
    {"optimised-believed-end", "recovery believes a position that is not durable", false,
     blocks(each, {.finds_the_end = false})},
    {"optimised-seen-too-soon", "a producer relies on a read position that is not durable", false,
     blocks(lazy, {.flushes_what_it_sees = false})},
    {"optimised-torn-twice", "a torn entry stays, and words of the next one complete it", false,
     blocks(each, {.erases_what_was_torn = false})},
};

constexpr std::size_t kEntriesMax = 1000;

}  // namespace

const std::vector<CheckSubject>& check_subjects() {
  static const std::vector<CheckSubject> kList = [] {
    std::vector<CheckSubject> list;
    for (const auto& [name, summary, sound, ends] : kSubjects) {
      list.push_back({.name = name, .summary = summary, .sound = sound});
    }
    return list;
  }();
  return kList;
}

Result<CheckReport> check_subject(std::string_view name, const CheckOptions& options) {
  const std::string tried = fmt::format("check '{}'", name);
  if (options.entry_count == 0 || options.entry_count > kEntriesMax) {
    return fail(Code::invalid_argument, tried,
                fmt::format("{} entries were asked for", options.entry_count),
                fmt::format("use 1 to {}", kEntriesMax));
  }
  std::string names;
  for (const Subject& subject : kSubjects) {
    if (name == subject.name) return check(subject.ends, options);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", subject.name);
  }
  return fail(Code::not_found, tried, "there is nothing of that name", "use one of " + names);
}

}  // namespace headrace::pmem::lab
