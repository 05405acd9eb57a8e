// SPDX-License-Identifier: Apache-2.0
#include "headrace/engine/engine.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cpu_mover.hpp"
#include "engine_state.hpp"

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

}  // namespace

Result<std::unique_ptr<Engine>> Engine::make(const topo::Machine& machine, EngineOptions options) {
  if (const Result<void> valid = check(options); !valid) return fail(valid.error());
  const auto nodes = worker_nodes(machine, options.nodes);
  if (!nodes) return fail(nodes.error());
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
  return make(std::move(movers), std::move(options.policy));
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
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<EngineState>(std::move(movers), std::move(policy))));
}

Engine::Engine(std::unique_ptr<EngineState> state) : state_(std::move(state)) {}

Engine::~Engine() {
  stop();
}

Submit Engine::submit_copy(Job& job, const CopyPlan& plan, const SubmitOptions& options) {
  return state_->submit_copy(job, plan, options);
}

void Engine::stop() {
  state_->stop();
}

void Engine::poll() {
  state_->poll();
}

std::vector<MoverInfo> Engine::movers() const {
  std::vector<MoverInfo> infos;
  for (const std::unique_ptr<Mover>& mover : state_->movers()) infos.push_back(mover->info());
  return infos;
}

EngineStatistics Engine::statistics() const {
  return state_->statistics();
}

}  // namespace headrace::engine
