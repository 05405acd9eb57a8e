// SPDX-License-Identifier: Apache-2.0
// The engine and its jobs. What runs without the GIL is marked by gil_scoped_release.
#include "headrace/engine/engine.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <tuple>

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
  throw Failed{Error{code, 0, "submit a copy", std::move(cause), std::move(remedy)}};
}

std::unique_ptr<Operation> make_operation(nb::handle source, nb::handle target) {
  auto operation = std::make_unique<Operation>(source, target);
  const engine::CopyPlan plan = operation->plan();
  if (plan.source.size() != plan.target.size()) {
    refuse(Code::invalid_argument,
           "the source has " + std::to_string(plan.source.size()) + " bytes, the target " +
               std::to_string(plan.target.size()),
           "pass buffers of the same length");
  }
  const std::byte* const source_begin = plan.source.data();
  const std::byte* const target_begin = plan.target.data();
  const std::less<> before;
  if (source_begin != target_begin && before(source_begin, target_begin + plan.target.size()) &&
      before(target_begin, source_begin + plan.source.size())) {
    refuse(Code::invalid_argument, "source and target overlap",
           "copy between separate buffers, or in pieces that do not overlap");
  }
  return operation;
}

[[noreturn]] void refuse_closed() {
  refuse(Code::closed, "the engine has been closed", "make a new engine");
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

using CompletionTuple = std::tuple<std::string, std::string, bool, std::size_t, std::uintptr_t>;

CompletionTuple to_tuple(const engine::Completion& completion) {
  return {std::string(name(completion.state)), std::string(name(completion.cause)),
          completion.fell_back, completion.bytes_done, completion.fault_address};
}

std::shared_ptr<JobHandle> submit(const std::shared_ptr<EngineHandle>& engine, nb::handle source,
                                  nb::handle target) {
  engine->reap();
  std::unique_ptr<Operation> operation = make_operation(source, target);
  switch (engine->engine().submit_copy(operation->job, operation->plan())) {
    case Submit::accepted:
      return std::make_shared<JobHandle>(engine, std::move(operation));
    case Submit::full:
      refuse(Code::capacity_exceeded, "the queues of the engine are full",
             "wait for a job and submit again");
    case Submit::closed:
      break;
  }
  refuse_closed();
}

CompletionTuple copy(EngineHandle& engine, nb::handle source, nb::handle target) {
  engine.reap();
  const std::unique_ptr<Operation> operation = make_operation(source, target);
  Submit answer = Submit::full;
  {
    const nb::gil_scoped_release released;
    while (answer == Submit::full) {
      answer = engine.engine().submit_copy(operation->job, operation->plan());
      if (answer == Submit::full) {
        std::this_thread::yield();
      }
    }
    if (answer == Submit::accepted) {
      operation->job.wait();
    }
  }
  if (answer == Submit::closed) {
    refuse_closed();
  }
  return to_tuple(operation->job.completion());
}

nb::dict statistics(const EngineHandle& engine) {
  const engine::EngineStatistics totals = engine.engine().statistics();
  nb::dict result;
  result["jobs_submitted"] = totals.jobs_submitted;
  result["jobs_done"] = totals.jobs_done;
  result["jobs_failed"] = totals.jobs_failed;
  result["jobs_stopped"] = totals.jobs_stopped;
  result["submissions_refused"] = totals.submissions_refused;
  result["bytes_moved"] = totals.bytes_moved;
  return result;
}

std::shared_ptr<EngineHandle> make_engine(const topo::Machine& machine,
                                          std::size_t threads_per_node,
                                          const std::vector<std::uint32_t>& nodes) {
  engine::EngineOptions options;
  options.threads_per_node = threads_per_node;
  for (const std::uint32_t node : nodes) {
    options.nodes.emplace_back(node);
  }
  return std::make_shared<EngineHandle>(value_of(engine::Engine::make(machine, options)));
}

}  // namespace

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
          "State, cause, fell_back, bytes_done and fault_address of a job that has ended.");

  nb::class_<EngineHandle>(module, "Engine")
      .def_static("make", &make_engine, "machine"_a, "threads_per_node"_a, "nodes"_a,
                  nb::call_guard<nb::gil_scoped_release>())
      .def("submit", &submit, "source"_a, "target"_a)
      .def("copy", &copy, "source"_a, "target"_a)
      .def("close", &EngineHandle::close)
      .def("movers",
           [](const EngineHandle& engine) {
             std::vector<std::string> names;
             for (const engine::MoverInfo& mover : engine.engine().movers()) {
               names.push_back(mover.name);
             }
             return names;
           })
      .def("statistics", &statistics, nb::sig("def statistics(self) -> dict[str, int]"));
}

}  // namespace headrace::python
