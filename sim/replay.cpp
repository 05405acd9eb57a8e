// SPDX-License-Identifier: Apache-2.0
#include "sim/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <unordered_map>

#include "headrace/base/trace.hpp"
#include "headrace/engine/engine.hpp"
#include "sim/policies.hpp"
#include "sim/processors.hpp"
#include "sim/world.hpp"

namespace headrace::sim {
namespace {

using StepKind = Step::Kind;
using Operation = engine::OperationKind;

constexpr const char* kTried = "replay the trace";
/// EngineOptions::piece of an engine; an operation has at most kPiecesMax.
constexpr double kPieceBytes = 256 << 10;
constexpr double kPiecesMax = 64;
constexpr double kLineBytes = 64;
constexpr double kAskedBytesMin = 2 << 20;  ///< src/engine/memory_access.hpp
/// The program computes for more than this share of its time: nothing else bounds it.
constexpr double kComputingShare = 0.5;

/// Memory traffic of an operation, per byte.
Traffic traffic_of(std::uint8_t kind, std::uint32_t source, std::uint32_t target) {
  Traffic traffic{.source = source, .target = target};
  switch (static_cast<Operation>(kind)) {
    case Operation::fill:
      return {.source = target, .target = target, .reads = 0};
    case Operation::compare:
      return {.source = source, .target = source, .reads = 2, .writes = 0};
    case Operation::compare_pattern:
    case Operation::crc:
    case Operation::dif_check:
      return {.source = source, .target = source, .writes = 0};
    case Operation::dualcast:
      traffic.writes = 2;
      return traffic;
    default:
      return traffic;
  }
}

class Replayer {
 public:
  Replayer(const Trace& trace, const Model& model, const ReplayOptions& options)
      : trace_(trace),
        model_(model),
        options_(options),
        world_(model),
        devices_(world_, setup_),
        device_count_(model.device_count()) {}

  Result<Replayed> run() {
    HEADRACE_TRY(prepare());
    left_count_ = trace_.threads.size() + trace_.operations.size();
    for (std::uint32_t t = 0; t < trace_.threads.size(); ++t) {
      world_.fluid().after(trace_.threads[t].begin_ns * options_.compute_scale, [this, t] {
        processors_.take(threads_[t].seat, 0, [this, t] { go(t); });
      });
    }
    world_.fluid().run();
    if (error_) return fail(std::move(*error_));
    return result();
  }

 private:
  enum class Doing : std::uint8_t { computing, moving, waiting };
  struct Interval {
    float begin_us = 0;
    float length_us = 0;
    Doing doing = Doing::computing;
  };
  struct Thread {
    std::size_t next = 0;
    bool has_computed = false;
    std::uint32_t socket = 0;
    ResourceIndex core = 0;
    double since_ns = 0;
    Seat seat = {};
    std::uint64_t wait_count = 0;
    bool waits = false;
    bool sleeps = false;
    std::array<double, 3> spent_ns{};
    std::vector<Interval> intervals;
  };
  struct State {
    std::uint32_t pending = 0;  ///< Predecessors that run, and 1 until it is submitted.
    bool has_ended = false;
  };
  /// Worker threads of a socket.
  struct Worker {
    ResourceIndex core = 0;
    double idle_since_ns = 0;
    Seat seat = {};
    std::uint64_t idle_count = 0;
    Looks looks = {};
  };
  struct Pool {
    std::deque<Worker> workers;
    std::vector<Worker*> sleeping;  ///< The first one sleeps for longest.
    std::vector<Worker*> looking;   ///< The last one has worked last.
    struct Task {
      std::uint32_t index = 0;
      double bytes = 0;  ///< Of a piece.
      std::uint32_t pieces = 1;
    };
    std::deque<Task> tasks;
  };
  struct Lane {
    std::uint64_t sent = 0;                                        ///< Position that has arrived.
    std::uint64_t sent_most = 0;                                   ///< In the whole trace.
    std::vector<std::pair<std::uint64_t, std::uint32_t>> waiting;  ///< Position, thread.
  };

  Result<void> prepare() {
    if (options_.devices.value_or(0) > device_count_) {
      return fail(
          Code::unsupported, kTried,
          fmt::format("the machine has {} devices, not {}", device_count_, *options_.devices),
          "use no more than it has");
    }
    device_count_ = options_.devices.value_or(device_count_);
    if (options_.path == ReplayPath::dsa && device_count_ == 0) {
      return fail(Code::unsupported, kTried, "the machine has no device for the path 'dsa'",
                  "use the path 'cpu', or another machine");
    }
    for (std::uint32_t recorded = 0; recorded < nodes_.size(); ++recorded) {
      const auto found = options_.nodes.find(recorded);
      const bool unknown = recorded == trace::kNoNode;
      nodes_[recorded] = found != options_.nodes.end() ? found->second
                         : unknown                     ? model_.nodes.front().node
                                                       : recorded;
    }
    for (const TracedOperation& each : trace_.operations) {
      for (const std::uint8_t node : {each.source_node, each.target_node}) {
        if (model_.node(nodes_[node]) == nullptr) return no_node(std::to_string(node));
      }
    }
    if (options_.copies && model_.node(*options_.copies) == nullptr) return no_node("copies");
    states_.resize(trace_.operations.size());
    for (std::uint32_t i = 0; i < states_.size(); ++i) {
      const TracedOperation& each = trace_.operations[i];
      states_[i].pending = static_cast<std::uint32_t>(each.after.size()) + (each.chained ? 0 : 1);
      for (const std::uint32_t before : each.after) dependants_[before].push_back(i);
    }
    lanes_.resize(trace_.lane_count);
    for (const TracedThread& traced : trace_.threads) {
      Thread& thread = threads_.emplace_back();
      const NodeModel* const node = model_.node(nodes_[traced.node]);
      thread.socket = node != nullptr ? node->socket : model_.nodes.front().socket;
      thread.core = world_.add_core();
      for (const Step& step : traced.steps) {
        if (step.kind != StepKind::send) continue;
        Lane& lane = lanes_[step.index];
        lane.sent_most = std::max(lane.sent_most, step.position);
      }
    }
    if (options_.nic) HEADRACE_TRY(prepare_nic());
    if (!lanes_.empty() && model_.core.handover_ns == 0 && !model_.has_injection) {
      return fail(Code::unsupported, kTried,
                  "the machine's record does not say how lines pass between cores",
                  "use a record of 'headrace topo --measure --record FILE'");
    }
    double busy_max = static_cast<double>(threads_.size());
    double processor_count = 0;
    for (const SocketModel& socket : model_.sockets) {
      Pool& pool = pools_[socket.socket];
      const std::uint32_t count =
          options_.workers != 0 ? options_.workers
                                : static_cast<std::uint32_t>(std::max(1.0, socket.core_count / 2));
      for (std::uint32_t i = 0; i < count; ++i) {
        Worker& worker = pool.workers.emplace_back();
        worker.core = world_.add_core();
        worker.seat.number = count - 1 - i;
        pool.sleeping.push_back(&worker);
      }
      caches_[socket.socket] =
          world_.fluid().add(fmt::format("caches of socket {}", socket.socket), 1);
      busy_max += count;
      processor_count += socket.core_count;
    }
    if (processor_count >= 1 && busy_max > processor_count) {
      processors_.limit(static_cast<std::uint32_t>(processor_count));
    }
    return {};
  }

  Result<void> prepare_nic() {
    if (!model_.has_injection) {
      return fail(Code::unsupported, kTried, "the machine has no field 'injection'",
                  "use a machine with a NIC, such as injection-node or spr-1dsa");
    }
    const auto count = static_cast<std::uint32_t>(threads_.size());
    receivers_.emplace(model_.injection, Receivers::Options{.core_count = count});
    for (std::uint32_t t = 0; t < count; ++t) {
      static_cast<void>(receivers_->compute(t, options_.working_bytes));
      undisturbed_ns_.push_back(receivers_->compute(t, options_.working_bytes));
    }
    return {};
  }

  [[nodiscard]] static Failure no_node(const std::string& what) {
    return fail(Code::invalid_argument, kTried,
                fmt::format("no node of the machine stands for '{}'", what),
                "say which: --map 0=NODE,copies=NODE; 'headrace sim list' names the machines");
  }

  // --- Threads ---

  void note(Thread& thread, Doing doing) {
    const double now_ns = world_.fluid().now_ns();
    const double length_ns = now_ns - thread.since_ns;
    thread.spent_ns[static_cast<std::size_t>(doing)] += length_ns;
    if (options_.bin_count != 0 && length_ns > 0) {
      thread.intervals.push_back(
          {static_cast<float>(thread.since_ns / 1e3), static_cast<float>(length_ns / 1e3), doing});
    }
    thread.since_ns = now_ns;
  }
  [[nodiscard]] Fluid::Action then_go(std::uint32_t t, Doing doing) {
    return [this, t, doing] {
      note(threads_[t], doing);
      go(t);
    };
  }

  void go(std::uint32_t t) {
    Thread& thread = threads_[t];
    const std::vector<Step>& steps = trace_.threads[t].steps;
    if (thread.next == 0 && !thread.has_computed) thread.since_ns = world_.fluid().now_ns();
    while (thread.next < steps.size()) {
      const Step& step = steps[thread.next];
      const double computing_ns = step.computing_ns * options_.compute_scale;
      if (!thread.has_computed && step.asleep_ns + computing_ns > 0) {
        thread.has_computed = true;
        if (step.asleep_ns == 0) return compute(t, computing_ns);
        processors_.leave(thread.seat);
        return world_.fluid().after(step.asleep_ns, [this, t, computing_ns] {
          processors_.take(threads_[t].seat, 0,
                           [this, t, computing_ns] { compute(t, computing_ns); });
        });
      }
      thread.has_computed = false;
      ++thread.next;
      if (!carry_out(t, step)) return;
    }
    processors_.leave(thread.seat);
    one_has_ended();
  }
  /// A thread or an operation; what then spins does not count.
  void one_has_ended() {
    if (--left_count_ == 0) world_.fluid().stop();
  }

  /// The thread spins for some time, and then sleeps, until unblock().
  void block(std::uint32_t t) {
    Thread& thread = threads_[t];
    thread.waits = true;
    world_.fluid().after(looks_.begin_ns(), [this, &thread, number = ++thread.wait_count] {
      if (!thread.waits || thread.wait_count != number) return;
      thread.sleeps = true;
      processors_.leave(thread.seat);
    });
  }
  /// What the thread has waited for is there; a thread that sleeps is woken. Returns how long the
  /// caller is busy waking it.
  double unblock(std::uint32_t t, double handover_ns, double wake_ns, Fluid::Action go_on) {
    Thread& thread = threads_[t];
    thread.waits = false;
    looks_.end(world_.fluid().now_ns() - thread.since_ns, !thread.sleeps);
    if (!std::exchange(thread.sleeps, false)) {
      world_.fluid().after(handover_ns, std::move(go_on));
      return 0;
    }
    return wake(thread.seat, std::max(wake_ns, handover_ns), std::move(go_on));
  }
  /// A thread on the processor of another one needs no interrupt to wake.
  double wake(Seat& seat, double wake_ns, Fluid::Action run) {
    return processors_.take(seat, wake_ns, std::move(run)) ? model_.core.waking_ns : 0;
  }

  void compute(std::uint32_t t, double time_ns) {
    const double slice_ns = processors_.limited() ? std::min(time_ns, kSliceNs) : time_ns;
    world_.fluid().after(slice_ns, [this, t, left_ns = time_ns - slice_ns] {
      note(threads_[t], Doing::computing);
      processors_.go_on(threads_[t].seat,
                        [this, t, left_ns] { left_ns > 0 ? compute(t, left_ns) : go(t); });
    });
  }

  /// Returns false if the thread goes on later.
  bool carry_out(std::uint32_t t, const Step& step) {
    switch (step.kind) {
      case StepKind::operation:
        return submit(t, step.index);
      case StepKind::wait:
        if (states_[step.index].has_ended) return true;
        waiting_[step.index].push_back(t);
        block(t);
        return false;
      case StepKind::send:
        send(t, step);
        return false;
      case StepKind::arrival:
      case StepKind::receive:
        return receive(t, step);
      case StepKind::end:
        break;
    }
    return true;
  }

  // --- Operations ---

  bool submit(std::uint32_t t, std::uint32_t index) {
    const TracedOperation& what = trace_.operations[index];
    const bool waits = what.is_synchronous;
    if (--states_[index].pending != 0) return true;  // Never synchronous.
    switch (path_of_operation(what)) {
      case Way::thread:
        carry_by(threads_[t].core, index, what.bytes, [this, t, index] {
          note(threads_[t], Doing::moving);
          end(index);
          go(t);
        });
        return false;
      case Way::worker:
        world_.fluid().after(asking_ns(what), [this, t, index] {
          world_.fluid().after(post(index), then_go(t, Doing::moving));
        });
        return false;
      case Way::device:
        if (waits) {
          waiting_[index].push_back(t);
          block(t);
        }
        by_devices(index, waits ? Fluid::Action([] {}) : then_go(t, Doing::moving));
        return false;
    }
    return true;
  }

  /// An engine first asks whether the memory of a long operation is mapped.
  [[nodiscard]] double asking_ns(const TracedOperation& what) const {
    const bool asks = what.count == 1 && what.bytes >= kAskedBytesMin;
    return asks ? std::max(0.0, model_.core.asking_ns - model_.core.looking_ns) : 0;
  }

  /// All of its predecessors have ended; no thread submits it.
  void begin(std::uint32_t index) {
    if (path_of_operation(trace_.operations[index]) == Way::device) {
      return by_devices(index, [] {});
    }
    post(index);
  }

  enum class Way : std::uint8_t { thread, worker, device };
  [[nodiscard]] Way path_of_operation(const TracedOperation& what) const {
    const bool runs = what.is_synchronous;
    const Way otherwise = runs ? Way::thread : Way::worker;
    const auto asked = static_cast<engine::Path>(what.path);
    if (what.bytes == 0) return Way::thread;
    if (device_count_ == 0 || options_.path == ReplayPath::cpu) return otherwise;
    if (options_.path == ReplayPath::dsa || asked == engine::Path::dsa) return Way::device;
    if (asked == engine::Path::cpu) return otherwise;
    const std::string_view by =
        path_of(what.bytes / what.count, what.count > 1 ? what.count : 0, runs);
    return by == "device" ? Way::device : by == "processor" ? Way::worker : Way::thread;
  }

  /// Returns how long the thread that ends it is busy waking others.
  double end(std::uint32_t index, bool by_worker = false) {
    states_[index].has_ended = true;
    one_has_ended();
    if (const auto found = dependants_.find(index); found != dependants_.end()) {
      const auto dependants = std::move(found->second);
      dependants_.erase(found);
      for (const std::uint32_t each : dependants) {
        if (--states_[each].pending == 0) begin(each);
      }
    }
    const auto found = waiting_.find(index);
    if (found == waiting_.end()) return 0;
    const auto woken = std::move(found->second);
    waiting_.erase(found);
    double waking_ns = 0;
    for (const std::uint32_t t : woken) {
      waking_ns += unblock(t, by_worker ? model_.core.handover_ns : 0,
                           by_worker ? model_.core.wake_ns : 0, then_go(t, Doing::waiting));
    }
    return waking_ns;
  }

  [[nodiscard]] Traffic traffic(const TracedOperation& what) const {
    const bool moves = what.cached && options_.copies.has_value();
    return traffic_of(what.kind, nodes_[what.source_node],
                      moves ? *options_.copies : nodes_[what.target_node]);
  }

  /// Of the operation, a thread or a worker carries out `bytes`.
  void carry_by(ResourceIndex core, std::uint32_t index, double bytes, Fluid::Action done) {
    const TracedOperation& what = trace_.operations[index];
    const Traffic traffic = this->traffic(what);
    const std::uint32_t socket = model_.node(traffic.target)->socket;
    std::vector<Use> uses;
    double call_ns = model_.core.call_ns * what.count;
    if (model_.core.levels.empty()) {
      uses = world_.core_uses(traffic, socket, core);
    } else {
      const char* const access = traffic.reads == 0    ? "fill"
                                 : traffic.writes == 0 ? "read"
                                                       : "copy";
      const double footprint = traffic.writes == 0 || traffic.reads == 0 ? 1 : 2;
      const detail::CoreRate rate = detail::core_rate(model_, access, what.reused_bytes / footprint,
                                                      std::max(1.0, bytes / what.count), 1);
      if (rate.in_memory) {
        uses = world_.memory_uses(traffic, socket);
      } else if (rate.all_gb_per_s > 0) {
        uses.push_back({caches_.at(socket), 1 / rate.all_gb_per_s});
      }
      uses.push_back({core, model_.core.copy_gb_per_s / rate.gb_per_s});
      call_ns = 0;  // Part of the rate.
    }
    world_.fluid().after(call_ns, [this, bytes, uses = std::move(uses), done = std::move(done)] {
      world_.fluid().carry(bytes, uses, done);
    });
  }

  /// An engine's workers take pieces of the request at the head of their queue, which then moves
  /// to its end. Returns how long the posting thread is busy waking a worker.
  double post(std::uint32_t index) {
    const TracedOperation& what = trace_.operations[index];
    Pool& pool = pools_.at(model_.node(traffic(what).target)->socket);
    const double pieces =
        what.count > 1 ? 1 : std::clamp(std::ceil(what.bytes / kPieceBytes), 1.0, kPiecesMax);
    parts_left_[index] = static_cast<std::uint32_t>(pieces);
    pool.tasks.push_back({index, what.bytes / pieces, parts_left_[index]});
    const CoreModel& core = model_.core;
    return std::max(wake(pool), core.looking_ns > 0 ? core.looking_ns : core.handover_ns);
  }
  double wake(Pool& pool) {
    const bool looks = !pool.looking.empty();
    std::vector<Worker*>& idle = looks ? pool.looking : pool.sleeping;
    if (idle.empty()) return 0;
    Worker& worker = looks ? *idle.back() : *idle.front();  // As a futex wakes.
    std::erase(idle, &worker);
    ++worker.idle_count;
    if (looks) {
      worker.looks.end(world_.fluid().now_ns() - worker.idle_since_ns, true);
      // A waiting thread sees the end later by a line.
      world_.fluid().after(
          std::max(model_.core.look_ns - model_.core.handover_ns, model_.core.handover_ns),
          [this, &pool, &worker] { work(pool, worker); });
      return 0;  // Part of the submission.
    }
    return wake(worker.seat, std::max(model_.core.wake_ns, model_.core.handover_ns),
                [this, &pool, &worker] { work(pool, worker); });
  }
  void work(Pool& pool, Worker& worker) {
    if (pool.tasks.empty()) return look(pool, worker);
    const auto [index, bytes, pieces] = pool.tasks.front();
    pool.tasks.pop_front();
    if (pieces > 1) pool.tasks.push_back({index, bytes, pieces - 1});
    const double waking_ns = pool.tasks.empty() ? 0 : wake(pool);
    world_.fluid().after(waking_ns, [this, &pool, &worker, index, bytes] {
      carry_by(worker.core, index, bytes, [this, &pool, &worker, index] {
        double busy_ns = 0;
        if (--parts_left_[index] == 0) {
          parts_left_.erase(index);
          busy_ns = end(index, true);
        }
        world_.fluid().after(busy_ns, [this, &pool, &worker] {
          processors_.go_on(worker.seat, [this, &pool, &worker] { work(pool, worker); });
        });
      });
    });
  }
  /// Nothing to do: the worker looks for some time, and then sleeps.
  void look(Pool& pool, Worker& worker) {
    worker.idle_since_ns = world_.fluid().now_ns();
    pool.looking.push_back(&worker);
    world_.fluid().after(worker.looks.begin_ns(),
                         [this, &pool, &worker, number = ++worker.idle_count] {
                           if (worker.idle_count != number) return;
                           std::erase(pool.looking, &worker);
                           worker.looks.end(world_.fluid().now_ns() - worker.idle_since_ns, false);
                           pool.sleeping.push_back(&worker);
                           processors_.leave(worker.seat);
                         });
  }

  void by_devices(std::uint32_t index, Fluid::Action accepted) {
    const TracedOperation& what = trace_.operations[index];
    const Traffic traffic = this->traffic(what);
    const auto chosen =
        choose_devices(model_, options_.policy, device_count_, traffic.source, traffic.target,
                       static_cast<std::size_t>(what.bytes), turn_++);
    if (!chosen) {
      error_ = chosen.error();
      return;
    }
    std::vector<double> sizes{what.bytes / what.count};
    if (what.count == 1 && chosen->size() > 1) sizes = split(what.bytes, chosen->size());
    parts_left_[index] = static_cast<std::uint32_t>(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      devices_.submit(
          {.device = (*chosen)[i], .count = what.count, .bytes = sizes[i], .traffic = traffic},
          {.accepted = i + 1 == sizes.size() ? std::move(accepted) : [] {},
           .completed =
               [this, index] {
                 if (--parts_left_[index] != 0) return;
                 parts_left_.erase(index);
                 end(index);
               }});
    }
  }

  // --- Messages ---

  /// Of one message of `bytes`, as the scenario 'messages': a line passes in `handover_ns`, the
  /// rest at a rate; half of it at each end, if the queue copies.
  [[nodiscard]] double message_ns(const Step& step) const {
    const bool measured = model_.core.handover_ns > 0;
    const double line_ns = measured ? model_.core.handover_ns : model_.injection.snoop_ns;
    const double rate = measured ? model_.core.handover_gb_per_s
                                 : kLineBytes * model_.core.outstanding_lines / line_ns;
    const double body_ns = std::max(0.0, step.bytes - kLineBytes) / rate;
    return (line_ns + (step.copied ? body_ns : 0)) / 2;
  }

  void send(std::uint32_t t, const Step& step) {
    world_.fluid().after(message_ns(step), [this, t, &step] {
      Lane& lane = lanes_[step.index];
      lane.sent = std::max(lane.sent, step.position);
      note(threads_[t], Doing::moving);
      std::vector<std::uint32_t> woken;
      std::erase_if(lane.waiting, [&](const auto& each) {
        if (each.first > lane.sent) return false;
        woken.push_back(each.second);
        return true;
      });
      for (const std::uint32_t receiver : woken) {
        unblock(receiver, model_.core.handover_ns / 2, model_.core.wake_ns, [this, receiver] {
          note(threads_[receiver], Doing::waiting);
          // Again the step that waited.
          --threads_[receiver].next;
          threads_[receiver].has_computed = true;
          go(receiver);
        });
      }
      go(t);
    });
  }

  bool receive(std::uint32_t t, const Step& step) {
    Lane& lane = lanes_[step.index];
    const bool arrives = step.kind == StepKind::arrival;
    const std::uint64_t needed = step.position + (arrives ? 1 : 0);
    // What the trace does not send comes from outside: it is taken to be there.
    if (needed > lane.sent && needed <= lane.sent_most) {
      lane.waiting.emplace_back(needed, t);
      block(t);
      return false;
    }
    if (arrives) return true;
    if (receivers_) return receive_injected(t, step);
    world_.fluid().after(message_ns(step), then_go(t, Doing::moving));
    return false;
  }

  bool receive_injected(std::uint32_t t, const Step& step) {
    const auto received = receivers_->receive(
        {.index = message_count_++, .bytes = step.bytes, .sender_core = t, .receiver_core = t},
        options_.nic, 1);
    if (!received) {
      if (!error_) error_ = received.error();
      return false;
    }
    const double longer_ns = receivers_->compute(t, options_.working_bytes) - undisturbed_ns_[t];
    world_.fluid().after(*received + std::max(0.0, longer_ns), then_go(t, Doing::moving));
    return false;
  }

  // --- The end ---

  Replayed result() {
    Replayed made;
    made.time_ns = world_.fluid().now_ns();
    std::size_t unfinished = 0;
    for (std::uint32_t t = 0; t < threads_.size(); ++t) {
      const auto& spent = threads_[t].spent_ns;
      made.computing_ns += spent[0];
      made.moving_ns += spent[1];
      made.waited_ns += spent[2];
      unfinished += threads_[t].next < trace_.threads[t].steps.size() ? 1 : 0;
    }
    const double all_ns = made.computing_ns + made.moving_ns + made.waited_ns;
    made.bound = made.computing_ns > kComputingShare * all_ns ? "computing" : world_.bound();
    for (ResourceIndex i = 0; i < world_.fluid().resource_count(); ++i) {
      const double utilisation = world_.fluid().utilisation(i);
      if (utilisation < 1e-6) continue;
      made.resources.push_back({world_.fluid().name(i), utilisation, world_.fluid().full_share(i)});
    }
    for (std::uint32_t i = 0; i < device_count_; ++i) {
      const Devices::Load load = devices_.load(i);
      made.devices.push_back({model_.machine.dsa_devices[i].id.value(), load.submissions,
                              load.submissions > 0 ? load.queued_ns / load.submissions : 0});
    }
    if (unfinished != 0) {
      made.notes.push_back(fmt::format(
          "{} threads wait for what the trace does not have: it was cut off", unfinished));
    }
    for (const Thread& thread : threads_) {
      if (options_.bin_count != 0) made.timeline.push_back(bins(thread, made.time_ns));
    }
    return made;
  }

  [[nodiscard]] std::vector<std::array<double, 3>> bins(const Thread& thread,
                                                        double time_ns) const {
    std::vector<std::array<double, 3>> shares(options_.bin_count);
    const double bin_us = std::max(1e-3, time_ns / 1e3 / options_.bin_count);
    for (const Interval& each : thread.intervals) {
      double begin = each.begin_us;
      const double end = begin + each.length_us;
      while (begin < end) {
        const auto bin =
            std::min<std::size_t>(static_cast<std::size_t>(begin / bin_us), shares.size() - 1);
        const double until = std::min(end, static_cast<double>(bin + 1) * bin_us);
        shares[bin][static_cast<std::size_t>(each.doing)] += (until - begin) / bin_us;
        if (until <= begin) break;
        begin = until;
      }
    }
    return shares;
  }

  const Trace& trace_;
  const Model& model_;
  const ReplayOptions& options_;
  World world_;
  DeviceSetup setup_;
  Devices devices_;
  std::uint32_t device_count_;
  std::array<std::uint32_t, 256> nodes_{};
  std::vector<Thread> threads_;
  std::vector<State> states_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> dependants_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> waiting_;  ///< Threads.
  std::unordered_map<std::uint32_t, std::uint32_t> parts_left_;
  std::map<std::uint32_t, Pool> pools_;            ///< By socket, as the next one.
  std::map<std::uint32_t, ResourceIndex> caches_;  ///< That cores share.
  std::vector<Lane> lanes_;
  std::size_t left_count_ = 0;  ///< Threads and operations that have not ended.
  Processors processors_{world_.fluid()};
  Looks looks_;  ///< Of threads that wait.
  std::optional<Receivers> receivers_;
  std::vector<double> undisturbed_ns_;  ///< A thread's pass over its working set.
  std::uint64_t message_count_ = 0;
  std::uint64_t turn_ = 0;
  std::optional<Error> error_;
};

}  // namespace

Result<Replayed> replay(const Trace& trace, const Model& model, const ReplayOptions& options) {
  return Replayer(trace, model, options).run();
}

}  // namespace headrace::sim
