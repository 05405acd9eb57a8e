// SPDX-License-Identifier: Apache-2.0
// What an engine does with its channels: opens them, and keeps what they have counted.
#include <algorithm>

#include <fmt/format.h>

#include "channel_state.hpp"
#include "dsa_mover.hpp"
#include "engine_state.hpp"
#include "headrace/base/units.hpp"

namespace headrace::engine {
namespace {

/// Slots for a channel that may not come to be, for want of memory.
///
/// Threading: owned.
struct Reservation {
  DsaMover& mover;
  std::uint64_t slots;

  Reservation(DsaMover& of, std::uint64_t taken) : mover(of), slots(taken) {}
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() { mover.give_back(slots); }
};

}  // namespace

Result<Channel> EngineState::open_channel(const ChannelOptions& options) {
  constexpr const char* kTried = "open a channel";
  if (is_forked() || is_closed()) {
    return fail(Code::closed, kTried,
                is_forked() ? "the engine belongs to the parent of this process"
                            : "the engine has been stopped",
                "make a new engine");
  }
  if (options.depth == 0) {
    return fail(Code::invalid_argument, kTried, "a depth of 0 holds nothing", "the default is 8");
  }
  std::vector<DsaMover*> queues;
  for (std::size_t i = software_count_; i < movers_.size(); ++i) {
    auto* const mover = dynamic_cast<DsaMover*>(movers_[i].get());
    const bool named = options.queue.empty() || movers_[i]->info().name == options.queue;
    if (mover != nullptr && named) queues.push_back(mover);
  }
  if (queues.empty()) {
    return fail(Code::hardware_absent, kTried,
                options.queue.empty() ? std::string("the engine has no DSA queue")
                                      : fmt::format("it has no queue '{}'", options.queue),
                "Engine::notes and 'headrace doctor' tell why; Engine::submit needs none");
  }
  // Those of the node first, then those with more room.
  std::stable_sort(queues.begin(), queues.end(), [&](const DsaMover* one, const DsaMover* other) {
    const bool near = options.node && one->info().node == options.node;
    const bool other_near = options.node && other->info().node == options.node;
    return near != other_near ? near : one->load() < other->load();
  });
  for (DsaMover* const mover : queues) {
    Reservation reserved{*mover, mover->reserve(options.depth)};
    if (reserved.slots == 0) continue;
    auto state = std::make_unique<ChannelState>(*this, *mover, reserved.slots, options.latencies);
    reserved.slots = 0;  // They are the channel's.
    const Lock lock(channels_mutex_);
    channels_.push_back(state.get());
    return Channel(std::move(state));
  }
  const auto is_lost = [](const DsaMover* mover) { return mover->is_all_lost(); };
  if (std::all_of(queues.begin(), queues.end(), is_lost)) {
    return fail(Code::capacity_exceeded, kTried,
                "what is left of every queue's entries is lost until its device answers",
                "Engine::submit does without; reset the device, or make a new engine");
  }
  return fail(
      Code::capacity_exceeded, kTried,
      fmt::format("no queue has {} and one more for jobs", counted(options.depth, "free entry")),
      "use less depth, or configure larger queues: 'headrace dsa configure'");
}

void EngineState::forget_channel(const ChannelState& channel) {
  const Lock lock(channels_mutex_);
  const auto keep = [this](const ChannelState::Counts& counts, std::size_t kind_index) {
    // Counts of their own; under the lock together, for statistics().
    KindCounts& kind = kinds_[kind_index];
    jobs_submitted_.fetch_add_relaxed(counts.submitted);
    kind.jobs_done.fetch_add_relaxed(counts.done);
    kind.bytes.fetch_add_relaxed(counts.bytes);
    kind.bytes_by_device.fetch_add_relaxed(counts.bytes);
    for (std::size_t i = 0; i < kind.latencies.size(); ++i) {
      kind.latencies[i].fetch_add_relaxed(counts.latency_counts[i]);
    }
  };
  submissions_refused_.fetch_add_relaxed(channel.refused());  // As above.
  keep(channel.copies(), static_cast<std::size_t>(OperationKind::copy));
  keep(channel.lists(), kOperationKindCount);
  channel.mover().add_descriptors(channel.descriptors());
  std::erase(channels_, &channel);
}

void EngineState::add_channels(std::vector<DeviceStatistics>& totals) const {
  if (is_forked()) return;  // As in statistics().
  const Lock lock(channels_mutex_);
  for (const ChannelState* const channel : channels_) {
    for (std::size_t i = 0; i < movers_.size(); ++i) {
      if (movers_[i].get() == &channel->mover()) {
        totals[i].descriptors += channel->descriptors();
      }
    }
  }
}

}  // namespace headrace::engine
