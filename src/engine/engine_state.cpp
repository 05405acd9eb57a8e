// SPDX-License-Identifier: Apache-2.0
#include "engine_state.hpp"

#include <algorithm>

#include "headrace/base/check.hpp"
#include "headrace/copy/copy.hpp"
#include "job_word.hpp"
#include "parking_lot.hpp"
#include "split.hpp"

namespace headrace::engine {
namespace {

constexpr std::uint64_t kClosed = std::uint64_t{1} << 63U;
/// What the calling thread copies between two looks at stop_requested().
constexpr std::size_t kPieceBytes = 256U << 10U;

void check_plan(const CopyPlan& plan) {
  HEADRACE_CHECK(plan.target.size() == plan.source.size(), "target and source have one length",
                 plan.target.size(), plan.source.size());
  if (plan.target.empty()) return;
  HEADRACE_CHECK(plan.target.data() != nullptr && plan.source.data() != nullptr,
                 "only an empty span may be null", plan.target.size());
  const auto target = reinterpret_cast<std::uintptr_t>(plan.target.data());
  const auto source = reinterpret_cast<std::uintptr_t>(plan.source.data());
  const std::uintptr_t apart = target > source ? target - source : source - target;
  HEADRACE_CHECK(apart == 0 || apart >= plan.target.size(),
                 "target and source are equal or disjoint: shares are copied in any order", target,
                 source, plan.target.size());
}

/// How a job ended, from how its shares did.
Completion gather(std::span<const Share> shares, bool fell_back) {
  Completion completion{.state = JobState::done, .fell_back = fell_back};
  for (const Share& share : shares) {
    completion.bytes_done += share.outcome.bytes_done;
    if (share.outcome.cause != Cause::none && completion.cause == Cause::none) {
      completion.state = JobState::failed;
      completion.cause = share.outcome.cause;
      completion.fault_address = share.outcome.fault_address;
    }
    if (share.outcome.bytes_done < share.target.size() && completion.state == JobState::done) {
      completion.state = JobState::stopped;
    }
  }
  return completion;
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

EngineState::EngineState(std::vector<std::unique_ptr<Mover>> movers, MoverPolicy policy)
    : movers_(std::move(movers)), policy_(policy ? std::move(policy) : movers::near_target) {
  // The first use allocates all buckets: now, and not when the first waiter happens to sleep.
  static_cast<void>(detail::parking_bucket(this));
}

bool EngineState::enter(std::uint64_t count) noexcept {
  // Late callers must not keep the count of a closed gate from being 0.
  if (is_closed()) return false;
  // edge: engine-gate (acq_rel)
  if ((gate_.fetch_add_acq_rel(count) & kClosed) == 0) return true;
  leave(count);
  return false;
}

void EngineState::visit() noexcept {
  gate_.fetch_add_relaxed(1);  // Reads nothing through the gate; leave() publishes.
}

void EngineState::leave(std::uint64_t count) noexcept {
  const void* const address = &gate_;
  // The last touch of the engine, which stop() may give back to its owner at once.
  // edge: engine-gate (acq_rel)
  if (gate_.fetch_sub_acq_rel(count) == kClosed + count) detail::unpark_all(address);
}

bool EngineState::is_closed() const noexcept {
  return (gate_.load_relaxed() & kClosed) != 0;  // A hint; enter() decides.
}

Submit EngineState::submit_copy(Job& job, const CopyPlan& plan, const SubmitOptions& options) {
  check_plan(plan);
  const std::uint32_t word_before = job.word_.load_acquire();  // edge: job-ended (acquire)
  HEADRACE_CHECK(!detail::is_running(word_before), "a running job cannot be submitted");
  if (!enter(2)) {
    submissions_refused_.fetch_add_relaxed(1);  // A count of its own.
    return Submit::closed;
  }
  Presence presence(*this, 2);                                // This call, and the job.
  const std::uint64_t turn = sequence_.fetch_add_relaxed(1);  // Any order of turns will do.
  const MoverChoice choice = plan.target.empty() ? MoverChoice() : choose(plan, options, turn);

  job.engine_ = this;
  job.callback_ = options.callback;
  job.callback_context_ = options.callback_context;
  prepare_shares(job, plan, choice.chosen());
  job.word_.store_release(detail::word_of(JobState::running));  // edge: job-submitted (release)

  if (job.share_count_ == 0) {
    presence.give_one_to_the_job();
    jobs_submitted_.fetch_add_relaxed(1);  // A count of its own.
    end_job(job, plan.target.empty()
                     ? Completion{.state = JobState::done}
                     : Completion{.state = JobState::failed, .cause = Cause::mover_refused});
    return Submit::accepted;
  }
  const Submit answer = hand_out(job, choice.chosen(), turn);
  // From here on the job may be gone, unless it was refused.
  if (answer == Submit::accepted) {
    presence.give_one_to_the_job();
    jobs_submitted_.fetch_add_relaxed(1);  // A count of its own.
  } else {
    submissions_refused_.fetch_add_relaxed(1);  // A count of its own.
    publish(job, word_before);
  }
  return answer;
}

MoverChoice EngineState::choose(const CopyPlan& plan, const SubmitOptions& options,
                                std::uint64_t turn) const {
  const MoveContext context{.movers = movers_,
                            .source_node = options.source_node,
                            .target_node = options.target_node,
                            .byte_count = plan.target.size(),
                            .sequence = turn};
  const bool own = options.policy != nullptr && *options.policy;
  MoverChoice choice;
  (own ? *options.policy : policy_)(context, choice);
  for (const std::uint32_t index : choice.chosen()) {
    if (index >= movers_.size()) return {};
  }
  return choice;
}

void EngineState::prepare_shares(Job& job, const CopyPlan& plan,
                                 std::span<const std::uint32_t> chosen) {
  const std::size_t count =
      chosen.empty() ? 0 : detail::share_count(plan.target.size(), chosen.size());
  const std::span<Share> shares(job.shares_.data(), count);
  detail::split(plan, shares);
  for (Share& share : shares) {
    share.job = &job;
    share.next = nullptr;
    share.bytes_taken = 0;
    share.bytes_finished = 0;
    share.queued = false;
  }
  job.share_count_ = static_cast<std::uint32_t>(count);
  job.fell_back_ = false;
  job.polled_ = false;
  for (const std::uint32_t index : chosen) {
    job.polled_ = job.polled_ || movers_[index]->info().polled;
  }
  // Reaches the movers by whatever lock or queue carries the shares.
  job.shares_left_.store_relaxed(job.share_count_);
}

Submit EngineState::hand_out(Job& job, std::span<const std::uint32_t> chosen, std::uint64_t turn) {
  const std::size_t count = job.share_count_;
  for (std::size_t i = 0; i < count; ++i) {
    // A share that is still here keeps the job alive; after the last one the job may be gone.
    Share& share = job.shares_[i];
    // Turns, so that small jobs do not all go to the mover that was chosen first.
    const std::size_t asked = (turn + i) % chosen.size();
    Submit answer = movers_[chosen[asked]]->submit(share);
    if (answer == Submit::accepted) continue;
    if (i == 0 && (answer == Submit::full || is_closed())) return answer;
    job.fell_back_ = true;
    for (std::size_t k = 1; k < chosen.size() && answer != Submit::accepted; ++k) {
      answer = movers_[chosen[(asked + k) % chosen.size()]]->submit(share);
    }
    if (answer == Submit::accepted) continue;
    if (i == 0 && answer == Submit::full) return answer;
    move_here(share);
  }
  return Submit::accepted;
}

void EngineState::move_here(Share& share) noexcept {
  const std::size_t byte_count = share.target.size();
  std::size_t bytes_done = 0;
  while (bytes_done < byte_count && !share.job->stop_requested()) {
    const std::size_t piece = std::min(kPieceBytes, byte_count - bytes_done);
    copy::copy_bytes(share.target.subspan(bytes_done, piece),
                     share.source.subspan(bytes_done, piece));
    bytes_done += piece;
  }
  end_share(share, {.bytes_done = bytes_done, .stopped = bytes_done < byte_count});
}

void EngineState::end_share(Share& share, const ShareOutcome& outcome) noexcept {
  Job* const job = share.job;
  HEADRACE_CHECK(job != nullptr, "a share is ended once");
  HEADRACE_CHECK(outcome.bytes_done <= share.target.size(), "no more is moved than was asked for",
                 outcome.bytes_done, share.target.size());
  HEADRACE_CHECK(
      outcome.bytes_done == share.target.size() || outcome.stopped || outcome.cause != Cause::none,
      "a share that was moved in part was stopped or failed", outcome.bytes_done,
      share.target.size());
  share.outcome = outcome;
  share.job = nullptr;
  // edge: share-ended (acq_rel)
  if (job->shares_left_.fetch_sub_acq_rel(1) != 1) return;
  end_job(*job, gather({job->shares_.data(), job->share_count_}, job->fell_back_));
}

void EngineState::end_job(Job& job, const Completion& completion) noexcept {
  // The gate counts this job, so the engine lives until leave().
  EngineState& engine = *job.engine_;
  job.completion_ = completion;
  engine.count(completion);
  if (job.callback_ != nullptr) job.callback_(job.callback_context_, job.completion_);
  publish(job, detail::word_of(completion.state));
  engine.leave();
}

void EngineState::publish(Job& job, std::uint32_t word) noexcept {
  const void* const address = &job;
  // The last touch of the job: whoever sees the new word may destroy it or submit it again.
  // edge: job-ended (acq_rel)
  const std::uint32_t word_before = job.word_.exchange_acq_rel(word);
  if ((word_before & detail::kSleeperFlag) != 0) detail::unpark_all(address);
}

void EngineState::count(const Completion& completion) noexcept {
  // Counts of their own; exact for whoever saw the job end, by `job-ended`.
  bytes_moved_.fetch_add_relaxed(completion.bytes_done);
  if (completion.state == JobState::done) {
    jobs_done_.fetch_add_relaxed(1);
  } else if (completion.state == JobState::failed) {
    jobs_failed_.fetch_add_relaxed(1);
  } else {
    jobs_stopped_.fetch_add_relaxed(1);
  }
}

void EngineState::stop() {
  std::uint64_t gate = gate_.load_relaxed();  // The exchange below decides.
  while ((gate & kClosed) == 0) {
    // edge: engine-gate (acq_rel)
    if (!gate_.compare_exchange_acq_rel(gate, gate | kClosed)) continue;
    for (const std::unique_ptr<Mover>& mover : movers_) mover->stop();
    break;
  }
  // Movers that hold nothing are not enough: the end of a job outlasts that of its shares.
  detail::ParkingBucket& bucket = detail::parking_bucket(&gate_);
  const Lock lock(bucket.mutex);
  // edge: engine-gate (acquire)
  while (gate_.load_acquire() != kClosed) bucket.condition.wait(bucket.mutex);
}

void EngineState::poll() noexcept {
  for (const std::unique_ptr<Mover>& mover : movers_) mover->poll();
}

EngineStatistics EngineState::statistics() const {
  // Together they are not one instant, so no order between them is needed.
  return {.jobs_submitted = jobs_submitted_.load_relaxed(),
          .jobs_done = jobs_done_.load_relaxed(),
          .jobs_failed = jobs_failed_.load_relaxed(),
          .jobs_stopped = jobs_stopped_.load_relaxed(),
          .submissions_refused = submissions_refused_.load_relaxed(),
          .bytes_moved = bytes_moved_.load_relaxed()};
}

}  // namespace headrace::engine
