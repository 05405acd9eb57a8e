// SPDX-License-Identifier: Apache-2.0
// The subjects: the library's rings, and a gallery of rings that each break one rule, which the
// checker must notice.
#include "headrace/lab/ring_check.hpp"

#include <fmt/format.h>

#include "ring_crash_check.hpp"

namespace headrace::pmem::lab {
namespace {

template <PositionRules kRules>
CheckReport by_positions(FlushInstruction instruction, const CheckOptions& options) {
  return RingCheck(PositionEnds<kRules>{.instruction = instruction}, options).run();
}
template <PositionRules kRules = PositionRules()>
CheckReport naive(const CheckOptions& options) {
  return by_positions<kRules>(FlushInstruction::clflush, options);
}
template <PositionRules kRules = PositionRules()>
CheckReport clflushopt(const CheckOptions& options) {
  return by_positions<kRules>(FlushInstruction::clflushopt, options);
}
template <PositionRules kRules = PositionRules()>
CheckReport clwb(const CheckOptions& options) {
  return by_positions<kRules>(FlushInstruction::clwb, options);
}
template <BlockRules kRules = BlockRules()>
CheckReport each(const CheckOptions& options) {
  return RingCheck(BlockEnds<kRules>{.acknowledgement = Acknowledgement::each}, options).run();
}
template <BlockRules kRules = BlockRules()>
CheckReport lazy(const CheckOptions& options) {
  return RingCheck(BlockEnds<kRules>{.acknowledgement = Acknowledgement::lazy}, options).run();
}

CheckReport both(const CheckOptions& options) {
  CheckReport report;
  CheckOptions half = options;
  double begin = 0;
  if (options.progress) {
    half.progress = [&](double share) { return options.progress(begin + share / 2); };
  }
  for (const auto check : {each<>, lazy<>}) {
    const CheckReport one = check(half);
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
  CheckReport (*check)(const CheckOptions& options);
};

constexpr Subject kSubjects[] = {
    {"naive", "clflush of everything that is touched", true, naive<>},
    {"clflushopt", "clflushopt and fences", true, clflushopt<>},
    {"clwb", "clwb and fences", true, clwb<>},
    {"optimised", "whole blocks past the caches, checksums, one fence; both acknowledgements", true,
     both},
    {"naive-missing-flush", "the entry is not flushed", false,
     naive<PositionRules{.flushes_the_entry = false}>},
    {"naive-short-flush", "of the entry only the first line is flushed", false,
     naive<PositionRules{.flushes_every_line = false}>},
    {"naive-wrong-line", "the lines behind are flushed instead of the entry's", false,
     naive<PositionRules{.flushes_the_right_lines = false}>},
    {"naive-flush-before-store", "the entry is flushed before it is stored", false,
     naive<PositionRules{.stores_before_it_flushes = false}>},
    {"naive-flag-before-data", "the position is stored and flushed before the entry", false,
     naive<PositionRules{.stores_the_position_last = false}>},
    {"naive-missing-position-flush", "the write position is not flushed", false,
     naive<PositionRules{.flushes_the_position = false}>},
    {"naive-missing-read-flush", "the read position is not flushed", false,
     naive<PositionRules{.flushes_the_read_position = false}>},
    {"naive-early-read", "the read position moves when an entry is lent", false,
     naive<PositionRules{.waits_for_the_acknowledgement = false}>},
    {"naive-seen-too-soon", "the consumer acts on a position that is not durable", false,
     naive<PositionRules{.flushes_what_it_sees = false}>},
    {"clflushopt-missing-fence", "no fence between entry and position", false,
     clflushopt<PositionRules{.drains_after_the_entry = false}>},
    {"clwb-missing-fence", "no fence between entry and position", false,
     clwb<PositionRules{.drains_after_the_entry = false}>},
    {"clwb-missing-last-fence", "no fence after the position", false,
     clwb<PositionRules{.drains_after_the_position = false}>},
    {"optimised-missing-fence", "no fence before enqueue returns", false,
     each<BlockRules{.drains_before_it_returns = false}>},
    {"optimised-cached-stores", "the entry goes through the caches and is not flushed", false,
     each<BlockRules{.streams = false}>},
    {"optimised-cached-tail", "the last lines of the entry go through the caches", false,
     each<BlockRules{.streams_the_last_line = false}>},
    {"optimised-torn-checksum", "the checksum is of the first line only", false,
     each<BlockRules{.proves_the_whole_record = false}>},
    {"optimised-no-checksum", "a header is believed without its checksum", false,
     each<BlockRules{.checks_the_checksum = false}>},
    {"optimised-old-lap", "recovery takes entries of an earlier lap", false,
     each<BlockRules{.checks_the_position = false}>},
    {"optimised-second-life", "what a crash left behind the end comes back to life", false,
     each<BlockRules{.checks_the_generation = false}>},
    {"optimised-early-reuse", "room is used again before the acknowledgement is durable", false,
     lazy<BlockRules{.keeps_what_may_be_read_again = false}>},
    {"optimised-missing-read-flush", "the read position is not flushed", false,
     each<BlockRules{.flushes_the_read_position = false}>},
    {"optimised-missing-read-fence", "no fence after the flush of the read position", false,
     each<BlockRules{.drains_the_read_position = false}>},
    {"optimised-early-read", "the read position moves when an entry is lent", false,
     each<BlockRules{.waits_for_the_acknowledgement = false}>},
    {"optimised-believed-end", "recovery believes a position that is not durable", false,
     each<BlockRules{.finds_the_end = false}>},
    {"optimised-seen-too-soon", "a producer relies on a read position that is not durable", false,
     lazy<BlockRules{.flushes_what_it_sees = false}>},
    {"optimised-torn-twice", "a torn entry stays, and words of the next one complete it", false,
     each<BlockRules{.erases_what_was_torn = false}>},
};

constexpr std::size_t kEntriesMax = 1000;

}  // namespace

const std::vector<CheckSubject>& check_subjects() {
  static const std::vector<CheckSubject> kList = [] {
    std::vector<CheckSubject> list;
    for (const Subject& subject : kSubjects) {
      list.push_back({.name = subject.name, .summary = subject.summary, .sound = subject.sound});
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
    if (name == subject.name) return subject.check(options);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", subject.name);
  }
  return fail(Code::not_found, tried, "there is nothing of that name", "use one of " + names);
}

}  // namespace headrace::pmem::lab
