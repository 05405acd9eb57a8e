// SPDX-License-Identifier: Apache-2.0
// Scenario qdp: a query that filters column a and aggregates column b, while devices or cores
// prefetch b. Workers follow query 6's Schedule; evictions follow the cache's Order.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <vector>

#include "headrace/lab/schedule.hpp"
#include "sim/policies.hpp"
#include "sim/processors.hpp"
#include "sim/scenario.hpp"
#include "sim/world.hpp"

namespace headrace::sim::detail {
namespace {

using Kind = Parameter::Kind;

/// Chunks simulated per point; longer columns are extrapolated.
constexpr std::uint32_t kChunksMax = 4096;

struct Plan {
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t target = 0;
  double chunk_bytes = 0;  ///< Per column.
  double scanned = 1;      ///< Columns that the scan reads.
  double moved = 1;        ///< Columns that are prefetched and aggregated.
  double shared = 0;       ///< Of `moved`, columns that the scan reads as well.
  std::uint32_t chunk_count = 0;
  std::uint32_t thread_count = 0;
  double compute_gb_per_s = 0;
  std::string policy;
  std::size_t device_count = 0;  ///< 0: cores move.
  double capacity_bytes = 0;     ///< 0: nothing is prefetched.
  bool is_there = false;         ///< b is in the target from the start.
};

/// Content of a schedule slot.
struct Copy {
  struct State {
    bool has_ended = false;
    bool is_refused = false;
    double copies_left = 0;  ///< Of its columns, by devices.
  };
  std::shared_ptr<State> state;

  [[nodiscard]] bool is_ready() const { return state->has_ended; }
};
using Schedule = query::lab::Schedule<Copy>;
using Task = Schedule::Task;

class Query {
 public:
  Query(const Model& model, const Plan& plan)
      : world_(model),
        devices_(world_, setup_),
        plan_(plan),
        schedule_(0, plan.chunk_count,
                  plan.capacity_bytes > 0 ? query::lab::kSlotsPerWorker * plan.thread_count : 0) {
    const SocketModel& socket = model.sockets.front();
    const double core_count = socket.core_count / model.ddr_node_count(model.nodes.front().socket);
    // `compute_` is added first, so it is named as the bound in a tie.
    const double most = std::min<double>(plan.thread_count, core_count);
    compute_ = world_.fluid().add("compute", most);
    misses_ = world_.fluid().add("misses of cores", most);
    cores_ = world_.fluid().add("cores", core_count);
    socket_ = model.node(plan.a)->socket;
    for (std::uint32_t i = 0; i < plan.thread_count; ++i) {
      workers_.push_back(world_.fluid().add("a worker's time", 1));
    }
    // As many threads as an engine starts by default.
    const auto mover_count = static_cast<std::uint32_t>(std::max(1.0, core_count / 2));
    for (std::uint32_t i = 0; plan.device_count == 0 && i < mover_count; ++i) {
      const ResourceIndex mover = world_.fluid().add(fmt::format("mover {}", i), 1);
      // A thread that finds no free core waits for the end of a slice.
      const bool waits = plan.thread_count + i + 1 > core_count;
      world_.fluid().after(waits ? kSliceNs : 0, [this, mover] {
        movers_.push_back(mover);
        feed_movers();
      });
    }
  }

  struct End {
    double ns = 0;
    double moved_share = 0;
    double refused_share = 0;
    double evictions = 0;
    std::string bound;
  };

  Result<End> run() {
    // Staggered: workers that start together would stay in step and read a and b alternately.
    const double step_ns = plan_.chunk_bytes / plan_.compute_gb_per_s / plan_.thread_count;
    for (std::uint32_t i = 0; i < plan_.thread_count; ++i) {
      world_.fluid().after(i * step_ns, [this, i] { next(i, {}); });
    }
    world_.fluid().run();
    if (error_.has_value()) return fail(std::move(*error_));
    const double chunks = std::max(1.0, static_cast<double>(plan_.chunk_count));
    return End{.ns = world_.fluid().now_ns(),
               .moved_share = used_ / chunks,
               .refused_share = refused_ / chunks,
               .evictions = evictions_,
               .bound = world_.bound()};
  }

 private:
  /// Starts the worker's next task, if there is one.
  void next(std::uint32_t worker, const Task& finished) {
    const Task task = schedule_.next(finished, true);
    switch (task.kind) {
      case Task::Kind::none:
        if (--working_count_ == 0) world_.fluid().stop();
        return;
      case Task::Kind::prefetch:
        return prefetch(worker, task);
      case Task::Kind::scan:
        return scan(worker, task);
      case Task::Kind::aggregate:
        return aggregate(worker, task);
    }
  }

  void prefetch(std::uint32_t worker, const Task& task) {
    auto state = std::make_shared<Copy::State>();
    const double bytes = plan_.chunk_bytes * plan_.moved;
    // No chunk is read twice: all copies that no worker holds are equally good to evict.
    state->is_refused = held_bytes_ + bytes > plan_.capacity_bytes;
    task.slot->held.state = state;
    task.slot->is_refused = state->is_refused;
    if (state->is_refused) {
      ++refused_;
      state->has_ended = true;
      return next(worker, task);
    }
    held_bytes_ += bytes;
    const bool is_full = cached_bytes_ + bytes > plan_.capacity_bytes;
    (is_full ? evictions_ : cached_bytes_) += is_full ? 1 : bytes;
    const auto ended = [state] { state->has_ended = true; };
    if (plan_.device_count == 0) {
      waiting_.push_back({bytes, ended});
      feed_movers();
      return next(worker, task);
    }
    const auto chosen = choose_devices(world_.model(), plan_.policy, plan_.device_count, plan_.b,
                                       plan_.target, static_cast<std::size_t>(bytes), turn_++);
    if (!chosen) {
      error_ = chosen.error();
      state->has_ended = true;
      return next(worker, task);
    }
    state->copies_left = std::ceil(plan_.moved);
    submit(worker, task, chosen->front(), static_cast<std::uint32_t>(state->copies_left));
  }

  /// One descriptor for each column, submitted one after the other.
  void submit(std::uint32_t worker, const Task& task, std::uint32_t device, std::uint32_t left) {
    if (left == 0) return next(worker, task);
    const auto state = task.slot->held.state;
    devices_.submit(
        {.device = device,
         .bytes = plan_.chunk_bytes * plan_.moved / std::ceil(plan_.moved),
         .traffic = {.source = plan_.b, .target = plan_.target}},
        {.accepted = [this, worker, task, device, left] { submit(worker, task, device, left - 1); },
         .completed = [state] { state->has_ended = --state->copies_left == 0; }});
  }

  /// Copying and computing compete for the same cores.
  void feed_movers() {
    if (movers_.empty() || waiting_.empty()) return;
    const ResourceIndex mover = movers_.back();
    movers_.pop_back();
    const Waiting job = std::move(waiting_.front());
    waiting_.pop_front();
    auto uses = world_.memory_uses({.source = plan_.b, .target = plan_.target}, socket_);
    const double ns_per_byte = 1 / world_.model().core.copy_gb_per_s;
    uses.push_back({mover, ns_per_byte});
    uses.push_back({cores_, ns_per_byte});
    world_.fluid().carry(job.bytes, std::move(uses), [this, mover, ended = job.ended] {
      movers_.push_back(mover);
      ended();
      feed_movers();
    });
  }

  void scan(std::uint32_t worker, const Task& task) {
    read(worker, plan_.a, plan_.chunk_bytes * plan_.scanned, [this, worker, task] {
      if (task.slot != nullptr) return next(worker, task);
      used_ += plan_.is_there ? 1 : 0;
      // The columns that the scan has read are still in the core's cache.
      compute(worker, plan_.chunk_bytes * plan_.shared, [this, worker, task] {
        read(worker, plan_.is_there ? plan_.target : plan_.b,
             plan_.chunk_bytes * (plan_.moved - plan_.shared),
             [this, worker, task] { next(worker, task); });
      });
    });
  }

  void aggregate(std::uint32_t worker, const Task& task) {
    const std::shared_ptr<Copy::State> state = task.slot->held.state;
    const bool from_target = state->has_ended && !state->is_refused;
    used_ += from_target ? 1 : 0;
    read(worker, from_target ? plan_.target : plan_.b, plan_.chunk_bytes * plan_.moved,
         [this, worker, task, state] {
           if (!state->is_refused) held_bytes_ -= plan_.chunk_bytes * plan_.moved;
           next(worker, task);
         });
  }

  /// A core that waits for memory is still occupied.
  void read(std::uint32_t worker, std::uint32_t node, double bytes, Fluid::Action done) {
    auto uses = world_.memory_uses({.source = node, .target = node, .writes = 0}, socket_);
    const double compute_ns = 1 / plan_.compute_gb_per_s;
    const double misses_ns = 1 / world_.core_read_gb_per_s(node, socket_);
    const double ns_per_byte = std::max(compute_ns, misses_ns);
    uses.push_back({compute_, compute_ns});
    uses.push_back({misses_, misses_ns});
    uses.push_back({workers_[worker], ns_per_byte});
    uses.push_back({cores_, ns_per_byte});
    world_.fluid().carry(bytes, std::move(uses), std::move(done));
  }

  void compute(std::uint32_t worker, double bytes, Fluid::Action done) {
    const double ns_per_byte = 1 / plan_.compute_gb_per_s;
    world_.fluid().carry(
        bytes, {{compute_, ns_per_byte}, {workers_[worker], ns_per_byte}, {cores_, ns_per_byte}},
        std::move(done));
  }

  struct Waiting {
    double bytes = 0;
    Fluid::Action ended;
  };

  World world_;
  DeviceSetup setup_;
  Devices devices_;
  const Plan& plan_;
  Schedule schedule_;
  ResourceIndex compute_ = 0;
  ResourceIndex misses_ = 0;
  ResourceIndex cores_ = 0;
  std::vector<ResourceIndex> workers_;
  std::vector<ResourceIndex> movers_;  ///< Idle mover threads.
  std::deque<Waiting> waiting_;
  std::uint32_t socket_ = 0;
  std::uint32_t working_count_ = plan_.thread_count;
  std::uint64_t turn_ = 0;
  double used_ = 0;
  double refused_ = 0;
  double held_bytes_ = 0;
  double cached_bytes_ = 0;
  double evictions_ = 0;
  std::optional<Error> error_;
};

Result<Outcome> qdp(const Model& model, const Point& point) {
  Plan plan;
  for (const auto& [key, node] :
       {std::pair{"a", &plan.a}, std::pair{"b", &plan.b}, std::pair{"target", &plan.target}}) {
    HEADRACE_TAKE(found, node_of(model, point, key));
    *node = *found;
  }
  const std::size_t devices = point.count("devices");
  if (devices > model.device_count()) {
    return refuse("devices", fmt::format("the machine has {}", model.device_count()),
                  "use no more than it has; 0 moves by cores");
  }
  plan.device_count = devices;
  plan.policy = point.word("policy");
  const double column = point.size("column");
  plan.chunk_bytes = point.size("chunk");
  if (plan.chunk_bytes > column) return refuse("chunk", "is more than the column", "write less");
  const double chunks = column / plan.chunk_bytes;
  plan.chunk_count = static_cast<std::uint32_t>(std::min<double>(chunks, kChunksMax));
  const double factor = chunks / plan.chunk_count;
  plan.scanned = point.number("scanned");
  plan.moved = point.number("moved");
  plan.shared = point.number("shared");
  if (plan.shared > plan.moved) {
    return refuse("shared", "is more than 'moved'", "write how many of those are scanned as well");
  }
  if (plan.scanned <= 0 || plan.moved <= 0) {
    return refuse("scanned", "or 'moved' is 0", "write how many columns are read");
  }
  plan.thread_count = std::max(1U, point.count("threads"));
  plan.compute_gb_per_s = std::max(0.001, point.number("compute"));
  const double capacity = point.size("capacity");
  const auto end_of = [&](bool prefetches, bool is_there) {
    plan.capacity_bytes = prefetches ? capacity : 0;
    plan.is_there = is_there;
    return Query(model, plan).run();
  };
  HEADRACE_TAKE(off, end_of(false, false));
  HEADRACE_TAKE(on, end_of(true, false));
  HEADRACE_TAKE(best, end_of(false, true));
  return Outcome{{{"gain", off->ns / on->ns - 1},
                  {"off_ms", off->ns * factor / 1e6},
                  {"on_ms", on->ns * factor / 1e6},
                  {"in_target_ms", best->ns * factor / 1e6},
                  {"share_from_copies", on->moved_share},
                  {"share_refused", on->refused_share},
                  {"evictions", on->evictions * factor}},
                 on->bound,
                 {fmt::format("off: {}", off->bound)}};
}

}  // namespace

std::vector<Scenario> query_scenarios() {
  return {{"qdp",
           "when prefetching the second column of a query pays",
           "xeon-max-flat",
           {{"b", Kind::count, {"0", "1", "4"}},
            {"threads", Kind::count, {"64", "12", "4", "1"}, {}, 1024},
            {"a", Kind::count, {"0"}},
            {"target", Kind::count, {"8"}},
            {"column", Kind::size, {"4GiB"}},
            {"chunk", Kind::size, {"1MiB"}},
            {"devices", Kind::count, {"4"}},
            {"capacity", Kind::size, {"4GiB"}},
            {"scanned", Kind::number, {"1"}},
            {"moved", Kind::number, {"1"}},
            {"shared", Kind::number, {"0"}},
            {"policy",
             Kind::word,
             {"round_robin"},
             {"round_robin", "near_source", "near_target", "least_loaded", "push_pull"}},
            {"compute", Kind::number, {"16", "8"}}},
           qdp}};
}

}  // namespace headrace::sim::detail
