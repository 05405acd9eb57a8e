// SPDX-License-Identifier: Apache-2.0
#include "sim/injection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <vector>

#include "sim/scenario.hpp"

namespace headrace::sim {
namespace {

constexpr double kLine = 64;
constexpr std::size_t kWays = 16;

}  // namespace

// Named, because Receivers::State has a member of Node: a file compiled together with others warns
// of members of unnamed namespaces.
namespace caches {

/// Set-associative, LRU replacement.
///
/// Threading: confined.
class Cache {
 public:
  explicit Cache(double bytes)
      : set_count_(std::max<std::size_t>(1, static_cast<std::size_t>(bytes / kLine) / kWays)),
        lines_(set_count_ * kWays) {}

  /// Returns true on a hit, and makes the line the most recently used.
  bool touch(std::uint64_t line) {
    Entry* const set = set_of(line);
    Entry* const found = find(set, line);
    if (found == set + kWays) return false;
    std::rotate(set, found, found + 1);
    return true;
  }

  /// Inserts a line. Returns true if a dirty line was evicted.
  bool put(std::uint64_t line, bool dirty) {
    if (touch(line)) {
      set_of(line)->dirty = set_of(line)->dirty || dirty;
      return false;
    }
    Entry* const set = set_of(line);
    const bool writes = set[kWays - 1].line != kNone && set[kWays - 1].dirty;
    std::rotate(set, set + kWays - 1, set + kWays);
    set[0] = {line, dirty};
    return writes;
  }

  void drop(std::uint64_t line) {
    Entry* const set = set_of(line);
    if (Entry* const found = find(set, line); found != set + kWays) {
      std::rotate(found, found + 1, set + kWays);
      set[kWays - 1] = {};
    }
  }

 private:
  static constexpr std::uint64_t kNone = UINT64_MAX;
  struct Entry {
    std::uint64_t line = kNone;
    bool dirty = false;
  };
  Entry* set_of(std::uint64_t line) { return &lines_[line % set_count_ * kWays]; }
  static Entry* find(Entry* set, std::uint64_t line) {
    return std::find_if(set, set + kWays, [&](const Entry& entry) { return entry.line == line; });
  }

  std::size_t set_count_;
  std::vector<Entry> lines_;
};

class Node {
 public:
  Node(const InjectionModel& model, const Receivers::Options& options)
      : model_(model), memory_ns_(model.memory_ns * options.memory_ratio), l3_(model.l3_bytes) {
    const std::uint32_t count = options.core_count;
    const bool siblings = options.sharing == Sharing::siblings;
    per_l1_ = siblings ? 2 : 1;
    per_l2_ = options.sharing == Sharing::l2 ? count : per_l1_;
    for (std::uint32_t i = 0; i < count; i += per_l1_) l1_.emplace_back(model.l1_bytes);
    for (std::uint32_t i = 0; i < count; i += per_l2_) l2_.emplace_back(model.l2_bytes);
  }

  /// The NIC writes a line, which invalidates all other copies.
  void write(std::uint64_t line, Level level, std::uint32_t core) {
    for (Cache& cache : l1_) cache.drop(line);
    for (Cache& cache : l2_) cache.drop(line);
    l3_.drop(line);
    if (level == Level::memory) {
      ++memory_lines_;
    } else if (level == Level::l3) {
      memory_lines_ += l3_.put(line, true) ? 1 : 0;
    } else {
      put_l2(line, core / per_l2_, true);
    }
  }

  /// Time that `core` waits for a line.
  double read(std::uint64_t line, std::uint32_t reader) {
    Cache& l1 = l1_[reader / per_l1_];
    const std::uint32_t core = reader / per_l2_;  // By its L2.
    if (l1.touch(line)) return model_.l1_ns;
    l1.put(line, false);
    if (l2_[core].touch(line)) return model_.l2_ns;
    for (std::uint32_t other = 0; other < l2_.size(); ++other) {
      if (other == core || !l2_[other].touch(line)) continue;
      l2_[other].drop(line);
      put_l2(line, core, true);
      return model_.snoop_ns;
    }
    const bool in_l3 = l3_.touch(line);
    if (!in_l3) ++memory_lines_;
    // The L3 is exclusive: a line moves from L3 to L2.
    l3_.drop(line);
    put_l2(line, core, in_l3);
    return in_l3 ? model_.l3_ns : memory_ns_;
  }

  [[nodiscard]] double memory_lines() const { return memory_lines_; }

 private:
  void put_l2(std::uint64_t line, std::uint32_t core, bool dirty) {
    if (l2_[core].put(line, dirty)) ++memory_lines_;
  }

  const InjectionModel& model_;
  double memory_ns_;
  double memory_lines_ = 0;
  std::uint32_t per_l1_ = 1;  ///< Cores that share an L1.
  std::uint32_t per_l2_ = 1;
  std::vector<Cache> l1_;
  std::vector<Cache> l2_;
  Cache l3_;
};

}  // namespace caches

namespace {

Result<Place> ask(const NicFunction& function, const Message& message, std::uint32_t cores) {
  const auto refuse = [&](const std::string& cause, const char* remedy) {
    return fail(Code::invalid_argument, fmt::format("place message {}", message.index), cause,
                remedy);
  };
  Place place;
  try {
    place = function(message);
  } catch (const std::exception& error) {
    return refuse(fmt::format("the NIC's function throws: {}", error.what()),
                  "return a place for every message");
  }
  if (place.core >= cores) {
    return refuse(
        fmt::format("the NIC's function names core {}, and there are {}", place.core, cores),
        "return an existing core");
  }
  if (!(place.nic_ns >= 0 && place.host_ns >= 0 && place.header_bytes >= 0)) {
    return refuse("the NIC's function returns a negative time or size", "return 0 or more");
  }
  return place;
}

std::uint64_t lines_of(double bytes) {
  return static_cast<std::uint64_t>(std::ceil(bytes / kLine));
}

/// Lines of each core's buffer and working set.
std::uint64_t buffer_of(std::uint32_t core) {
  return (std::uint64_t{1} + core) << 32U;
}
std::uint64_t working_set_of(std::uint32_t core) {
  return std::uint64_t{core} << 24U;
}

}  // namespace

struct Receivers::State {
  State(const InjectionModel& its, const Options& given)
      : model(its), options(given), node(its, given) {}

  const InjectionModel& model;
  const Options options;
  caches::Node node;
};

Receivers::Receivers(const InjectionModel& model, const Options& options)
    : state_(std::make_unique<State>(model, options)) {}
Receivers::~Receivers() = default;

Result<double> Receivers::receive(const Message& message, const NicFunction& function,
                                  double read_share) {
  const InjectionModel& model = state_->model;
  const Options& options = state_->options;
  HEADRACE_TAKE(place, ask(function, message, options.core_count));
  const std::uint64_t lines = std::max<std::uint64_t>(1, lines_of(message.bytes));
  const std::uint64_t header = lines_of(place->header_bytes);
  const std::uint64_t buffer = buffer_of(message.receiver_core);
  for (std::uint64_t line = 0; line < lines; ++line) {
    state_->node.write(buffer + line, line < header ? place->header : place->payload, place->core);
  }
  double time_ns = (options.polled ? model.poll_ns : model.interrupt_ns) +
                   (options.protocol_on_nic ? model.nic_ns : model.host_ns) +
                   message.bytes / model.line_gb_per_s + place->nic_ns + place->host_ns;
  const auto wanted =
      static_cast<std::uint64_t>(std::max(1.0, static_cast<double>(lines) * read_share));
  for (std::uint64_t line = 0; line < wanted; ++line) {
    time_ns += state_->node.read(buffer + line, message.receiver_core) + model.work_ns;
  }
  return time_ns;
}

double Receivers::compute(std::uint32_t core, double working_bytes) {
  const std::uint64_t lines = lines_of(working_bytes);
  double time_ns = 0;
  for (std::uint64_t line = 0; line < lines; ++line) {
    time_ns += state_->node.read(working_set_of(core) + line, core);
  }
  return time_ns;
}

double Receivers::memory_lines() const {
  return state_->node.memory_lines();
}

Result<InjectionOutcome> inject(const InjectionModel& model, const InjectionRun& run,
                                const NicFunction& function) {
  if (run.receiver_count == 0 || run.receiver_count > run.node.core_count) {
    return fail(Code::invalid_argument, "simulate injection",
                fmt::format("{} receivers on {} cores", run.receiver_count, run.node.core_count),
                "use one core for each receiver");
  }
  Receivers receivers(model, run.node);
  const double working_bytes = run.working_bytes > 0 ? run.working_bytes : model.working_bytes;
  double lines_before = 0;
  double time_ns = 0;
  // The first message of each receiver warms the caches and is not counted.
  for (std::uint32_t i = 0; i < (run.message_count + 1) * run.receiver_count; ++i) {
    if (i == run.receiver_count) {
      time_ns = 0;
      lines_before = receivers.memory_lines();
    }
    const std::uint32_t receiver = i % run.receiver_count;
    HEADRACE_TAKE(received, receivers.receive({.index = i,
                                               .bytes = run.message_bytes,
                                               .sender_core = run.node.core_count - 1,
                                               .receiver_core = receiver},
                                              function, run.read_share));
    time_ns += *received + receivers.compute(receiver, working_bytes);
  }
  const double count = run.message_count * run.receiver_count;
  return InjectionOutcome{.time_ns = time_ns / count,
                          .memory_lines = (receivers.memory_lines() - lines_before) / count};
}

namespace detail {
namespace {

using Kind = Parameter::Kind;

NicFunction function_of(const std::string& policy, const std::string& where) {
  const Level level = where == "shared-l3" ? Level::l3 : Level::l2;
  return [policy, where, level](const Message& message) {
    Place place{.core = where == "sender-l2" ? message.sender_core : message.receiver_core};
    if (policy == "header" || policy == "whole") place.header = level;
    if (policy == "payload" || policy == "whole") place.payload = level;
    return place;
  };
}

Result<Outcome> injection(const Model& model, const Point& point) {
  if (!model.has_injection) {
    return fail(Code::unsupported, "simulate injection", "the machine has no field 'injection'",
                "use a machine with a NIC, such as injection-node or spr-1dsa");
  }
  const InjectionModel& node = model.injection;
  InjectionRun run{.node = {.polled = point.word("path") == "polled",
                            .protocol_on_nic = point.word("protocol") == "nic",
                            .memory_ratio = std::max(0.01, point.number("memory_ratio"))},
                   .read_share = std::min(1.0, point.number("read_share"))};
  const NicFunction function = function_of(point.word("policy"), point.word("where"));
  const auto none = [](const Message&) { return Place{}; };
  const auto gain_of = [&](double bytes, InjectionOutcome& with, InjectionOutcome& without) {
    run.message_bytes = bytes;
    with = *inject(node, run, function);
    without = *inject(node, run, none);
    return without.time_ns / with.time_ns - 1;
  };
  InjectionOutcome with;
  InjectionOutcome without;
  const double bytes = point.size("bytes");
  if (bytes > 64 << 20) {
    return refuse("bytes", "messages are limited to 64MiB", "write a smaller one");
  }
  const double gain = gain_of(bytes, with, without);
  Outcome outcome{{{"gain", gain},
                   {"saved_share", 1 - with.time_ns / without.time_ns},
                   {"time_us", with.time_ns / 1e3},
                   {"time_us_without", without.time_ns / 1e3},
                   {"memory_lines", with.memory_lines},
                   {"memory_lines_saved", without.memory_lines - with.memory_lines}},
                  gain < 0 ? "the working set is pushed out" : "latency"};
  if (point.word("search") == "yes") {
    double best = 0;
    double best_bytes = 0;
    for (double size = 256; size <= 16 << 20; size *= 2) {
      InjectionOutcome a;
      InjectionOutcome b;
      if (const double each = gain_of(size, a, b); each > best) {
        best = each;
        best_bytes = size;
      }
    }
    outcome.figures.emplace_back("gain_max", best);
    outcome.figures.emplace_back("gain_max_bytes", best_bytes);
  }
  return outcome;
}

}  // namespace

std::vector<Scenario> injection_scenarios() {
  return {{"injection",
           "gain of a NIC that writes messages into a cache, by message size",
           "injection-node",
           {{"bytes",
             Kind::size,
             {"256", "1KiB", "4KiB", "16KiB", "64KiB", "256KiB", "512KiB", "1MiB", "2MiB", "4MiB",
              "8MiB"},
             {},
             64 << 20},
            {"policy", Kind::word, {"payload"}, {"none", "header", "payload", "whole"}},
            {"where", Kind::word, {"receiver-l2"}, {"receiver-l2", "sender-l2", "shared-l3"}},
            {"path", Kind::word, {"polled"}, {"polled", "interrupt"}},
            {"protocol", Kind::word, {"nic"}, {"nic", "host"}},
            {"read_share", Kind::number, {"1"}},
            {"memory_ratio", Kind::number, {"1"}},
            {"search", Kind::word, {"no"}, {"no", "yes"}}},
           injection}};
}

}  // namespace detail
}  // namespace headrace::sim
