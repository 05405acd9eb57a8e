// SPDX-License-Identifier: Apache-2.0
// What an engine does with its channels: opens them, and keeps what they have counted.
#include <algorithm>

#include <fmt/format.h>

#include "channel_state.hpp"
#include "dsa/queue.hpp"
#include "engine_state.hpp"
#include "headrace/base/units.hpp"

namespace headrace::engine {
namespace {

/// Slots for a channel that may not be made, because there is no memory.
///
/// Threading: owned.
struct Reservation {
  DsaQueue& queue;
  std::uint64_t slots;

  Reservation(DsaQueue& of, std::uint64_t taken) : queue(of), slots(taken) {}
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() { queue.give_back(slots); }
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
  std::vector<DsaQueue*> queues;
  for (std::size_t i = facts_.processor_count; i < movers_.size(); ++i) {
    auto* const queue = dynamic_cast<DsaQueue*>(movers_[i].get());
    const bool named = options.queue.empty() || movers_[i]->info().name == options.queue;
    if (queue != nullptr && named) queues.push_back(queue);
  }
  if (queues.empty()) {
    return fail(Code::hardware_absent, kTried,
                options.queue.empty() ? std::string("the engine has no DSA queue")
                                      : fmt::format("it has no queue '{}'", options.queue),
                "Engine::notes and 'headrace doctor' tell why; Engine::submit needs none");
  }
  // Those of the node first, then those with more room.
  std::stable_sort(queues.begin(), queues.end(), [&](const DsaQueue* one, const DsaQueue* other) {
    const bool near = options.node && one->info().node == options.node;
    const bool other_near = options.node && other->info().node == options.node;
    return near != other_near ? near : one->load() < other->load();
  });
  for (DsaQueue* const queue : queues) {
    Reservation reserved{*queue, queue->reserve(options.depth)};
    if (reserved.slots == 0) continue;
    auto state = std::make_unique<ChannelState>(*this, *queue, reserved.slots, options.latencies);
    reserved.slots = 0;  // They are the channel's.
    const Lock lock(channels_mutex_);
    channels_.push_back(state.get());
    return Channel(std::move(state));
  }
  const auto is_lost = [](const DsaQueue* queue) { return queue->is_all_lost(); };
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
  statistics_.count_refused(channel.refused());
  statistics_.keep(channel.copies(), static_cast<std::size_t>(OperationKind::copy));
  statistics_.keep(channel.lists(), kOperationKindCount);
  channel.queue().add_descriptors(channel.descriptors());
  std::erase(channels_, &channel);
}

EngineStatistics EngineState::statistics() const {
  // In a child another thread of the parent may hold the lock for ever; the channels are the
  // parent's.
  if (is_forked()) return statistics_.read();
  const Lock lock(channels_mutex_);
  EngineStatistics totals = statistics_.read();
  for (const ChannelState* const channel : channels_) {
    totals.submissions_refused += channel->refused();
    add_to(totals, channel->copies(), static_cast<std::size_t>(OperationKind::copy));
    add_to(totals, channel->lists(), kOperationKindCount);
  }
  return totals;
}

std::vector<DeviceStatistics> EngineState::device_statistics() const {
  std::vector<DeviceStatistics> totals;
  for (const std::unique_ptr<Mover>& mover : movers_) totals.push_back(mover->statistics());
  if (is_forked()) return totals;  // As in statistics().
  const Lock lock(channels_mutex_);
  for (const ChannelState* const channel : channels_) {
    for (std::size_t i = 0; i < movers_.size(); ++i) {
      if (movers_[i].get() == &channel->queue()) {
        totals[i].descriptors += channel->descriptors();
      }
    }
  }
  return totals;
}

}  // namespace headrace::engine
