// SPDX-License-Identifier: Apache-2.0
// Tries the states that a recording allows at each moment.
//
// An *atom* cannot be split by a crash: up to eight bytes of one store in an aligned word. The
// atoms of a line that are not certainly durable form *groups* in program order. A state of a line
// contains all groups before some group, and any subset of that group's atoms. Each cached store is
// one group; adjacent non-temporal stores share one.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "headrace/base/check.hpp"
#include "headrace/base/random.hpp"
#include "headrace/pmem/recorder.hpp"

namespace headrace::pmem {
namespace {

constexpr std::size_t kWordBytes = 8;
constexpr std::uint64_t kMany = std::numeric_limits<std::uint64_t>::max();
/// All combinations of whole lines are tried among at most this many lines.
constexpr std::size_t kChoiceLinesMax = 8;

struct Atom {
  std::uint64_t offset = 0;
  std::uint8_t byte_count = 0;
  std::size_t data = 0;
  std::size_t event_index = 0;
};

struct Group {
  std::vector<Atom> atoms;
  bool streamed = false;
};

struct Line {
  std::vector<Group> groups;
  /// Flushed groups, which the next drain makes durable; it does so for streamed ones anyway.
  std::size_t flushed_count = 0;
};

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  return b != 0 && a > kMany / b ? kMany : a * b;
}

/// A state of one line: all groups before `group`, and those atoms of `group` that are set in
/// `atoms`.
struct Choice {
  std::size_t group = 0;
  std::uint64_t atoms = 0;
};

std::uint64_t all_atoms(const Group& group) {
  return group.atoms.size() >= 64 ? kMany : (std::uint64_t{1} << group.atoms.size()) - 1;
}

std::uint64_t state_count(const Line& line) {
  std::uint64_t count = 1;
  for (const Group& group : line.groups) {
    const std::uint64_t own = all_atoms(group);
    count = count > kMany - own ? kMany : count + own;
  }
  return count;
}

/// The choice with number `index`; 0 is nothing, the last one everything.
Choice choice_of(const Line& line, std::uint64_t index) {
  for (std::size_t i = 0; i < line.groups.size(); ++i) {
    const std::uint64_t own = all_atoms(line.groups[i]);
    if (index < own) return {.group = i, .atoms = index};
    index -= own;
  }
  return {.group = line.groups.size(), .atoms = 0};
}

Choice everything(const Line& line) {
  return {.group = line.groups.size(), .atoms = 0};
}

class Explorer {
 public:
  Explorer(const Recorder& recorder, const Verify& verify, const ExploreOptions& options)
      : recorder_(recorder),
        verify_(verify),
        options_(options),
        random_(options.seed),
        durable_(recorder.initial().begin(), recorder.initial().end()),
        scratch_storage_(durable_.size() + kBlockBytes) {
    const std::size_t before = reinterpret_cast<std::uintptr_t>(scratch_storage_.data());
    scratch_ = std::span(scratch_storage_)
                   .subspan((kBlockBytes - before % kBlockBytes) % kBlockBytes, durable_.size());
  }

  Exploration run() {
    const std::vector<Event>& events = recorder_.events();
    for (std::size_t i = 0; i < events.size() && !done_; ++i) take(events[i], i);
    if (!done_) try_moment(events.size());
    return std::move(result_);
  }

 private:
  /// Tries the states before an event that takes some away, and applies it.
  void take(const Event& event, std::size_t index) {
    switch (event.kind) {
      case Event::Kind::store:
      case Event::Kind::word:
        if (recorder_.granularity() == Granularity::byte) try_moment(index);
        return add_store(event, index);
      case Event::Kind::stream:
        return add_store(event, index);
      case Event::Kind::flush:
        if (event.instruction == FlushInstruction::clflush) try_moment(index);
        return flush(event);
      case Event::Kind::drain:
        try_moment(index);
        return drain();
      case Event::Kind::mark:
        try_moment(index);
        mark_ = event.mark;
        changed_ = true;  // The same states, but a stronger promise.
        return;
    }
  }

  void add_store(const Event& event, std::size_t index) {
    const bool streamed = event.kind == Event::Kind::stream;
    const std::uint64_t end = event.offset + event.byte_count;
    std::uint64_t at = event.offset;
    std::uint64_t group_line = kMany;
    while (at < end) {
      const std::uint64_t word_end = std::min(end, (at / kWordBytes + 1) * kWordBytes);
      const Atom atom{.offset = at,
                      .byte_count = static_cast<std::uint8_t>(word_end - at),
                      .data = event.data + (at - event.offset),
                      .event_index = index};
      Line& line = lines_[at / kLineBytes];
      const bool joins =
          !line.groups.empty() &&
          (at / kLineBytes == group_line ||
           (streamed && line.groups.back().streamed && !overlaps(line.groups.back(), atom)));
      if (!joins) line.groups.push_back({.atoms = {}, .streamed = streamed});
      line.groups.back().atoms.push_back(atom);
      group_line = at / kLineBytes;
      at = word_end;
    }
    changed_ = true;
    if (recorder_.granularity() == Granularity::byte && !streamed) {
      for (std::uint64_t line = event.offset / kLineBytes; line * kLineBytes < end; ++line) {
        commit(line, lines_[line].groups.size());
      }
    }
  }

  static bool overlaps(const Group& group, const Atom& atom) {
    return std::ranges::any_of(group.atoms, [&](const Atom& other) {
      return other.offset / kWordBytes == atom.offset / kWordBytes;
    });
  }

  void flush(const Event& event) {
    const std::uint64_t first = event.offset / kLineBytes;
    const std::uint64_t last = (event.offset + event.byte_count - 1) / kLineBytes;
    for (std::uint64_t number = first; number <= last; ++number) {
      const auto found = lines_.find(number);
      if (found == lines_.end()) continue;
      Line& line = found->second;
      if (event.instruction != FlushInstruction::clflush) {
        line.flushed_count = line.groups.size();
        continue;
      }
      // Non-temporal stores wait in write-combining buffers, which a flush does not reach.
      const auto streamed = std::ranges::find_if(line.groups, &Group::streamed);
      commit(number, static_cast<std::size_t>(streamed - line.groups.begin()));
    }
  }

  void drain() {
    std::vector<std::uint64_t> numbers;
    numbers.reserve(lines_.size());
    for (const auto& [number, line] : lines_) numbers.push_back(number);
    for (const std::uint64_t number : numbers) {
      const Line& line = lines_[number];
      std::size_t count = line.flushed_count;
      for (std::size_t i = 0; i < line.groups.size(); ++i) {
        if (line.groups[i].streamed) count = std::max(count, i + 1);
      }
      commit(number, count);
    }
  }

  /// Makes the first `count` groups of the line durable.
  void commit(std::uint64_t number, std::size_t count) {
    Line& line = lines_[number];
    for (std::size_t i = 0; i < count; ++i) {
      for (const Atom& atom : line.groups[i].atoms) write(durable_, atom);
    }
    line.groups.erase(line.groups.begin(),
                      line.groups.begin() + static_cast<std::ptrdiff_t>(count));
    line.flushed_count -= std::min(line.flushed_count, count);
    if (line.groups.empty()) lines_.erase(number);
  }

  void write(std::span<std::byte> memory, const Atom& atom) const {
    std::memcpy(memory.data() + atom.offset, recorder_.data().data() + atom.data, atom.byte_count);
  }

  void try_moment(std::size_t event_index) {
    if (!changed_) return;
    changed_ = false;
    event_index_ = event_index;
    tried_.clear();
    pending_.clear();
    std::uint64_t count = 1;
    for (const auto& [number, line] : lines_) {
      pending_.push_back(&line);
      count = times(count, state_count(line));
    }
    ++result_.moments;
    choices_.assign(pending_.size(), Choice());
    if (count <= options_.states_per_moment_max) {
      ++result_.moments_exhaustive;
      try_all(0);
    } else {
      try_some();
    }
  }

  void try_all(std::size_t line) {
    if (done_) return;
    if (line == pending_.size()) {
      try_state();
      return;
    }
    const std::uint64_t count = state_count(*pending_[line]);
    for (std::uint64_t i = 0; i < count; ++i) {
      choices_[line] = choice_of(*pending_[line], i);
      try_all(line + 1);
    }
  }

  [[nodiscard]] bool enough() const {
    return done_ || tried_.size() >= options_.states_per_moment_max;
  }

  void try_some() {
    try_state();
    set_all_to_everything();
    try_state();
    // Every combination of whole lines among the last ones in memory.
    const std::size_t line_count = std::min(pending_.size(), kChoiceLinesMax);
    const std::size_t first = pending_.size() - line_count;
    for (std::uint64_t mask = 0; mask < (std::uint64_t{1} << line_count) && !enough(); ++mask) {
      for (std::size_t i = 0; i < line_count; ++i) {
        const bool whole = (mask >> i & 1U) != 0;
        choices_[first + i] = whole ? everything(*pending_[first + i]) : Choice();
      }
      try_state();
    }
    // One line in each of its states, with all or none of the others.
    const std::uint64_t share = options_.states_per_moment_max / (4 * pending_.size()) + 1;
    for (std::size_t line = 0; line < pending_.size(); ++line) {
      const std::uint64_t count = state_count(*pending_[line]);
      for (std::uint64_t i = 0; i < std::min(count, share) && !enough(); ++i) {
        const Choice choice = choice_of(*pending_[line], count <= share ? i : random_.below(count));
        set_all_to_everything();
        choices_[line] = choice;
        try_state();
        choices_.assign(pending_.size(), Choice());
        choices_[line] = choice;
        try_state();
      }
    }
    // Random states: a few lines torn, the others present with a random probability.
    for (std::uint64_t left = 4 * options_.states_per_moment_max; left > 0 && !enough(); --left) {
      const std::uint64_t there = random_.below(5);
      const std::uint64_t torn = random_.below(4);
      for (std::size_t line = 0; line < pending_.size(); ++line) {
        if (random_.chance(torn, 4)) {
          choices_[line] = choice_of(*pending_[line], random_.below(state_count(*pending_[line])));
        } else {
          choices_[line] = random_.chance(there, 4) ? everything(*pending_[line]) : Choice();
        }
      }
      try_state();
    }
  }

  void set_all_to_everything() {
    for (std::size_t i = 0; i < pending_.size(); ++i) choices_[i] = everything(*pending_[i]);
  }

  void try_state() {
    if (done_) return;
    std::uint64_t hash = 0;
    for (const Choice& choice : choices_) {
      hash = (hash ^ choice.group ^ (choice.atoms << 8U)) * 0x9e3779b97f4a7c15U;
      hash ^= hash >> 29U;
    }
    if (!tried_.insert(hash).second) return;
    ++result_.states_tried;
    std::string verdict = verdict_on(choices_);
    if (verdict.empty()) return;
    ++result_.states_bad;
    if (!result_.first_bad.has_value()) describe(std::move(verdict));
    done_ = options_.stop_at_first;
  }

  std::string verdict_on(const std::vector<Choice>& choices) {
    std::ranges::copy(durable_, scratch_.begin());
    for (std::size_t i = 0; i < choices.size(); ++i) {
      for_each_atom(*pending_[i], choices[i], [&](const Atom& atom, bool there) {
        if (there) write(scratch_, atom);
      });
    }
    return verify_(scratch_, mark_);
  }

  template <typename Visit>
  static void for_each_atom(const Line& line, const Choice& choice, const Visit& visit) {
    for (std::size_t group = 0; group < line.groups.size(); ++group) {
      const std::vector<Atom>& atoms = line.groups[group].atoms;
      for (std::size_t i = 0; i < atoms.size(); ++i) {
        visit(atoms[i],
              group < choice.group || (group == choice.group && (choice.atoms >> i & 1U) != 0));
      }
    }
  }

  /// Restores lost stores line by line while the state stays bad, so that only relevant losses
  /// remain.
  void describe(std::string verdict) {
    std::vector<Choice> choices = choices_;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const Choice before = std::exchange(choices[i], everything(*pending_[i]));
      std::string other = verdict_on(choices);
      if (other.empty()) {
        choices[i] = before;
      } else {
        verdict = std::move(other);
      }
    }
    BadState bad{.event_index = event_index_,
                 .moment = "the end",
                 .mark = mark_,
                 .verdict = std::move(verdict),
                 .lost = {},
                 .kept = {}};
    if (event_index_ < recorder_.events().size()) {
      bad.moment = recorder_.labels()[recorder_.events()[event_index_].label];
    }
    for (std::size_t i = 0; i < choices.size(); ++i) {
      for_each_atom(*pending_[i], choices[i], [&](const Atom& atom, bool there) {
        add_fate(there ? bad.kept : bad.lost, atom);
      });
    }
    result_.first_bad = std::move(bad);
  }

  void add_fate(std::vector<StoreFate>& fates, const Atom& atom) const {
    // Merge adjacent words of one store.
    if (!fates.empty() && fates.back().event_index == atom.event_index &&
        fates.back().offset + fates.back().byte_count == atom.offset) {
      fates.back().byte_count += atom.byte_count;
      return;
    }
    fates.push_back({.label = recorder_.labels()[recorder_.events()[atom.event_index].label],
                     .offset = atom.offset,
                     .byte_count = atom.byte_count,
                     .event_index = atom.event_index});
  }

  const Recorder& recorder_;
  const Verify& verify_;
  const ExploreOptions& options_;
  Random random_;
  std::vector<std::byte> durable_;
  std::vector<std::byte> scratch_storage_;
  std::span<std::byte> scratch_;
  std::map<std::uint64_t, Line> lines_;
  std::uint64_t mark_ = 0;
  bool changed_ = true;
  bool done_ = false;

  std::size_t event_index_ = 0;
  std::vector<const Line*> pending_;
  std::vector<Choice> choices_;
  std::unordered_set<std::uint64_t> tried_;
  Exploration result_;
};

}  // namespace

std::string BadState::report() const {
  std::string text =
      fmt::format("{}\n  power failed before event {} ({})\n", verdict, event_index, moment);
  const auto list = [&](const char* what, const std::vector<StoreFate>& fates) {
    constexpr std::size_t kFatesMax = 12;
    for (std::size_t i = 0; i < std::min(fates.size(), kFatesMax); ++i) {
      const StoreFate& fate = fates[i];
      text += fmt::format("  {}: {} (event {}, {} bytes at {})\n", what, fate.label,
                          fate.event_index, fate.byte_count, fate.offset);
    }
    if (fates.size() > kFatesMax) {
      text += fmt::format("  {}: {} more\n", what, fates.size() - kFatesMax);
    }
  };
  list("lost", lost);
  list("kept", kept);
  return text;
}

Exploration explore(const Recorder& recorder, const Verify& verify, const ExploreOptions& options) {
  return Explorer(recorder, verify, options).run();
}

}  // namespace headrace::pmem
