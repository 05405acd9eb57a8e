// SPDX-License-Identifier: Apache-2.0
// Scenarios about memory: bandwidth and latency of cores, kinds of memory, memory-side caches.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>

#include "sim/scenario.hpp"
#include "sim/world.hpp"

namespace headrace::sim::detail {
namespace {

using Kind = Parameter::Kind;
constexpr double kLine = 64;

struct Stream {
  double gb_per_s = 0;  ///< Reads and writes.
  double read_gb_per_s = 0;
  double latency_ns = 0;
  std::string bound;
};

/// Cores of a socket that read one node.
struct Group {
  std::uint32_t node = 0;
  std::uint32_t socket = 0;
  double cores = 0;
};

/// A closed system: each core keeps `outstanding_lines` misses outstanding, so latency is lines /
/// rate (Little's law). Every group carries the same amount.
Stream stream(const Model& model, const std::vector<Group>& groups, double writes,
              double outstanding_lines) {
  World world(model);
  const double per_core = outstanding_lines * kLine;
  constexpr double kProbeBytes = 1e9;
  double slowest_ns = 0;
  double latency = 0;
  for (const Group& group : groups) {
    const ResourceIndex cores = world.fluid().add("misses of cores", group.cores * per_core);
    const double idle = world.latency_ns(group.node, group.socket);
    auto uses = world.memory_uses({.source = group.node, .target = group.node, .writes = writes},
                                  group.socket);
    uses.push_back({cores, idle});
    latency = std::max(latency, idle);
    world.fluid().carry(kProbeBytes, std::move(uses), [&] { slowest_ns = world.fluid().now_ns(); });
  }
  world.fluid().run();
  Stream result;
  result.read_gb_per_s = kProbeBytes * static_cast<double>(groups.size()) / slowest_ns;
  result.gb_per_s = result.read_gb_per_s * (1 + writes);
  double lines = 0;
  for (const Group& group : groups) lines += group.cores * per_core;
  result.latency_ns =
      std::max(latency * (1 + model.core.queueing_share), lines / result.read_gb_per_s);
  result.bound = world.bound();
  return result;
}

Result<Outcome> memory(const Model& model, const Point& point) {
  HEADRACE_TAKE(node, node_of(model, point, "node"));
  const std::string& pattern = point.word("pattern");
  const std::string& load = point.word("load");
  const SocketModel& socket = model.sockets.front();
  const auto of_kind = [&](const char* kind, std::uint32_t where) {
    std::vector<std::uint32_t> found;
    for (const NodeModel& each : model.nodes) {
      if (each.kind == kind && each.socket == where) found.push_back(each.node);
    }
    return found;
  };
  const double writes = point.number("writes");
  std::vector<Group> groups;
  const auto add = [&](const std::vector<std::uint32_t>& nodes, std::uint32_t where, double cores) {
    for (const std::uint32_t each : nodes) {
      groups.push_back({each, where, cores / static_cast<double>(nodes.size())});
    }
  };
  if (pattern == "node") {
    add({*node}, socket.socket, socket.core_count);
  } else if (pattern == "ddr+hbm") {
    add(of_kind("ddr", socket.socket), socket.socket, socket.core_count / 2);
    add(of_kind("hbm", socket.socket), socket.socket, socket.core_count / 2);
  } else {
    for (const SocketModel& each : model.sockets) {
      if (pattern == "hbm-of-socket" && each.socket != socket.socket) continue;
      add(of_kind("hbm", each.socket), each.socket, each.core_count);
    }
  }
  if (groups.empty()) {
    return refuse("pattern", fmt::format("the machine has no memory for '{}'", pattern),
                  "use node, or another machine");
  }
  const Stream full = stream(model, groups, writes, model.core.outstanding_lines);
  Stream result = full;
  if (load != "full") {
    const double wanted = point.number("load");
    if (wanted <= 0) {
      return refuse("load", fmt::format("'{}' is neither 'full' nor a rate in GB/s", load),
                    "write as in load=160");
    }
    if (wanted > full.gb_per_s) {
      return refuse("load",
                    fmt::format("{} GB/s is above the ceiling of {:.1f}", load, full.gb_per_s),
                    "write less, or 'full'");
    }
    World world(model);
    result.gb_per_s = wanted;
    result.latency_ns = world.latency_ns(*node, socket.socket) *
                        (1 + model.core.queueing_share * wanted / full.gb_per_s);
    result.bound = "demand";
  }
  Outcome outcome{{{"gb_per_s", result.gb_per_s}}, result.bound};
  if (writes == 0) {
    outcome.figures.emplace_back("latency_ns", result.latency_ns);
    const auto ddr = of_kind("ddr", socket.socket);
    if (!ddr.empty()) {
      const Stream own = stream(model, {{ddr.front(), socket.socket, socket.core_count}}, 0,
                                model.core.outstanding_lines);
      outcome.figures.emplace_back("over_ddr", result.gb_per_s / own.gb_per_s);
    }
  } else {
    outcome.notes.emplace_back("the latency of mixed traffic is not modelled");
  }
  return outcome;
}

/// Data of one node that is read several times: in place, or after a move that overlaps with the
/// first pass.
Result<Outcome> placement(const Model& model, const Point& point) {
  HEADRACE_TAKE(source, node_of(model, point, "source"));
  HEADRACE_TAKE(target, node_of(model, point, "target"));
  const std::uint32_t socket = model.node(*source)->socket;
  const double bytes = point.size("bytes");
  const double passes = std::max(1U, point.count("passes"));
  const std::uint32_t threads = std::max(1U, point.count("threads"));
  const std::string& pattern = point.word("pattern");
  // Pointer chasing has one outstanding miss.
  const double lines = pattern == "chase" ? 1 : model.core.outstanding_lines;
  const double writes = pattern == "update" ? 1 : 0;
  const auto pass_at = [&](std::uint32_t node) {
    return stream(model, {{node, socket, static_cast<double>(threads)}}, writes, lines);
  };
  const Stream stay = pass_at(*source);
  const Stream there = pass_at(*target);
  const Traffic traffic{.source = *source, .target = *target};
  const std::size_t devices = point.count("devices");
  Moved moved;
  if (devices == 0) {
    moved = move_by_cores(model, socket, threads, bytes, traffic);
  } else {
    if (devices > model.device_count()) {
      return refuse("devices", fmt::format("the machine has {}", model.device_count()),
                    "use no more than it has");
    }
    std::vector<Submitter> submitters;
    for (std::uint32_t i = 0; i < devices; ++i) {
      submitters.push_back(
          {.device = i, .bytes = bytes / static_cast<double>(devices), .traffic = traffic});
    }
    moved = move_by_devices(model, {}, submitters);
  }
  const double stay_ns = passes * bytes / stay.read_gb_per_s;
  const double pass_ns = bytes / there.read_gb_per_s;
  // While cores move the data they cannot read it.
  const double first_ns =
      devices == 0 ? moved.elapsed_ns + pass_ns : std::max(moved.elapsed_ns, pass_ns);
  const double moved_ns = first_ns + (passes - 1) * pass_ns;
  return Outcome{{{"gain", stay_ns / moved_ns - 1},
                  {"stay_ms", stay_ns / 1e6},
                  {"moved_ms", moved_ns / 1e6},
                  {"move_gb_per_s", bytes / moved.elapsed_ns},
                  {"read_gb_per_s", there.read_gb_per_s}},
                 devices != 0 && moved.elapsed_ns > pass_ns * passes ? "move: " + moved.bound
                                                                     : "read: " + there.bound,
                 pattern == "update"
                     ? std::vector<std::string>{"not counted: moving what was changed back"}
                     : std::vector<std::string>{}};
}

/// Interpolates linearly over the logarithm of the size.
double call_rate(const CoreModel& core, double bytes, bool copies) {
  const auto rate = [&](const CallModel& call) {
    return copies ? call.copy_gb_per_s : call.fill_gb_per_s;
  };
  const auto above = std::ranges::lower_bound(core.calls, bytes, {}, &CallModel::bytes);
  if (above == core.calls.begin()) return rate(core.calls.front());
  if (above == core.calls.end()) return rate(core.calls.back());
  const CallModel& below = *std::prev(above);
  const double part = std::log(bytes / below.bytes) / std::log(above->bytes / below.bytes);
  return rate(below) + part * (rate(*above) - rate(below));
}

}  // namespace

/// A buffer has the rates of the first level that holds it, shared by the threads.
CoreRate core_rate(const Model& model, const std::string& access, double span, double bytes,
                   double threads) {
  const CoreModel& core = model.core;
  const double footprint = access == "copy" ? 2 * span : span;
  const auto of = [&](double read, double fill, double copy) {
    // As a fill, it brings a line in and out.
    if (access == "update") return std::min(read, fill);
    return access == "read" ? read : access == "fill" ? fill : copy;
  };
  const auto with_call = [&](double rate) {
    const bool is_loop = access == "update" && core.update_gb_per_s > 0;
    return 1 / (1 / (is_loop ? std::min(rate, core.update_gb_per_s) : rate) + core.call_ns / bytes);
  };
  for (const LevelModel& level : core.levels) {
    const double share = level.bytes / std::min(threads, level.core_count);
    if (footprint > share) continue;
    const double all =
        of(level.read_all_gb_per_s, level.fill_all_gb_per_s, level.copy_all_gb_per_s);
    return {
        .gb_per_s = with_call(of(level.read_gb_per_s, level.fill_gb_per_s, level.copy_gb_per_s)),
        .all_gb_per_s = level.core_count > 1 ? all : 0};
  }
  const NodeModel& node = model.nodes.front();
  const double write = node.write_gb_per_s;
  const double all = write > 0 ? of(node.read_gb_per_s, write, node.mixed_gb_per_s / 2) : 0;
  if (!core.calls.empty() && (access == "fill" || access == "copy")) {
    const double rate = call_rate(core, bytes, access == "copy");
    return {.gb_per_s = rate, .all_gb_per_s = all, .in_memory = true};
  }
  const double read = core.outstanding_lines * kLine / node.latency_ns;
  const double fill = core.fill_gb_per_s > 0 ? core.fill_gb_per_s : core.copy_gb_per_s;
  return {.gb_per_s = with_call(of(read, fill, core.copy_gb_per_s)),
          .all_gb_per_s = all,
          .in_memory = true};
}

namespace {

/// Threads that access private memory, beside as many threads with another access.
Result<Outcome> streams(const Model& model, const Point& point) {
  const double bytes = point.size("bytes");
  const double span = point.size("span");
  if (bytes > span) return refuse("bytes", "is more than 'span'", "write no more than that");
  const std::uint32_t threads = std::max(1U, point.count("threads"));
  std::vector<std::string> kinds{point.word("access")};
  if (const std::string& beside = point.word("beside"); beside != "nothing")
    kinds.push_back(beside);
  const double all = static_cast<double>(threads * kinds.size());
  const NodeModel& node = model.nodes.front();
  if (all > model.socket(node.socket).core_count) {
    return refuse("threads",
                  fmt::format("asks for {} cores of {}", all, model.socket(node.socket).core_count),
                  "use no more than the socket has");
  }
  World world(model);
  // Amounts are the nanoseconds that a thread would take alone, so all threads slow down by the
  // same factor: a thread with more outstanding misses gets more. Rates do not change before the
  // first flow ends. Each kind is counted by a resource that never limits it.
  constexpr double kAloneNs = 1e9;
  constexpr double kAnyRate = 1e12;
  constexpr double kWindowNs = 1e3;
  std::vector<ResourceIndex> counters;
  // Of each kind it was measured what all cores reach alone: kinds share the time of a cache, or of
  // the node.
  const ResourceIndex cache = world.fluid().add("cache", 1);
  const ResourceIndex memory =
      world.fluid().add(fmt::format("node {} ({})", node.node, node.kind), 1);
  for (const std::string& kind : kinds) {
    counters.push_back(world.fluid().add(kind, kAnyRate));
    const CoreRate rate = core_rate(model, kind, span, bytes, all);
    for (std::uint32_t i = 0; i < threads; ++i) {
      std::vector<Use> uses{{counters.back(), 1}};
      if (rate.all_gb_per_s > 0) {
        uses.push_back({rate.in_memory ? memory : cache, 1 / rate.all_gb_per_s});
      } else if (rate.in_memory) {
        // What a fill reads is part of its measured rates, and so of an update's.
        const Traffic traffic{.source = node.node,
                              .target = node.node,
                              .reads = kind == "fill" || kind == "update" ? 0.0 : 1.0,
                              .writes = kind == "read" ? 0.0 : 1.0};
        for (const Use& use : world.memory_uses(traffic, node.socket)) {
          uses.push_back(use);
        }
      }
      for (Use& use : uses) use.weight *= rate.gb_per_s;
      uses.push_back({world.fluid().add(kind + " by a core", 1), 1});
      world.fluid().carry(kAloneNs, std::move(uses), [] {});
    }
  }
  Outcome outcome;
  world.fluid().after(kWindowNs, [&] {
    const auto rate = [&](std::size_t kind) {
      return kind < counters.size() ? world.fluid().utilisation(counters[kind]) * kAnyRate : 0;
    };
    outcome = {{{"gb_per_s", rate(0)}, {"beside_gb_per_s", rate(1)}}, world.bound()};
  });
  world.fluid().run();
  return outcome;
}

/// A message of a queue between two cores.
Result<Outcome> messages(const Model& model, const Point& point) {
  const CoreModel& core = model.core;
  if (core.handover_ns == 0 || core.handover_gb_per_s == 0) {
    return fail(Code::unsupported, "simulate messages",
                "the machine's record does not say how lines pass between cores",
                "use a record of 'headrace topo --measure --record FILE'");
  }
  const double bytes = point.size("bytes");
  // A handover transfers two lines: the message and its flag, as a queue does, which rarely reads
  // the other end's position. A message is sent while the previous one is read.
  const double body_ns = std::max(0.0, bytes - kLine) / core.handover_gb_per_s;
  const double message_ns = (core.handover_ns + body_ns) / 2;
  return Outcome{{{"trip_ns", 2 * core.handover_ns + 2 * body_ns},
                  {"message_ns", message_ns},
                  {"gb_per_s", bytes / message_ns}},
                 bytes <= kLine ? "latency" : "lines between cores"};
}

Result<Outcome> cxl(const Model& model, const Point& point) {
  HEADRACE_TAKE(node, node_of(model, point, "node"));
  const std::uint32_t own = model.nodes.front().node;
  const bool in = point.word("direction") == "from";
  const Traffic traffic{.source = in ? *node : own, .target = in ? own : *node};
  const double bytes = point.size("bytes");
  Moved moved;
  if (point.word("mover") == "dsa") {
    if (model.device_count() == 0) {
      return fail(Code::unsupported, "move by a DSA", "the machine has none", "use mover=cpu");
    }
    moved = move_by_devices(model, {},
                            {{.count = 256, .depth = 32, .bytes = bytes, .traffic = traffic}});
  } else {
    moved = move_by_cores(model, model.sockets.front().socket, std::max(1U, point.count("threads")),
                          bytes * 256, traffic);
  }
  return Outcome{{{"gb_per_s", moved.steady_gb_per_s}}, moved.bound};
}

Result<Outcome> optane(const Model& model, const Point& point) {
  if (!model.has_optane) {
    return fail(Code::unsupported, "simulate Optane", "the machine has no persistent memory",
                "use the machine ddr-optane");
  }
  const OptaneModel& pmem = model.optane;
  const bool reads = point.word("access") == "read";
  const double dimm = reads ? pmem.read_gb_per_s : pmem.write_gb_per_s;
  const double dimms = point.word("interleaved") == "yes" ? pmem.dimm_count : 1;
  // A partial block is read and written as a whole.
  const double block = point.size("block");
  const double share = std::min(1.0, block / pmem.grain_bytes);
  constexpr double kRingBytes = 8.0 * 1073741824;
  const std::string& ring = point.word("ring");
  const double entry = ring == "streamed-2k" ? 2048 : 4096;
  double entry_ns = pmem.entry_ns + entry / pmem.stream_gb_per_s;
  if (ring == "cached") entry_ns = pmem.cached_entry_ns;
  if (ring == "wrong-node") entry_ns *= pmem.remote_share;
  if (ring == "no-dax") entry_ns *= pmem.paged_share;
  return Outcome{{{"gb_per_s", dimm * dimms * share},
                  {"dimm_gb_per_s", dimm * share},
                  {"ring_s", kRingBytes / entry * entry_ns / 1e9},
                  {"ring_gb_per_s", entry / entry_ns}},
                 "dimms"};
}

/// Share of hits of each pass over `bytes` in a direct-mapped cache of `room` bytes. Later passes
/// are as the last.
std::vector<double> side_cache_hits(double bytes, double room, bool is_random) {
  constexpr double kBlocksMax = 1 << 16;
  constexpr int kPasses = 4;
  const double block = std::max(kLine, bytes / kBlocksMax);
  const auto count = static_cast<std::uint32_t>(std::ceil(bytes / block));
  const auto set_count = static_cast<std::uint32_t>(std::max(1.0, std::floor(room / block)));
  std::vector<std::uint32_t> sets(set_count, count);  // Blocks are below `count`.
  std::mt19937 random(1);
  std::vector<double> shares;
  for (int pass = 0; pass < kPasses; ++pass) {
    double hits = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t at = is_random ? static_cast<std::uint32_t>(random() % count) : i;
      hits += sets[at % set_count] == at ? 1 : 0;
      sets[at % set_count] = at;
    }
    shares.push_back(hits / count);
  }
  return shares;
}

/// One pass of all cores of a node over data of which a share is in HBM.
class Pass {
 public:
  Pass(const Model& model, const NodeModel& ddr, const NodeModel* hbm)
      : world_(model), ddr_(ddr), hbm_(hbm) {
    const double cores = model.socket(ddr.socket).core_count / model.ddr_node_count(ddr.socket);
    misses_ = world_.fluid().add("misses of cores", cores * model.core.outstanding_lines * kLine);
    if (hbm == nullptr) side_ = world_.fluid().add("side cache", ddr.side_cache_gb_per_s);
  }

  /// With `fills`, what is not in HBM is looked up there first, and written there.
  void read(double bytes, double share, bool fills) {
    std::vector<Use> uses;
    const auto add = [&](std::uint32_t node, double reads, double writes) {
      for (const Use& use : world_.memory_uses(
               {.source = node, .target = node, .reads = reads, .writes = writes}, ddr_.socket)) {
        uses.push_back(use);
      }
    };
    add(ddr_.node, 1 - share, 0);
    double hbm_ns = ddr_.latency_ns;
    if (hbm_ != nullptr) {
      add(hbm_->node, share, fills ? 1 - share : 0);
      hbm_ns = hbm_->latency_ns;
    } else {
      uses.push_back({side_, fills ? 1 : share});
    }
    uses.push_back({misses_, (fills ? hbm_ns : share * hbm_ns) + (1 - share) * ddr_.latency_ns});
    world_.fluid().carry(bytes, std::move(uses), [] {});
  }

  [[nodiscard]] World& world() { return world_; }
  [[nodiscard]] double run() {
    world_.fluid().run();
    return world_.fluid().now_ns();
  }

 private:
  World world_;
  const NodeModel& ddr_;
  const NodeModel* hbm_;
  ResourceIndex misses_ = 0;
  ResourceIndex side_ = 0;
};

Result<Outcome> hbm_cache_mode(const Model& model, const Point& point) {
  const NodeModel& ddr = model.nodes.front();
  const auto fast = std::find_if(model.nodes.begin(), model.nodes.end(), [&](const auto& each) {
    return each.kind == "hbm" && each.socket == ddr.socket;
  });
  const NodeModel* const hbm = fast == model.nodes.end() ? nullptr : &*fast;
  if (hbm == nullptr && ddr.side_cache_gb_per_s == 0) {
    return fail(Code::unsupported, "simulate HBM", "the machine has none",
                "use the machine xeon-max-flat");
  }
  const double bytes = point.size("bytes");
  const double room = point.size("hbm");
  const std::size_t passes = std::max(1U, point.count("passes"));
  const auto pass_ns = [&](double share, bool fills) {
    Pass pass(model, ddr, hbm);
    pass.read(bytes, share, fills);
    return pass.run();
  };
  const std::vector<double> hits = side_cache_hits(bytes, room, point.word("order") == "random");
  double cached_ns = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(hits.size(), passes); ++i) {
    const auto repeats = i + 1 == hits.size() ? passes - i : 1;
    cached_ns += static_cast<double>(repeats) * pass_ns(hits[i], true);
  }
  const auto pass_count = static_cast<double>(passes);
  const double flat_ns = pass_count * pass_ns(0, false);
  // Flat mode: during the first pass devices move what fits.
  const double kept = std::min(bytes, room);
  Pass first(model, ddr, hbm);
  const DeviceSetup setup;
  Devices devices(first.world(), setup);
  const std::uint32_t device_count = model.device_count();
  if (hbm == nullptr || device_count == 0) {
    first.read(passes > 1 ? kept : 0, 0, false);
  } else if (passes > 1) {
    constexpr double kTransfer = 2 << 20;
    const double each = kept / device_count;
    const auto count = static_cast<std::uint32_t>(std::ceil(each / kTransfer));
    for (std::uint32_t i = 0; i < device_count; ++i) {
      devices.submit({.device = i,
                      .count = count,
                      .bytes = each / count,
                      .traffic = {.source = ddr.node, .target = hbm->node}},
                     {});
    }
  }
  first.read(bytes, 0, false);
  const double prefetched_ns = first.run() + (pass_count - 1) * pass_ns(kept / bytes, false);
  return Outcome{{{"flat_ms", flat_ns / 1e6},
                  {"cache_mode_ms", cached_ns / 1e6},
                  {"prefetched_ms", prefetched_ns / 1e6},
                  {"hit_share", hits[std::min(hits.size(), passes) - 1]},
                  {"cache_mode_gain", flat_ns / cached_ns - 1},
                  {"prefetched_over_cache_mode", cached_ns / prefetched_ns}},
                 bytes > room ? "capacity" : "bandwidth"};
}

}  // namespace

std::vector<Scenario> memory_scenarios() {
  return {
      {"memory",
       "bandwidth of cores to each kind of memory, and the latency of a load then",
       "xeon-max-9462",
       {{"node", Kind::count, {"0", "1", "2", "3"}},
        {"load", Kind::text, {"full"}},
        {"writes", Kind::number, {"0", "1"}},
        {"pattern", Kind::word, {"node"}, {"node", "ddr+hbm", "both-sockets", "hbm-of-socket"}}},
       memory},
      {"placement",
       "whether to move data that is read several times",
       "xeon-max-flat",
       {{"target", Kind::count, {"8"}},
        {"passes", Kind::count, {"1", "2", "4", "8", "16"}, {}, 1e6},
        {"devices", Kind::count, {"0", "1", "4"}},
        {"threads", Kind::count, {"12", "1"}},
        {"bytes", Kind::size, {"1GiB"}},
        {"source", Kind::count, {"0"}},
        {"pattern", Kind::word, {"scan"}, {"scan", "update", "chase"}}},
       placement},
      {"streams",
       "rates of threads that read, fill, copy or update concurrently",
       "xeon-max-9462",
       {{"access", Kind::word, {"read", "fill", "copy", "update"}},
        {"beside", Kind::word, {"nothing", "read", "fill", "copy", "update"}},
        {"threads", Kind::count, {"1", "16"}},
        {"bytes", Kind::size, {"1MiB"}},
        {"span", Kind::size, {"256MiB"}}},
       streams},
      {"messages",
       "time of a message between two cores",
       "cloud-guest-2cpu",
       {{"bytes", Kind::size, {"64", "4KiB", "64KiB"}}},
       messages},
      {"cxl",
       "how fast memory behind CXL is filled and read, by a device and by cores",
       "spr-cxl",
       {{"node", Kind::count, {"1", "2", "3"}},
        {"direction", Kind::word, {"from", "to"}},
        {"mover", Kind::word, {"dsa", "cpu"}},
        {"threads", Kind::count, {"1", "8"}},
        {"bytes", Kind::size, {"1MiB"}}},
       cxl},
      {"optane",
       "cost of block sizes, interleaving, the wrong node and no DAX",
       "ddr-optane",
       {{"access", Kind::word, {"read", "write"}},
        {"block", Kind::size, {"4KiB", "256", "64"}},
        {"interleaved", Kind::word, {"yes", "no"}},
        {"ring",
         Kind::word,
         {"streamed-4k"},
         {"cached", "streamed-4k", "streamed-2k", "wrong-node", "no-dax"}}},
       optane},
      {"hbm-cache-mode",
       "HBM as a cache against HBM filled by prefetching",
       "xeon-max-flat",
       {{"bytes", Kind::size, {"4GiB", "12GiB", "24GiB", "48GiB"}},
        {"passes", Kind::count, {"1", "2", "8"}, {}, 1e6},
        {"order", Kind::word, {"sequential"}, {"sequential", "random"}},
        {"hbm", Kind::size, {"16GiB"}}},
       hbm_cache_mode}};
}

}  // namespace headrace::sim::detail
