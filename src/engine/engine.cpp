// SPDX-License-Identifier: Apache-2.0
#include "headrace/engine/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>

#include "cpu/mover.hpp"
#include "dsa/open.hpp"
#include "engine_state.hpp"
#include "headrace/copy/profile.hpp"

namespace headrace::engine {
namespace {

constexpr const char* kTried = "make an engine";
/// The name of an invalid enumerator.
constexpr std::string_view kNoName = "unknown";

/// A condition that options must not meet, with the error for it.
struct Rule {
  bool is_broken;
  std::string cause;
  const char* remedy;
};

Result<void> check(std::initializer_list<Rule> rules) {
  for (const Rule& rule : rules) {
    if (rule.is_broken) return fail(Code::invalid_argument, kTried, rule.cause, rule.remedy);
  }
  return {};
}

Rule rule_of(Waiting waiting) {
  return {name(waiting) == kNoName, "invalid `waiting`", "use a value of Waiting"};
}

Result<void> check(const EngineOptions& options) {
  const DeviceOptions& devices = options.devices;
  const std::size_t depth = options.queue_depth_max;
  return check({
      {options.threads_per_node > EngineOptions::kThreadsMax,
       fmt::format("{} threads per node are more than {}", options.threads_per_node,
                   EngineOptions::kThreadsMax),
       "0 asks for one per two processors"},
      {options.piece == Bytes(0), "a piece has 0 bytes", "the default is 256 KiB"},
      {options.piece > EngineOptions::kPieceMax,
       fmt::format("a piece of {} bytes is larger than {}", options.piece.count(),
                   to_text(EngineOptions::kPieceMax)),
       "the default is 256 KiB; a large one lets small jobs wait for large ones"},
      {depth == 0, "the queue depth is 0", "the default is 1024"},
      {depth > EngineOptions::kQueueDepthMax,
       fmt::format("a queue depth of {} is more than {}", depth, EngineOptions::kQueueDepthMax),
       "the default is 1024"},
      {name(options.path) == kNoName, "invalid path", "use a value of Path"},
      rule_of(options.waiting),
      {devices.timeout <= std::chrono::nanoseconds(0) ||
           devices.timeout > DeviceOptions::kTimeoutMax,
       fmt::format("a device cannot be retired after {} ns without an answer",
                   devices.timeout.count()),
       "more than 0 and at most a year; the default is 5 seconds"},
      {!devices.use && !devices.queues.empty(),
       fmt::format("the queue '{}' is named, but devices are disabled",
                   devices.queues.empty() ? "" : devices.queues.front()),
       "name no queue, or enable devices"},
      {name(devices.page_faults) == kNoName, "invalid fault policy", "use a value of FaultPolicy"},
      {name(devices.late_writes) == kNoName, "invalid late writes", "use a value of LateWrites"},
  });
}

/// The nodes that get worker threads.
Result<std::vector<const topo::Node*>> worker_nodes(const topo::Machine& machine,
                                                    const std::vector<NodeId>& asked) {
  std::vector<const topo::Node*> nodes;
  for (const NodeId id : asked) {
    const topo::Node* const node = machine.node(id);
    const bool twice = std::ranges::find(nodes, node) != nodes.end();
    const Result<void> valid = check({
        {node == nullptr, fmt::format("the machine has no node {}", id.value()),
         "'headrace topo' shows its nodes"},
        {node != nullptr && node->cpus.empty(),
         fmt::format("node {} has no processor that this process may use", id.value()),
         "choose a node with processors; it can copy to and from this one"},
        {twice, fmt::format("node {} is named twice", id.value()),
         "name each node once and ask for more threads per node"},
    });
    if (!valid) return fail(valid.error());
    nodes.push_back(node);
  }
  for (const topo::Node& node : machine.nodes) {
    if (asked.empty() && !node.cpus.empty()) nodes.push_back(&node);
  }
  if (nodes.empty()) {
    return fail(Code::invalid_argument, kTried, "no node of the machine has processors",
                "pass a machine from topo::discover, or your own movers");
  }
  return nodes;
}

/// The thresholds of an engine and their source.
struct Thresholds {
  PathThresholds values;
  ThresholdSource source = ThresholdSource::published;
  [[nodiscard]] std::string note() const {
    constexpr std::array<std::string_view, 3> kSources{
        "published figures, as the user's profile has none (measure with 'headrace tune')",
        "from the user's profile, measured by 'headrace tune'", "set by the program"};
    return fmt::format(
        "the path 'auto' uses a device from {} on if the caller waits, {} if not, {} in "
        "batches: {}",
        to_text(values.synchronous), to_text(values.asynchronous), to_text(values.batched),
        kSources[static_cast<std::size_t>(source)]);
  }
};

Thresholds thresholds_of(const EngineOptions& options, const copy::ProfileReport& profile) {
  if (options.thresholds) return {*options.thresholds, ThresholdSource::caller};
  if (!profile.used || !profile.dsa_bytes_min) return {};
  // The profile measures a waiting caller; callers that do not wait need no more.
  const Bytes measured(*profile.dsa_bytes_min);
  const PathThresholds published;
  return {{.synchronous = measured,
           .asynchronous = std::min(published.asynchronous, measured),
           .batched = std::min(published.batched, measured)},
          ThresholdSource::profile};
}

std::vector<NodePackage> packages_of(const topo::Machine& machine) {
  std::vector<NodePackage> packages;
  for (const topo::Node& node : machine.nodes) {
    if (!node.package) continue;
    packages.push_back({node.id, *node.package, machine.nearest_with_cpus(node.id)});
  }
  return packages;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::make(const topo::Machine& machine, EngineOptions options) {
  HEADRACE_TRY(check(options));
  HEADRACE_TAKE(nodes, worker_nodes(machine, options.nodes));
  // Workers use the tuned copy if there is a profile.
  const copy::ProfileReport& profile = copy::use_default_profile();
  std::vector<std::unique_ptr<Mover>> movers;
  for (const topo::Node* const node : *nodes) {
    const std::size_t half = std::max<std::size_t>(1, node->cpus.size() / 2);
    const std::size_t threads = options.threads_per_node != 0 ? options.threads_per_node : half;
    HEADRACE_TAKE_WITHIN(kTried, mover,
                         make_cpu_mover({.node = node->id,
                                         .cpus = node->cpus,
                                         .thread_count = threads,
                                         .piece_bytes = options.piece.count(),
                                         .queue_depth_max = options.queue_depth_max,
                                         .check_memory = options.check_memory,
                                         .waiting = options.waiting}));
    movers.push_back(std::move(*mover));
  }
  HEADRACE_TAKE_WITHIN(kTried, devices, open_dsa_queues(machine, options.devices));
  for (std::unique_ptr<Mover>& mover : devices->movers) movers.push_back(std::move(mover));
  const Thresholds thresholds = thresholds_of(options, profile);
  if (movers.size() > nodes->size()) devices->notes.push_back(thresholds.note());
  EngineState::Settings settings;
  settings.thresholds = thresholds.values;
  settings.check_memory = options.check_memory;
  settings.waiting = options.waiting;
  settings.policy = std::move(options.policy);
  settings.path = options.path;
  settings.packages = packages_of(machine);
  settings.notes = std::move(devices->notes);
  settings.threshold_source = thresholds.source;
  return std::make_unique<EngineState>(std::move(movers), std::move(settings));
}

Result<std::unique_ptr<Engine>> Engine::make(std::vector<std::unique_ptr<Mover>> movers,
                                             MoverPolicy policy, const EngineSettings& chosen) {
  const bool any_null = std::find(movers.begin(), movers.end(), nullptr) != movers.end();
  HEADRACE_TRY(check({
      rule_of(chosen.waiting),
      {movers.empty(), "it has no mover", "give at least one"},
      {any_null, "one of its movers is null", "pass no null mover"},
  }));
  return std::make_unique<EngineState>(std::move(movers),
                                       EngineState::Settings{chosen, std::move(policy)});
}

Engine::~Engine() = default;

}  // namespace headrace::engine
