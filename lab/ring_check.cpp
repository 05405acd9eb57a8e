// SPDX-License-Identifier: Apache-2.0
// The subjects: the library's rings, and a gallery of rings that each break one rule, which the
// checker must notice.
#include "headrace/lab/ring_check.hpp"

#include <fmt/format.h>

#include "ring_crash_check.hpp"

namespace headrace::pmem::lab {
namespace {

// One breach each.
// NOLINTBEGIN(readability-identifier-naming): each is a rule, named by a sentence about the ring.
struct MissingFlush : PositionRules {
  static constexpr bool flushes_the_entry = false;
};
struct ShortFlush : PositionRules {
  static constexpr bool flushes_every_line = false;
};
struct WrongLine : PositionRules {
  static constexpr bool flushes_the_right_lines = false;
};
struct FlushBeforeStore : PositionRules {
  static constexpr bool stores_before_it_flushes = false;
};
struct MissingFence : PositionRules {
  static constexpr bool drains_after_the_entry = false;
};
struct FlagBeforeData : PositionRules {
  static constexpr bool stores_the_position_last = false;
};
struct MissingPositionFlush : PositionRules {
  static constexpr bool flushes_the_position = false;
};
struct MissingLastFence : PositionRules {
  static constexpr bool drains_after_the_position = false;
};
struct MissingReadFlush : PositionRules {
  static constexpr bool flushes_the_read_position = false;
};
struct EarlyRead : PositionRules {
  static constexpr bool waits_for_the_acknowledgement = false;
};
struct SeenTooSoon : PositionRules {
  static constexpr bool flushes_what_it_sees = false;
};

struct BlockMissingFence : BlockRules {
  static constexpr bool drains_before_it_returns = false;
};
struct Cached : BlockRules {
  static constexpr bool streams = false;
};
struct CachedTail : BlockRules {
  static constexpr bool streams_the_last_line = false;
};
struct TornChecksum : BlockRules {
  static constexpr bool proves_the_whole_record = false;
};
struct NoChecksum : BlockRules {
  static constexpr bool checks_the_checksum = false;
};
struct OldLap : BlockRules {
  static constexpr bool checks_the_position = false;
};
struct SecondLife : BlockRules {
  static constexpr bool checks_the_generation = false;
};
struct EarlyReuse : BlockRules {
  static constexpr bool keeps_what_may_be_read_again = false;
};
struct BlockMissingReadFlush : BlockRules {
  static constexpr bool flushes_the_read_position = false;
};
struct BlockMissingReadFence : BlockRules {
  static constexpr bool drains_the_read_position = false;
};
struct BlockEarlyRead : BlockRules {
  static constexpr bool waits_for_the_acknowledgement = false;
};
struct BelievedEnd : BlockRules {
  static constexpr bool finds_the_end = false;
};
struct BlockSeenTooSoon : BlockRules {
  static constexpr bool flushes_what_it_sees = false;
};
struct TornTwice : BlockRules {
  static constexpr bool erases_what_was_torn = false;
};
// NOLINTEND(readability-identifier-naming)

template <typename Rules>
CheckReport by_positions(FlushInstruction instruction, const CheckOptions& options) {
  return RingCheck(PositionEnds<Rules>{.instruction = instruction}, options).run();
}
template <typename Rules>
CheckReport naive(const CheckOptions& options) {
  return by_positions<Rules>(FlushInstruction::clflush, options);
}
template <typename Rules>
CheckReport clflushopt(const CheckOptions& options) {
  return by_positions<Rules>(FlushInstruction::clflushopt, options);
}
template <typename Rules>
CheckReport clwb(const CheckOptions& options) {
  return by_positions<Rules>(FlushInstruction::clwb, options);
}
template <typename Rules>
CheckReport each(const CheckOptions& options) {
  return RingCheck(BlockEnds<Rules>{.acknowledgement = Acknowledgement::each}, options).run();
}
template <typename Rules>
CheckReport lazy(const CheckOptions& options) {
  return RingCheck(BlockEnds<Rules>{.acknowledgement = Acknowledgement::lazy}, options).run();
}

CheckReport both(const CheckOptions& options) {
  CheckOptions half = options;
  if (options.progress) {
    half.progress = [&](double share) { return options.progress(share / 2); };
  }
  CheckReport report = each<BlockRules>(half);
  if (options.progress) {
    half.progress = [&](double share) { return options.progress(0.5 + share / 2); };
  }
  const CheckReport other = lazy<BlockRules>(half);
  report.states_tried += other.states_tried;
  report.states_bad += other.states_bad;
  report.moments += other.moments;
  report.moments_exhaustive += other.moments_exhaustive;
  report.runs += other.runs;
  report.second_crashes += other.second_crashes;
  if (report.first_bad.empty()) report.first_bad = other.first_bad;
  return report;
}

struct Subject {
  const char* name;
  const char* summary;
  bool sound;
  CheckReport (*check)(const CheckOptions& options);
};

constexpr Subject kSubjects[] = {
    {"naive", "clflush of everything that is touched", true, naive<PositionRules>},
    {"clflushopt", "clflushopt and fences", true, clflushopt<PositionRules>},
    {"clwb", "clwb and fences", true, clwb<PositionRules>},
    {"optimised", "whole blocks past the caches, checksums, one fence; both acknowledgements", true,
     both},
    {"naive-missing-flush", "the entry is not flushed", false, naive<MissingFlush>},
    {"naive-short-flush", "of the entry only the first line is flushed", false, naive<ShortFlush>},
    {"naive-wrong-line", "the lines behind are flushed instead of the entry's", false,
     naive<WrongLine>},
    {"naive-flush-before-store", "the entry is flushed before it is stored", false,
     naive<FlushBeforeStore>},
    {"naive-flag-before-data", "the position is stored and flushed before the entry", false,
     naive<FlagBeforeData>},
    {"naive-missing-position-flush", "the write position is not flushed", false,
     naive<MissingPositionFlush>},
    {"naive-missing-read-flush", "the read position is not flushed", false,
     naive<MissingReadFlush>},
    {"naive-early-read", "the read position moves when an entry is lent", false, naive<EarlyRead>},
    {"naive-seen-too-soon", "the consumer acts on a position that is not durable", false,
     naive<SeenTooSoon>},
    {"clflushopt-missing-fence", "no fence between entry and position", false,
     clflushopt<MissingFence>},
    {"clwb-missing-fence", "no fence between entry and position", false, clwb<MissingFence>},
    {"clwb-missing-last-fence", "no fence after the position", false, clwb<MissingLastFence>},
    {"optimised-missing-fence", "no fence before enqueue returns", false, each<BlockMissingFence>},
    {"optimised-cached-stores", "the entry goes through the caches and is not flushed", false,
     each<Cached>},
    {"optimised-cached-tail", "the last lines of the entry go through the caches", false,
     each<CachedTail>},
    {"optimised-torn-checksum", "the checksum is of the first line only", false,
     each<TornChecksum>},
    {"optimised-no-checksum", "a header is believed without its checksum", false, each<NoChecksum>},
    {"optimised-old-lap", "recovery takes entries of an earlier lap", false, each<OldLap>},
    {"optimised-second-life", "what a crash left behind the end comes back to life", false,
     each<SecondLife>},
    {"optimised-early-reuse", "room is used again before the acknowledgement is durable", false,
     lazy<EarlyReuse>},
    {"optimised-missing-read-flush", "the read position is not flushed", false,
     each<BlockMissingReadFlush>},
    {"optimised-missing-read-fence", "no fence after the flush of the read position", false,
     each<BlockMissingReadFence>},
    {"optimised-early-read", "the read position moves when an entry is lent", false,
     each<BlockEarlyRead>},
    {"optimised-believed-end", "recovery believes a position that is not durable", false,
     each<BelievedEnd>},
    {"optimised-seen-too-soon", "a producer relies on a read position that is not durable", false,
     lazy<BlockSeenTooSoon>},
    {"optimised-torn-twice", "a torn entry stays, and words of the next one complete it", false,
     each<TornTwice>},
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
