// SPDX-License-Identifier: Apache-2.0
#include "headrace/engine/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cpu/mover.hpp"
#include "dsa/open.hpp"
#include "engine_state.hpp"
#include "headrace/base/names.hpp"
#include "headrace/copy/profile.hpp"

namespace headrace::engine {
namespace {

constexpr const char* kTried = "make an engine";
/// Of an enumerator that there is not.
constexpr std::string_view kNoName = "unknown";

Result<void> refuse(std::string cause, std::string remedy) {
  return fail(Code::invalid_argument, kTried, std::move(cause), std::move(remedy));
}

Result<void> check(const DeviceOptions& options) {
  if (options.answer_max <= std::chrono::nanoseconds(0) ||
      options.answer_max > DeviceOptions::kAnswerMax) {
    return refuse(fmt::format("a device cannot be given up after {} ns of silence",
                              options.answer_max.count()),
                  "more than 0 and at most a year; the default is 5 seconds");
  }
  if (!options.use && !options.queues.empty()) {
    return refuse(
        fmt::format("the queue '{}' is named, and no device may be used", options.queues.front()),
        "name no queue, or let devices be used");
  }
  if (name(options.page_faults) == kNoName) {
    return refuse("there is no such fault policy", "take one of FaultPolicy");
  }
  return {};
}

Result<void> check(Waiting waiting) {
  if (name(waiting) != kNoName) return {};
  return refuse("there is no such way to wait", "take one of Waiting");
}

Result<void> check(const EngineOptions& options) {
  if (options.threads_per_node > EngineOptions::kThreadsMax) {
    return refuse(fmt::format("{} threads per node are more than {}", options.threads_per_node,
                              EngineOptions::kThreadsMax),
                  "0 asks for one per two processors");
  }
  if (options.piece == Bytes(0)) {
    return refuse("a piece of 0 bytes never ends a copy", "the default is 256 KiB");
  }
  if (options.piece > EngineOptions::kPieceMax) {
    return refuse(fmt::format("a piece of {} bytes is larger than {}", options.piece.count(),
                              to_text(EngineOptions::kPieceMax)),
                  "the default is 256 KiB; a large one lets small jobs wait for large ones");
  }
  if (options.queue_depth_max == 0) {
    return refuse("a queue of depth 0 takes nothing", "the default is 1024");
  }
  if (options.queue_depth_max > EngineOptions::kQueueDepthMax) {
    return refuse(fmt::format("a queue depth of {} is more than {}", options.queue_depth_max,
                              EngineOptions::kQueueDepthMax),
                  "the default is 1024");
  }
  if (name(options.path) == kNoName) {
    return refuse("there is no such path", "take one of Path");
  }
  if (const Result<void> valid = check(options.waiting); !valid) return valid;
  return check(options.devices);
}

/// The nodes that get workers, with their processors.
Result<std::vector<const topo::Node*>> worker_nodes(const topo::Machine& machine,
                                                    const std::vector<NodeId>& asked) {
  std::vector<const topo::Node*> nodes;
  for (const NodeId id : asked) {
    const topo::Node* const node = machine.node(id);
    if (node == nullptr) {
      return fail(Code::invalid_argument, kTried,
                  fmt::format("the machine has no node {}", id.value()),
                  "'headrace topo' shows its nodes");
    }
    if (node->cpus.empty()) {
      return fail(Code::invalid_argument, kTried,
                  fmt::format("node {} has no processor that this process may use", id.value()),
                  "choose a node with processors; it can copy to and from this one");
    }
    if (std::find(nodes.begin(), nodes.end(), node) != nodes.end()) {
      return fail(Code::invalid_argument, kTried, fmt::format("node {} is named twice", id.value()),
                  "name each node once and ask for more threads per node");
    }
    nodes.push_back(node);
  }
  if (asked.empty()) {
    for (const topo::Node& node : machine.nodes) {
      if (!node.cpus.empty()) nodes.push_back(&node);
    }
  }
  if (nodes.empty()) {
    return fail(Code::invalid_argument, kTried, "no node of the machine has processors",
                "give a machine that topo::discover made, or movers of your own");
  }
  return nodes;
}

/// The thresholds of an engine, and where they come from.
struct Thresholds {
  PathThresholds values;
  ThresholdSource source = ThresholdSource::published;
  [[nodiscard]] std::string note() const {
    constexpr std::array<std::string_view, 3> kSources{
        "published figures, since the profile of this user has none ('headrace tune' measures)",
        "of the profile of this user, measured by 'headrace tune'", "set by the program"};
    return fmt::format(
        "the path 'automatic' takes a device from {} on where the caller waits, {} where not, {} "
        "in "
        "batches: {}",
        to_text(values.synchronous), to_text(values.asynchronous), to_text(values.batched),
        kSources[static_cast<std::size_t>(source)]);
  }
};

Thresholds thresholds_of(const EngineOptions& options, const copy::ProfileReport& profile) {
  if (options.thresholds) return {*options.thresholds, ThresholdSource::caller};
  if (!profile.used || !profile.dsa_bytes_min) return {};
  // What is measured is a caller that waits; nothing that does not wait needs more.
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

constexpr auto kPaths = make_names<Path>({
    {Path::automatic, "automatic"},
    {Path::hardware, "hardware"},
    {Path::software, "software"},
});

constexpr auto kSources = make_names<ThresholdSource>({
    {ThresholdSource::published, "published"},
    {ThresholdSource::profile, "profile"},
    {ThresholdSource::caller, "caller"},
});

constexpr auto kFaultPolicies = make_names<FaultPolicy>({
    {FaultPolicy::touch_and_resubmit, "touch_and_resubmit"},
    {FaultPolicy::finish_on_cpu, "finish_on_cpu"},
    {FaultPolicy::block, "block"},
});

/// Only now: the publisher calls the engine from a thread of its own, at once.
std::unique_ptr<Engine> published(std::unique_ptr<EngineState> engine) {
  engine->publish_statistics();
  return engine;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::make(const topo::Machine& machine, EngineOptions options) {
  if (const Result<void> valid = check(options); !valid) return fail(valid.error());
  const auto nodes = worker_nodes(machine, options.nodes);
  if (!nodes) return fail(nodes.error());
  // Workers copy by the tuned copy, if there is a profile; what came of it is kept there for
  // reports.
  const copy::ProfileReport& profile = copy::use_default_profile();
  std::vector<std::unique_ptr<Mover>> movers;
  for (const topo::Node* const node : *nodes) {
    const std::size_t half = std::max<std::size_t>(1, node->cpus.size() / 2);
    const std::size_t threads = options.threads_per_node != 0 ? options.threads_per_node : half;
    auto mover = CpuMover::make({.node = node->id,
                                 .cpus = node->cpus,
                                 .thread_count = threads,
                                 .piece_bytes = options.piece.count(),
                                 .queue_depth_max = options.queue_depth_max,
                                 .check_memory = options.check_memory});
    if (!mover) return fail(mover.error().within(kTried));
    movers.push_back(std::move(*mover));
  }
  auto devices = open_dsa_queues(machine, options.devices);
  if (!devices) return fail(devices.error().within(kTried));
  for (std::unique_ptr<Mover>& mover : devices->movers) movers.push_back(std::move(mover));
  const Thresholds thresholds = thresholds_of(options, profile);
  if (movers.size() > nodes->size()) devices->notes.push_back(thresholds.note());
  EngineState::Settings settings{.policy = std::move(options.policy),
                                 .path = options.path,
                                 .thresholds = thresholds.values,
                                 .packages = packages_of(machine),
                                 .notes = std::move(devices->notes),
                                 .threshold_source = thresholds.source,
                                 .check_memory = options.check_memory,
                                 .waiting = options.waiting};
  return published(std::make_unique<EngineState>(std::move(movers), std::move(settings)));
}

Result<std::unique_ptr<Engine>> Engine::make(std::vector<std::unique_ptr<Mover>> movers,
                                             MoverPolicy policy, const EngineSettings& chosen) {
  if (const Result<void> valid = check(chosen.waiting); !valid) return fail(valid.error());
  if (movers.empty()) {
    return fail(Code::invalid_argument, kTried, "it has no mover", "give at least one");
  }
  if (std::find(movers.begin(), movers.end(), nullptr) != movers.end()) {
    return fail(Code::invalid_argument, kTried, "one of its movers is null",
                "give movers that exist");
  }
  return published(std::make_unique<EngineState>(
      std::move(movers), EngineState::Settings{.policy = std::move(policy),
                                               .thresholds = chosen.thresholds,
                                               .threshold_source = ThresholdSource::caller,
                                               .node_of = chosen.node_of,
                                               .check_memory = chosen.check_memory,
                                               .waiting = chosen.waiting}));
}

std::string_view name(Path path) {
  return kPaths.text(path);
}

std::string_view name(ThresholdSource source) {
  return kSources.text(source);
}

std::string_view name(FaultPolicy policy) {
  return kFaultPolicies.text(policy);
}

Engine::~Engine() = default;

}  // namespace headrace::engine
