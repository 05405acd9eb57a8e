// SPDX-License-Identifier: Apache-2.0
// Scenario qdp: a query that filters column a and aggregates column b, with b moved by devices
// while a is scanned. It follows the rules of query's Schedule (what frees a slot first, then what
// fills it, then the scan; without a free slot a chunk is read from its source; in the end nobody
// waits), whose class needs the entries of a live cache.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "sim/scenario.hpp"
#include "sim/world.hpp"

namespace headrace::sim::detail {
namespace {

using Kind = Parameter::Kind;

/// Chunks of a point; longer columns are extrapolated.
constexpr std::uint32_t kChunksMax = 512;

struct Plan {
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t target = 0;
  double chunk_bytes = 0;  ///< Of one column.
  double scanned = 1;      ///< Columns that the scan reads.
  double moved = 1;        ///< Columns that are prefetched and aggregated.
  std::uint32_t chunk_count = 0;
  std::uint32_t thread_count = 0;
  double compute_gb_per_s = 0;
  std::vector<std::uint32_t> devices;
  std::uint32_t slot_count = 0;  ///< Chunks that are held at a time; 0: nothing is prefetched.
  bool is_there = false;         ///< b lies in the target from the start.
};

class Query {
 public:
  Query(const Model& model, const Plan& plan) : world_(model), plan_(plan) {
    const double cores = std::min<double>(plan.thread_count, cores_of_node(model));
    compute_ = world_.fluid().add("compute", cores * plan.compute_gb_per_s);
    misses_ = world_.fluid().add("misses of cores", cores * model.core.outstanding_lines * 64);
    socket_ = model.node(plan.a)->socket;
    slots_.resize(plan.slot_count);
  }

  struct End {
    double ns = 0;
    double moved_share = 0;
    std::string bound;
  };

  End run() {
    // Workers that begin at once would stay in step and read a and b in turn.
    const double step_ns = plan_.chunk_bytes / plan_.compute_gb_per_s / plan_.thread_count;
    for (std::uint32_t i = 0; i < plan_.thread_count; ++i) {
      world_.fluid().after(i * step_ns, [this] { work(); });
    }
    world_.fluid().run();
    return {world_.fluid().now_ns(), used_ / std::max(1.0, static_cast<double>(plan_.chunk_count)),
            world_.bound()};
  }

 private:
  struct Slot {
    enum class State : std::uint8_t { free, moving, ready, aggregating } state = State::free;
    bool scanned = false;
    std::uint32_t chunk = 0;
  };

  static double cores_of_node(const Model& model) {
    double nodes = 0;
    for (const NodeModel& node : model.nodes) {
      if (node.socket == model.nodes.front().socket && node.kind == "ddr") ++nodes;
    }
    return model.sockets.front().core_count / std::max(1.0, nodes);
  }

  /// What a worker does next, until there is nothing.
  void work() {
    Slot* slot = find_scanned(true);
    if (slot == nullptr) {
      next_prefetch_ = std::max(next_prefetch_, next_scan_);
      while (next_prefetch_ < plan_.chunk_count && prefetch()) {
      }
      if (next_scan_ < plan_.chunk_count) return scan(next_scan_++);
      slot = find_scanned(false);
    }
    if (slot == nullptr) return;
    const bool from_target = slot->state == Slot::State::ready;
    slot->state = Slot::State::aggregating;
    used_ += from_target ? 1 : 0;
    read(from_target ? plan_.target : plan_.b, plan_.chunk_bytes * plan_.moved, [this, slot] {
      slot->state = Slot::State::free;
      work();
    });
  }

  bool prefetch() {
    const auto slot = std::find_if(slots_.begin(), slots_.end(), [](const Slot& each) {
      return each.state == Slot::State::free;
    });
    if (slot == slots_.end()) return false;
    *slot = {.state = Slot::State::moving, .chunk = next_prefetch_++};
    const std::uint32_t index = plan_.devices[turn_++ % plan_.devices.size()];
    const Model& model = world_.model();
    const auto node = model.machine.dsa_devices[index].node->value();
    const Initiator who{.socket = model.node(node)->socket, .device = index};
    Slot* const held = &*slot;
    const std::uint32_t chunk = held->chunk;
    const auto uses = world_.device_uses({.source = plan_.b, .target = plan_.target}, who, 1);
    world_.fluid().after(model.dsa.alone_ns, [this, uses, held, chunk] {
      world_.fluid().carry(plan_.chunk_bytes * plan_.moved, uses, [held, chunk] {
        // Nobody waited for it: it was read from its source.
        if (held->state == Slot::State::moving && held->chunk == chunk) {
          held->state = Slot::State::ready;
        }
      });
    });
    return true;
  }

  void scan(std::uint32_t chunk) {
    read(plan_.a, plan_.chunk_bytes * plan_.scanned, [this, chunk] {
      for (Slot& slot : slots_) {
        if (slot.state == Slot::State::free || slot.chunk != chunk) continue;
        slot.scanned = true;
        return work();
      }
      used_ += plan_.is_there ? 1 : 0;
      read(plan_.is_there ? plan_.target : plan_.b, plan_.chunk_bytes * plan_.moved,
           [this] { work(); });
    });
  }

  Slot* find_scanned(bool ready) {
    for (Slot& slot : slots_) {
      if (!slot.scanned || slot.state == Slot::State::free ||
          slot.state == Slot::State::aggregating) {
        continue;
      }
      if (!ready || slot.state == Slot::State::ready) return &slot;
    }
    return nullptr;
  }

  void read(std::uint32_t node, double bytes, Fluid::Action done) {
    auto uses =
        world_.memory_uses({.source = node, .target = node, .writes = 0}, socket_, Who::core);
    uses.push_back({compute_, 1});
    uses.push_back({misses_, world_.latency_ns(node, socket_)});
    world_.fluid().carry(bytes, std::move(uses), std::move(done));
  }

  World world_;
  const Plan& plan_;
  ResourceIndex compute_ = 0;
  ResourceIndex misses_ = 0;
  std::uint32_t socket_ = 0;
  std::vector<Slot> slots_;
  std::uint32_t next_scan_ = 0;
  std::uint32_t next_prefetch_ = 0;
  std::uint32_t turn_ = 0;
  double used_ = 0;
};

Result<Outcome> qdp(const Model& model, const Point& point) {
  Plan plan;
  for (const auto& [key, node] :
       {std::pair{"a", &plan.a}, std::pair{"b", &plan.b}, std::pair{"target", &plan.target}}) {
    const auto found = node_of(model, point, key);
    if (!found) return fail(found.error());
    *node = *found;
  }
  const std::size_t devices = point.count("devices");
  if (!model.has_dsa || devices < 1 || devices > model.machine.dsa_devices.size()) {
    return refuse(
        "devices",
        fmt::format("the machine has {}", model.has_dsa ? model.machine.dsa_devices.size() : 0),
        "use at least one, and no more than it has");
  }
  for (std::uint32_t i = 0; i < devices; ++i) plan.devices.push_back(i);
  const double column = point.size("column");
  plan.chunk_bytes = point.size("chunk");
  if (plan.chunk_bytes > column) return refuse("chunk", "is more than the column", "write less");
  const double chunks = column / plan.chunk_bytes;
  plan.chunk_count = static_cast<std::uint32_t>(std::min<double>(chunks, kChunksMax));
  const double factor = chunks / plan.chunk_count;
  plan.scanned = point.number("scanned");
  plan.moved = point.number("moved");
  if (plan.scanned <= 0 || plan.moved <= 0) {
    return refuse("scanned", "or 'moved' is 0", "write how many columns are read");
  }
  plan.thread_count = std::max(1U, point.count("threads"));
  plan.compute_gb_per_s = std::max(0.001, point.number("compute"));
  const auto end_of = [&](std::uint32_t slots, bool is_there) {
    plan.slot_count = slots;
    plan.is_there = is_there;
    return Query(model, plan).run();
  };
  const double room = point.size("capacity") / (plan.chunk_bytes * plan.moved);
  const auto slots = static_cast<std::uint32_t>(std::min<double>(room, 2.0 * plan.thread_count));
  const auto off = end_of(0, false);
  const auto on = end_of(slots, false);
  const auto best = end_of(0, true);
  std::vector<std::string> notes{fmt::format("off: {}", off.bound)};
  if (const NodeModel* b = model.node(plan.b); b->read_gb_per_s < b->peak_gb_per_s) {
    notes.push_back(fmt::format("assumed: devices read node {} at {:.1f} GB/s, cores at {:.1f}",
                                plan.b, b->peak_gb_per_s, b->read_gb_per_s));
  }
  return Outcome{{{"off_ms", off.ns * factor / 1e6},
                  {"on_ms", on.ns * factor / 1e6},
                  {"in_target_ms", best.ns * factor / 1e6},
                  {"gain", off.ns / on.ns - 1},
                  {"share_from_copies", on.moved_share}},
                 on.bound,
                 std::move(notes)};
}

}  // namespace

std::vector<Scenario> query_scenarios() {
  return {{"qdp",
           "when prefetching the second column of a query pays",
           "xeon-max-9468",
           {{"b", Kind::count, {"0", "1", "4"}},
            {"threads", Kind::count, {"64", "12", "4", "1"}},
            {"a", Kind::count, {"0"}},
            {"target", Kind::count, {"8"}},
            {"column", Kind::size, {"4GiB"}},
            {"chunk", Kind::size, {"1MiB"}},
            {"devices", Kind::count, {"4"}},
            {"capacity", Kind::size, {"4GiB"}},
            {"scanned", Kind::number, {"1"}},
            {"moved", Kind::number, {"1"}},
            {"compute", Kind::number, {"16", "8"}}},
           qdp}};
}

}  // namespace headrace::sim::detail
