// SPDX-License-Identifier: Apache-2.0
#include "sim/world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "headrace/base/check.hpp"

namespace headrace::sim {
namespace {

/// A resource utilised less than this is not the bottleneck: latency is.
constexpr double kBoundShare = 0.5;
/// Differences below this are ties; the first resource is named.
constexpr double kEqualShare = 1e-9;
/// A resource utilised more than this is named without its utilisation.
constexpr double kFullShare = 0.9;

}  // namespace

World::World(const Model& model) : model_(&model) {
  for (const NodeModel& node : model.nodes) {
    NodeResources resources;
    const auto name = fmt::format("node {} ({})", node.node, node.kind);
    resources.bus = fluid_.add(name, 1);
    if (node.shared_write_gb_per_s() == 0) {
      resources.read = fluid_.add(name + " read", node.read_gb_per_s);
      resources.write =
          fluid_.add(name + " written", std::max(node.mixed_gb_per_s / 2, node.write_gb_per_s));
    } else if (node.write_gb_per_s > 0) {
      resources.write = fluid_.add(name + " written", node.write_gb_per_s);
    }
    nodes_.push_back(resources);
  }
  for (const SocketModel& socket : model.sockets) {
    meshes_.push_back(
        fluid_.add(fmt::format("mesh of socket {}", socket.socket), socket.mesh_read_gb_per_s));
  }
  for (const LinkModel& link : model.links) {
    forward_.push_back(fluid_.add(fmt::format("link {} to {}", link.from, link.to), link.gb_per_s));
    backward_.push_back(
        fluid_.add(fmt::format("link {} to {}", link.to, link.from), link.gb_per_s));
  }
  if (!model.has_dsa) return;
  for (const topo::DsaDevice& device : model.machine.dsa_devices) {
    const auto name = fmt::format("device {}", device.id.value());
    devices_.push_back(
        {.fabric = fluid_.add("fabric of " + name, model.dsa.fabric_gb_per_s),
         // Bytes in flight are rate x latency (Little's law), so the weight of a byte is its
         // latency.
         .buffers = fluid_.add("read buffers of " + name, model.dsa.read_buffer_bytes)});
  }
}

std::size_t World::node_index(std::uint32_t node) const {
  const NodeModel* const found = model_->node(node);
  HEADRACE_CHECK(found != nullptr, "scenarios check the nodes they are given");
  return static_cast<std::size_t>(found - model_->nodes.data());
}

double World::latency_ns(std::uint32_t node, std::uint32_t socket) const {
  const NodeModel& model = model_->nodes[node_index(node)];
  const bool far = model.socket != socket && model.remote_latency_ns > 0;
  return far ? model.remote_latency_ns : model.latency_ns;
}

void World::add_links(std::vector<Use>& uses, std::uint32_t from, std::uint32_t to,
                      double weight) const {
  if (from == to) return;
  for (std::size_t i = 0; i < model_->links.size(); ++i) {
    const LinkModel& link = model_->links[i];
    if (link.from == from && link.to == to) uses.push_back({forward_[i], weight});
    if (link.to == from && link.from == to) uses.push_back({backward_[i], weight});
  }
}

void World::add_node(std::vector<Use>& uses, std::size_t index, double reads, double writes) const {
  const NodeModel& node = model_->nodes[index];
  const NodeResources& resources = nodes_[index];
  if (const double shared_write = node.shared_write_gb_per_s(); shared_write > 0) {
    uses.push_back({resources.bus, reads / node.read_gb_per_s + writes / shared_write});
  } else {
    uses.push_back({resources.bus, (reads + writes) / node.peak_gb_per_s});
    uses.push_back({resources.read, reads});
  }
  if (resources.write && writes > 0) uses.push_back({*resources.write, writes});
}

std::vector<Use> World::memory_uses(const Traffic& traffic, std::uint32_t socket) const {
  std::vector<Use> uses;
  const std::size_t source = node_index(traffic.source);
  const std::size_t target = node_index(traffic.target);
  const double reads = traffic.reads + traffic.leak_reads;
  if (reads > 0) {
    add_node(uses, source, reads, 0);
    const std::uint32_t from = model_->nodes[source].socket;
    for (std::size_t i = 0; i < model_->sockets.size(); ++i) {
      if (model_->sockets[i].socket == from) uses.push_back({meshes_[i], reads});
    }
    add_links(uses, from, socket, reads);
  }
  if (traffic.writes > 0) {
    add_node(uses, target, 0, traffic.writes);
    add_links(uses, socket, model_->nodes[target].socket, traffic.writes);
  }
  return uses;
}

std::vector<Use> World::device_uses(const Traffic& traffic, const Initiator& who,
                                    double fabric_weight) const {
  std::vector<Use> uses = memory_uses(traffic, who.socket);
  const DeviceResources& device = devices_[who.device];
  uses.push_back({device.fabric, fabric_weight});
  if (traffic.reads > 0) {
    uses.push_back({device.buffers, traffic.reads * latency_ns(traffic.source, who.socket)});
  }
  return uses;
}

ResourceIndex World::add_core() {
  return fluid_.add("cores", model_->core.copy_gb_per_s);
}

double World::core_read_gb_per_s(std::uint32_t node, std::uint32_t socket) const {
  constexpr double kLine = 64;
  const CoreModel& core = model_->core;
  return core.outstanding_lines * kLine / latency_ns(node, socket);
}

std::vector<Use> World::core_uses(const Traffic& traffic, std::uint32_t socket,
                                  ResourceIndex core) const {
  std::vector<Use> uses = memory_uses(traffic, socket);
  // core.copy was taken at the latency of the socket's own DDR. The number of outstanding misses is
  // constant, so a core's rate falls as latency rises.
  double own_ns = 0;
  for (const NodeModel& node : model_->nodes) {
    if (node.socket == socket && (own_ns == 0 || node.kind == "ddr")) {
      own_ns = own_ns == 0 ? node.latency_ns : std::min(own_ns, node.latency_ns);
    }
  }
  const double latency = std::max(latency_ns(traffic.source, socket),
                                  traffic.writes > 0 ? latency_ns(traffic.target, socket) : 0);
  uses.push_back({core, std::max(1.0, own_ns > 0 ? latency / own_ns : 1.0)});
  return uses;
}

std::string World::bound() const {
  double best = kBoundShare;
  std::string name = "latency";
  for (ResourceIndex i = 0; i < fluid_.resource_count(); ++i) {
    if (const double share = fluid_.utilisation(i); share > best + kEqualShare) {
      best = share;
      name = fluid_.name(i);
    }
  }
  if (name == "latency" || best >= kFullShare) return name;
  return fmt::format("{}, {:.0f} % of it", name, best * 100);
}

Devices::Devices(World& world, const DeviceSetup& setup) : world_(world), setup_(setup) {
  devices_.resize(world.model().machine.dsa_devices.size());
  for (Device& device : devices_) {
    device.queues.resize(setup.entry_counts.size());
    device.turns = setup.priorities;
    device.free_slots = static_cast<std::uint32_t>(dsa().engine_depth) * setup.engine_count;
  }
}

void Devices::submit(const Submission& submission, Steps steps) {
  submit(std::make_shared<Descriptor>(Descriptor{.what = submission, .steps = std::move(steps)}));
}

void Devices::submit(const Shared& descriptor) {
  const double submit_ns =
      setup_.kind == Queue::shared ? dsa().shared_submit_ns : dsa().dedicated_submit_ns;
  world_.fluid().after(submit_ns, [this, descriptor] {
    Device& device = devices_[descriptor->what.device];
    auto& queue = device.queues[descriptor->what.queue];
    if (queue.size() >= setup_.entry_counts[descriptor->what.queue]) {
      device.waiting.push_back(descriptor);
      return;
    }
    queue.push_back(descriptor);
    descriptor->accepted_ns = world_.fluid().now_ns();
    begin(descriptor->what.device);
    descriptor->steps.accepted();
  });
}

/// Weighted round robin: per round, a non-empty queue gets as many turns as its priority.
std::size_t Devices::choose(Device& device) const {
  const std::size_t none = device.queues.size();
  for (int round = 0; round < 2; ++round) {
    std::size_t best = none;
    for (std::size_t i = 0; i < device.queues.size(); ++i) {
      if (device.queues[i].empty() || device.turns[i] == 0) continue;
      if (best == none || device.turns[i] > device.turns[best]) best = i;
    }
    if (best != none) {
      --device.turns[best];
      return best;
    }
    device.turns = setup_.priorities;
  }
  return none;
}

void Devices::begin(std::uint32_t index) {
  Device& device = devices_[index];
  if (device.beginning || device.free_slots == 0) return;
  const std::size_t chosen = choose(device);
  if (chosen == device.queues.size()) return;
  const Shared descriptor = device.queues[chosen].front();
  if (descriptor->begun == 0) {
    ++device.load.submissions;
    device.load.queued_ns += world_.fluid().now_ns() - descriptor->accepted_ns;
  }
  if (++descriptor->begun == descriptor->what.count) {
    device.queues[chosen].pop_front();
    for (std::deque<Shared> woken = std::exchange(device.waiting, {}); !woken.empty();
         woken.pop_front()) {
      submit(woken.front());
    }
  }
  device.beginning = true;
  --device.free_slots;
  world_.fluid().after(dsa().descriptor_ns + setup_.begin_ns, [this, index, descriptor] {
    devices_[index].beginning = false;
    translate(descriptor);
    begin(index);
  });
}

void Devices::translate(const Shared& descriptor) {
  const bool waits = descriptor->what.bytes > dsa().translated_bytes;
  world_.fluid().after(waits ? dsa().translation_ns : 0, [this, descriptor] {
    const Submission& what = descriptor->what;
    const auto& device = world_.model().machine.dsa_devices[what.device];
    const Initiator who{.socket = world_.model().node(device.node->value())->socket,
                        .device = what.device};
    world_.fluid().carry(what.bytes, world_.device_uses(what.traffic, who, setup_.fabric_weight),
                         [this, descriptor] { end(descriptor); });
  });
}

void Devices::end(const Shared& descriptor) {
  descriptor->steps.transferred();
  if (++descriptor->ended == descriptor->what.count) {
    // The part of alone_ns that is neither submission nor descriptor start.
    const double rest_ns =
        std::max(0.0, dsa().alone_ns - dsa().shared_submit_ns - dsa().descriptor_ns);
    world_.fluid().after(rest_ns, descriptor->steps.completed);
  }
  const std::uint32_t index = descriptor->what.device;
  const auto release = [this, index] {
    ++devices_[index].free_slots;
    begin(index);
  };
  if (setup_.hold_ns > 0) {
    world_.fluid().hold(setup_.hold_ns * dsa().fabric_gb_per_s, {{world_.fabric(index), 1}},
                        release);
  } else {
    release();
  }
}

namespace {

/// Threads that submit to devices, in one World.
class Run {
 public:
  Run(const Model& model, const DeviceSetup& setup, const std::vector<Submitter>& submitters)
      : world_(model),
        devices_(world_, setup),
        submitters_(submitters),
        states_(submitters.size()) {
    moved_.queue_bytes.resize(setup.entry_counts.size());
    moved_.ends_ns.resize(submitters.size());
    for (const Submitter& submitter : submitters) {
      total_ += static_cast<double>(submitter.count) * submitter.bytes;
    }
  }

  Moved run() {
    for (std::uint32_t i = 0; i < submitters_.size(); ++i) submit(i);
    world_.fluid().run();
    moved_.elapsed_ns = world_.fluid().now_ns();
    moved_.bytes = total_;
    // Rate between a quarter and three quarters of the bytes, counting partial transfers:
    // completions alone could give a rate above a ceiling.
    moved_.steady_gb_per_s = late_.bytes > early_.bytes
                                 ? (late_.bytes - early_.bytes) / (late_.ns - early_.ns)
                                 : total_ / moved_.elapsed_ns;
    moved_.bound = world_.bound();
    return moved_;
  }

 private:
  struct State {
    std::uint64_t submitted = 0;
    std::uint64_t ended = 0;
    std::uint32_t under_way = 0;
    bool submitting = false;
  };

  struct Mark {
    double ns = 0;
    double bytes = 0;
  };

  /// Submissions of a thread are sequential, and each occupies the thread.
  void submit(std::uint32_t who) {
    const Submitter& by = submitters_[who];
    State& state = states_[who];
    if (state.submitting || state.submitted == by.count || state.under_way == by.depth) return;
    const auto count =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(by.batch, by.count - state.submitted));
    state.submitting = true;
    state.submitted += count;
    ++state.under_way;
    devices_.submit({.device = by.device,
                     .queue = by.queue,
                     .count = count,
                     .bytes = by.bytes,
                     .traffic = by.traffic},
                    {.accepted =
                         [this, who] {
                           states_[who].submitting = false;
                           submit(who);
                         },
                     .transferred = [this, &by] { transferred(by); },
                     .completed = [this, who, count] { completed(who, count); }});
  }

  void transferred(const Submitter& by) {
    done_bytes_ += by.bytes;
    if (!one_has_ended_) moved_.queue_bytes[by.queue] += by.bytes;
    if (early_.ns == 0 && done_bytes_ >= total_ / 4) early_ = mark();
    if (done_bytes_ <= total_ * 3 / 4) late_ = mark();
  }

  void completed(std::uint32_t who, std::uint32_t count) {
    State& state = states_[who];
    --state.under_way;
    state.ended += count;
    if (state.ended == submitters_[who].count) {
      moved_.ends_ns[who] = world_.fluid().now_ns();
      one_has_ended_ = true;
    }
    submit(who);
  }

  [[nodiscard]] Mark mark() { return {world_.fluid().now_ns(), world_.fluid().carried()}; }

  World world_;
  Devices devices_;
  const std::vector<Submitter>& submitters_;
  std::vector<State> states_;
  Moved moved_;
  double total_ = 0;
  double done_bytes_ = 0;
  Mark early_;
  Mark late_;
  bool one_has_ended_ = false;
};

}  // namespace

Moved move_by_devices(const Model& model, const DeviceSetup& setup,
                      const std::vector<Submitter>& submitters) {
  return Run(model, setup, submitters).run();
}

Moved move_by_cores(const Model& model, std::uint32_t socket, std::uint32_t thread_count,
                    double bytes, const Traffic& traffic) {
  World world(model);
  for (std::uint32_t i = 0; i < thread_count; ++i) {
    const std::vector<Use> uses = world.core_uses(traffic, socket, world.add_core());
    world.fluid().after(model.core.call_ns, [&world, uses, bytes, thread_count] {
      world.fluid().carry(bytes / thread_count, uses, [] {});
    });
  }
  world.fluid().run();
  Moved moved;
  moved.elapsed_ns = world.fluid().now_ns();
  moved.steady_gb_per_s = bytes / moved.elapsed_ns;
  moved.bytes = bytes;
  moved.bound = world.bound();
  return moved;
}

}  // namespace headrace::sim
