// SPDX-License-Identifier: Apache-2.0
// Engine, jobs and channels of headrace.h by those of C++. Operations and completions have one
// layout on both sides, so that a batch is handed over as it lies; the asserts below hold them
// together.
#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <span>
#include <string_view>

#include "headrace/base/check.hpp"
#include "headrace/engine/engine.hpp"
#include "operation.hpp"

namespace {

using headrace::engine::Batch;
using headrace::engine::Cause;
using headrace::engine::Channel;
using headrace::engine::ChannelOptions;
using headrace::engine::Completion;
using headrace::engine::Engine;
using headrace::engine::EngineOptions;
using headrace::engine::FaultPolicy;
using headrace::engine::Job;
using headrace::engine::JobState;
using headrace::engine::Operation;
using headrace::engine::OperationKind;
using headrace::engine::OperationResult;
using headrace::engine::Path;
using headrace::engine::Submit;
using headrace::engine::SubmitOptions;
using headrace::engine::Ticket;
using headrace::engine::Waiting;
using headrace::engine::detail::bytes;
using headrace::engine::detail::from_c;
using headrace::engine::detail::to_c;

// --- One layout ----------------------------------------------------------------------------------

static_assert(std::is_standard_layout_v<Completion> &&
              sizeof(headrace_completion) == sizeof(Completion) &&
              alignof(headrace_completion) == alignof(Completion));

#define HEADRACE_SAME(field)                                                           \
  static_assert(offsetof(headrace_completion, field) == offsetof(Completion, field) && \
                sizeof(headrace_completion::field) == sizeof(Completion::field))
#define HEADRACE_SAME_RESULT(field)                                                    \
  static_assert(offsetof(headrace_completion, field) ==                                \
                    offsetof(Completion, result) + offsetof(OperationResult, field) && \
                sizeof(headrace_completion::field) == sizeof(OperationResult::field))
HEADRACE_SAME(state);
HEADRACE_SAME(cause);
HEADRACE_SAME(fell_back);
HEADRACE_SAME(device_status);
HEADRACE_SAME(late_write_possible);
HEADRACE_SAME(bytes_done);
HEADRACE_SAME(bytes_by_device);
HEADRACE_SAME(fault_address);
HEADRACE_SAME(page_faults);
HEADRACE_SAME(retries);
HEADRACE_SAME_RESULT(difference_offset);
HEADRACE_SAME_RESULT(crc);
HEADRACE_SAME_RESULT(delta_bytes);
HEADRACE_SAME_RESULT(source_tags);
HEADRACE_SAME_RESULT(target_tags);
HEADRACE_SAME_RESULT(different);
HEADRACE_SAME_RESULT(record_full);
HEADRACE_SAME_RESULT(dif_errors);
#undef HEADRACE_SAME
#undef HEADRACE_SAME_RESULT

// The same names have the same values: the last of each says so for those before it.
static_assert(HEADRACE_TOO_MANY_PREDECESSORS == static_cast<int>(Submit::too_many_predecessors) &&
              HEADRACE_PREDECESSORS_MAX == Job::kPredecessorMax);
static_assert(HEADRACE_STOPPED == static_cast<int>(JobState::stopped));
static_assert(HEADRACE_CAUSE_PREDECESSOR_FAILED == static_cast<int>(Cause::predecessor_failed));
static_assert(HEADRACE_KIND_CACHE_FLUSH == static_cast<int>(OperationKind::cache_flush) &&
              HEADRACE_KIND_BATCH == headrace::engine::kOperationKindCount);
static_assert(HEADRACE_LATENCY_CLASSES ==
              headrace::engine::OperationStatistics::kLatencyClassCount);
static_assert(HEADRACE_PATH_SOFTWARE == static_cast<int>(Path::software));
static_assert(HEADRACE_THRESHOLDS_CALLER ==
              static_cast<int>(headrace::engine::ThresholdSource::caller));
static_assert(HEADRACE_WAIT_SLEEP == static_cast<int>(Waiting::sleep));
static_assert(HEADRACE_FAULT_BLOCK == static_cast<int>(FaultPolicy::block));
static_assert(HEADRACE_DIF_ERROR_GUARD == headrace::engine::dif_error::guard &&
              HEADRACE_DIF_ERROR_APPLICATION == headrace::engine::dif_error::application &&
              HEADRACE_DIF_ERROR_REFERENCE == headrace::engine::dif_error::reference &&
              HEADRACE_DIF_ERROR_ALL_ONES == headrace::engine::dif_error::all_ones);

/// What lies in a headrace_job.
struct CallOfC {
  headrace_callback function = nullptr;
  void* context = nullptr;

  static void call(void* self, const Completion& completion) noexcept;
};

/// A submission that is refused must not change the callback of one that is accepted and may still
/// run, so each writes to the place that the last accepted one does not use.
struct RoomyJob {
  Job job;
  std::array<CallOfC, 2> callbacks;
  std::uint32_t used = 0;

  /// Calls `submit` with the place for its callback.
  template <typename Submission>
  [[nodiscard]] headrace_answer start(const Submission& submit) {
    used = 1 - used;
    const Submit answer = submit(callbacks[used]);
    // A job that was accepted may be gone.
    if (answer != Submit::accepted) used = 1 - used;
    return static_cast<headrace_answer>(answer);
  }
};
static_assert(sizeof(RoomyJob) <= sizeof(headrace_job) &&
              alignof(RoomyJob) <= alignof(headrace_job));

RoomyJob& roomy(headrace_job* job) {
  HEADRACE_CHECK(job != nullptr, "a job is not null");
  return *std::launder(reinterpret_cast<RoomyJob*>(job->opaque));
}

const Job& job_of(const headrace_job* job) {
  HEADRACE_CHECK(job != nullptr, "a job is not null");
  return std::launder(reinterpret_cast<const RoomyJob*>(job->opaque))->job;
}

headrace_completion to_c(const Completion& completion) {
  headrace_completion made{};
  std::memcpy(&made, &completion, sizeof made);
  return made;
}

void CallOfC::call(void* self, const Completion& completion) noexcept {
  const CallOfC& callback = *static_cast<const CallOfC*>(self);
  const headrace_completion made = to_c(completion);
  callback.function(callback.context, &made);
}

// --- From C --------------------------------------------------------------------------------------

/// Those that C can name; the first is the engine's.
std::span<const headrace::engine::MoverPolicy> policies() {
  constexpr std::size_t kCount = HEADRACE_POLICY_BY_SIZE + 1;
  static const auto kPolicies = [] {
    std::array<headrace::engine::MoverPolicy, kCount> made;
    const auto named = headrace::engine::movers::named();
    HEADRACE_CHECK(named.size() + 1 == kCount, "headrace.h names every policy", named.size());
    for (std::size_t i = 0; i < named.size(); ++i) made[i + 1] = named[i].choose;
    return made;
  }();
  return kPolicies;
}

SubmitOptions from_c(const headrace_submit_options* options) {
  SubmitOptions made;
  if (options == nullptr) return made;
  if (options->has_source_node) made.source_node = headrace::NodeId(options->source_node);
  if (options->has_target_node) made.target_node = headrace::NodeId(options->target_node);
  if (options->has_path) made.path = static_cast<Path>(options->path);
  made.then = options->then;
  made.then_context = options->then_context;
  if (options->policy != HEADRACE_POLICY_DEFAULT) made.policy = &policies()[options->policy];
  return made;
}

bool is_path(enum headrace_path path) {
  return path <= HEADRACE_PATH_SOFTWARE;
}

bool is_bad(const headrace_submit_options* options) {
  return options != nullptr && ((options->has_path && !is_path(options->path)) ||
                                options->policy > HEADRACE_POLICY_BY_SIZE);
}

enum headrace_answer to_c(Submit answer) {
  return static_cast<enum headrace_answer>(answer);
}

/// Of a name or a text of the library, which are literals and so end with a zero.
const char* literal(std::string_view text) {
  return text.data();
}

template <std::size_t kRoom>
void store(char (&room)[kRoom], std::string_view text) {
  room[text.copy(room, kRoom - 1)] = '\0';
}

void store(headrace_error* into, const headrace::Error& error) {
  if (into == nullptr) return;
  into->os_errno = error.os_errno;
  store(into->code, headrace::name(error.code));
  store(into->text, error.message());
}

Engine& engine_of(headrace_engine* engine) {
  HEADRACE_CHECK(engine != nullptr, "an engine is not null");
  return *reinterpret_cast<Engine*>(engine);
}

const Engine& engine_of(const headrace_engine* engine) {
  HEADRACE_CHECK(engine != nullptr, "an engine is not null");
  return *reinterpret_cast<const Engine*>(engine);
}

Channel& channel_of(headrace_channel* channel) {
  HEADRACE_CHECK(channel != nullptr, "a channel is not null");
  return *reinterpret_cast<Channel*>(channel);
}

const Channel& channel_of(const headrace_channel* channel) {
  HEADRACE_CHECK(channel != nullptr, "a channel is not null");
  return *reinterpret_cast<const Channel*>(channel);
}

/// The jobs that a submission names. Of too many, enough to be refused.
struct AfterOfC {
  std::array<Job*, Job::kPredecessorMax + 1> jobs{};
};

/// Puts the callback of `options` where it is found when the job ends, and the jobs that it names
/// into `after`, which has to live until they have been looked at.
SubmitOptions prepare(CallOfC& callback, AfterOfC& after, const headrace_submit_options* options) {
  SubmitOptions made = from_c(options);
  if (options != nullptr && options->after_count != 0) {
    const std::size_t count = std::min(options->after_count, after.jobs.size());
    for (std::size_t i = 0; i < count && options->after != nullptr; ++i) {
      headrace_job* const job = options->after[i];
      if (job != nullptr) after.jobs[i] = &roomy(job).job;
    }
    made.after = std::span(after.jobs).first(count);
  }
  if (options != nullptr && options->callback != nullptr) {
    callback = {options->callback, options->callback_context};
    made.callback = CallOfC::call;
    made.callback_context = &callback;
  }
  return made;
}

headrace::Result<std::unique_ptr<Engine>> make(const headrace_engine_options& options) {
  const auto machine = headrace::topo::discover({.find_movers = !options.no_devices});
  if (!machine) return headrace::fail(machine.error());
  if (!is_path(options.path) || options.page_faults > HEADRACE_FAULT_BLOCK ||
      options.policy > HEADRACE_POLICY_BY_SIZE || options.waiting > HEADRACE_WAIT_SLEEP) {
    return headrace::fail(headrace::Code::invalid_argument, "make an engine",
                          "its path, policy, fault policy or waiting is none of those there are",
                          "pass one of the constants of headrace.h");
  }
  if ((options.nodes == nullptr && options.node_count != 0) ||
      (options.queues == nullptr && options.queue_count != 0)) {
    return headrace::fail(headrace::Code::invalid_argument, "make an engine",
                          "a list of nodes or queues is null that is said to have some",
                          "pass the list, or 0 as its count");
  }
  // What is beyond is beyond the limits, too.
  const auto duration = [](std::uint64_t time_ns) {
    return std::chrono::nanoseconds(
        static_cast<std::int64_t>(std::min(time_ns, std::uint64_t{INT64_MAX})));
  };
  EngineOptions made;
  made.threads_per_node = options.threads_per_node;
  made.path = static_cast<Path>(options.path);
  made.waiting = static_cast<Waiting>(options.waiting);
  made.devices.use = !options.no_devices;
  made.check_memory = options.check_memory;
  made.devices.page_faults = static_cast<FaultPolicy>(options.page_faults);
  if (options.answer_ns_max != 0) made.devices.answer_max = duration(options.answer_ns_max);
  made.policy = policies()[options.policy];
  for (const std::uint32_t node : std::span(options.nodes, options.node_count)) {
    made.nodes.emplace_back(node);
  }
  for (const char* const queue : std::span(options.queues, options.queue_count)) {
    if (queue == nullptr) {
      return headrace::fail(headrace::Code::invalid_argument, "make an engine",
                            "the name of a queue is null", "'headrace dsa list' has the names");
    }
    made.devices.queues.emplace_back(queue);
  }
  if (options.has_thresholds) {
    made.thresholds = headrace::engine::PathThresholds{
        .synchronous = headrace::Bytes(options.thresholds.synchronous_bytes),
        .asynchronous = headrace::Bytes(options.thresholds.asynchronous_bytes),
        .batched = headrace::Bytes(options.thresholds.batched_bytes)};
  }
  if (options.piece_bytes != 0) made.piece = headrace::Bytes(options.piece_bytes);
  if (options.queue_depth_max != 0) made.queue_depth_max = options.queue_depth_max;
  return Engine::make(*machine, std::move(made));
}

headrace::Result<std::unique_ptr<Channel>> open_channel(Engine& engine,
                                                        const headrace_channel_options& options) {
  ChannelOptions wanted;
  if (options.queue != nullptr) wanted.queue = options.queue;
  if (options.depth != 0) wanted.depth = options.depth;
  if (options.has_node) wanted.node = headrace::NodeId(options.node);
  wanted.latencies = options.latencies;
  auto made = engine.open_channel(wanted);
  if (!made) return headrace::fail(made.error());
  return std::make_unique<Channel>(std::move(*made));
}

/// What `make()` gives, or null and the reason in `error`: `without_memory` if there is none left.
template <typename Made, typename Make>
Made* make_for_c(const char* without_memory, headrace_error* error, Make make_one) {
  try {
    auto made = make_one();
    if (made) return reinterpret_cast<Made*>(made->release());
    store(error, made.error());
  } catch (const std::bad_alloc&) {
    // Without an Error, whose texts would ask for memory.
    if (error != nullptr) {
      error->os_errno = 0;
      store(error->code, headrace::name(headrace::Code::out_of_memory));
      store(error->text, without_memory);
    }
  }
  return nullptr;
}

/// The layouts are one, see above: what the caller has is what the engine reads and writes.
Batch to_batch(const headrace_operation* operations, headrace_completion* completions,
               std::size_t operation_count) {
  Batch batch{{reinterpret_cast<const Operation*>(operations), operation_count}, {}};
  if (completions != nullptr) {
    batch.completions = {reinterpret_cast<Completion*>(completions), operation_count};
  }
  return batch;
}

}  // namespace

const char* headrace_version(void) noexcept {
  return HEADRACE_LIBRARY_VERSION;
}

headrace_engine* headrace_engine_make(const headrace_engine_options* options,
                                      headrace_error* error) noexcept {
  return make_for_c<headrace_engine>(
      "cannot make an engine: there is no memory left; free some", error,
      [&] { return make(options == nullptr ? headrace_engine_options{} : *options); });
}

void headrace_engine_free(headrace_engine* engine) noexcept {
  delete reinterpret_cast<Engine*>(engine);
}

void headrace_engine_stop(headrace_engine* engine) noexcept {
  engine_of(engine).stop();
}

void headrace_engine_poll(headrace_engine* engine) noexcept {
  engine_of(engine).poll();
}

enum headrace_waiting headrace_engine_waiting(const headrace_engine* engine) noexcept {
  return static_cast<enum headrace_waiting>(engine_of(engine).waiting());
}

headrace_statistics headrace_engine_statistics(const headrace_engine* engine) noexcept {
  const headrace::engine::EngineStatistics totals = engine_of(engine).statistics();
  return {.jobs_submitted = totals.jobs_submitted,
          .jobs_done = totals.jobs_done,
          .jobs_failed = totals.jobs_failed,
          .jobs_stopped = totals.jobs_stopped,
          .submissions_refused = totals.submissions_refused,
          .bytes_moved = totals.bytes_moved,
          .bytes_by_device = totals.bytes_by_device,
          .jobs_fell_back = totals.jobs_fell_back,
          .jobs_held_back = totals.jobs_held_back};
}

const char* headrace_kind_name(enum headrace_kind kind) noexcept {
  return kind == HEADRACE_KIND_BATCH
             ? "batch"
             : literal(headrace::engine::name(static_cast<OperationKind>(kind)));
}

bool headrace_engine_kind_statistics(const headrace_engine* engine, enum headrace_kind kind,
                                     headrace_kind_statistics* statistics) noexcept {
  const Engine& asked = engine_of(engine);
  if (statistics == nullptr || kind > HEADRACE_KIND_BATCH) return false;
  const auto totals = asked.statistics().operations[kind];
  *statistics = {.jobs_done = totals.jobs_done,
                 .bytes = totals.bytes,
                 .bytes_by_device = totals.bytes_by_device,
                 .retries = totals.retries,
                 .page_faults = totals.page_faults,
                 .fallbacks = totals.fallbacks,
                 .latency_counts = {}};
  std::copy(totals.latency_counts.begin(), totals.latency_counts.end(), statistics->latency_counts);
  return true;
}

uint64_t headrace_latency_max_ns(size_t latency_class) noexcept {
  const std::size_t last = HEADRACE_LATENCY_CLASSES - 1;
  const auto longest =
      headrace::engine::EngineStatistics::latency_max(std::min(latency_class, last));
  return static_cast<std::uint64_t>(longest.count());
}

size_t headrace_mover_count(const headrace_engine* engine) noexcept {
  const Engine& asked = engine_of(engine);
  std::size_t count = 0;
  while (asked.mover(count) != nullptr) ++count;
  return count;
}

bool headrace_mover_info(const headrace_engine* engine, size_t mover_index,
                         headrace_mover* mover) noexcept {
  const headrace::engine::MoverInfo* const info = engine_of(engine).mover(mover_index);
  if (mover == nullptr || info == nullptr) return false;
  store(mover->name, info->name);
  store(mover->note, info->note);
  mover->node = info->node ? static_cast<std::int32_t>(info->node->value()) : -1;
  mover->hardware = info->hardware;
  mover->emulated = info->emulated;
  mover->queue_rank = info->queue_rank;
  return true;
}

bool headrace_mover_statistics(const headrace_engine* engine, size_t mover_index,
                               headrace_device_statistics* statistics) noexcept {
  const Engine& asked = engine_of(engine);
  try {
    const std::vector<headrace::engine::DeviceStatistics> all = asked.device_statistics();
    if (statistics == nullptr || mover_index >= all.size()) return false;
    const headrace::engine::DeviceStatistics& totals = all[mover_index];
    *statistics = {.descriptors = totals.descriptors,
                   .retries = totals.retries,
                   .page_faults = totals.page_faults,
                   .errors = totals.errors,
                   .lost = totals.lost,
                   .bytes_on_cpu = totals.bytes_on_cpu};
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

const char* headrace_note(const headrace_engine* engine, size_t note_index) noexcept {
  const std::vector<std::string>& notes = engine_of(engine).notes();
  return note_index < notes.size() ? notes[note_index].c_str() : nullptr;
}

headrace_thresholds headrace_engine_thresholds(const headrace_engine* engine) noexcept {
  const Engine& asked = engine_of(engine);
  const headrace::engine::PathThresholds values = asked.thresholds();
  return {.synchronous_bytes = values.synchronous.count(),
          .asynchronous_bytes = values.asynchronous.count(),
          .batched_bytes = values.batched.count(),
          .source = static_cast<enum headrace_threshold_source>(asked.threshold_source())};
}

const char* headrace_policy_name(enum headrace_policy policy) noexcept {
  if (policy == HEADRACE_POLICY_DEFAULT) return "default";
  const auto named = headrace::engine::movers::named();
  return policy <= named.size() ? literal(named[policy - 1].name) : "unknown";
}

const char* headrace_answer_name(enum headrace_answer answer) noexcept {
  return literal(headrace::engine::name(static_cast<Submit>(answer)));
}

const char* headrace_answer_text(enum headrace_answer answer) noexcept {
  return literal(headrace::engine::explain(static_cast<Submit>(answer)));
}

const char* headrace_state_name(uint32_t state) noexcept {
  return literal(headrace::engine::name(static_cast<JobState>(state)));
}

const char* headrace_cause_name(uint8_t cause) noexcept {
  return literal(headrace::engine::name(static_cast<Cause>(cause)));
}

const char* headrace_cause_text(uint8_t cause) noexcept {
  return literal(headrace::engine::explain(static_cast<Cause>(cause)));
}

void headrace_job_init(headrace_job* job) noexcept {
  HEADRACE_CHECK(job != nullptr, "a job is not null");
  new (job->opaque) RoomyJob;
}

void headrace_job_end(headrace_job* job) noexcept {
  if (job != nullptr) roomy(job).~RoomyJob();
}

enum headrace_answer headrace_submit(headrace_engine* engine, headrace_job* job,
                                     const headrace_operation* operation,
                                     const headrace_submit_options* options) noexcept {
  if (engine == nullptr || job == nullptr || operation == nullptr) return HEADRACE_NULL_ADDRESS;
  if (is_bad(options)) return HEADRACE_BAD_OPTION;
  RoomyJob& box = roomy(job);
  AfterOfC after;
  return box.start([&](CallOfC& callback) {
    return engine_of(engine).submit(box.job, from_c(*operation), prepare(callback, after, options));
  });
}

enum headrace_answer headrace_submit_batch(headrace_engine* engine, headrace_job* job,
                                           const headrace_operation* operations,
                                           headrace_completion* completions, size_t operation_count,
                                           const headrace_submit_options* options) noexcept {
  if (engine == nullptr || job == nullptr || (operations == nullptr && operation_count > 0)) {
    return HEADRACE_NULL_ADDRESS;
  }
  if (is_bad(options)) return HEADRACE_BAD_OPTION;
  RoomyJob& box = roomy(job);
  AfterOfC after;
  return box.start([&](CallOfC& callback) {
    return engine_of(engine).submit_batch(box.job,
                                          to_batch(operations, completions, operation_count),
                                          prepare(callback, after, options));
  });
}

enum headrace_answer headrace_run(headrace_engine* engine, const headrace_operation* operation,
                                  headrace_completion* completion,
                                  const headrace_submit_options* options) noexcept {
  if (engine == nullptr || operation == nullptr) return HEADRACE_NULL_ADDRESS;
  if (is_bad(options)) return HEADRACE_BAD_OPTION;
  CallOfC callback;  // It is called before the end.
  AfterOfC after;
  Completion made;
  const Submit answer =
      engine_of(engine).run(from_c(*operation), made, prepare(callback, after, options));
  if (answer == Submit::accepted && completion != nullptr) *completion = to_c(made);
  return to_c(answer);
}

enum headrace_state headrace_job_state(const headrace_job* job) noexcept {
  return static_cast<enum headrace_state>(job_of(job).state());
}

bool headrace_poll(headrace_job* job) noexcept {
  return roomy(job).job.poll();
}

headrace_completion headrace_wait(headrace_job* job) noexcept {
  return to_c(roomy(job).job.wait());
}

bool headrace_wait_for(headrace_job* job, uint64_t time_ns_max) noexcept {
  const auto time_ns = static_cast<std::int64_t>(std::min(time_ns_max, std::uint64_t{INT64_MAX}));
  return roomy(job).job.wait_for(std::chrono::nanoseconds(time_ns));
}

headrace_completion headrace_job_completion(const headrace_job* job) noexcept {
  return to_c(job_of(job).completion());
}

void headrace_stop(headrace_job* job) noexcept {
  roomy(job).job.stop();
}

headrace_channel* headrace_channel_open(headrace_engine* engine,
                                        const headrace_channel_options* options,
                                        headrace_error* error) noexcept {
  Engine& asked = engine_of(engine);
  return make_for_c<headrace_channel>(
      "cannot open a channel: there is no memory left; free some", error, [&] {
        return open_channel(asked, options == nullptr ? headrace_channel_options{} : *options);
      });
}

void headrace_channel_close(headrace_channel* channel) noexcept {
  delete reinterpret_cast<Channel*>(channel);
}

enum headrace_answer headrace_channel_copy(headrace_channel* channel, void* target,
                                           const void* source, size_t byte_count,
                                           uint32_t* ticket) noexcept {
  if (channel == nullptr || ticket == nullptr) return HEADRACE_NULL_ADDRESS;
  Ticket made{};
  const Submit answer = channel_of(channel).submit_copy(
      {.target = bytes(target, byte_count), .source = bytes(source, byte_count)}, made);
  *ticket = static_cast<std::uint32_t>(made);
  return to_c(answer);
}

enum headrace_answer headrace_channel_submit(headrace_channel* channel,
                                             const headrace_operation* operation,
                                             uint32_t* ticket) noexcept {
  if (channel == nullptr || operation == nullptr || ticket == nullptr) return HEADRACE_NULL_ADDRESS;
  Ticket made{};
  const Submit answer = channel_of(channel).submit(from_c(*operation), made);
  *ticket = static_cast<std::uint32_t>(made);
  return to_c(answer);
}

enum headrace_answer headrace_channel_submit_batch(headrace_channel* channel,
                                                   const headrace_operation* operations,
                                                   headrace_completion* completions,
                                                   size_t operation_count,
                                                   uint32_t* ticket) noexcept {
  if (channel == nullptr || ticket == nullptr || (operations == nullptr && operation_count > 0)) {
    return HEADRACE_NULL_ADDRESS;
  }
  Ticket made{};
  const Submit answer =
      channel_of(channel).submit_batch(to_batch(operations, completions, operation_count), made);
  *ticket = static_cast<std::uint32_t>(made);
  return to_c(answer);
}

bool headrace_channel_poll(headrace_channel* channel, uint32_t ticket,
                           headrace_completion* completion) noexcept {
  Completion end;
  if (!channel_of(channel).poll(static_cast<Ticket>(ticket), end)) return false;
  if (completion != nullptr) *completion = to_c(end);
  return true;
}

headrace_completion headrace_channel_wait(headrace_channel* channel, uint32_t ticket) noexcept {
  return to_c(channel_of(channel).wait(static_cast<Ticket>(ticket)));
}

size_t headrace_channel_in_flight(const headrace_channel* channel) noexcept {
  return channel_of(channel).in_flight();
}

size_t headrace_channel_depth(const headrace_channel* channel) noexcept {
  return channel_of(channel).depth();
}

const char* headrace_channel_queue(const headrace_channel* channel) noexcept {
  return channel_of(channel).queue().c_str();
}
