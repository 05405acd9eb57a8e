// SPDX-License-Identifier: Apache-2.0
// Engine::run: one operation, synchronously, on the calling thread or a device.

#include "completions.hpp"
#include "engine_state.hpp"
#include "headrace/copy/dispatch.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/ticks.hpp"
#include "memory_access.hpp"
#include "software/software.hpp"
#include "traced.hpp"

namespace headrace::engine {
namespace {

/// Attempts at full queues before run() uses the processor.
constexpr int kTriesMax = 1000;

/// run() measures the latency of operations of at least kTimedBytesMin, and of one in kTimedOneOf
/// smaller ones: two clock reads take as long as copying some KiB.
constexpr std::size_t kTimedBytesMin = std::size_t{256} << 10U;
constexpr std::uint64_t kTimedOneOf = 16;
static_assert(kTimedBytesMin <= detail::kAskedBytesMin, "what is not timed is not asked about");
constexpr auto kCopy = static_cast<std::size_t>(OperationKind::copy);

/// A short plain copy, into a trace.
[[gnu::noinline]] void run_traced(const Operation& operation, Completion& completion, Path path,
                                  ThreadState& mine) noexcept {
  const std::uint64_t begun_ticks = platform::ticks();
  const std::size_t byte_count = operation.byte_count();
  copy::move_bytes(operation.target().data(), operation.source().data(), byte_count);
  if (mine.statistics.runs_done(kCopy) % kTimedOneOf == 0)
    mine.statistics.count_time(kCopy, begun_ticks);
  completion = {.state = JobState::done, .bytes_done = byte_count};
  detail::record({.begin_ticks = begun_ticks, .kind = trace::Kind::run}, {&operation, 1},
                 byte_count, path);
}

}  // namespace

Submit EngineState::run(const Operation& operation, Completion& completion,
                        const SubmitOptions& options) {
  ThreadState* const mine = threads_.mine();
  // Left: a short plain copy by this thread, with nothing to call or to wait for.
  if (!operation.is_simple_copy(kTimedBytesMin - 1) || mine == nullptr || !options.after.empty() ||
      options.callback != nullptr || options.then != nullptr || settings_.check_memory ||
      is_forked() ||
      is_run_by_device(operation.byte_count(), options.path.value_or(settings_.path),
                       run_thresholds_)) [[unlikely]] {
    return run_other(operation, completion, options);
  }
  const std::uint64_t gate_set = enter(mine);
  if (gate_set >= Gate::kClosed) [[unlikely]]
    return Submit::closed;
  if (trace::is_on()) [[unlikely]] {
    run_traced(operation, completion, options.path.value_or(settings_.path), *mine);
  } else if (mine->statistics.runs_done(kCopy) % kTimedOneOf == 0) [[unlikely]] {
    run_timed(operation, completion);
  } else {
    const std::size_t byte_count = operation.byte_count();
    copy::move_bytes(operation.target().data(), operation.source().data(), byte_count);
    completion = {.state = JobState::done, .bytes_done = byte_count};
  }
  mine->statistics.count_run(kCopy, completion);
  leave(gate_set, mine);
  return Submit::accepted;
}

Submit EngineState::run_other(const Operation& operation, Completion& completion,
                              const SubmitOptions& options) {
  const Submit valid = operation.validate();
  if (valid != Submit::accepted) return valid;
  if (is_forked()) return Submit::forked;
  if (!options.after.empty() || operation.kind() == OperationKind::drain) {
    return run_after(operation, completion, options);
  }
  const std::size_t byte_count = operation.byte_count();
  const Path asked = options.path.value_or(settings_.path);
  const bool has_hardware = facts_.processor_count < movers_.size();
  const bool wants_hardware = is_run_by_device(byte_count, asked, facts_.thresholds);
  if (has_hardware && wants_hardware) {
    const Submit answer = run_by_device(operation, completion, options);
    if (answer != Submit::full) return answer;
  }
  ThreadState* const mine = threads_.mine();
  const std::uint64_t gate_set = enter(mine);
  if (gate_set >= Gate::kClosed) return Submit::closed;
  const std::uint64_t traced_ticks = trace::is_on() ? platform::ticks() : 0;
  const auto kind_index = static_cast<std::size_t>(operation.kind());
  const bool fell_back = wants_hardware && (has_hardware || asked == Path::dsa);
  if (byte_count >= kTimedBytesMin || fell_back || settings_.check_memory ||
      (mine != nullptr ? *mine : shared_).statistics.runs_done(kind_index) % kTimedOneOf == 0) {
    run_timed(operation, completion);
    completion.fell_back = fell_back;
  } else {
    completion = detail::ended(software::execute(operation));
  }
  count(mine, [&](Statistics& counts) { counts.count_run(kind_index, completion); });
  if (traced_ticks != 0) {
    detail::record({.begin_ticks = traced_ticks, .kind = trace::Kind::run}, {&operation, 1},
                   byte_count, asked);
  }
  leave(gate_set, mine);
  // These calls may stop or destroy the engine.
  if (options.callback != nullptr) options.callback(options.callback_context, completion);
  if (options.then != nullptr) options.then(options.then_context);
  return Submit::accepted;
}

/// Measures the latency; checks the memory if the operation is large or check_memory is set.
void EngineState::run_timed(const Operation& operation, Completion& completion) {
  const std::uint64_t begun_ticks = platform::ticks();
  if (const auto bad = detail::inaccessible(operation, settings_.check_memory)) {
    completion = detail::ended({.cause = Cause::page_fault, .fault_address = *bad});
  } else {
    completion = detail::ended(software::execute(operation));
  }
  count([&](Statistics& mine) {
    mine.count_time(static_cast<std::size_t>(operation.kind()), begun_ticks);
  });
}

/// Returns: `full` if no device accepted it in kTriesMax attempts; nothing was started.
Submit EngineState::run_by_device(const Operation& operation, Completion& completion,
                                  const SubmitOptions& options) {
  SubmitOptions by_device = options;
  by_device.path = Path::dsa;
  // Called below: another thread may call it after wait() has returned.
  by_device.then = nullptr;
  Job job;
  for (int tries = 0; tries < kTriesMax; ++tries) {
    // Counted once per call.
    if (tries == 1) count([&](Statistics& mine) { mine.count_retry(operation.kind()); });
    const Submit answer = start_one(job, operation, by_device);
    if (answer == Submit::accepted) {
      completion = job.wait();
      // These calls may stop or destroy the engine.
      if (tries != 0) ++completion.retries;
      if (options.then != nullptr) options.then(options.then_context);
    } else if (answer == Submit::closed) {
      count([](Statistics& mine) { mine.count_refused(); });
    }
    if (answer != Submit::full) return answer;
    poll();
    platform::pause();
  }
  return Submit::full;
}

Submit EngineState::run_after(const Operation& operation, Completion& completion,
                              const SubmitOptions& options) {
  // A drain, or an empty job that completes after the predecessors and needs no mover.
  Job all;
  const bool drains = operation.kind() == OperationKind::drain;
  const auto submit = [&] {
    return drains ? submit_drain(all, operation, {.after = options.after})
                  : start_one(all, Operation::copy({}, {}), {.after = options.after});
  };
  Submit answer = submit();
  for (; answer == Submit::full; answer = submit()) {  // Another thread's drain runs.
    poll();
    platform::pause();
  }
  if (note_refusal(answer) != Submit::accepted) return answer;
  const Completion end = all.wait();
  if (end.state == JobState::done && !drains) {
    SubmitOptions at_once = options;
    at_once.after = {};
    return run(operation, completion, at_once);
  }
  completion = end;
  if (options.callback != nullptr) options.callback(options.callback_context, completion);
  if (options.then != nullptr) options.then(options.then_context);
  return Submit::accepted;
}

}  // namespace headrace::engine
