// SPDX-License-Identifier: Apache-2.0
// Engines: options, movers and statistics. Jobs are in job.cpp.
#include <initializer_list>

#include "bindings.hpp"
#include "headrace/dsa/descriptor.hpp"

namespace headrace::python {
namespace {

using engine::OperationKind;

nb::dict to_dict(const engine::OperationStatistics& totals) {
  using T = engine::OperationStatistics;
  Fields result = members_of<&T::jobs_done, &T::bytes, &T::bytes_by_device, &T::retries,
                             &T::page_faults, &T::fallbacks>(totals);
  // Merge the bounds below one nanosecond.
  std::map<std::int64_t, std::uint64_t> counts;
  for (std::size_t i = 0; i < totals.latency_counts.size(); ++i) {
    const std::int64_t latency_ns = engine::EngineStatistics::latency_max(i).count();
    if (totals.latency_counts[i] != 0) {
      counts[std::max<std::int64_t>(latency_ns, 1)] += totals.latency_counts[i];
    }
  }
  result["latencies"] = counts;
  return result;
}

Fields statistics(EngineHandle& engine) {
  engine.reap();
  const engine::EngineStatistics totals = engine.engine().statistics();
  using T = engine::EngineStatistics;
  Fields result = members_of<&T::jobs_submitted, &T::jobs_done, &T::jobs_failed, &T::jobs_stopped,
                             &T::submissions_refused, &T::bytes_moved, &T::bytes_by_device,
                             &T::jobs_fell_back, &T::jobs_held_back>(totals);
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
    result.push_back(members_of<&engine::MoverInfo::name, &engine::MoverInfo::node,
                                &engine::MoverInfo::hardware, &engine::MoverInfo::emulated,
                                &engine::MoverInfo::queue_rank, &engine::MoverInfo::note>(mover));
  }
  return result;
}

std::vector<nb::dict> device_statistics(const EngineHandle& engine) {
  using T = engine::DeviceStatistics;
  std::vector<nb::dict> result;
  for (const T& totals : engine.engine().device_statistics()) {
    result.push_back(members_of<&T::descriptors, &T::retries, &T::page_faults, &T::errors, &T::lost,
                                &T::bytes_on_cpu>(totals));
  }
  return result;
}

std::shared_ptr<EngineHandle> make_engine(
    const topo::Machine& machine, std::size_t threads_per_node, const std::vector<NodeId>& nodes,
    const std::string& path, const std::optional<std::vector<std::string>>& queues,
    const std::optional<std::string>& policy, const std::string& page_faults,
    std::int64_t device_timeout_ns, const std::string& late_writes, const nb::object& thresholds,
    std::uint64_t piece_bytes, std::size_t queue_depth_max, const std::string& waiting,
    bool check_memory) {
  engine::EngineOptions options;
  options.path = path_of(path);
  options.threads_per_node = threads_per_node;
  options.nodes = nodes;
  if (queues) {
    options.devices.use = !queues->empty();
    options.devices.queues = *queues;
  }
  if (policy) options.policy = policy_of(*policy);
  options.devices.page_faults =
      value_of(parse_name<engine::FaultPolicy>(page_faults, "fault policy"));
  options.devices.timeout = std::chrono::nanoseconds(device_timeout_ns);
  options.devices.late_writes =
      value_of(parse_name<engine::LateWrites>(late_writes, "treatment of late writes"));
  if (!thresholds.is_none()) {
    options.thresholds = engine::PathThresholds{
        .synchronous = Bytes(field<std::uint64_t, "synchronous_bytes">(thresholds)),
        .asynchronous = Bytes(field<std::uint64_t, "asynchronous_bytes">(thresholds)),
        .batched = Bytes(field<std::uint64_t, "batched_bytes">(thresholds))};
  }
  options.piece = Bytes(piece_bytes);
  options.queue_depth_max = queue_depth_max;
  options.waiting = value_of(parse_name<engine::Waiting>(waiting, "way to wait"));
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
  return value_of(parse_name<engine::Path>(text, "path"));
}

engine::MoverPolicy policy_of(std::string_view text) {
  for (const engine::movers::Named& policy : engine::movers::named()) {
    if (policy.name == text) return policy.choose;
  }
  throw nb::value_error("no such policy");
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
        const std::optional<engine::Cause> cause = find_name<engine::Cause>(text);
        return std::string(cause ? explain(*cause) : "");
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
