// SPDX-License-Identifier: Apache-2.0
// Scenarios about DSA devices: rates by size, mode of submission and configuration.
#include <fmt/format.h>

#include <algorithm>

#include "sim/policies.hpp"
#include "sim/scenario.hpp"
#include "sim/world.hpp"

namespace headrace::sim::detail {
namespace {

using Kind = Parameter::Kind;

/// Submissions of a point: enough for a steady state, the same for all sizes.
constexpr std::uint64_t kSubmissions = 256;
constexpr double kMibPerS = 1e9 / 1048576;

const Parameter kBytes{
    "bytes", Kind::size, {"64", "256", "1KiB", "4KiB", "16KiB", "64KiB", "1MiB"}};
const Parameter kSource{"source", Kind::count, {"0"}};
const Parameter kTarget{"target", Kind::count, {"0"}};
const Parameter kDepth{"depth", Kind::count, {"32"}};
const Parameter kOperation{
    "operation", Kind::word, {"copy", "fill", "compare", "crc", "copy-crc", "dualcast"}};
const std::vector<std::string> kOperations = kOperation.values;

/// Per byte of the operation: bytes read, bytes written, and bytes on the busier direction of the
/// device's link.
struct Work {
  double reads;
  double writes;
  double fabric;
};

Work work_of(const std::string& operation) {
  if (operation == "fill") return {0, 1, 1};
  if (operation == "compare") return {2, 0, 2};
  if (operation == "crc") return {1, 0, 1};
  if (operation == "dualcast") return {1, 2, 2};
  return {1, 1, 1};  // copy, copy-crc
}

Result<void> needs_devices(const Model& model, std::size_t count) {
  const std::size_t there = model.device_count();
  if (count >= 1 && there >= count) return {};
  return fail(Code::unsupported, fmt::format("simulate {} DSA devices", count),
              fmt::format("the machine has {}", there),
              "use fewer, or a machine that has them ('headrace sim list')");
}

double cpu_ns(const CoreModel& core, double bytes) {
  return core.call_ns + bytes / core.copy_gb_per_s +
         (bytes > core.overlapped_bytes ? core.exposed_ns : 0);
}

DeviceSetup setup_of(std::uint32_t engines) {
  return {.engine_count = std::max(1U, engines)};
}

double hold_ns(const DsaModel& dsa, std::uint32_t alignment) {
  if (alignment >= 64) return 0;
  return alignment >= 32 ? dsa.half_aligned_ns : dsa.misaligned_ns;
}

/// One device's queue, used by `threads` submitters.
struct QueueUse {
  double bytes = 0;
  bool sync = false;
  std::uint32_t batch = 1;
  std::uint32_t depth = 32;
  std::uint32_t threads = 1;
  std::uint64_t submissions = kSubmissions;
  Traffic traffic = {};
};

/// Whether `bytes` of a node fit its part of the last-level cache of the first socket.
bool fits_cache(const Model& model, std::uint32_t node, double bytes) {
  const SocketModel& socket = model.sockets.front();
  if (model.node(node)->socket != socket.socket) return false;
  return bytes <= socket.l3_bytes / model.ddr_node_count(socket.socket);
}

/// Benchmarks write a buffer before they copy it again and again: devices read it in the cache.
Moved use_one(const Model& model, const DeviceSetup& setup, QueueUse use) {
  if (fits_cache(model, use.traffic.source, use.bytes)) use.traffic.reads = 0;
  std::vector<Submitter> submitters;
  const std::uint64_t count = (use.sync ? 8 : use.submissions) * use.batch;
  for (std::uint32_t i = 0; i < use.threads; ++i) {
    submitters.push_back({.count = count / use.threads + (i < count % use.threads ? 1 : 0),
                          .batch = use.batch,
                          .depth = use.sync ? 1 : use.depth,
                          .bytes = use.bytes,
                          .traffic = use.traffic});
  }
  return move_by_devices(model, setup, submitters);
}

double rate_of(const Moved& moved, bool sync) {
  return sync ? moved.bytes / moved.elapsed_ns : moved.steady_gb_per_s;
}

/// Data that devices write into the cache stays there if all buffers together fit the DDIO ways.
bool stays_in_cache(const Model& model, double footprint_bytes) {
  const SocketModel& socket = model.sockets.front();
  return footprint_bytes <= socket.l3_bytes * socket.ddio_ways / socket.l3_ways;
}

// ---- submission, alignment, operations

Result<Outcome> submission(const Model& model, const Point& point) {
  DeviceSetup setup = setup_of(point.count("engines"));
  setup.kind = point.word("queue") == "dedicated" ? Queue::dedicated : Queue::shared;
  setup.hold_ns = hold_ns(model.dsa, point.count("alignment"));
  setup.begin_ns = point.word("order") == "random" ? model.dsa.random_ns : 0;
  const bool sync = point.word("mode") == "sync";
  const double bytes = point.size("bytes");
  const std::uint32_t node = model.nodes.front().node;
  const Moved moved = use_one(model, setup,
                              {.bytes = bytes,
                               .sync = sync,
                               .batch = std::max(1U, point.count("batch")),
                               .depth = std::max(1U, point.count("depth")),
                               .traffic = {.source = node, .target = node}});
  const double rate = rate_of(moved, sync);
  const double cpu_rate = bytes / cpu_ns(model.core, bytes);
  return Outcome{{{"gb_per_s", rate},
                  {"mib_per_s", rate * kMibPerS},
                  {"time_us", bytes / rate / 1e3},
                  {"million_per_s", rate / bytes * 1e3},
                  {"cpu_gb_per_s", cpu_rate},
                  {"cpu_mib_per_s", cpu_rate * kMibPerS},
                  {"over_cpu", rate / cpu_rate}},
                 moved.bound};
}

Result<Outcome> alignment(const Model& model, const Point& point) {
  DeviceSetup setup = setup_of(1);
  setup.hold_ns = hold_ns(model.dsa, point.count("alignment"));
  const double bytes = point.size("bytes");
  const Moved moved =
      use_one(model, setup, {.bytes = bytes, .batch = 32, .submissions = 64, .traffic = {}});
  return Outcome{
      {{"gb_per_s", moved.steady_gb_per_s}, {"time_us", bytes / moved.steady_gb_per_s / 1e3}},
      moved.bound};
}

Result<Outcome> operations(const Model& model, const Point& point) {
  const Work work = work_of(point.word("operation"));
  DeviceSetup setup = setup_of(4);
  setup.fabric_weight = work.fabric;
  const double bytes = point.size("bytes");
  const Moved moved = use_one(model, setup,
                              {.bytes = bytes,
                               .batch = 32,
                               .submissions = 64,
                               .traffic = {.reads = work.reads, .writes = work.writes}});
  return Outcome{
      {{"gb_per_s", moved.steady_gb_per_s}, {"million_per_s", moved.steady_gb_per_s / bytes * 1e3}},
      moved.bound,
      {"operations differ only in the bytes they read and write"}};
}

// ---- threads, batch-size, wq-size, engines-per-group, priorities

Result<Outcome> threads(const Model& model, const Point& point) {
  constexpr std::uint64_t kCopies = 120;
  const DeviceSetup setup = setup_of(1);
  const auto rate = [&](std::uint32_t thread_count) {
    return use_one(model, setup,
                   {.bytes = point.size("bytes"),
                    .depth = static_cast<std::uint32_t>(kCopies),
                    .threads = std::clamp(thread_count, 1U, static_cast<std::uint32_t>(kCopies)),
                    .submissions = kCopies});
  };
  const Moved moved = rate(point.count("threads"));
  const Moved alone = rate(1);
  const double one = alone.bytes / alone.elapsed_ns;
  const double all = moved.bytes / moved.elapsed_ns;
  return Outcome{{{"gb_per_s", all}, {"over_one_thread", all / one}}, moved.bound};
}

Result<Outcome> batch_size(const Model& model, const Point& point) {
  const Work work = work_of(point.word("operation"));
  DeviceSetup setup = setup_of(1);
  setup.fabric_weight = work.fabric;
  const double bytes = point.size("bytes");
  const std::uint32_t batch = std::max(1U, point.count("batch"));
  const auto move = [&](std::uint32_t count, bool sync) {
    return use_one(model, setup,
                   {.bytes = bytes,
                    .sync = sync,
                    .batch = count,
                    .submissions = 64,
                    .traffic = {.reads = work.reads, .writes = work.writes}});
  };
  const double one_ns = bytes / rate_of(move(1, true), true);
  const double each_ns = bytes / rate_of(move(batch, true), true);
  const Moved moved = move(batch, false);
  return Outcome{{{"sync_time_us", each_ns * batch / 1e3},
                  {"saved_share", 1 - each_ns / one_ns},
                  {"gb_per_s", moved.steady_gb_per_s}},
                 moved.bound};
}

Result<Outcome> wq_size(const Model& model, const Point& point) {
  const std::uint32_t entries = point.count("entries");
  if (entries < 1 || entries > 128) {
    return refuse("entries", fmt::format("{} is not from 1 to 128", entries),
                  "a device has 128 entries");
  }
  DeviceSetup setup = setup_of(1);
  setup.entry_counts = {entries};
  const Moved moved = use_one(model, setup, {.bytes = point.size("bytes"), .depth = entries});
  return Outcome{{{"gb_per_s", moved.steady_gb_per_s}}, moved.bound};
}

Result<Outcome> engines_per_group(const Model& model, const Point& point) {
  const std::uint32_t engines = point.count("engines");
  if (engines < 1 || engines > 4) {
    return refuse("engines", fmt::format("{} is not from 1 to 4", engines),
                  "a device has 4 engines");
  }
  const Moved moved =
      use_one(model, setup_of(engines),
              {.bytes = point.size("bytes"), .depth = std::max(1U, point.count("depth"))});
  return Outcome{{{"gb_per_s", moved.steady_gb_per_s}}, moved.bound};
}

Result<Outcome> priorities(const Model& model, const Point& point) {
  const std::uint32_t high = point.count("high");
  const std::uint32_t low = point.count("low");
  for (const std::uint32_t priority : {high, low}) {
    if (priority < 1 || priority > 15) {
      return refuse("high", fmt::format("priority {} is not from 1 to 15", priority),
                    "write high and low from 1 to 15");
    }
  }
  DeviceSetup setup = setup_of(1);
  setup.entry_counts = {64, 64};
  setup.priorities = {high, low};
  std::vector<Submitter> submitters;
  for (const std::uint32_t queue : {0U, 1U}) {
    submitters.push_back(
        {.queue = queue, .count = kSubmissions, .depth = 64, .bytes = point.size("bytes")});
  }
  const Moved moved = move_by_devices(model, setup, submitters);
  const double both = moved.queue_bytes[0] + moved.queue_bytes[1];
  return Outcome{
      {{"high_share", moved.queue_bytes[0] / both}, {"gb_per_s", moved.bytes / moved.elapsed_ns}},
      moved.bound};
}

// ---- ddr-to-hbm, remote, leaky-ddio

struct Split {
  Moved moved;
  std::vector<std::uint32_t> devices;
};

/// Splits `bytes` among the devices, of the first `count`, that the named mover policy chooses.
Result<Split> split_by(const Model& model, const std::string& policy, std::size_t count,
                       double bytes, const Traffic& traffic) {
  HEADRACE_TAKE(chosen, choose_devices(model, policy, count, traffic.source, traffic.target,
                                       static_cast<std::size_t>(bytes)));
  std::vector<Submitter> submitters;
  const std::vector<double> parts = split(bytes, chosen->size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    submitters.push_back({.device = (*chosen)[i], .bytes = parts[i], .traffic = traffic});
  }
  chosen->resize(parts.size());
  return Split{move_by_devices(model, setup_of(1), submitters), std::move(*chosen)};
}

/// Of copies by `devices` devices: of a flow that only memory and devices bound.
double ceiling_of(const Model& model, const Traffic& traffic, double devices) {
  World world(model);
  const ResourceIndex fabrics =
      world.fluid().add("fabrics", std::max(1.0, devices) * model.dsa.fabric_gb_per_s);
  auto uses = world.memory_uses(traffic, model.node(traffic.source)->socket);
  if (devices > 0) uses.push_back({fabrics, 1});
  constexpr double kAmount = 1e9;
  world.fluid().carry(kAmount, std::move(uses), [] {});
  world.fluid().run();
  return kAmount / world.fluid().now_ns();
}

Result<Outcome> ddr_to_hbm(const Model& model, const Point& point) {
  HEADRACE_TAKE(source, node_of(model, point, "source"));
  HEADRACE_TAKE(target, node_of(model, point, "target"));
  const Traffic traffic{.source = *source, .target = *target};
  const double bytes = point.size("bytes");
  const std::string& policy = point.word("policy");
  const std::uint32_t socket = model.node(*source)->socket;
  if (policy == "cpu-12" || policy == "cpu-smart") {
    const std::uint32_t thread_count = policy == "cpu-12" ? 12 : 4;
    const Moved moved = move_by_cores(model, socket, thread_count, bytes, traffic);
    return Outcome{{{"gb_per_s", moved.steady_gb_per_s},
                    {"gib_per_s", moved.steady_gb_per_s / 1.073741824},
                    {"ceiling_gb_per_s", ceiling_of(model, traffic, 0)},
                    {"device_count", 0}},
                   moved.bound};
  }
  const std::size_t count = point.count("devices");
  HEADRACE_TRY(needs_devices(model, count));
  HEADRACE_TAKE(split, split_by(model, policy, count, bytes, traffic));
  HEADRACE_TAKE(smart,
                split_by(model, "smart_copy", model.machine.dsa_devices.size(), bytes, traffic));
  const double rate = split->moved.bytes / split->moved.elapsed_ns;
  const auto used = static_cast<double>(split->devices.size());
  return Outcome{{{"gb_per_s", rate},
                  {"gib_per_s", rate / 1.073741824},
                  {"over_smart_gb_per_s", rate - smart->moved.bytes / smart->moved.elapsed_ns},
                  {"ceiling_gb_per_s", ceiling_of(model, traffic, used)},
                  {"device_count", used}},
                 split->moved.bound};
}

Result<Outcome> remote(const Model& model, const Point& point) {
  const std::uint32_t own = model.nodes.front().node;
  const auto far = std::find_if(model.nodes.begin(), model.nodes.end(), [&](const NodeModel& node) {
    return node.socket != model.nodes.front().socket && node.kind == model.nodes.front().kind;
  });
  if (far == model.nodes.end()) {
    return fail(Code::unsupported, "simulate another socket", "the machine has one",
                "use a machine with two ('headrace sim list')");
  }
  const std::string& where = point.word("where");
  const Traffic traffic{.source = where == "target" ? own : far->node,
                        .target = where == "source" ? own : far->node};
  const auto rate = [&](const Traffic& each, bool sync) {
    return use_one(model, setup_of(1),
                   {.bytes = point.size("bytes"), .sync = sync, .traffic = each});
  };
  const Moved moved = rate(traffic, false);
  const double local = rate({.source = own, .target = own}, false).steady_gb_per_s;
  return Outcome{
      {{"gb_per_s", moved.steady_gb_per_s}, {"over_local", moved.steady_gb_per_s / local}},
      moved.bound};
}

/// Copies by `devices` devices that write into the cache.
Moved cached_copies(const Model& model, std::uint32_t devices, std::uint32_t depth, double bytes) {
  const bool stays = stays_in_cache(model, bytes * depth * devices);
  const Traffic traffic =
      stays ? Traffic{.writes = 0} : Traffic{.leak_reads = model.dsa.leak_reads};
  std::vector<Submitter> submitters;
  for (std::uint32_t i = 0; i < devices; ++i) {
    submitters.push_back(
        {.device = i, .count = kSubmissions, .depth = depth, .bytes = bytes, .traffic = traffic});
  }
  return move_by_devices(model, setup_of(4), submitters);
}

Result<Outcome> leaky_ddio(const Model& model, const Point& point) {
  const std::uint32_t devices = point.count("devices");
  HEADRACE_TRY(needs_devices(model, devices));
  const std::uint32_t depth = std::max(1U, point.count("depth"));
  const double bytes = point.size("bytes");
  const Moved moved = cached_copies(model, devices, depth, bytes);
  double kept = 0;
  for (double size = 64; stays_in_cache(model, size * depth * devices); size *= 2) kept = size;
  return Outcome{{{"gb_per_s", moved.steady_gb_per_s},
                  {"kept_bytes_max", kept},
                  {"leaks", stays_in_cache(model, bytes * depth * devices) ? 0.0 : 1.0}},
                 moved.bound};
}

Result<Outcome> cache_control(const Model& model, const Point& point) {
  const std::string& flag = point.word("flag");
  const double bytes = point.size("bytes");
  const double footprint = bytes * 32;
  const double ddio = model.sockets.front().l3_bytes * model.sockets.front().ddio_ways /
                      model.sockets.front().l3_ways;
  Moved moved;
  double taken = 0;
  if (flag == "cache") {
    moved = cached_copies(model, 1, 32, bytes);
    taken = std::min(footprint, ddio);
  } else if (flag == "cpu") {
    moved = move_by_cores(model, 0, 1, bytes * kSubmissions, {});
    taken = std::min(2 * bytes * static_cast<double>(kSubmissions), model.sockets.front().l3_bytes);
  } else {
    DeviceSetup setup = setup_of(4);
    if (flag == "read-back") setup.fabric_weight = 1 / model.dsa.read_back_share;
    moved = use_one(model, setup, {.bytes = bytes});
  }
  return Outcome{{{"gb_per_s", moved.steady_gb_per_s}, {"l3_bytes_taken", taken}}, moved.bound};
}

// ---- page-faults, huge-pages, break-even

Result<Outcome> page_faults(const Model& model, const Point& point) {
  constexpr double kPage = 4096;
  constexpr double kHugePage = 2 << 20;
  const std::string& fault = point.word("fault");
  const DsaModel& dsa = model.dsa;
  const double page = fault == "touch-huge" ? kHugePage : kPage;
  double fault_ns = 0;
  if (fault == "iotlb") fault_ns = dsa.iotlb_miss_ns;
  if (fault == "retry") fault_ns = dsa.fault_retry_ns;
  if (fault == "block") fault_ns = dsa.fault_block_ns;
  if (fault == "major") fault_ns = dsa.fault_major_ns;
  if (fault == "touch") fault_ns = dsa.touch_ns;
  if (fault == "touch-huge") fault_ns = dsa.touch_huge_ns;
  const Moved moved = use_one(model, setup_of(1), {.bytes = 2 << 20});
  // A fault stalls its transfer and, as the queue is in order, those behind it.
  const double page_ns = page / moved.steady_gb_per_s + fault_ns;
  return Outcome{{{"gb_per_s", page / page_ns}, {"page_us", page_ns / 1e3}},
                 fault_ns > page / moved.steady_gb_per_s ? "faults" : moved.bound};
}

Result<Outcome> huge_pages(const Model& model, const Point& point) {
  DeviceSetup setup = setup_of(4);
  const double bytes = point.size("bytes");
  // Translations of sequential pages are prefetched; only random pages of 4 KiB wait for theirs.
  const bool huge = point.word("pages") == "2MiB";
  setup.begin_ns = point.word("order") == "random" && !huge ? model.dsa.random_ns : 0;
  const Moved moved = use_one(model, setup, {.bytes = bytes, .batch = 32, .submissions = 64});
  return Outcome{{{"gb_per_s", moved.steady_gb_per_s}}, moved.bound};
}

Result<Outcome> break_even(const Model& model, const Point& point) {
  const bool sync = point.word("mode") == "sync";
  double from = 0;
  double gain_max = 0;
  for (double bytes = 64; bytes <= 4 << 20; bytes *= 2) {
    const Moved moved =
        use_one(model, setup_of(4),
                {.bytes = bytes, .sync = sync, .batch = sync ? 1U : 32U, .submissions = 64});
    const double gain = rate_of(moved, sync) / (bytes / cpu_ns(model.core, bytes));
    if (gain > 1 && from == 0) from = bytes;
    gain_max = std::max(gain_max, gain);
  }
  return Outcome{{{"from_bytes", from}, {"gain_max", gain_max}}, ""};
}

template <Result<Outcome> (*kRun)(const Model& model, const Point& point)>
Result<Outcome> with_device(const Model& model, const Point& point) {
  HEADRACE_TRY(needs_devices(model, 1));
  return kRun(model, point);
}

}  // namespace

std::vector<Scenario> device_scenarios() {
  const Parameter alignment_of{"alignment", Kind::count, {"64"}};
  const Parameter mode{"mode", Kind::word, {"sync", "async"}};
  const Parameter one_batch{"batch", Kind::count, {"1", "32"}};
  const Parameter one_copy{"operation", Kind::word, {"copy"}, kOperations};
  std::vector<Parameter> submission_of{kBytes, mode, one_batch, kDepth, alignment_of};
  submission_of.push_back({"queue", Kind::word, {"shared", "dedicated"}});
  submission_of.push_back({"order", Kind::word, {"sequential"}, {"sequential", "random"}});
  submission_of.push_back({"engines", Kind::count, {"1"}});
  return {
      {"submission", "copy rate of one device by size and kind of submission", "spr-1dsa",
       submission_of, with_device<submission>},
      {"threads",
       "effect of several threads on one shared queue",
       "xeon-max-flat",
       {{"threads", Kind::count, {"1", "2", "12"}}, {"bytes", Kind::size, {"1MiB", "1GiB"}}},
       with_device<threads>},
      {"batch-size",
       "time saved by batches",
       "spr-1dsa",
       {{"batch", Kind::count, {"1", "2", "4", "8", "16", "32", "64", "128"}},
        {"bytes", Kind::size, {"4KiB"}},
        one_copy},
       with_device<batch_size>},
      {"wq-size",
       "how many entries a queue needs",
       "spr-1dsa",
       {{"entries", Kind::count, {"1", "2", "4", "8", "16", "32", "64", "128"}},
        {"bytes", Kind::size, {"4KiB", "64KiB"}}},
       with_device<wq_size>},
      {"engines-per-group",
       "throughput by number of engines",
       "spr-1dsa",
       {{"engines", Kind::count, {"1", "2", "3", "4"}},
        {"bytes", Kind::size, {"1KiB", "64KiB"}},
        kDepth},
       with_device<engines_per_group>},
      {"priorities",
       "how the arbiter shares a device between two queues",
       "spr-1dsa",
       {{"high", Kind::count, {"1", "5", "10", "15"}},
        {"low", Kind::count, {"1"}},
        {"bytes", Kind::size, {"64KiB"}}},
       with_device<priorities>},
      {"operations",
       "how fast each operation is",
       "spr-1dsa",
       {kOperation, {"bytes", Kind::size, {"4KiB", "64KiB"}}},
       with_device<operations>},
      {"ddr-to-hbm",
       "rate of copies from one node to another, by mover",
       "xeon-max-flat",
       {{"target", Kind::count, {"8", "11", "12", "15"}},
        {"devices", Kind::count, {"1", "2", "4", "8"}},
        {"policy",
         Kind::word,
         {"all"},
         {"all", "smart_copy", "push_pull", "near_source", "near_target", "cpu-12", "cpu-smart"}},
        kSource,
        {"bytes", Kind::size, {"1GiB"}}},
       ddr_to_hbm},
      {"page-faults",
       "what page faults cost",
       "spr-1dsa",
       {{"fault", Kind::word, {"none", "iotlb", "retry", "block", "major", "touch", "touch-huge"}}},
       with_device<page_faults>},
      {"huge-pages",
       "gain of pages of 2 MiB",
       "spr-1dsa",
       {{"pages", Kind::word, {"4KiB", "2MiB"}},
        {"order", Kind::word, {"sequential", "random"}},
        {"bytes", Kind::size, {"1KiB", "64KiB"}}},
       with_device<huge_pages>},
      {"alignment",
       "cost of misaligned targets in batches",
       "spr-1dsa",
       {{"alignment", Kind::count, {"8", "32", "64"}}, {"bytes", Kind::size, {"4KiB", "64KiB"}}},
       with_device<alignment>},
      {"cache-control",
       "last-level cache taken by a copy, and its rate",
       "spr-1dsa",
       {{"flag", Kind::word, {"memory", "cache", "read-back", "cpu"}},
        {"bytes", Kind::size, {"64KiB", "1MiB"}}},
       with_device<cache_control>},
      {"leaky-ddio",
       "when devices write more than the DDIO ways hold",
       "spr-4dsa",
       {{"bytes", Kind::size, {"4KiB", "16KiB", "64KiB", "128KiB", "1MiB"}},
        {"devices", Kind::count, {"4"}},
        kDepth},
       leaky_ddio},
      {"remote",
       "cost of the other socket's memory to a device",
       "spr-4dsa",
       {{"where", Kind::word, {"both", "source", "target"}}, kBytes},
       with_device<remote>},
      {"break-even",
       "from which size on a device beats one core",
       "spr-1dsa",
       {mode},
       with_device<break_even>}};
}

}  // namespace headrace::sim::detail
