// SPDX-License-Identifier: Apache-2.0
#include "engine_state.hpp"

#include <algorithm>

#include "completions.hpp"
#include "decide.hpp"
#include "dependants.hpp"
#include "headrace/base/check.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/platform/thread.hpp"
#include "headrace/platform/ticks.hpp"
#include "headrace/platform/wait.hpp"
#include "job_word.hpp"
#include "memory_access.hpp"
#include "software/software.hpp"
#include "traced.hpp"

namespace headrace::engine {
namespace {

static_assert(sizeof(Job) <= 640 && sizeof(Request) <= 272, "callers keep many of them");

/// Between two looks of stop() at the users of the engine.
constexpr std::chrono::nanoseconds kStopSleep = std::chrono::microseconds(50);

/// The calls of users' functions, and the jobs carried out, on the stack of this thread.
[[gnu::tls_model("initial-exec")]] constinit thread_local const Frame* calling = nullptr;

/// True inside two of them. A job that ends inside its submission calls functions that may submit
/// the next; from here on, they are begun one after the other and not one inside the other.
bool is_nested() {
  return calling != nullptr && calling->outer() != nullptr;
}

/// Calls `function` for `job` of `engine`, which may no longer exist.
template <typename Function, typename... Ends>
[[gnu::noinline]] void call(const EngineState& engine, const Job& job, Function function,
                            void* context, const Ends&... end) noexcept {
  // A callback is called with the outcome, before the end; `then` is called after it.
  const Frame frame(calling, engine, trace::id_of(&job), sizeof...(end) != 0);
  function(context, end...);
}

std::size_t load_of(const void* movers, std::size_t index) {
  return (*static_cast<const std::vector<std::unique_ptr<Mover>>*>(movers))[index]->load();
}

bool compares(OperationKind kind) {
  return kind == OperationKind::compare || kind == OperationKind::compare_pattern;
}

}  // namespace

/// The fields of a job that a submission overwrites and a caller can observe, to restore them if it
/// is refused. Callback and `then` cannot be observed before the next accepted submission.
struct EngineState::Before {
  explicit Before(const Job& job) : operation(job.operation_), engine(job.fields().engine) {
    if (job.is_batch()) [[unlikely]]
      batch = job.batch_;
  }
  Before(const Operation& operation_before, EngineState* engine_before)
      : operation(operation_before), engine(engine_before) {}

  Operation operation;
  EngineState* engine;
  std::optional<Batch> batch;
};

EngineState::EngineState(std::vector<std::unique_ptr<Mover>> movers, Settings settings)
    : movers_(std::move(movers)),
      settings_(std::move(settings)),
      parts_(movers_.size() > 1 ? SlotWords::kSlotMax : 0),
      gate_(platform::has_heavy_barrier()) {
  const auto first_device = std::stable_partition(
      movers_.begin(), movers_.end(),
      [](const std::unique_ptr<Mover>& mover) { return !mover->info().hardware; });
  for (const std::unique_ptr<Mover>& mover : movers_) infos_.push_back(mover->info());
  facts_ = {.movers = infos_,
            .processor_count = static_cast<std::size_t>(first_device - movers_.begin()),
            .packages = settings_.packages,
            .thresholds = settings_.thresholds,
            .path = settings_.path,
            .policy = settings_.policy ? &settings_.policy : nullptr,
            .loads = Loads(load_of, &movers_),
            .caller_node = platform::current_node};
  any_polled_ = std::ranges::any_of(infos_, &MoverInfo::polled);
  usual_ = find_usual();
  run_thresholds_ = settings_.thresholds;
  if (first_device == movers_.end()) run_thresholds_.synchronous = Bytes(~std::size_t{0});
  if (settings_.waiting == Waiting::umwait && !platform::has_line_wait()) {
    settings_.waiting = Waiting::spin;
    settings_.notes.emplace_back("threads spin: this processor has no UMWAIT (CPUID: WAITPKG)");
  }
  platform::watch_forks();
  fork_count_ = platform::fork_count();
  publish_statistics();  // Last: the publisher's thread calls the engine immediately.
}

EngineState::~EngineState() {
  if (!is_forked()) {
    stop();
    return;
  }
  // The movers' threads exist only in the parent and cannot be joined: the child leaks the movers.
  for (std::unique_ptr<Mover>& mover : movers_) static_cast<void>(mover.release());  // NOLINT
}

// --- Submission ----------------------------------------------------------------------------------

Submit EngineState::submit_copy(Job& job, const CopyPlan& plan, const SubmitOptions& options) {
  const std::size_t byte_count = plan.source.size();
  if (plan.target.size() == byte_count &&
      Operation::is_simple_copy(plan.target.data(), plan.source.data(), byte_count,
                                kAskedForNodeBytesMin - 1) &&
      options.after.empty() && calling == nullptr && !trace::is_on()) [[likely]] {
    ThreadState* const mine = threads_.mine();
    const bool usual = is_usual(byte_count, options);
    if (usual && job.fields().usual_for == threads_.id() && mine != nullptr) [[likely]] {
      return note_refusal(start_usual(job, plan, *mine));
    }
    return note_refusal(start(
        job, [&] { new (&job.operation_) Operation(Operation::copy(plan.target, plan.source)); },
        {.kind = OperationKind::copy, .byte_count = byte_count}, options, mine, usual));
  }
  return submit_other_copy(job, plan, options);
}

/// A copy that is large, empty, in place or invalid, that has predecessors, that is submitted
/// inside a call of a user's function, or that is traced.
Submit EngineState::submit_other_copy(Job& job, const CopyPlan& plan,
                                      const SubmitOptions& options) {
  const Operation copy = Operation::copy(plan.target, plan.source);
  const Submit valid = copy.validate();
  if (valid != Submit::accepted && valid != Submit::empty) return valid;
  return note_refusal(start_one(job, copy, options));
}

Submit EngineState::submit(Job& job, const Operation& operation, const SubmitOptions& options) {
  const Submit valid = operation.validate();
  if (valid != Submit::accepted) return valid;
  return note_refusal(operation.kind() == OperationKind::drain
                          ? submit_drain(job, operation, options)
                          : start_one(job, operation, options));
}

Submit EngineState::submit_batch(Job& job, const Batch& batch, const SubmitOptions& options) {
  if (batch.operations.empty()) return Submit::empty;
  if (!batch.completions.empty() && batch.completions.size() != batch.operations.size()) {
    return Submit::length_differs;
  }
  std::size_t byte_count = 0;
  OperationSet kinds;
  std::size_t simple_count = 0;
  for (const Operation& operation : batch.operations) {
    if (operation.is_simple_copy(Operation::kSimpleBytesMax)) [[likely]] {
      byte_count += operation.source().size();
      ++simple_count;
      continue;
    }
    const Submit valid = operation.validate();
    if (valid != Submit::accepted) return valid;
    byte_count += operation.byte_count();
    kinds = kinds.with(operation.kind());
  }
  if (simple_count != 0) kinds = kinds.with(OperationKind::copy);
  const std::uint64_t traced_ticks = trace::is_on() ? platform::ticks() : 0;
  const Submit answer = start(
      job,
      [&] {
        job.operation_ = {};
        job.batch_ = batch;
      },
      {.kinds = kinds,
       .byte_count = byte_count,
       .operation_count = batch.operations.size(),
       .deferred = is_nested()},
      options, threads_.mine());
  if (traced_ticks != 0 && answer == Submit::accepted) [[unlikely]] {
    record_job(trace::id_of(&job), batch.operations, byte_count, options, traced_ticks);
  }
  return note_refusal(answer);
}

Submit EngineState::start_one(Job& job, const Operation& operation, const SubmitOptions& options) {
  std::optional<SubmitOptions> known;
  if (operation.byte_count() >= kAskedForNodeBytesMin) [[unlikely]]
    known = with_nodes(operation, options);
  const std::uint64_t traced_ticks = trace::is_on() ? platform::ticks() : 0;
  const Submit answer = start(
      job, [&] { job.operation_ = operation; },
      {.kind = operation.kind(),
       .byte_count = operation.byte_count(),
       .deferred = operation.kind() == OperationKind::drain || is_nested()},
      known ? *known : options, threads_.mine());
  if (traced_ticks != 0 && answer == Submit::accepted) [[unlikely]] {
    record_job(trace::id_of(&job), {&operation, 1}, operation.byte_count(), options, traced_ticks);
  }
  return answer;
}

/// A drain is a blocked job (graph.cpp) that is started when the set of the gate that it found is
/// empty. Meanwhile a second one would have to wait for jobs behind it: there are two sets.
Submit EngineState::submit_drain(Job& job, const Operation& drain, const SubmitOptions& options) {
  if (is_forked()) return Submit::forked;
  // The job of a callback ends behind it, and would wait for the drain if that waited in there.
  if (Frame::any_that_runs(calling, *this)) return Submit::bad_predecessor;
  // edge: engine-drained (acq_rel)
  if (draining_.exchange_acq_rel(true)) return is_closed() ? Submit::closed : Submit::full;
  try {
    const Submit answer = start_one(job, drain, options);
    // edge: engine-drained (release)
    if (answer != Submit::accepted) draining_.store_release(false);
    return answer;
  } catch (...) {                    // A policy threw.
    draining_.store_release(false);  // edge: engine-drained (release)
    throw;
  }
}

EngineState::Usual EngineState::find_usual() const {
  const auto devices = std::span(infos_).subspan(facts_.processor_count);
  const bool all_copy = std::ranges::all_of(
      devices, [](const MoverInfo& device) { return device.operations.has(OperationKind::copy); });
  if (devices.empty() || !all_copy || facts_.policy != nullptr || facts_.path == Path::cpu) {
    return {};
  }
  const std::size_t threshold = facts_.thresholds.asynchronous.count();
  return {.bytes_min = facts_.path == Path::automatic ? threshold : 0,
          .first = static_cast<std::uint32_t>(facts_.processor_count),
          .count = static_cast<std::uint32_t>(devices.size())};
}

/// The job may be gone.
void EngineState::record_job(std::uint64_t id, std::span<const Operation> operations,
                             std::size_t byte_count, const SubmitOptions& options,
                             std::uint64_t begun_ticks) const noexcept {
  for (const Job* const before : options.after) {
    trace::record({.begin_ticks = begun_ticks,
                   .id = id,
                   .other = trace::id_of(before),
                   .kind = trace::Kind::after});
  }
  detail::record({.begin_ticks = begun_ticks,
                  .id = id,
                  .other = calling == nullptr ? 0 : calling->job(),
                  .kind = trace::Kind::job},
                 operations, byte_count, options.path.value_or(settings_.path));
}

/// Adds the NUMA nodes of a large operation to `options` if the caller did not set them and there
/// are several movers to choose from.
SubmitOptions EngineState::with_nodes(const Operation& operation,
                                      const SubmitOptions& options) const {
  const auto node_of = [this](std::span<const std::byte> bytes) -> std::optional<NodeId> {
    if (bytes.empty()) return std::nullopt;
    return settings_.node_of != nullptr ? settings_.node_of(bytes.data())
                                        : platform::node_of_address(bytes.data());
  };
  const std::size_t devices = movers_.size() - facts_.processor_count;
  SubmitOptions known = options;
  if (std::max(facts_.processor_count, devices) > 1 && !options.source_node &&
      !options.target_node) {
    known.source_node = node_of(operation.source());
    known.target_node = node_of(operation.target());
  }
  return known;
}

/// `then` submits its job while other threads enter wait() or poll(): their pins end before long.
/// Returns the word.
std::uint32_t EngineState::await_pins(const Job& job) noexcept {
  std::uint32_t word = 0;
  do {
    HEADRACE_CHECK(job.fields().then != nullptr,
                   "a job without `then` is submitted again after wait() and poll() have returned");
    platform::pause();
    // edge: job-visited (acquire)
    word = job.word_.load_acquire();
  } while (detail::pin_count(word) != 0);
  return word;
}

std::uint32_t EngineState::running_word(const Job& job) const noexcept {
  const bool pinned = job.fields().then != nullptr || !gate_.is_unequal();
  return detail::word_of(JobState::running) | (pinned ? detail::kPinFlag : 0);
}

/// `assign` writes the job's operation or batch. `usual`: it is_usual().
template <typename Assign>
inline Submit EngineState::start(Job& job, const Assign& assign, Workload work,
                                 const SubmitOptions& options, ThreadState* mine, bool usual) {
  if (is_forked()) [[unlikely]]
    return Submit::forked;
  if (!options.after.empty()) [[unlikely]] {
    bool deferred = false;
    const Submit valid = check(job, options.after, deferred);
    if (valid != Submit::accepted) return valid;
    work.deferred = work.deferred || deferred;
  }
  // edge: job-ended (acquire)
  // edge: job-visited (acquire)
  std::uint32_t word_before = job.word_.load_acquire();
  HEADRACE_CHECK(!detail::is_running(word_before), "a running job cannot be submitted");
  if (detail::pin_count(word_before) != 0) [[unlikely]]
    word_before = await_pins(job);
  work.turn = turn_of(mine != nullptr ? *mine : shared_);
  // Before the gate: a policy may throw.
  detail::decide(work, options, facts_, job.fields().route);
  const std::uint64_t gate_set = enter(mine);
  if (gate_set >= Gate::kClosed) [[unlikely]]
    return Submit::closed;

  const Before before(job);
  if (before.batch) [[unlikely]]
    job.batch_ = {};
  assign();
  job.byte_count_ = work.byte_count;
  job.on_done_ = end_job;
  job.overdue_ = false;
  job.mover_.store_relaxed(nullptr);  // A hint, which carries nothing.
  Job::Fields& fields = job.fields();
  fields.gate_set = gate_set;
  fields.callback = options.callback;
  fields.callback_context = options.callback_context;
  fields.then = options.then;
  fields.then_context = options.then_context;
  fields.engine = this;
  fields.fork_count.store_relaxed(fork_count_);  // Published by `job-submitted`, as what follows.
  fields.turn = static_cast<std::uint32_t>(work.turn);
  fields.held_back = false;
  fields.part_count = 1;
  fields.dependants.store_relaxed(nullptr);  // Published by `job-submitted`.
  fields.begun_ticks = platform::ticks();
  fields.polled.store_relaxed(polls(fields.route));  // As above.
  fields.usual_for = usual && mine != nullptr ? threads_.id() : 0;
  if (work.deferred) [[unlikely]] {
    hold_back(job, options.after);
    return Submit::accepted;
  }
  if (fields.route.movers.chosen().size() > 1) [[unlikely]]
    split(job);
  count(mine, [](Statistics& counts) { counts.count_submitted(); });  // Undone on refusal.
  job.word_.store_release(running_word(job));  // edge: job-submitted (release)
  if (fields.route.by != Route::By::movers) [[unlikely]] {
    end_inline(job);
    return Submit::accepted;
  }
  const Submit answer = issue(job);
  if (answer == Submit::accepted) [[likely]]
    return answer;  // The job and the engine may be gone.
  count(mine, [](Statistics& counts) { counts.uncount_submitted(); });
  take_back(job, before, word_before);
  return answer;
}

/// start() for a usual copy whose job has the fields of one: those that do not change are not
/// written again.
inline Submit EngineState::start_usual(Job& job, const CopyPlan& plan, ThreadState& mine) {
  if (is_forked()) [[unlikely]]
    return Submit::forked;
  // edge: job-ended (acquire)
  // edge: job-visited (acquire)
  const std::uint32_t word_before = job.word_.load_acquire();
  HEADRACE_CHECK(!detail::is_running(word_before), "a running job cannot be submitted");
  const std::uint64_t gate_set = enter(&mine);
  if (gate_set >= Gate::kClosed) [[unlikely]]
    return Submit::closed;
  Job::Fields& fields = job.fields();
  fields.gate_set = gate_set;
  if (usual_.count > 1) {
    fields.turn = static_cast<std::uint32_t>(turn_of(mine));
    fields.route.movers.set(usual_.first + fields.turn % usual_.count);
  }
  fields.route.fell_back = false;
  const CopyPlan before{.target = job.operation_.target(), .source = job.operation_.source()};
  job.operation_.copy_instead(plan.target, plan.source);
  job.byte_count_ = plan.source.size();
  job.on_done_ = end_usual;
  fields.dependants.store_relaxed(nullptr);  // Published by `job-submitted`.
  fields.begun_ticks = platform::ticks();
  Mover& mover = *movers_[fields.route.movers.chosen()[0]];
  job.mover_.store_relaxed(&mover);  // A hint for pollers.
  mine.statistics.count_submitted();
  // edge: job-submitted (release)
  job.word_.store_release(detail::word_of(JobState::running));
  Submit answer = mover.post(job);
  if (answer == Submit::accepted) [[likely]]
    return answer;  // The job and the engine may be gone.
  fields.usual_for = 0;
  answer = issue_elsewhere(job, answer);
  if (answer == Submit::accepted) return answer;
  mine.statistics.uncount_submitted();
  take_back(job, Before(Operation::copy(before.target, before.source), this), word_before);
  return answer;
}

/// Completes a job without movers: the calling thread carries it out, or its policy refused it.
void EngineState::end_inline(Job& job) noexcept {
  if (job.fields().route.by == Route::By::none) {
    detail::note_unbegun(job, {.cause = Cause::mover_refused});
    return end_job(job, false);
  }
  carry_out_here(job);
}

/// Splits `job` among its movers if that is worthwhile and a part block is free.
void EngineState::split(Job& job) noexcept {
  if (job.is_batch() || !job.operation_.has_independent_parts()) return;
  const std::size_t count =
      detail::part_count(job.byte_count_, job.fields().route.movers.chosen().size());
  PartBlock* const block = count == 1 ? nullptr : parts_.take();
  if (block == nullptr) return;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t end = detail::part_end(job.operation_, i, count);
    Part& part = block->parts[i];
    part.assign(job.operation_.part(begin, end - begin), {}, end - begin);
    part.job = &job;
    part.whole_ = &job;
    part.offset_bytes = begin;
    part.on_done_ = end_part;
    part.overdue_ = job.overdue_;
    part.mover_.store_relaxed(nullptr);  // A hint, which carries nothing.
    begin = end;
  }
  job.fields().parts = block;
  job.fields().part_count = static_cast<std::uint32_t>(count);
  // Published by posting the parts.
  job.fields().parts_left.store_relaxed(job.fields().part_count);
}

// --- Issue ---------------------------------------------------------------------------------------

/// Posts `request`, `job` or a part of it, to the first of `count` movers from index `begin` on, in
/// turn, that takes it, except for the chosen ones. Sets `full` if one of them is.
bool EngineState::offer_others(Request& request, const Job& job, std::size_t begin,
                               std::size_t count, std::uint64_t turn, bool& full) noexcept {
  const Workload work = workload_of(job);
  const std::span<const std::uint32_t> chosen = job.fields().route.movers.chosen();
  for (std::size_t k = 0; k < count; ++k) {
    const auto index = static_cast<std::uint32_t>(begin + (turn + k) % count);
    if (std::ranges::find(chosen, index) != chosen.end()) continue;
    if (!can_carry_out(infos_[index], work)) continue;
    const Submit answer = post(request, index);
    if (answer == Submit::accepted) return true;
    full = full || answer == Submit::full;
  }
  return false;
}

/// Called when the first mover refused `job`, or its first part, with `answer`.
Submit EngineState::issue_elsewhere(Job& job, Submit answer) noexcept {
  const Route& route = job.fields().route;
  const std::span<const std::uint32_t> chosen = route.movers.chosen();
  const bool whole = job.fields().part_count == 1;
  Request& request = whole ? static_cast<Request&>(job) : job.fields().parts->parts[0];
  bool full = answer == Submit::full;
  bool taken = false;
  if (!is_closed()) {
    // Falling back within a round robin (`any`) is not reported: any mover was as good.
    job.fields().route.fell_back = job.fields().route.fell_back || (!full && !route.any);
    for (std::size_t k = 1; k < chosen.size() && !taken; ++k) {
      const Submit one = post(request, chosen[(job.fields().turn + k) % chosen.size()]);
      taken = one == Submit::accepted;
      full = full || one == Submit::full;
    }
    const std::size_t processors = facts_.processor_count;
    if (!taken && route.any) {
      const bool device = chosen[0] >= processors;
      const std::size_t first = device ? processors : 0;
      const std::size_t count = device ? movers_.size() - first : processors;
      // More than the chosen one.
      if (count > 1) taken = offer_others(request, job, first, count, chosen[0] - first, full);
    }
    // Processors replace devices that are closed whatever the path, those that are full only if
    // the path allows it.
    if (!taken && (!full || (whole && route.or_processors))) {
      job.fields().route.fell_back = job.fields().route.fell_back || !full;
      taken = offer_others(request, job, 0, processors, job.fields().turn, full);
    }
  }
  if (taken) {
    if (!whole) issue_parts(job);
    return Submit::accepted;
  }
  if (full || is_closed()) {
    // part_count_ stays, because pollers may read it; the next submission or begin() sets it.
    if (!whole) parts_.give_back(*job.fields().parts);
    return full ? Submit::full : Submit::closed;
  }
  // The engine has no processors, or the caller's own movers refuse it.
  PartBlock* const block = whole ? nullptr : job.fields().parts;
  carry_out_here(request);
  if (block != nullptr) issue_parts(job);
  return Submit::accepted;
}

/// Posts all parts but the first, which has been posted. The job may be gone once the last part is
/// posted.
void EngineState::issue_parts(Job& job) noexcept {
  const std::span<const std::uint32_t> chosen = job.fields().route.movers.chosen();
  const std::uint64_t turn = job.fields().turn;
  const std::size_t count = job.fields().part_count;
  PartBlock& block = *job.fields().parts;
  for (std::size_t i = 1; i < count; ++i) {
    Part& part = block.parts[i];
    bool taken = false;
    for (std::size_t k = 0; k < chosen.size() && !taken; ++k) {
      if (k == 1) job.fields().route.fell_back = true;
      taken = post(part, chosen[(turn + i + k) % chosen.size()]) == Submit::accepted;
    }
    if (taken) continue;
    part.overdue_ = true;  // Workers are never full then.
    bool full = false;
    if (!offer_others(part, job, 0, facts_.processor_count, turn, full)) carry_out_here(part);
  }
}

Workload EngineState::workload_of(const Job& job) const noexcept {
  Workload work{.kind = job.operation_.kind(),
                .byte_count = job.byte_count_,
                .operation_count = job.batch_.operations.size()};
  for (const Operation& operation : job.batch_.operations) {
    work.kinds = work.kinds.with(operation.kind());
  }
  return work;
}

void EngineState::carry_out_here(Request& request) const noexcept {
  const Frame frame(calling, *this);
  if (request.is_batch()) {
    return request.complete(software::execute_batch(request, settings_.check_memory));
  }
  if (const auto bad = detail::inaccessible(request.operation(), settings_.check_memory)) {
    return request.complete({.cause = Cause::page_fault, .fault_address = *bad});
  }
  request.complete(software::execute_in_pieces(request.operation(), request));
}

void EngineState::take_back(Job& job, const Before& before, std::uint32_t word_before) noexcept {
  job.operation_ = before.operation;
  job.batch_ = before.batch.value_or(Batch());
  job.fields().engine = before.engine;
  const bool was_stopped = (word_before & detail::kStopFlag) != 0;
  if (was_stopped) static_cast<void>(detail::set_flag(job.word_, detail::kStopFlag));
  // A job must not be named as a predecessor before its submission has returned.
  std::uint32_t seen = 0;
  const void* const address = &job.word_;
  const std::uint64_t gate_set = job.fields().gate_set;
  HEADRACE_CHECK(detail::end_word(job.word_, detail::state_of(word_before), seen),
                 "a job is named after its submission");
  if ((seen & detail::kSleeperFlag) != 0) platform::wake_sleepers_at(address);
  if (detail::pin_count(seen) == 0) leave(gate_set);
}

// --- The end -------------------------------------------------------------------------------------

void EngineState::end_part(Request& request, bool /*plain*/) noexcept {
  Job& job = *static_cast<Part&>(request).job;
  // edge: part-ended (acq_rel)
  if (job.fields().parts_left.fetch_sub_acq_rel(1) != 1) return;
  PartBlock& block = *job.fields().parts;
  Completion whole;
  for (std::size_t i = 0; i < job.fields().part_count; ++i) {
    detail::append(whole, block.parts[i].outcome, block.parts[i].offset_bytes);
  }
  job.outcome = detail::ended(whole);
  job.fields().engine->parts_.give_back(block);
  end_job(job, false);
}

void EngineState::end_job(Request& request, bool plain) noexcept {
  auto& job = static_cast<Job&>(request);
  if (!plain || job.fields().callback != nullptr || job.fields().then != nullptr) [[unlikely]]
    return end_and_call(job);
  end_plain(job);
}

/// Counts and completes `job`, which may be gone afterwards. `plain`: completed by a device,
/// without a callback. The job's count in the gate keeps the engine alive until leave().
inline void EngineState::finish(Job& job, bool plain) noexcept {
  EngineState& engine = *job.fields().engine;
  ThreadState* const mine = engine.threads_.mine();
  Completion& end = job.outcome;
  if (plain && !job.fields().route.fell_back) [[likely]] {
    engine.count(mine, [&](Statistics& counts) {
      counts.count_plain(static_cast<std::size_t>(job.operation_.kind()), job.byte_count_,
                         job.fields().begun_ticks);
    });
  } else {
    end.fell_back = end.fell_back || job.fields().route.fell_back;
    engine.count(mine, [&](Statistics& counts) {
      counts.count(
          job.is_batch() ? kOperationKindCount : static_cast<std::size_t>(job.operation_.kind()),
          end, job.fields().begun_ticks);
    });
  }
  if (!plain && job.fields().callback != nullptr)
    call(engine, job, job.fields().callback, job.fields().callback_context, end);
  end_counted(job, engine, mine, plain ? JobState::done : end.state);
}

/// Out of line, so that end_job() saves no registers for a batch.
void EngineState::end_plain(Job& job) noexcept {
  finish(job, true);
}

/// The end of finish().
inline void EngineState::end_counted(Job& job, EngineState& engine, ThreadState* mine,
                                     JobState state) noexcept {
  std::uint32_t seen = 0;
  // The last access: a thread that sees the new state may destroy or resubmit the job.
  const void* const address = &job.word_;
  const std::uint64_t gate_set = job.fields().gate_set;
  if (!detail::end_word(job.word_, state, seen)) [[unlikely]]
    return engine.end_with_dependants(job);
  if ((seen & detail::kSleeperFlag) != 0) [[unlikely]]
    platform::wake_sleepers_at(address);
  if (detail::pin_count(seen) == 0) engine.leave(gate_set, mine);
}

/// end_job() for a usual copy.
void EngineState::end_usual(Request& request, bool plain) noexcept {
  auto& job = static_cast<Job&>(request);
  EngineState& engine = *job.fields().engine;
  ThreadState* const mine = engine.threads_.mine();
  if (!plain || job.fields().route.fell_back || mine == nullptr) [[unlikely]]
    return end_job(request, plain);
  mine->statistics.count_plain(static_cast<std::size_t>(OperationKind::copy), job.byte_count_,
                               job.fields().begun_ticks);
  end_counted(job, engine, mine, JobState::done);
}

/// finish() for jobs that are not plain or have a callback or `then`.
void EngineState::end_and_call(Job& job) noexcept {
  const EngineState& engine = *job.fields().engine;
  const auto then = job.fields().then;
  void* const then_context = job.fields().then_context;
  Completion& end = job.outcome;
  if (end.result.different && end.state == JobState::done && compares(job.operation_.kind())) {
    // Bytes compared concurrently behind the difference do not count.
    end.bytes_done = end.result.difference_offset;
    end.bytes_by_device = std::min(end.bytes_by_device, end.bytes_done);
  }
  finish(job, false);
  if (then != nullptr) call(engine, job, then, then_context);
}

void EngineState::stop() {
  if (is_forked()) return;
  HEADRACE_CHECK(
      !Frame::any_of(calling, *this),
      "a callback or `then` must not stop or destroy the engine of its own job, which would wait "
      "for this call: do it in another thread, or after wait() or poll() has returned");
  const bool is_first = gate_.close();
  if (is_first) {
    for (const std::unique_ptr<Mover>& mover : movers_) mover->stop();
  }
  // Idle movers are not enough: jobs complete after their parts, or reach a mover after its stop().
  for (begin_due(); !is_empty(0, Gate::kStaying); platform::sleep(kStopSleep)) {
    for (const std::unique_ptr<Mover>& mover : movers_) mover->reap();
    begin_due();  // They complete as stopped.
  }
  gate_.separate();
  const std::uintptr_t key = key_of(this, fork_count_);
  for (const Visitor& visitor : visitors) {
    while (visitor.is_at(key)) platform::sleep(kStopSleep);
  }
  if (!is_first) return;
  for (const std::unique_ptr<Mover>& mover : movers_) mover->stop();
}

void EngineState::poll() noexcept {
  // Running jobs belong to the parent and would be completed twice.
  if (is_forked()) return;
  for (const std::unique_ptr<Mover>& mover : movers_) mover->reap();
  begin_due();
}

/// poll_for() for a job of several parts, or one that was blocked.
void EngineState::poll_all_of(const Job& job) noexcept {
  if (job.fields().held_back) return poll();  // It may depend on any job.
  // The caller pins the job, so the parts are, or were, those of this submission.
  for (std::uint32_t i = 0; i < job.fields().part_count; ++i) {
    const Part& part = job.fields().parts->parts[i];
    if (Mover* const mover = part.mover_.load_relaxed()) mover->reap(part);  // As in poll_for().
  }
}

bool EngineState::rest_for(const Job& job) noexcept {
  // Any of several parts may complete next, and a blocked job may be being split.
  if (job.fields().held_back || job.fields().part_count != 1) return false;
  Mover* const mover = job.mover_.load_relaxed();  // As in poll_for.
  return mover != nullptr && mover->rest(job);
}

}  // namespace headrace::engine
