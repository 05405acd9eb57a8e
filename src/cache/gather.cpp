// SPDX-License-Identifier: Apache-2.0
// The access of several regions at once: their moves are gathered by node and submitted as batches.
#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "state.hpp"

namespace headrace::cache {

Cache::State::Attempt Cache::State::gather_move(Gather& gather, Shelf& shelf, std::uint32_t number,
                                                std::optional<NodeId> source_node) {
  const auto fits = [&](const Gathered& group) {
    return group.shelf == &shelf && group.source_node == source_node &&
           group.members.size() < kGatheredCountMax;
  };
  auto group = std::find_if(gather.groups.begin(), gather.groups.end(), fits);
  if (group == gather.groups.end()) {
    gather.groups.push_back({&shelf, source_node, Movements::Gathering(ledger_->movements)});
    group = std::prev(gather.groups.end());
  }
  group->members.push_back({number, gather.entries.size()});
  try {
    group->announcements.add(ledger_->pool[number]);
  } catch (...) {
    group->members.pop_back();
    throw;
  }
  // As in start_move().
  if (!clear_way(ledger_->pool[number].region())) {
    group->announcements.remove_last();
    group->members.pop_back();
    return Attempt::refused;
  }
  return Attempt::gathered;
}

void Cache::State::submit_gathered(Gathered& group, std::vector<Entry>& entries) {
  Tally& tally = ledger_->tallies.of(Reader::mine().index());
  const engine::SubmitOptions options = options_for(*group.shelf, group.source_node);
  bool is_accepted = false;
  try {
    is_accepted = group.members.empty() || group.announcements.submit(engine_, options);
  } catch (...) {
    is_accepted = false;  // As in place().
  }
  group.announcements.end();
  for (const Gathered::Member& member : group.members) {
    const std::span<const std::byte> source = entries[member.index].source_;
    if (is_accepted) {
      tally.misses.add_one_alone();
      ledger_->tell(EventKind::miss, source, group.shelf->node());
    } else {
      refuse(*group.shelf, ledger_->pool[member.number]);
      entries[member.index] = Entry(source, nullptr, nullptr);
      tally.refused.add_one_alone();
      ledger_->tell(EventKind::refused, source, std::nullopt);
    }
  }
  group.members.clear();
}

std::vector<Entry> Cache::State::access_many(std::span<const std::span<const std::byte>> sources,
                                             Hint hint) {
  Gather gather;
  gather.entries.reserve(sources.size());
  // Threads that find a gathered entry wait for its submission: it comes, whatever happens.
  struct Submission {
    State& state;
    Gather& gather;
    ~Submission() {
      for (Gathered& group : gather.groups) state.submit_gathered(group, gather.entries);
    }
  };
  {
    const Submission submission{*this, gather};
    for (const std::span<const std::byte> source : sources) {
      gather.entries.push_back(access_gathering(source, hint, gather));
    }
  }
  return std::move(gather.entries);
}

}  // namespace headrace::cache
