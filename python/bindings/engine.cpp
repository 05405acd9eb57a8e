// SPDX-License-Identifier: Apache-2.0
// The engine and its jobs. What runs without the GIL is marked by gil_scoped_release.
#include "headrace/engine/engine.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "bindings.hpp"

namespace headrace::python {
namespace {

using engine::JobState;
using engine::Submit;

bool ended(const engine::Job& job) {
  const JobState state = job.state();
  return state != JobState::idle && state != JobState::running;
}

[[noreturn]] void refuse(Code code, std::string cause, std::string remedy) {
  throw Failed{Error{code, 0, "submit an operation", std::move(cause), std::move(remedy)}};
}

using engine::OperationKind;

std::string quoted(std::string_view text) {
  std::string result(1, '\'');
  result.append(text);
  result.push_back('\'');
  return result;
}

OperationKind kind_of(std::string_view text) {
  for (const OperationKind kind :
       {OperationKind::copy, OperationKind::fill, OperationKind::compare,
        OperationKind::compare_pattern, OperationKind::crc, OperationKind::copy_crc}) {
    if (name(kind) == text) return kind;
  }
  refuse(Code::invalid_argument, quoted(text) + " is no operation",
         "make one with headrace.Operation");
}

engine::Path path_of(std::string_view text) {
  for (const engine::Path path :
       {engine::Path::automatic, engine::Path::hardware, engine::Path::software}) {
    if (name(path) == text) return path;
  }
  refuse(Code::invalid_argument, "there is no path " + quoted(text),
         "take 'automatic', 'hardware' or 'software'");
}

/// The commonest mistakes, with figures; the others have a name and no figures.
void check_spans(const engine::Operation& what) {
  const auto source = what.source();
  const auto target = what.target();
  if (source.empty() || target.empty()) {
    return;
  }
  if (source.size() != target.size()) {
    refuse(Code::invalid_argument,
           "the source has " + std::to_string(source.size()) + " bytes, the target " +
               std::to_string(target.size()),
           "pass buffers of the same length");
  }
  const std::less<> before;
  const std::byte* const target_begin = target.data();
  if ((source.data() != target_begin || what.kind() != OperationKind::copy) &&
      before(source.data(), target_begin + target.size()) &&
      before(target_begin, source.data() + source.size())) {
    refuse(Code::invalid_argument, "source and target overlap",
           "use separate buffers, or pieces that do not overlap");
  }
}

[[noreturn]] void refuse_closed() {
  refuse(Code::closed, "the engine has been closed", "make a new engine");
}

[[noreturn]] void refuse_plan(Submit answer) {
  refuse(answer == Submit::forked ? Code::closed : Code::invalid_argument,
         std::string(engine::name(answer)), std::string(engine::explain(answer)));
}

/// The handle that Python has on an operation.
///
/// Threading: shared. Its fields never change; it is made and destroyed with the GIL held.
class JobHandle {
 public:
  JobHandle(std::shared_ptr<EngineHandle> engine, std::unique_ptr<Operation> operation)
      : engine_(std::move(engine)), operation_(std::move(operation)) {}
  JobHandle(const JobHandle&) = delete;
  JobHandle& operator=(const JobHandle&) = delete;
  ~JobHandle() {
    // Dropping the handle is not stopping the copy: who drops it wants the bytes all the same.
    if (!ended(job())) {
      engine_->adopt(std::move(operation_));
    }
  }
  [[nodiscard]] engine::Job& job() const { return operation_->job; }

 private:
  std::shared_ptr<EngineHandle> engine_;
  std::unique_ptr<Operation> operation_;
};

engine::SubmitOptions options_of(const std::optional<std::string>& path) {
  engine::SubmitOptions options;
  if (path) {
    options.path = path_of(*path);
  }
  return options;
}

std::shared_ptr<JobHandle> submit(const std::shared_ptr<EngineHandle>& engine,
                                  const std::string& kind, nb::handle target, nb::handle source,
                                  nb::handle second_source, std::uint64_t number, bool durable,
                                  const std::optional<std::string>& path) {
  engine->reap();
  auto operation = std::make_unique<Operation>(kind, target, source, second_source, number);
  if (durable) {
    operation->what = operation->what.durable();
  }
  const Submit answer = engine->engine().submit(operation->job, operation->what, options_of(path));
  if (answer != Submit::accepted) {
    refuse_answer(answer);
  }
  return std::make_shared<JobHandle>(engine, std::move(operation));
}

CompletionTuple run(EngineHandle& engine, const std::string& kind, nb::handle target,
                    nb::handle source, nb::handle second_source, std::uint64_t number, bool durable,
                    const std::optional<std::string>& path) {
  engine.reap();
  const auto operation = std::make_unique<Operation>(kind, target, source, second_source, number);
  if (durable) {
    operation->what = operation->what.durable();
  }
  const engine::SubmitOptions options = options_of(path);
  engine::Completion completion;
  Submit answer = Submit::full;
  {
    const nb::gil_scoped_release released;
    answer = engine.engine().run(operation->what, completion, options);
  }
  if (answer != Submit::accepted) {
    refuse_answer(answer);
  }
  return to_tuple(completion);
}

CompletionTuple copy(EngineHandle& engine, nb::handle source, nb::handle target) {
  engine.reap();
  const auto operation = std::make_unique<Operation>("copy", target, source, nb::none(), 0);
  Submit answer = Submit::full;
  {
    const nb::gil_scoped_release released;
    while (answer == Submit::full) {
      answer = engine.engine().submit(operation->job, operation->what);
      if (answer == Submit::full) {
        engine.engine().poll();
        std::this_thread::yield();
      }
    }
    if (answer == Submit::accepted) {
      operation->job.wait();
    }
  }
  if (answer != Submit::accepted) {
    refuse_answer(answer);
  }
  return to_tuple(operation->job.completion());
}

nb::dict to_dict(const engine::OperationStatistics& totals) {
  nb::dict result;
  result["jobs_done"] = totals.jobs_done;
  result["bytes"] = totals.bytes;
  result["bytes_by_device"] = totals.bytes_by_device;
  result["retries"] = totals.retries;
  result["page_faults"] = totals.page_faults;
  result["fallbacks"] = totals.fallbacks;
  // The shortest classes are fractions of a nanosecond, and become one.
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

/// Totals, and the same of each kind.
nb::tuple statistics(EngineHandle& engine) {
  engine.reap();
  const engine::EngineStatistics totals = engine.engine().statistics();
  nb::dict result;
  result["jobs_submitted"] = totals.jobs_submitted;
  result["jobs_done"] = totals.jobs_done;
  result["jobs_failed"] = totals.jobs_failed;
  result["jobs_stopped"] = totals.jobs_stopped;
  result["submissions_refused"] = totals.submissions_refused;
  result["bytes_moved"] = totals.bytes_moved;
  result["bytes_by_device"] = totals.bytes_by_device;
  result["jobs_fell_back"] = totals.jobs_fell_back;
  nb::dict operations;
  for (std::size_t kind = 0; kind < totals.operations.size(); ++kind) {
    const std::string key = kind == engine::kOperationKindCount
                                ? "batch"
                                : std::string(name(static_cast<OperationKind>(kind)));
    operations[key.c_str()] = to_dict(totals.operations[kind]);
  }
  return nb::make_tuple(result, operations);
}

/// Name, node, whether it is a device, note.
using MoverTuple = std::tuple<std::string, std::optional<std::uint32_t>, bool, std::string>;

std::vector<MoverTuple> movers(const EngineHandle& engine) {
  std::vector<MoverTuple> result;
  for (const engine::MoverInfo& mover : engine.engine().movers()) {
    std::optional<std::uint32_t> node;
    if (mover.node) {
      node = mover.node->value();
    }
    result.emplace_back(mover.name, node, mover.hardware, mover.note);
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

std::shared_ptr<EngineHandle> make_engine(const topo::Machine& machine,
                                          std::size_t threads_per_node,
                                          const std::vector<std::uint32_t>& nodes,
                                          const std::string& path,
                                          const std::optional<std::vector<std::string>>& queues) {
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
  return std::make_shared<EngineHandle>(value_of(engine::Engine::make(machine, options)));
}

}  // namespace

CompletionTuple to_tuple(const engine::Completion& completion) {
  return {std::string(name(completion.state)),
          std::string(name(completion.cause)),
          completion.fell_back,
          completion.late_write_possible,
          completion.bytes_done,
          completion.bytes_by_device,
          completion.device_status,
          completion.fault_address,
          completion.result.different,
          completion.result.difference_offset,
          completion.result.crc};
}

void refuse_answer(Submit answer) {
  switch (answer) {
    case Submit::full:
      refuse(Code::capacity_exceeded, "the queues of the engine are full",
             "wait for a job and submit again");
    case Submit::closed:
      refuse_closed();
    default:
      refuse_plan(answer);
  }
}

Operation::Operation(std::string_view kind, nb::handle to, nb::handle from, nb::handle second_from,
                     std::uint64_t number) {
  if (!to.is_none()) {
    target.emplace(to, Buffer::Use::write);
  }
  if (!from.is_none()) {
    source.emplace(from, Buffer::Use::read);
  }
  if (!second_from.is_none()) {
    second_source.emplace(second_from, Buffer::Use::read);
  }
  const std::span<std::byte> written = target ? target->writable_bytes() : std::span<std::byte>();
  const auto bytes_of = [](const std::optional<Buffer>& buffer) {
    return buffer ? buffer->bytes() : std::span<const std::byte>();
  };
  const engine::CrcOptions crc{.seed = static_cast<std::uint32_t>(number)};
  switch (kind_of(kind)) {
    case OperationKind::fill:
      what = engine::Operation::fill(written, number);
      break;
    case OperationKind::compare:
      what = engine::Operation::compare(bytes_of(source), bytes_of(second_source));
      break;
    case OperationKind::compare_pattern:
      what = engine::Operation::compare_pattern(bytes_of(source), number);
      break;
    case OperationKind::crc:
      what = engine::Operation::crc(bytes_of(source), crc);
      break;
    case OperationKind::copy_crc:
      what = engine::Operation::copy_crc(written, bytes_of(source), crc);
      break;
    default:
      what = engine::Operation::copy(written, bytes_of(source));
      break;
  }
  check_spans(what);
}

bool Origin::is_elsewhere() const {
  return current() != process_;
}

long Origin::current() {
  return ::getpid();
}

EngineHandle::~EngineHandle() {
  if (origin_.is_elsewhere()) {
    abandon(std::move(engine_));
    abandon(std::move(orphans_));
    return;
  }
  const nb::gil_scoped_release released;
  engine_->stop();
}

void EngineHandle::reap() {
  if (!orphans_.empty() && !origin_.is_elsewhere()) {
    engine_->poll();
  }
  const auto first_ended =
      std::partition(orphans_.begin(), orphans_.end(),
                     [](const std::unique_ptr<Operation>& orphan) { return !ended(orphan->job); });
  const std::vector<std::unique_ptr<Operation>> gone(std::make_move_iterator(first_ended),
                                                     std::make_move_iterator(orphans_.end()));
  orphans_.erase(first_ended, orphans_.end());
}

void EngineHandle::close() {
  if (origin_.is_elsewhere()) {
    return;
  }
  {
    const nb::gil_scoped_release released;
    engine_->stop();
  }
  reap();
}

void bind_engine(nb::module_& module) {
  nb::class_<JobHandle>(module, "Job")
      .def("poll", [](const JobHandle& handle) { return handle.job().poll(); })
      .def(
          "wait", [](const JobHandle& handle) { handle.job().wait(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def("stop", [](const JobHandle& handle) { handle.job().stop(); })
      .def(
          "completion", [](const JobHandle& handle) { return to_tuple(handle.job().completion()); },
          "Fields of headrace.Completion, of a job that has ended.");

  nb::class_<EngineHandle>(module, "Engine")
      .def_static("make", &make_engine, "machine"_a, "threads_per_node"_a, "nodes"_a, "path"_a,
                  "queues"_a.none(), nb::call_guard<nb::gil_scoped_release>())
      .def("submit", &submit, "kind"_a, "target"_a.none(), "source"_a.none(),
           "second_source"_a.none(), "number"_a, "durable"_a, "path"_a.none())
      .def("run", &run, "kind"_a, "target"_a.none(), "source"_a.none(), "second_source"_a.none(),
           "number"_a, "durable"_a, "path"_a.none())
      .def("copy", &copy, "source"_a, "target"_a)
      .def("close", &EngineHandle::close)
      .def("movers", &movers, "Name, node, whether it is a device, and note of each.")
      .def("notes", [](const EngineHandle& engine) { return engine.engine().notes(); })
      .def("statistics", &statistics,
           nb::sig("def statistics(self) -> tuple[dict[str, int], dict[str, dict[str, Any]]]"),
           "Totals, and those of each kind of operation.")
      .def("device_statistics", &device_statistics,
           nb::sig("def device_statistics(self) -> list[dict[str, int]]"),
           "One for each of movers().");
}

}  // namespace headrace::python
