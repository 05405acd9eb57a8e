// SPDX-License-Identifier: Apache-2.0
#include "engine_state.hpp"

#include <algorithm>
#include <bit>

#include "channel_state.hpp"
#include "dependants.hpp"
#include "headrace/base/check.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/platform/ticks.hpp"
#include "headrace/platform/wait.hpp"
#include "job_word.hpp"
#include "mapped.hpp"
#include "outcome.hpp"
#include "parking_lot.hpp"
#include "software/software.hpp"
#include "split.hpp"

namespace headrace::engine {
namespace {

/// How a job ended, from how its shares did.
Completion gather(const Operation& operation, std::span<const Share> shares, bool fell_back) {
  ShareOutcome whole{.fell_back = fell_back};
  for (const Share& share : shares) detail::append(whole, share.outcome, share.offset_bytes);
  const bool compares = operation.kind() == OperationKind::compare ||
                        operation.kind() == OperationKind::compare_pattern;
  if (compares && whole.result.different && whole.cause == Cause::none && !whole.stopped) {
    // What others compared behind it at the same time is of no account.
    whole.bytes_done = whole.result.difference_offset;
    whole.bytes_by_device = std::min(whole.bytes_by_device, whole.bytes_done);
  }
  return detail::to_completion(whole);
}

}  // namespace

/// Counts that a call holds in the gate; gives back what it has not given away.
///
/// Threading: owned.
class EngineState::Presence {
 public:
  Presence(EngineState& state, std::uint64_t held_count) : state_(state), held_count_(held_count) {}
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;
  ~Presence() { state_.leave(held_count_); }
  /// From now on it is end_job() that leaves once.
  void give_one_to_the_job() { --held_count_; }

 private:
  EngineState& state_;
  std::uint64_t held_count_;
};

/// What a submission overwrites in a job and a caller can see, for one that is refused.
struct EngineState::Before {
  explicit Before(const Job& job)
      : operation(job.operation_),
        batch(job.batch_),
        callback(job.callback_),
        callback_context(job.callback_context_),
        then(job.then_),
        then_context(job.then_context_),
        engine(job.engine_),
        fork_count(job.fork_count_) {}

  Operation operation;
  Batch batch;
  Job::Callback callback;
  void* callback_context;
  void (*then)(void* context) noexcept;
  void* then_context;
  EngineState* engine;
  std::uint32_t fork_count;
};

EngineState::EngineState(std::vector<std::unique_ptr<Mover>> movers, Settings settings)
    : movers_(std::move(movers)), settings_(std::move(settings)) {
  by_default_ = !settings_.policy;
  if (by_default_) settings_.policy = movers::near_target;
  const auto first_device = std::stable_partition(
      movers_.begin(), movers_.end(),
      [](const std::unique_ptr<Mover>& mover) { return !mover->info().hardware; });
  software_count_ = static_cast<std::size_t>(first_device - movers_.begin());
  has_both_ = software_count_ != 0 && software_count_ != movers_.size();
  for (const std::unique_ptr<Mover>& mover : movers_) {
    facts_.push_back({mover.get(), mover->info().operations, mover->info().polled, nullptr});
    any_polled_ = any_polled_ || mover->info().polled;
    if (settings_.coalescing.operations_max < 2) continue;
    if (!mover->info().hardware || !mover->info().batches) continue;
    coalescers_.push_back(std::make_unique<Coalescer>(*mover, settings_.coalescing));
    facts_.back().coalescer = coalescers_.back().get();
  }
  if (settings_.waiting == Waiting::umwait && !platform::has_line_wait()) {
    settings_.waiting = Waiting::pause;
    settings_.notes.emplace_back(
        "threads wait by PAUSE and not by UMWAIT, which this processor does not have (CPUID: "
        "WAITPKG)");
  }
  // The first use allocates all buckets: now, and not when the first waiter happens to sleep.
  static_cast<void>(detail::parking_bucket(this));
  platform::watch_forks();
  fork_count_ = platform::fork_count();
}

Submit EngineState::submit_copy(Job& job, const CopyPlan& plan, const SubmitOptions& options) {
  const Operation copy = Operation::copy(plan.target, plan.source);
  const Submit valid = copy.validate();
  if (valid == Submit::accepted) return start_one(job, copy, options);
  if (valid != Submit::empty) return valid;
  return options.after.empty() ? start(job, copy, {}, 0, options)
                               : start_after(job, copy, {}, 0, options);
}

Submit EngineState::submit(Job& job, const Operation& operation, const SubmitOptions& options) {
  const Submit valid = operation.validate();
  if (valid != Submit::accepted) return valid;
  return start_one(job, operation, options);
}

Submit EngineState::submit_batch(Job& job, const Batch& batch, const SubmitOptions& options) {
  if (batch.operations.empty()) return Submit::empty;
  if (!batch.completions.empty() && batch.completions.size() != batch.operations.size()) {
    return Submit::length_differs;
  }
  std::size_t byte_count = 0;
  bool waits = false;
  for (const Operation& operation : batch.operations) {
    const Submit valid = operation.validate();
    if (valid != Submit::accepted) return valid;
    byte_count += operation.byte_count();
    waits = waits || operation.kind() == OperationKind::drain;
  }
  if (!options.after.empty()) {
    return start_after(job, Operation::no_op(), batch, byte_count, options);
  }
  const Bytes threshold(settings_.thresholds.batched.count() * batch.operations.size());
  if (has_both_ && !waits && is_done_at_once(byte_count, threshold, options)) {
    return do_at_once(job, Operation::no_op(), batch, options);
  }
  return start(job, Operation::no_op(), batch, byte_count, options);
}

/// Of one that does not wait.
Bytes EngineState::threshold_of(const Operation& operation) const noexcept {
  // Coalesced jobs cost what those of a batch do.
  const bool batched = !coalescers_.empty() && coalescers_.front()->takes(operation);
  return batched ? settings_.thresholds.batched : settings_.thresholds.asynchronous;
}

const EngineState::MoverFacts* EngineState::obvious_mover(const Operation& operation,
                                                          std::size_t byte_count,
                                                          const SubmitOptions& options) noexcept {
  if (!by_default_ || options.policy != nullptr) return nullptr;
  const std::size_t device_count = facts_.size() - software_count_;
  const Path asked = options.path ? *options.path : settings_.path;
  if (device_count == 0) {
    // One for all nodes. (Who asked for a device is told that there was none.)
    const bool alone = software_count_ == 1 && asked != Path::hardware;
    return alone && facts_[0].operations.has(operation.kind()) ? facts_.data() : nullptr;
  }
  if (options.source_node || options.target_node) return nullptr;
  if (byte_count >= kAskedForNodeBytesMin && device_count > 1) return nullptr;
  const bool wanted = prefers_hardware(asked, byte_count, threshold_of(operation)) ||
                      (asked == Path::automatic && software_count_ == 0);
  if (!wanted) return nullptr;
  // Nobody says where the bytes are, so the devices take turns.
  const std::size_t turn =
      device_count == 1 ? 0 : sequence_.fetch_add_relaxed(1) % device_count;  // Any order.
  const MoverFacts& facts = facts_[software_count_ + turn];
  return facts.operations.has(operation.kind()) ? &facts : nullptr;
}

Submit EngineState::start_one(Job& job, const Operation& operation, const SubmitOptions& options) {
  const std::size_t byte_count = operation.byte_count();
  if (!options.after.empty()) return start_after(job, operation, {}, byte_count, options);
  if (has_both_ && is_done_at_once(byte_count, threshold_of(operation), options)) {
    return do_at_once(job, operation, {}, options);
  }
  if (const MoverFacts* const facts = obvious_mover(operation, byte_count, options)) {
    const Submit answer = start_at(*facts, job, operation, options);
    if (answer == Submit::accepted) return answer;  // From here on they may end the engine.
    return start_elsewhere(*facts, answer, job, operation, options);
  }
  return start(job, operation, {}, byte_count, options);
}

/// As start_one(), when `obvious` has given `answer`.
Submit EngineState::start_elsewhere(const MoverFacts& obvious, Submit answer, Job& job,
                                    const Operation& operation, const SubmitOptions& options) {
  const bool is_device = software_count_ < facts_.size();
  if (answer == Submit::full && is_device) {
    answer = start_at_another(obvious, job, operation, options);
  }
  if (answer == Submit::accepted || is_closed()) return answer;
  if (answer == Submit::full && is_device && may_turn_to_processors(options)) {
    SubmitOptions by_processor = options;
    by_processor.path = Path::software;
    return start(job, operation, {}, operation.byte_count(), by_processor);
  }
  if (answer == Submit::full) submissions_refused_.fetch_add_relaxed(1);  // A count of its own.
  // A device that is gone: whoever else there is.
  if (answer != Submit::closed) return answer;
  return start(job, operation, {}, operation.byte_count(), options);
}

bool EngineState::may_turn_to_processors(const SubmitOptions& options) const noexcept {
  return software_count_ != 0 && options.path.value_or(settings_.path) == Path::automatic;
}

/// As start_at(), with the devices behind `full`, whose turn it was, until one has room.
Submit EngineState::start_at_another(const MoverFacts& full, Job& job, const Operation& operation,
                                     const SubmitOptions& options) {
  const std::span devices = std::span<const MoverFacts>(facts_).subspan(software_count_);
  const auto first = static_cast<std::size_t>(&full - devices.data());
  for (std::size_t k = 1; k < devices.size(); ++k) {
    const MoverFacts& facts = devices[(first + k) % devices.size()];
    if (!facts.operations.has(operation.kind())) continue;
    const Submit answer = start_at(facts, job, operation, options);
    if (answer != Submit::full && answer != Submit::closed) return answer;
    if (is_closed()) return answer;
  }
  return Submit::full;
}

/// As start(), for one share that `mover` takes or nobody. After it was taken nothing of the engine
/// is touched, so that only the job has to be counted in the gate.
Submit EngineState::start_at(const MoverFacts& facts, Job& job, const Operation& operation,
                             const SubmitOptions& options) {
  const std::uint32_t word_before = job.word_.load_acquire();  // edge: job-ended (acquire)
  HEADRACE_CHECK(!detail::is_running(word_before), "a running job cannot be submitted");
  if (is_forked()) return Submit::forked;
  if (!enter(1)) {
    submissions_refused_.fetch_add_relaxed(1);  // A count of its own.
    return Submit::closed;
  }
  const Before before(job);
  prepare(job, operation, options);
  job.engine_ = this;
  job.fork_count_ = fork_count_;
  job.fell_back_ = false;
  job.polled_ = facts.polled;
  job.share_count_ = 1;
  job.shares_left_.store_relaxed(1);  // Reaches the mover with the share.
  Share& share = job.shares_[0];
  share.job = &job;
  share.offset_bytes = 0;
  share.byte_count = operation.byte_count();
  share.overdue = false;
  share.slot_index.store_relaxed(Share::kNoSlot);  // Hints, which carry nothing.
  Mover* const taker = facts.coalescer != nullptr && facts.coalescer->takes(operation)
                           ? static_cast<Mover*>(facts.coalescer)
                           : facts.mover;
  share.mover.store_relaxed(taker);      // As above.
  jobs_submitted_.fetch_add_relaxed(1);  // A count of its own; undone if it was not.
  job.word_.store_release(detail::word_of(JobState::running));  // edge: job-submitted (release)
  const Submit answer = taker->submit(share);
  if (answer == Submit::accepted) return answer;
  jobs_submitted_.fetch_sub_relaxed(1);  // As above.
  take_back(job, before, word_before);
  return answer;
}

void EngineState::prepare(Job& job, const Operation& operation,
                          const SubmitOptions& options) const {
  job.operation_ = operation;
  job.batch_ = {};
  job.callback_ = options.callback;
  job.callback_context_ = options.callback_context;
  job.then_ = options.then;
  job.then_context_ = options.then_context;
  job.waiting_ = settings_.waiting;
  job.held_back_ = false;
  job.dependants_.store_relaxed(nullptr);  // Before `job-submitted`, as the others.
  job.begun_ticks_ = platform::ticks();
}

Submit EngineState::start(Job& job, const Operation& operation, const Batch& batch,
                          std::size_t byte_count, const SubmitOptions& options) {
  const Submit answer = try_start(job, operation, batch, byte_count, options);
  if (answer == Submit::full || answer == Submit::closed) {
    submissions_refused_.fetch_add_relaxed(1);  // A count of its own.
  }
  return answer;
}

Submit EngineState::try_start(Job& job, const Operation& operation, const Batch& batch,
                              std::size_t byte_count, const SubmitOptions& options) {
  const std::uint32_t word_before = job.word_.load_acquire();  // edge: job-ended (acquire)
  HEADRACE_CHECK(!detail::is_running(word_before), "a running job cannot be submitted");
  if (is_forked()) return Submit::forked;
  if (!enter(2)) return Submit::closed;
  Presence presence(*this, 2);                                // This call, and the job.
  const std::uint64_t turn = sequence_.fetch_add_relaxed(1);  // Any order of turns will do.

  const Before before(job);
  prepare(job, operation, options);
  job.batch_ = batch;
  const bool empty = byte_count == 0 && operation.kind() == OperationKind::copy;
  const Choice choice = empty ? Choice() : choose(job, byte_count, options, turn);
  job.engine_ = this;
  job.fork_count_ = fork_count_;
  job.fell_back_ = choice.fell_back;
  if (empty || choice.refused) {
    job.share_count_ = 0;
    job.completion_ = empty ? Completion{.state = JobState::done}
                            : Completion{.state = JobState::failed, .cause = Cause::mover_refused};
  } else {
    prepare_shares(job, byte_count, choice.movers.chosen());
  }
  const bool held_back = !options.after.empty();
  if (held_back) prepare_held(job, choice, turn, options);
  job.word_.store_release(detail::word_of(JobState::running));  // edge: job-submitted (release)

  if (held_back) {
    presence.give_one_to_the_job();
    jobs_submitted_.fetch_add_relaxed(1);  // Counts of their own.
    jobs_held_back_.fetch_add_relaxed(1);
    hold_back(job, options.after);
    return Submit::accepted;
  }
  if (job.share_count_ == 0) {
    presence.give_one_to_the_job();
    jobs_submitted_.fetch_add_relaxed(1);  // A count of its own.
    end_job(job);
    return Submit::accepted;
  }
  const Submit answer = hand_out(job, choice.movers.chosen(), turn);
  // From here on the job may be gone, unless it was refused.
  if (answer == Submit::accepted) {
    presence.give_one_to_the_job();
    jobs_submitted_.fetch_add_relaxed(1);  // A count of its own.
  } else {
    presence.give_one_to_the_job();
    take_back(job, before, word_before);
  }
  return answer;
}

bool EngineState::can(const Mover& mover, const Job& job) {
  const MoverInfo& info = mover.info();
  if (job.batch_.operations.empty()) return info.operations.has(job.operation_.kind());
  if (!info.batches) return false;
  if (info.operations == OperationSet::all()) return true;  // As that of a device.
  return std::all_of(
      job.batch_.operations.begin(), job.batch_.operations.end(),
      [&](const Operation& operation) { return info.operations.has(operation.kind()); });
}

EngineState::Choice EngineState::choose(const Job& job, std::size_t byte_count,
                                        const SubmitOptions& options, std::uint64_t turn) const {
  const std::size_t count = job.batch_.operations.size();
  const Path asked = options.path.value_or(settings_.path);
  const bool wants_hardware =
      count == 0 ? prefers_hardware(asked, byte_count, settings_.thresholds.asynchronous)
                 : prefers_hardware(asked, byte_count / count, settings_.thresholds.batched);
  const bool has_hardware = software_count_ < movers_.size();
  const bool hardware =
      has_hardware && (wants_hardware || (asked != Path::software && software_count_ == 0));
  const std::size_t first = hardware ? software_count_ : 0;
  const std::size_t last = hardware ? movers_.size() : software_count_;
  Choice choice{.fell_back = (asked == Path::hardware && !has_hardware)};
  if (first == last) return choice;
  const std::span<const std::unique_ptr<Mover>> subset(movers_.data() + first, last - first);
  MoverChoice wanted;
  const bool own = options.policy != nullptr && *options.policy;
  std::optional<NodeId> source_node = options.source_node;
  std::optional<NodeId> target_node = options.target_node;
  const bool is_told = source_node.has_value() || target_node.has_value();
  const bool is_large = count == 0 && byte_count >= kAskedForNodeBytesMin;
  if (is_large && !is_told && subset.size() > 1) {
    source_node = node_of(job.operation_.source());
    target_node = node_of(job.operation_.target());
  }
  if (!own && by_default_ && hardware && !is_told && !is_large) {
    wanted.add(turn % subset.size());  // As obvious_mover() does.
  } else {
    const MoveContext context{.movers = subset,
                              .kind = job.operation_.kind(),
                              .source_node = source_node,
                              .target_node = target_node,
                              .byte_count = byte_count,
                              .sequence = turn,
                              .packages = settings_.packages};
    (own ? *options.policy : settings_.policy)(context, wanted);
  }
  choice.refused = wanted.chosen().empty();
  for (const std::uint32_t index : wanted.chosen()) {
    if (index >= subset.size()) return {.refused = true};
    if (can(*subset[index], job)) choice.movers.add(first + index);
  }
  if (!choice.refused && choice.movers.chosen().empty()) choice.fell_back = true;
  return choice;
}

std::optional<NodeId> EngineState::node_of(std::span<const std::byte> bytes) const {
  if (bytes.empty()) return std::nullopt;
  return settings_.node_of != nullptr ? settings_.node_of(bytes.data())
                                      : platform::node_of_address(bytes.data());
}

void EngineState::prepare_shares(Job& job, std::size_t byte_count,
                                 std::span<const std::uint32_t> chosen) {
  const bool splits = job.batch_.operations.empty() && job.operation_.has_independent_parts();
  const std::size_t mover_count = splits ? chosen.size() : 1;
  const std::size_t count = mover_count <= 1 ? 1 : detail::share_count(byte_count, mover_count);
  const std::span<Share> shares(job.shares_.data(), count);
  if (count == 1) {
    shares[0].offset_bytes = 0;
    shares[0].byte_count = byte_count;
  } else {
    detail::split(job.operation_, shares);
  }
  for (Share& share : shares) {
    share.job = &job;
    share.overdue = false;
    share.slot_index.store_relaxed(Share::kNoSlot);  // Hints, which carry nothing.
    share.mover.store_relaxed(nullptr);              // As above.
  }
  job.share_count_ = static_cast<std::uint32_t>(count);
  job.polled_ = false;
  for (const std::uint32_t index : chosen) {
    job.polled_ = job.polled_ || movers_[index]->info().polled;
  }
  // Reaches the movers by whatever lock or queue carries the shares.
  job.shares_left_.store_relaxed(job.share_count_);
}

Submit EngineState::hand_out(Job& job, std::span<const std::uint32_t> chosen, std::uint64_t turn) {
  const std::size_t count = job.share_count_;
  if (chosen.empty()) {
    move_here(job.shares_[0]);
    return Submit::accepted;
  }
  for (std::size_t i = 0; i < count; ++i) {
    // A share that is still here keeps the job alive; after the last one the job may be gone.
    Share& share = job.shares_[i];
    // Turns, so that small jobs do not all go to the mover that was chosen first.
    const std::size_t asked = (turn + i) % chosen.size();
    const auto offer = [&](std::size_t which) {
      Mover& mover = *movers_[chosen[which]];
      share.mover.store_relaxed(&mover);  // A hint for pollers.
      return mover.submit(share);
    };
    Submit answer = offer(asked);
    if (answer == Submit::accepted) continue;
    if (i == 0 && is_closed()) return answer;
    // As long as nobody has anything, whose turn it was means nothing to anybody.
    bool full = answer == Submit::full;
    job.fell_back_ = job.fell_back_ || i > 0 || !full;
    for (std::size_t k = 1; k < chosen.size() && answer != Submit::accepted; ++k) {
      answer = offer((asked + k) % chosen.size());
      full = full || answer == Submit::full;
    }
    if (answer == Submit::accepted) continue;
    if (i == 0 && full) return Submit::full;
    job.fell_back_ = true;
    move_here(share);
  }
  return Submit::accepted;
}

void EngineState::move_here(Share& share) const noexcept {
  const Batch& batch = share.batch();
  if (!batch.operations.empty()) {
    end_share(share, software::execute_batch(batch, *share.job, settings_.check_memory));
    return;
  }
  const Operation operation = share.operation();
  if (const auto bad = detail::inaccessible(operation, settings_.check_memory)) {
    return end_share(share, {.cause = Cause::page_fault, .fault_address = *bad});
  }
  end_share(share, software::execute_in_pieces(operation, *share.job));
}

void EngineState::end_share(Share& share, const ShareOutcome& outcome) noexcept {
  Job* const job = share.job;
  HEADRACE_CHECK(job != nullptr, "a share is ended once");
  HEADRACE_CHECK(outcome.bytes_done <= share.byte_count, "no more is done than was asked for",
                 outcome.bytes_done, share.byte_count);
  HEADRACE_CHECK(outcome.bytes_done == share.byte_count || outcome.stopped ||
                     outcome.cause != Cause::none || outcome.result.different ||
                     !job->batch_.operations.empty(),
                 "a share that was done in part was stopped, failed or found what it looked for",
                 outcome.bytes_done, share.byte_count);
  share.outcome = outcome;
  share.job = nullptr;
  if (job->engine_ == nullptr) {
    return job->callback_(job->callback_context_, detail::to_completion(outcome));
  }
  // Of an only share nothing is left to be seen of others.
  // edge: share-ended (acq_rel)
  if (job->share_count_ != 1 && job->shares_left_.fetch_sub_acq_rel(1) != 1) return;
  job->completion_ =
      gather(job->operation_, {job->shares_.data(), job->share_count_}, job->fell_back_);
  end_job(*job);
}

void EngineState::end_share_done_by_device(Share& share) noexcept {
  Job* const job = share.job;
  if (job == nullptr || job->share_count_ != 1 || job->fell_back_) {
    return end_share(share, {.bytes_done = share.byte_count, .bytes_by_device = share.byte_count});
  }
  // The only share: whoever ends it is who did it, so nothing is left to be seen of others.
  share.job = nullptr;
  job->completion_ = {
      .state = JobState::done, .bytes_done = share.byte_count, .bytes_by_device = share.byte_count};
  end_job(*job);
}

/// What calls somebody's function for a job that ends, on the stack of this thread.
///
/// Threading: owned.
class EngineState::Call {
 public:
  explicit Call(const EngineState& engine) noexcept : engine_(&engine), outer_(innermost_) {
    innermost_ = this;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() { innermost_ = outer_; }
  /// Whether this thread is in such a function for `engine`, which may be gone.
  [[nodiscard]] static bool is_within(const EngineState& engine) noexcept {
    const Call* call = innermost_;
    while (call != nullptr && call->engine_ != &engine) call = call->outer_;
    return call != nullptr;
  }

 private:
  static constinit thread_local const Call* innermost_;
  const EngineState* const engine_;
  const Call* const outer_;
};
constinit thread_local const EngineState::Call* EngineState::Call::innermost_ = nullptr;

void EngineState::end_job(Job& job) noexcept {
  // The gate counts this job, so the engine lives until leave().
  EngineState& engine = *job.engine_;
  const auto then = job.then_;
  void* const then_context = job.then_context_;
  engine.count(job.batch_.operations.empty() ? static_cast<std::size_t>(job.operation_.kind())
                                             : kOperationKindCount,
               job.completion_, job.begun_ticks_);
  if (job.callback_ != nullptr) call_back(job);
  std::uint32_t seen = 0;
  // The last touch of the job: whoever sees the new state may destroy it or submit it again.
  const void* const address = &job;
  if (!detail::end_word(job.word_, job.completion_.state, seen)) [[unlikely]] {
    engine.end_with_dependants(job);
  } else {
    if ((seen & detail::kSleeperFlag) != 0) detail::unpark_all(address);
    if (detail::visitor_count(seen) == 0) engine.leave();
  }
  if (then != nullptr) call_then(engine, then, then_context);
}

void EngineState::call_back(const Job& job) noexcept {
  const Call call(*job.engine_);
  job.callback_(job.callback_context_, job.completion_);
}

/// `engine` may be gone.
void EngineState::call_then(const EngineState& engine, void (*then)(void* context) noexcept,
                            void* context) noexcept {
  const Call call(engine);
  then(context);
}

void EngineState::take_back(Job& job, const Before& before, std::uint32_t word_before) noexcept {
  job.operation_ = before.operation;
  job.batch_ = before.batch;
  job.callback_ = before.callback;
  job.callback_context_ = before.callback_context;
  job.then_ = before.then;
  job.then_context_ = before.then_context;
  job.engine_ = before.engine;
  job.fork_count_ = before.fork_count;
  // Nobody may name a job whose submission has not returned.
  std::uint32_t seen = 0;
  const void* const address = &job;
  const bool was_stopped = (word_before & detail::kStopFlag) != 0;
  if (was_stopped) static_cast<void>(detail::set_flag(job.word_, detail::kStopFlag));
  HEADRACE_CHECK(detail::end_word(job.word_, detail::state_of(word_before), seen),
                 "a job is named after its submission");
  if ((seen & detail::kSleeperFlag) != 0) detail::unpark_all(address);
  if (detail::visitor_count(seen) == 0) leave();
}

void EngineState::count(std::size_t kind_index, const Completion& completion,
                        std::uint64_t begun_ticks) noexcept {
  count_time(kind_index, begun_ticks);
  count_end(kind_index, completion);
}

void EngineState::count_time(std::size_t kind_index, std::uint64_t begun_ticks) noexcept {
  // A count of its own; exact for whoever saw the job end, by `job-ended`.
  kinds_[kind_index].latencies[latency_class(begun_ticks)].fetch_add_relaxed(1);
}

void EngineState::count_end(std::size_t kind_index, const Completion& completion) noexcept {
  // Counts of their own; exact for whoever saw the job end, by `job-ended`.
  KindCounts& counts = kinds_[kind_index];
  counts.bytes.fetch_add_relaxed(completion.bytes_done);
  if (completion.bytes_by_device != 0) {
    counts.bytes_by_device.fetch_add_relaxed(completion.bytes_by_device);
  }
  if (completion.fell_back) counts.fallbacks.fetch_add_relaxed(1);
  if (completion.retries != 0) counts.retries.fetch_add_relaxed(completion.retries);
  if (completion.page_faults != 0) counts.page_faults.fetch_add_relaxed(completion.page_faults);
  if (completion.state == JobState::done) {
    counts.jobs_done.fetch_add_relaxed(1);
  } else if (completion.state == JobState::failed) {
    jobs_failed_.fetch_add_relaxed(1);
  } else {
    jobs_stopped_.fetch_add_relaxed(1);
  }
}

std::size_t EngineState::latency_class(std::uint64_t begun_ticks) noexcept {
  const auto width = static_cast<std::size_t>(std::bit_width(platform::ticks() - begun_ticks));
  return std::min(width, OperationStatistics::kLatencyClassCount - 1);
}

void EngineState::stop() {
  HEADRACE_CHECK(!Call::is_within(*this),
                 "a callback or `then` may not stop or end the engine whose job it is of, which "
                 "would wait for that very call: leave it to another thread, or to this one when "
                 "wait() or poll() has returned");
  std::uint64_t gate = gate_.load_relaxed();  // The exchange below decides.
  while ((gate & kClosed) == 0) {
    // edge: engine-gate (acq_rel)
    if (!gate_.compare_exchange_acq_rel(gate, gate | kClosed)) continue;
    for (const std::unique_ptr<Coalescer>& coalescer : coalescers_) coalescer->stop();
    for (const std::unique_ptr<Mover>& mover : movers_) mover->stop();
    begin_due();  // They end as stopped.
    break;
  }
  // Movers that hold nothing are not enough: the end of a job outlasts that of its shares.
  detail::ParkingBucket& bucket = detail::parking_bucket(&gate_);
  const Lock lock(bucket.mutex);
  // edge: engine-gate (acquire)
  while (gate_.load_acquire() != kClosed) bucket.condition.wait(bucket.mutex);
}

void EngineState::poll() noexcept {
  // What runs is the parent's: here it would be done, and told, a second time.
  if (is_forked()) return;
  for (const std::unique_ptr<Coalescer>& coalescer : coalescers_) coalescer->poll();
  for (const std::unique_ptr<Mover>& mover : movers_) mover->poll();
  begin_due();
}

}  // namespace headrace::engine
