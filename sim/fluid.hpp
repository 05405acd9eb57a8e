// SPDX-License-Identifier: Apache-2.0
// Fluid: simulated time in which flows share resources. Rates are weighted max-min fair: all flows
// grow equally until a resource they use is full. Not for: packets, or anything with a clock.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

namespace headrace::sim {

using ResourceIndex = std::uint32_t;

/// A flow of one byte takes `weight` of the resource's capacity.
struct Use {
  ResourceIndex resource = 0;
  double weight = 1;
};

/// Time is in nanoseconds, amounts in bytes, so a rate of 1 is 1 GB/s.
///
/// Deterministic: simultaneous events run in the order in which they were scheduled.
///
/// Threading: confined.
class Fluid {
 public:
  using Action = std::function<void()>;

  /// Adds a resource; its flows together use at most `capacity` (> 0).
  [[nodiscard]] ResourceIndex add(std::string name, double capacity);
  /// Carries `amount` over all of `uses` at once, then calls `done`. At least one use must have a
  /// positive weight.
  void carry(double amount, std::vector<Use> uses, Action done) {
    add_flow(amount, std::move(uses), std::move(done), true);
  }
  /// As carry(), for a flow that occupies resources but moves no bytes: carried() excludes it.
  void hold(double amount, std::vector<Use> uses, Action done) {
    add_flow(amount, std::move(uses), std::move(done), false);
  }
  /// Calls `action` after `delay_ns`.
  void after(double delay_ns, Action action);
  /// Runs until no flow or event is left, or an action calls stop().
  void run();
  void stop();

  [[nodiscard]] double now_ns() const { return now_ns_; }
  /// Amount carried so far by all flows, including unfinished ones.
  [[nodiscard]] double carried() const { return carried_; }
  [[nodiscard]] const std::string& name(ResourceIndex resource) const {
    return resources_[resource].name;
  }
  /// Share of the resource's capacity used so far, 0 to 1.
  [[nodiscard]] double utilisation(ResourceIndex resource) const;
  /// Share of the time so far in which flows used all of it.
  [[nodiscard]] double full_share(ResourceIndex resource) const;
  [[nodiscard]] std::size_t resource_count() const { return resources_.size(); }

 private:
  struct Resource {
    std::string name;
    double capacity = 0;
    double used = 0;
    double full_ns = 0;
    // Scratch values of share().
    double left = 0;
    double weight = 0;
  };
  struct Flow {
    double remaining = 0;
    double rate = 0;
    std::vector<Use> uses;
    Action done;
    bool counts = true;  ///< Counted by carried().
    bool fixed = false;
  };
  struct Event {
    double at_ns = 0;
    std::uint64_t order = 0;
    Action action;
    friend bool operator>(const Event& a, const Event& b) {
      return a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.order > b.order;
    }
  };

  void add_flow(double amount, std::vector<Use> uses, Action done, bool counts);
  void share();
  void advance(double to_ns);
  void end_flows();

  double now_ns_ = 0;
  double carried_ = 0;
  std::uint64_t order_ = 0;
  bool stale_ = false;
  std::vector<Resource> resources_;
  std::vector<Flow> flows_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace headrace::sim
