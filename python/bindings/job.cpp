// SPDX-License-Identifier: Apache-2.0
// Jobs: submission, handles and Python callbacks. Code without the GIL is marked by
// GilReleased.
#include <thread>
#include <tuple>

#include "bindings.hpp"

namespace headrace::python {
namespace {

using engine::JobState;
using engine::Submit;
using std::chrono::nanoseconds;

/// Options of Engine.submit: path, policy, source_node and target_node.
using Said = std::tuple<std::optional<std::string>, std::optional<std::string>,
                        std::optional<NodeId>, std::optional<NodeId>>;

/// Not movable: the options point to the policy.
///
/// Threading: confined.
class Options {
 public:
  explicit Options(const Said& said) {
    const auto& [path, policy, source_node, target_node] = said;
    if (path) made_.path = path_of(*path);
    if (policy) {
      policy_ = policy_of(*policy);
      made_.policy = &policy_;
    }
    made_.source_node = source_node;
    made_.target_node = target_node;
  }
  Options& operator=(Options&&) = delete;
  [[nodiscard]] engine::SubmitOptions& made() { return made_; }

 private:
  engine::MoverPolicy policy_;
  engine::SubmitOptions made_;
};

/// The Python callback of a job, and what must live until it has run.
///
/// Ownership: owns itself; call() deletes it.
/// Threading: made with the GIL held, then used by the thread that ends the job.
struct Then {
  std::shared_ptr<PendingCalls> calls;
  std::shared_ptr<Submission> submission;
  nb::object function;

  static void call(void* context) noexcept;
};

void Then::call(void* context) noexcept {
  auto* const self = static_cast<Then*>(context);
  const std::shared_ptr<PendingCalls> calls = std::move(self->calls);
  {
    const GilAcquired acquired;
    const InCall in_call;
    try {
      const Fields fields = fields_of(self->submission->job.completion());
      entering_python([&] { return self->function(fields); });
    } catch (nb::python_error& error) {
      // No Python caller can catch it.
      error.restore();
      PyErr_WriteUnraisable(self->function.ptr());
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      PyErr_WriteUnraisable(self->function.ptr());
    }
    delete self;  // May drop the last reference to anything, even the engine.
  }
  calls->end();
}

/// Python's handle on a job.
///
/// Threading: shared. Its fields never change; it is made and destroyed with the GIL held.
class JobHandle {
 public:
  JobHandle(std::shared_ptr<EngineHandle> engine, std::shared_ptr<Submission> submission)
      : engine_(std::move(engine)), submission_(std::move(submission)) {}
  JobHandle& operator=(JobHandle&&) = delete;
  ~JobHandle() {
    // Dropping the handle does not stop the job.
    if (job().state() == JobState::running) {
      engine_->adopt(std::move(submission_));
    }
  }
  [[nodiscard]] engine::Job& job() const { return submission_->job; }
  [[nodiscard]] const Submission& submission() const { return *submission_; }
  [[nodiscard]] bool is_of(const EngineHandle& engine) const { return engine_.get() == &engine; }

  /// Returns whether the job has ended. `time_ns_max`: nullopt waits without limit.
  [[nodiscard]] bool wait(std::optional<std::int64_t> time_ns_max) const {
    // In a callback, do not poll: whether polling a device ends the job depends on timing.
    const bool in_call = is_in_call();
    if (in_call ? job().state() != JobState::running : job().poll()) return true;
    if (in_call) {
      refuse_operation("a callback of a job may not wait for another job",
                       "submit with after= or then=, or wait in another thread");
    }
    return wait_interruptibly(time_ns_max,
                              [this](nanoseconds time_max) { return job().wait_for(time_max); });
  }

 private:
  std::shared_ptr<EngineHandle> engine_;
  std::shared_ptr<Submission> submission_;
};

/// The predecessors of a submission. The caller keeps the handles until it returns.
using After = std::vector<const JobHandle*>;

std::shared_ptr<Submission> prepare(std::span<const nb::object> operations) {
  auto submission = std::make_shared<Submission>();
  for (const nb::object& described : operations) {
    submission->operations.push_back(std::make_unique<Operation>(described));
  }
  return submission;
}

std::vector<engine::Job*> jobs_of(const After& after) {
  std::vector<engine::Job*> jobs;
  for (const JobHandle* const handle : after) {
    jobs.push_back(handle == nullptr ? nullptr : &handle->job());
  }
  return jobs;
}

/// Submits by `start`, with `after` and `then` in the options. `then` may run before this returns.
template <typename Start>
std::shared_ptr<JobHandle> launch(const std::shared_ptr<EngineHandle>& engine,
                                  const std::shared_ptr<Submission>& submission, Options& options,
                                  const After& after, const nb::object& then, Start start) {
  const std::vector<engine::Job*> named = jobs_of(after);
  options.made().after = named;
  std::unique_ptr<Then> call;
  if (!then.is_none()) {
    call = std::make_unique<Then>(Then{engine->calls(), submission, then});
    options.made().then = Then::call;
    options.made().then_context = call.get();
    engine->calls()->begin();
  }
  const Submit answer = start(options.made());
  if (answer != Submit::accepted) {
    if (call) engine->calls()->end();
    refuse_answer(answer, submission->operations);
  }
  static_cast<void>(call.release());  // NOLINT(bugprone-unused-return-value): it deletes itself.
  return std::make_shared<JobHandle>(engine, submission);
}

std::shared_ptr<JobHandle> submit(const std::shared_ptr<EngineHandle>& engine,
                                  const nb::object& operation, const Said& said, const After& after,
                                  const nb::object& then) {
  engine->reap();
  const std::shared_ptr<Submission> submission = prepare({&operation, 1});
  Options options(said);
  return launch(engine, submission, options, after, then, [&](const engine::SubmitOptions& made) {
    return engine->engine().submit(submission->job, submission->operations[0]->what(), made);
  });
}

std::shared_ptr<JobHandle> submit_batch(const std::shared_ptr<EngineHandle>& engine,
                                        const std::vector<nb::object>& operations, const Said& said,
                                        const After& after, const nb::object& then) {
  engine->reap();
  const std::shared_ptr<Submission> submission = prepare(operations);
  for (const std::unique_ptr<Operation>& operation : submission->operations) {
    submission->batch.push_back(operation->what());
  }
  submission->completions.resize(submission->batch.size());
  Options options(said);
  return launch(engine, submission, options, after, then, [&](const engine::SubmitOptions& made) {
    return engine->engine().submit_batch(submission->job,
                                         {submission->batch, submission->completions}, made);
  });
}

Fields run(EngineHandle& engine, const nb::object& described, const Said& said,
           const After& after) {
  engine.reap();
  const std::shared_ptr<Submission> submission = prepare({&described, 1});
  Options options(said);
  const std::vector<engine::Job*> named = jobs_of(after);
  options.made().after = named;
  // Wait here, where signals are handled, unless the engine will refuse the jobs below.
  if (named.size() <= engine::Job::kPredecessorMax) {
    for (const JobHandle* const handle : after) {
      if (handle != nullptr && handle->is_of(engine)) static_cast<void>(handle->wait(std::nullopt));
    }
  }
  engine::Completion completion;
  const Submit answer = without_gil([&] {
    return engine.engine().run(submission->operations[0]->what(), completion, options.made());
  });
  if (answer != Submit::accepted) {
    refuse_answer(answer, submission->operations);
  }
  return fields_of(completion);
}

/// Copies by a submitted job; in a callback, as run().
Fields copy(EngineHandle& engine, const nb::object& described) {
  if (is_in_call()) return run(engine, described, {}, {});
  engine.reap();
  const std::shared_ptr<Submission> submission = prepare({&described, 1});
  Submit answer = Submit::full;
  wait_interruptibly(std::nullopt, [&](nanoseconds) {
    answer = engine.engine().submit(submission->job, submission->operations[0]->what());
    if (answer != Submit::full) return true;
    engine.engine().poll();
    std::this_thread::yield();
    return false;
  });
  if (answer != Submit::accepted) {
    refuse_answer(answer, submission->operations);
  }
  try {
    wait_interruptibly(std::nullopt,
                       [&](nanoseconds time_max) { return submission->job.wait_for(time_max); });
  } catch (...) {
    // Its worker may need the GIL, so this thread does not wait for the end.
    submission->job.stop();
    engine.adopt(submission);
    throw;
  }
  return fields_of(submission->job.completion());
}

std::vector<Fields> completions(const JobHandle& handle) {
  std::vector<Fields> result;
  for (const engine::Completion& one : handle.submission().completions) {
    result.push_back(fields_of(one));
  }
  return result;
}

/// What must be destroyed by a thread that is not in a callback.
struct Remains {
  std::unique_ptr<engine::Engine> engine;
  std::vector<std::shared_ptr<Submission>> orphans;
  std::shared_ptr<PendingCalls> calls;

  void end() {
    {
      const GilReleased released;
      engine->stop();
      calls->wait_for_all();
    }
    orphans.clear();
    engine.reset();
  }
  static int end_later(void* context) {
    const std::unique_ptr<Remains> self(static_cast<Remains*>(context));
    self->end();
    return 0;
  }
};

}  // namespace

EngineHandle::~EngineHandle() {
  if (origin_.is_elsewhere()) {
    abandon(std::move(engine_));
    abandon(std::move(orphans_));
    return;
  }
  auto remains = std::make_unique<Remains>(
      Remains{std::move(engine_), std::move(orphans_), std::move(calls_)});
  if (!is_in_call()) {
    remains->end();
    return;
  }
  // This thread may be a worker of the engine, which would wait for itself. If the queue of pending
  // calls is full, the engine is leaked.
  static_cast<void>(Py_AddPendingCall(&Remains::end_later, remains.release()));
}

void EngineHandle::reap() {
  if (!orphans_.empty() && !origin_.is_elsewhere()) {
    engine_->poll();
  }
  drop_if(orphans_, [](const std::shared_ptr<Submission>& orphan) {
    return orphan->job.state() != JobState::running;
  });
}

void EngineHandle::close() {
  if (origin_.is_elsewhere()) {
    return;
  }
  if (is_in_call()) {
    throw Failed{Error{Code::invalid_argument, 0, "close an engine",
                       "a callback of one of its jobs may be making this call",
                       "close it outside callbacks"}};
  }
  {
    const GilReleased released;
    engine_->stop();
    calls_->wait_for_all();
  }
  reap();
}

void bind_job(nb::module_& module, nb::class_<EngineHandle>& engine) {
  nb::class_<JobHandle>(module, "Job")
      .def("poll", [](const JobHandle& handle) { return handle.job().poll(); })
      .def("wait", &JobHandle::wait, "time_ns_max"_a.none())
      .def("stop", [](const JobHandle& handle) { handle.job().stop(); })
      .def("state", [](const JobHandle& handle) { return std::string(name(handle.job().state())); })
      .def(
          "completion",
          [](const JobHandle& handle) { return fields_of(handle.job().completion()); },
          "Fields of headrace.Completion of a completed job.")
      .def("completions", &completions, "The same for each operation of a completed batch.");

  engine.def("submit", &submit, "operation"_a, "options"_a, "after"_a, "then"_a.none())
      .def("submit_batch", &submit_batch, "operations"_a, "options"_a, "after"_a, "then"_a.none())
      .def("run", &run, "operation"_a, "options"_a, "after"_a)
      .def("copy", &copy, "operation"_a);
}

}  // namespace headrace::python
