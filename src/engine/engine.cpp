// SPDX-License-Identifier: Apache-2.0
#include "headrace/engine/engine.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cpu_mover.hpp"
#include "dsa_movers.hpp"
#include "engine_state.hpp"
#include "headrace/copy/profile.hpp"

namespace headrace::engine {
namespace {

constexpr const char* kTried = "make an engine";

Result<void> check(const EngineOptions& options) {
  if (options.threads_per_node > EngineOptions::kThreadsMax) {
    return fail(Code::invalid_argument, kTried,
                fmt::format("{} threads per node are more than {}", options.threads_per_node,
                            EngineOptions::kThreadsMax),
                "0 asks for one per two processors");
  }
  if (options.piece == Bytes(0)) {
    return fail(Code::invalid_argument, kTried, "a piece of 0 bytes never ends a copy",
                "the default is 256 KiB");
  }
  if (options.queue_depth_max == 0) {
    return fail(Code::invalid_argument, kTried, "a queue of depth 0 takes nothing",
                "the default is 1024");
  }
  return {};
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

std::vector<NodePackage> packages_of(const topo::Machine& machine) {
  std::vector<NodePackage> packages;
  for (const topo::Node& node : machine.nodes) {
    if (node.package) packages.push_back({node.id, *node.package});
  }
  return packages;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::make(const topo::Machine& machine, EngineOptions options) {
  if (const Result<void> valid = check(options); !valid) return fail(valid.error());
  const auto nodes = worker_nodes(machine, options.nodes);
  if (!nodes) return fail(nodes.error());
  // Workers copy by the tuned copy, if there is a profile; what came of it is kept there for those
  // who ask.
  copy::use_default_profile();
  std::vector<std::unique_ptr<Mover>> movers;
  for (const topo::Node* const node : *nodes) {
    const std::size_t half = std::max<std::size_t>(1, node->cpus.size() / 2);
    const std::size_t threads = options.threads_per_node != 0 ? options.threads_per_node : half;
    auto mover = CpuMover::make({.node = node->id,
                                 .cpus = node->cpus,
                                 .thread_count = threads,
                                 .piece_bytes = options.piece.count(),
                                 .queue_depth_max = options.queue_depth_max});
    if (!mover) return fail(mover.error().within(kTried));
    movers.push_back(std::move(*mover));
  }
  auto devices = open_dsa_movers(machine, options.devices);
  if (!devices) return fail(devices.error().within(kTried));
  for (std::unique_ptr<Mover>& mover : devices->movers) movers.push_back(std::move(mover));
  EngineState::Settings settings{.policy = std::move(options.policy),
                                 .path = options.path,
                                 .thresholds = options.thresholds,
                                 .packages = packages_of(machine),
                                 .notes = std::move(devices->notes)};
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<EngineState>(std::move(movers), std::move(settings))));
}

Result<std::unique_ptr<Engine>> Engine::make(std::vector<std::unique_ptr<Mover>> movers,
                                             MoverPolicy policy) {
  if (movers.empty()) {
    return fail(Code::invalid_argument, kTried, "it has no mover", "give at least one");
  }
  if (std::find(movers.begin(), movers.end(), nullptr) != movers.end()) {
    return fail(Code::invalid_argument, kTried, "one of its movers is null",
                "give movers that exist");
  }
  return std::unique_ptr<Engine>(new Engine(std::make_unique<EngineState>(
      std::move(movers), EngineState::Settings{.policy = std::move(policy)})));
}

std::string_view name(Path path) {
  switch (path) {
    case Path::automatic:
      return "automatic";
    case Path::hardware:
      return "hardware";
    case Path::software:
      return "software";
  }
  return "unknown";
}

Engine::Engine(std::unique_ptr<EngineState> state) : state_(std::move(state)) {}

Engine::~Engine() {
  if (state_->is_forked()) {
    // Its threads are the parent's: nobody could be joined here. The child loses some memory.
    // NOLINTNEXTLINE(bugprone-unused-return-value)
    static_cast<void>(state_.release());
    return;
  }
  stop();
}

Submit Engine::submit_copy(Job& job, const CopyPlan& plan, const SubmitOptions& options) {
  return state_->submit_copy(job, plan, options);
}

Submit Engine::submit(Job& job, const Operation& operation, const SubmitOptions& options) {
  return state_->submit(job, operation, options);
}

Submit Engine::submit_batch(Job& job, const Batch& batch, const SubmitOptions& options) {
  return state_->submit_batch(job, batch, options);
}

Submit Engine::run(const Operation& operation, Completion& completion,
                   const SubmitOptions& options) {
  return state_->run(operation, completion, options);
}

Result<Channel> Engine::open_channel(const ChannelOptions& options) {
  return state_->open_channel(options);
}

void Engine::stop() {
  if (!state_->is_forked()) state_->stop();
}

void Engine::poll() {
  state_->poll();
}

std::vector<MoverInfo> Engine::movers() const {
  std::vector<MoverInfo> infos;
  for (const std::unique_ptr<Mover>& mover : state_->movers()) infos.push_back(mover->info());
  return infos;
}

std::vector<std::string> Engine::notes() const {
  return state_->notes();
}

std::vector<DeviceStatistics> Engine::device_statistics() const {
  std::vector<DeviceStatistics> all;
  for (const std::unique_ptr<Mover>& mover : state_->movers()) all.push_back(mover->statistics());
  state_->add_channels(all);
  return all;
}

EngineStatistics Engine::statistics() const {
  return state_->statistics();
}

}  // namespace headrace::engine
