// SPDX-License-Identifier: Apache-2.0
#include "sim/fluid.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "headrace/base/check.hpp"

namespace headrace::sim {
namespace {

/// Remaining amounts below this are rounding errors.
constexpr double kNothingBytes = 1e-6;
/// Remaining shares of a capacity below this are rounding errors.
constexpr double kNothingShare = 1e-12;
/// Resolution of the simulated clock.
constexpr double kNothingNs = 1e-6;
constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

ResourceIndex Fluid::add(std::string name, double capacity) {
  HEADRACE_CHECK(capacity > 0, "a resource can carry something");
  resources_.push_back({.name = std::move(name), .capacity = capacity});
  return static_cast<ResourceIndex>(resources_.size() - 1);
}

void Fluid::add_flow(double amount, std::vector<Use> uses, Action done, bool counts) {
  if (amount <= kNothingBytes) {
    after(0, std::move(done));
    return;
  }
  HEADRACE_CHECK(std::ranges::any_of(uses, [](const Use& use) { return use.weight > 0; }),
                 "a flow uses something");
  flows_.push_back(
      {.remaining = amount, .uses = std::move(uses), .done = std::move(done), .counts = counts});
  stale_ = true;
}

void Fluid::after(double delay_ns, Action action) {
  events_.push({now_ns_ + delay_ns, order_++, std::move(action)});
}

void Fluid::stop() {
  flows_.clear();
  events_ = {};
}

double Fluid::utilisation(ResourceIndex resource) const {
  return now_ns_ > 0 ? resources_[resource].used / (resources_[resource].capacity * now_ns_) : 0;
}

double Fluid::full_share(ResourceIndex resource) const {
  return now_ns_ > 0 ? resources_[resource].full_ns / now_ns_ : 0;
}

void Fluid::run() {
  while (true) {
    share();
    double next_ns = events_.empty() ? kNever : events_.top().at_ns;
    for (const Flow& flow : flows_) {
      next_ns = std::min(next_ns, now_ns_ + flow.remaining / flow.rate);
    }
    if (next_ns == kNever) return;
    advance(next_ns);
    end_flows();
    while (!events_.empty() && events_.top().at_ns <= now_ns_) {
      // top() is const, so the action is copied.
      const Action action = events_.top().action;
      events_.pop();
      action();
    }
  }
}

/// Progressive filling: in each round all unfixed flows grow equally until a resource is full; the
/// flows that use it are then fixed. Each round fixes at least one flow.
void Fluid::share() {
  if (!stale_) return;
  stale_ = false;
  for (Resource& resource : resources_) resource.left = resource.capacity;
  for (Flow& flow : flows_) {
    flow.fixed = false;
    flow.rate = 0;
  }
  for (std::size_t open = flows_.size(); open > 0;) {
    for (Resource& resource : resources_) resource.weight = 0;
    for (const Flow& flow : flows_) {
      if (flow.fixed) continue;
      for (const Use& use : flow.uses) resources_[use.resource].weight += use.weight;
    }
    double growth = kNever;
    Resource* full = nullptr;
    for (Resource& resource : resources_) {
      const double possible = std::max(0.0, resource.left) / resource.weight;
      if (resource.weight > 0 && possible < growth) {
        growth = possible;
        full = &resource;
      }
    }
    for (Resource& resource : resources_) resource.left -= growth * resource.weight;
    full->left = 0;
    for (Flow& flow : flows_) {
      if (flow.fixed) continue;
      flow.rate += growth;
      for (const Use& use : flow.uses) {
        const Resource& resource = resources_[use.resource];
        if (use.weight > 0 && resource.left <= kNothingShare * resource.capacity) flow.fixed = true;
      }
    }
    const auto still_open =
        static_cast<std::size_t>(std::ranges::count(flows_, false, &Flow::fixed));
    HEADRACE_CHECK(still_open < open, "each round fills a resource");
    open = still_open;
  }
}

void Fluid::advance(double to_ns) {
  const double elapsed_ns = std::max(0.0, to_ns - now_ns_);
  for (Flow& flow : flows_) {
    const double amount = flow.rate * elapsed_ns;
    flow.remaining -= amount;
    if (flow.counts) carried_ += amount;
    for (const Use& use : flow.uses) resources_[use.resource].used += amount * use.weight;
  }
  for (Resource& resource : resources_) {
    const bool is_full = resource.left <= kNothingShare * resource.capacity;
    if (is_full && !flows_.empty()) resource.full_ns += elapsed_ns;
  }
  now_ns_ = std::max(now_ns_, to_ns);
}

void Fluid::end_flows() {
  // A flow that would end within the clock's resolution, which gets coarser with time, has ended;
  // otherwise time would not advance.
  const double nothing_ns = std::max(kNothingNs, now_ns_ * 1e-15);
  const auto goes_on = [&](const Flow& flow) {
    return flow.remaining > kNothingBytes + flow.rate * nothing_ns;
  };
  // Stable: simultaneous flows end in the order in which they were added.
  const auto first = std::stable_partition(flows_.begin(), flows_.end(), goes_on);
  if (first == flows_.end()) return;
  std::vector<Flow> ended(std::make_move_iterator(first), std::make_move_iterator(flows_.end()));
  flows_.erase(first, flows_.end());
  stale_ = true;
  for (Flow& flow : ended) flow.done();
}

}  // namespace headrace::sim
