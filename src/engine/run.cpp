// SPDX-License-Identifier: Apache-2.0
// Engine::run: one operation, by the calling thread or by a device that it waits for.
#include <utility>

#include "completions.hpp"
#include "engine_state.hpp"
#include "headrace/copy/dispatch.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/ticks.hpp"
#include "memory_access.hpp"
#include "software/software.hpp"

namespace headrace::engine {
namespace {

/// How often run() asks full queues before it does without them.
constexpr int kTriesMax = 1000;

/// What run() does itself is timed from so many bytes on, and below one of so many: two looks at
/// the clock take as long as copying some KiB (bench/engine/meter/software.cpp).
constexpr std::size_t kTimedBytesMin = std::size_t{256} << 10U;
constexpr std::uint64_t kTimedOneOf = 16;
static_assert(kTimedBytesMin <= detail::kAskedBytesMin, "what is not timed is not asked about");

}  // namespace

Submit EngineState::run(const Operation& operation, Completion& completion,
                        const SubmitOptions& options) {
  const Submit valid = operation.validate();
  if (valid != Submit::accepted) return valid;
  if (is_forked()) return Submit::forked;
  if (!options.after.empty()) return run_after(operation, completion, options);
  const std::size_t byte_count = operation.byte_count();
  const Path asked = options.path.value_or(settings_.path);
  const bool has_hardware = facts_.processor_count < movers_.size();
  const bool wants_hardware = is_run_by_device(byte_count, asked, facts_.thresholds);
  if (has_hardware && wants_hardware) {
    const Submit answer = run_by_device(operation, completion, options);
    if (answer != Submit::full) return answer;
  }
  if (!enter()) return Submit::closed;
  const auto kind_index = static_cast<std::size_t>(operation.kind());
  const bool fell_back = wants_hardware && (has_hardware || asked == Path::hardware);
  if (byte_count >= kTimedBytesMin || fell_back || settings_.check_memory ||
      statistics_.runs_done(kind_index) % kTimedOneOf == 0) {
    run_timed(operation, completion);
    completion.fell_back = fell_back;
  } else if (operation.is_plain_copy()) {  // Most are, and they find nothing out.
    copy::move_bytes(operation.target().data(), operation.source().data(), byte_count);
    completion = {.state = JobState::done, .bytes_done = byte_count};
  } else {
    completion = detail::ended(software::execute(operation));
  }
  statistics_.count_run(kind_index, completion);
  leave();
  // From here on they may stop the engine, or end it.
  if (options.callback != nullptr) options.callback(options.callback_context, completion);
  if (options.then != nullptr) options.then(options.then_context);
  return Submit::accepted;
}

/// Also asks whether the memory is there, where that is worth it or wanted.
void EngineState::run_timed(const Operation& operation, Completion& completion) {
  const std::uint64_t begun_ticks = platform::ticks();
  if (const auto bad = detail::inaccessible(operation, settings_.check_memory)) {
    completion = detail::ended({.cause = Cause::page_fault, .fault_address = *bad});
  } else {
    completion = detail::ended(software::execute(operation));
  }
  statistics_.count_time(static_cast<std::size_t>(operation.kind()), begun_ticks);
}

/// Returns: `full` if no device took it for as long as it is tried; nothing was begun then.
Submit EngineState::run_by_device(const Operation& operation, Completion& completion,
                                  const SubmitOptions& options) {
  SubmitOptions by_device = options;
  by_device.path = Path::hardware;
  // wait() returns before the thread that ends the job has called this: it would come too late.
  by_device.then = nullptr;
  Job job;
  for (int tries = 0; tries < kTriesMax; ++tries) {
    // However often it is tried, it is one call that had to wait.
    if (tries == 1) statistics_.count_retry(operation.kind());
    const Submit answer = start_one(job, operation, by_device);
    if (answer == Submit::accepted) {
      completion = job.wait();
      // From here on they may stop the engine, or end it.
      if (tries != 0) ++completion.retries;
      if (options.then != nullptr) options.then(options.then_context);
    } else if (answer == Submit::closed) {
      statistics_.count_refused();
    }
    if (answer != Submit::full) return answer;
    poll();
    platform::pause();
  }
  return Submit::full;
}

Submit EngineState::run_after(const Operation& operation, Completion& completion,
                              const SubmitOptions& options) {
  // Ends when they have, and touches no mover.
  Job all;
  const Submit answer =
      note_refusal(start_one(all, Operation::copy({}, {}), {.after = options.after}));
  if (answer != Submit::accepted) return answer;
  const Completion end = all.wait();
  if (end.state == JobState::done) {
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
