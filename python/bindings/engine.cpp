// SPDX-License-Identifier: Apache-2.0
// Engines: options, movers and statistics. Jobs are in job.cpp.
#include "headrace/engine/engine.hpp"

#include <unistd.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "bindings.hpp"
#include "headrace/dsa/descriptor.hpp"

namespace headrace::python {
namespace {

using engine::OperationKind;

/// The value with this name; headrace/engine.py has checked that it exists.
template <typename Enum>
Enum of_name(std::string_view text, std::initializer_list<Enum> values) {
  for (const Enum value : values) {
    if (name(value) == text) return value;
  }
  throw nb::value_error("no such name");
}

nb::dict to_dict(const engine::OperationStatistics& totals) {
  nb::dict result;
  result["jobs_done"] = totals.jobs_done;
  result["bytes"] = totals.bytes;
  result["bytes_by_device"] = totals.bytes_by_device;
  result["retries"] = totals.retries;
  result["page_faults"] = totals.page_faults;
  result["fallbacks"] = totals.fallbacks;
  // Merge the bounds below one nanosecond.
  std::map<std::int64_t, std::uint64_t> counts;
  for (std::size_t i = 0; i < totals.latency_counts.size(); ++i) {
    const std::int64_t latency_ns = engine::EngineStatistics::latency_max(i).count();
    if (totals.latency_counts[i] != 0) {
      counts[std::max<std::int64_t>(latency_ns, 1)] += totals.latency_counts[i];
    }
  }
  nb::dict latencies;
  for (const auto& [latency_ns, count] : counts) {
    latencies[nb::int_(latency_ns)] = count;
  }
  result["latencies"] = latencies;
  return result;
}

Fields statistics(EngineHandle& engine) {
  engine.reap();
  const engine::EngineStatistics totals = engine.engine().statistics();
  Fields result;
  result["jobs_submitted"] = totals.jobs_submitted;
  result["jobs_done"] = totals.jobs_done;
  result["jobs_failed"] = totals.jobs_failed;
  result["jobs_stopped"] = totals.jobs_stopped;
  result["submissions_refused"] = totals.submissions_refused;
  result["bytes_moved"] = totals.bytes_moved;
  result["bytes_by_device"] = totals.bytes_by_device;
  result["jobs_fell_back"] = totals.jobs_fell_back;
  result["jobs_held_back"] = totals.jobs_held_back;
  nb::dict operations;
  for (std::size_t kind = 0; kind < totals.operations.size(); ++kind) {
    const std::string key = kind == engine::kOperationKindCount
                                ? "batch"
                                : std::string(name(static_cast<OperationKind>(kind)));
    operations[key.c_str()] = to_dict(totals.operations[kind]);
  }
  result["operations"] = operations;
  return result;
}

/// The fields of headrace.MoverInfo.
std::vector<Fields> movers(const EngineHandle& engine) {
  std::vector<Fields> result;
  for (const engine::MoverInfo& mover : engine.engine().movers()) {
    Fields& made = result.emplace_back();
    made["name"] = mover.name;
    made["node"] = mover.node ? std::optional(mover.node->value()) : std::nullopt;
    made["hardware"] = mover.hardware;
    made["emulated"] = mover.emulated;
    made["queue_rank"] = mover.queue_rank;
    made["note"] = mover.note;
  }
  return result;
}

std::vector<nb::dict> device_statistics(const EngineHandle& engine) {
  std::vector<nb::dict> result;
  for (const engine::DeviceStatistics& totals : engine.engine().device_statistics()) {
    nb::dict& made = result.emplace_back();
    made["descriptors"] = totals.descriptors;
    made["retries"] = totals.retries;
    made["page_faults"] = totals.page_faults;
    made["errors"] = totals.errors;
    made["lost"] = totals.lost;
    made["bytes_on_cpu"] = totals.bytes_on_cpu;
  }
  return result;
}

std::shared_ptr<EngineHandle> make_engine(
    const topo::Machine& machine, std::size_t threads_per_node,
    const std::vector<std::uint32_t>& nodes, const std::string& path,
    const std::optional<std::vector<std::string>>& queues, const std::optional<std::string>& policy,
    const std::string& page_faults, std::int64_t device_timeout_ns, const std::string& late_writes,
    const nb::object& thresholds, std::uint64_t piece_bytes, std::size_t queue_depth_max,
    const std::string& waiting, bool check_memory) {
  using engine::FaultPolicy;
  using engine::LateWrites;
  using engine::Waiting;
  engine::EngineOptions options;
  options.path = path_of(path);
  options.threads_per_node = threads_per_node;
  for (const std::uint32_t node : nodes) {
    options.nodes.emplace_back(node);
  }
  if (queues) {
    options.devices.use = !queues->empty();
    options.devices.queues = *queues;
  }
  if (policy) options.policy = policy_of(*policy);
  options.devices.page_faults =
      of_name(page_faults,
              {FaultPolicy::touch_and_resubmit, FaultPolicy::finish_on_cpu, FaultPolicy::block});
  options.devices.timeout = std::chrono::nanoseconds(device_timeout_ns);
  options.devices.late_writes = of_name(late_writes, {LateWrites::report, LateWrites::fail});
  if (!thresholds.is_none()) {
    options.thresholds = engine::PathThresholds{
        .synchronous = Bytes(field<std::uint64_t, "synchronous_bytes">(thresholds)),
        .asynchronous = Bytes(field<std::uint64_t, "asynchronous_bytes">(thresholds)),
        .batched = Bytes(field<std::uint64_t, "batched_bytes">(thresholds))};
  }
  options.piece = Bytes(piece_bytes);
  options.queue_depth_max = queue_depth_max;
  options.waiting =
      of_name(waiting, {Waiting::adaptive, Waiting::spin, Waiting::umwait, Waiting::sleep});
  options.check_memory = check_memory;
  const GilReleased released;
  return std::make_shared<EngineHandle>(value_of(engine::Engine::make(machine, options)));
}

/// The fields of headrace.Thresholds.
Fields thresholds(const EngineHandle& handle) {
  const engine::PathThresholds values = handle.engine().thresholds();
  Fields made;
  made["synchronous_bytes"] = values.synchronous.count();
  made["asynchronous_bytes"] = values.asynchronous.count();
  made["batched_bytes"] = values.batched.count();
  made["source"] = name(handle.engine().threshold_source());
  return made;
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const engine::movers::Named& policy : engine::movers::named()) {
    names.emplace_back(policy.name);
  }
  return names;
}

}  // namespace

engine::Path path_of(std::string_view text) {
  using enum engine::Path;
  return of_name(text, {automatic, dsa, cpu});
}

engine::MoverPolicy policy_of(std::string_view text) {
  for (const engine::movers::Named& policy : engine::movers::named()) {
    if (policy.name == text) return policy.choose;
  }
  throw nb::value_error("no such policy");
}

bool Origin::is_elsewhere() const {
  return current() != process_;
}

long Origin::current() {
  return ::getpid();
}

void bind_engine(nb::module_& module) {
  module.def("policy_names", &policy_names, "Names of the mover policies.");
  module.def(
      "explain_device_status",
      [](std::uint8_t status) { return std::string(dsa::explain(status)); }, "status"_a,
      "Meaning and remedy of a status byte of a device.");
  module.def(
      "explain_cause",
      [](const std::string& text) {
        using engine::Cause;
        for (unsigned i = 0; name(static_cast<Cause>(i)) != "unknown"; ++i) {
          const auto cause = static_cast<Cause>(i);
          if (name(cause) == text) return std::string(explain(cause));
        }
        return std::string();
      },
      "name"_a, "Meaning and remedy of a cause; empty if unknown.");
  nb::class_<EngineHandle> type(module, "Engine");
  bind_job(module, type);
  type.def_static("make", &make_engine, "machine"_a, nb::kw_only(), "threads_per_node"_a, "nodes"_a,
                  "path"_a, "queues"_a.none(), "policy"_a.none(), "page_faults"_a,
                  "device_timeout_ns"_a, "late_writes"_a, "thresholds"_a.none(), "piece_bytes"_a,
                  "queue_depth_max"_a, "waiting"_a, "check_memory"_a)
      .def("close", &EngineHandle::close)
      .def("poll",
           [](EngineHandle& engine) {
             engine.engine().poll();
             engine.reap();
           })
      .def("movers", &movers, "Fields of headrace.MoverInfo.")
      .def("notes", [](const EngineHandle& engine) { return engine.engine().notes(); })
      .def("waiting",
           [](const EngineHandle& engine) { return std::string(name(engine.engine().waiting())); })
      .def("thresholds", &thresholds, "Fields of headrace.Thresholds.")
      .def("statistics", &statistics,
           "Fields of headrace.EngineStatistics; operations: headrace.OperationStatistics by kind.")
      .def("device_statistics", &device_statistics,
           nb::sig("def device_statistics(self) -> list[dict[str, int]]"),
           "Counts of each of movers().");
}

}  // namespace headrace::python
