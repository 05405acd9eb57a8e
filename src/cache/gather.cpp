// SPDX-License-Identifier: Apache-2.0
// CacheState::access_many(): gathers the moves of one call by node and submits them as batches.
#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "state.hpp"

namespace headrace::cache {

void CacheState::gather_move(Gather& gather, Shard& shard, std::uint32_t number,
                             std::optional<NodeId> source_node,
                             InFlightMoves::RegisteredMove& registered_move) {
  const auto fits = [&](const Gathered& group) {
    return group.shard == &shard && group.source_node == source_node &&
           group.members.size() < kGatheredCountMax;
  };
  auto group = std::find_if(gather.groups.begin(), gather.groups.end(), fits);
  if (group == gather.groups.end()) {
    gather.groups.push_back(
        {&shard, source_node, InFlightMoves::Gathering(core_->in_flight[shard.number()])});
    group = std::prev(gather.groups.end());
  }
  group->members.push_back({number, gather.entries.size()});
  try {
    group->registered_moves.add(registered_move);
  } catch (...) {
    group->members.pop_back();
    throw;
  }
}

void CacheState::submit_gathered(Gathered& group, std::vector<Entry>& entries) {
  ThreadCounts& counts = core_->counts_by_thread.of(Reader::mine().place());
  const engine::SubmitOptions options = options_for(*group.shard, group.source_node);
  bool is_accepted = false;
  try {
    is_accepted = group.members.empty() || group.registered_moves.submit(engine_, options);
  } catch (...) {
    is_accepted = false;  // As in place().
  }
  group.registered_moves.end();
  for (const Gathered::Member& member : group.members) {
    const std::span<const std::byte> source = entries[member.index].source_;
    if (is_accepted) {
      counts.misses.add_alone(1);
      core_->tell(EventKind::miss, source, group.shard->node());
    } else {
      refuse(*group.shard, member.number, core_->pool[member.number]);
      entries[member.index] = Entry(source, nullptr, nullptr);
      counts.refused.add_alone(1);
      core_->tell(EventKind::refused, source, std::nullopt);
    }
  }
  group.members.clear();
}

std::vector<Entry> CacheState::access_many(std::span<const std::span<const std::byte>> sources,
                                           Hint hint) {
  const DeferredEvents deferred(*core_);  // As in place(), for all of them.
  Gather gather;
  gather.entries.reserve(sources.size());
  // Threads that find a gathered entry wait for its submission, so submit even on an exception.
  struct Submission {
    CacheState& state;
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
