// SPDX-License-Identifier: Apache-2.0
// Implements headrace.h on the C++ engine. Operations, completions and statistics have the same
// layout in C and C++, so batches are passed without conversion; the asserts below check the
// layout.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "common.hpp"
#include "headrace/engine/engine.hpp"

namespace {

namespace engine = headrace::engine;
using engine::Completion;
using engine::DifFormat;
using engine::DifSource;
using engine::DifTarget;
using engine::Job;
using engine::Operation;
using engine::Submit;
using headrace::c::make_for_c;
using headrace::c::read_options;
using headrace::c::store;
using headrace::c::time_of;

/// `from` as the C or C++ type of the same layout.
template <typename To, typename From>
To same(const From& from) {
  static_assert(std::is_standard_layout_v<From> && alignof(To) == alignof(From));
  return std::bit_cast<To>(from);
}

#define HEADRACE_SAME(c_type, field, type, member)                   \
  static_assert(offsetof(c_type, field) == offsetof(type, member) && \
                sizeof(c_type::field) == sizeof(std::declval<type>().member))
// The last field is enough: those before it have the same names and order.
HEADRACE_SAME(headrace_completion, retries, Completion, retries);
HEADRACE_SAME(headrace_completion, dif_errors, Completion, result.dif_errors);
HEADRACE_SAME(headrace_statistics, jobs_held_back, engine::EngineStatistics, jobs_held_back);
HEADRACE_SAME(headrace_kind_statistics, latency_counts, engine::OperationStatistics,
              latency_counts);
HEADRACE_SAME(headrace_device_statistics, bytes_on_cpu, engine::DeviceStatistics, bytes_on_cpu);
HEADRACE_SAME(headrace_dif_tags, application_mask, engine::DifTags, application_mask);
HEADRACE_SAME(headrace_dif_source, ones_in_field_are_an_error, DifSource,
              ones_in_field_are_an_error);
HEADRACE_SAME(headrace_dif_target, keep_reference, DifTarget, keep_reference);
#undef HEADRACE_SAME

// Enumerators of the same name have the same value: checked for the last of each enumeration.
static_assert(HEADRACE_TOO_MANY_PREDECESSORS == static_cast<int>(Submit::too_many_predecessors) &&
              HEADRACE_PREDECESSORS_MAX == Job::kPredecessorMax);
static_assert(HEADRACE_STOPPED == static_cast<int>(engine::JobState::stopped));
static_assert(HEADRACE_CAUSE_PREDECESSOR_FAILED ==
              static_cast<int>(engine::Cause::predecessor_failed));
static_assert(HEADRACE_KIND_CACHE_FLUSH == static_cast<int>(engine::OperationKind::cache_flush) &&
              HEADRACE_KIND_BATCH == engine::kOperationKindCount);
static_assert(HEADRACE_PATH_CPU == static_cast<int>(engine::Path::cpu));
static_assert(HEADRACE_THRESHOLDS_CALLER == static_cast<int>(engine::ThresholdSource::caller));
static_assert(HEADRACE_WAIT_SLEEP == static_cast<int>(engine::Waiting::sleep));
static_assert(HEADRACE_FAULT_BLOCK == static_cast<int>(engine::FaultPolicy::block));
static_assert(HEADRACE_DIF_4104 == static_cast<int>(engine::DifBlock::bytes_4104));
static_assert(HEADRACE_DIF_ERROR_GUARD == engine::dif_error::guard &&
              HEADRACE_DIF_ERROR_APPLICATION == engine::dif_error::application &&
              HEADRACE_DIF_ERROR_REFERENCE == engine::dif_error::reference &&
              HEADRACE_DIF_ERROR_ALL_ONES == engine::dif_error::all_ones);

headrace_completion to_c(const Completion& completion) {
  return same<headrace_completion>(completion);
}

headrace_operation to_c(const Operation& operation) {
  return same<headrace_operation>(operation);
}

headrace_answer to_c(Submit answer) {
  return static_cast<headrace_answer>(answer);
}

struct CallOfC {
  headrace_callback function = nullptr;
  void* context = nullptr;

  static void call(void* self, const Completion& completion) noexcept {
    const CallOfC& callback = *static_cast<const CallOfC*>(self);
    const headrace_completion made = to_c(completion);
    callback.function(callback.context, &made);
  }
};

/// The content of a headrace_job. A refused submission must not change the callback of the last
/// accepted one, which may still run, so each submission writes to the slot that the last accepted
/// one does not use.
struct JobOfC {
  Job job;
  std::array<CallOfC, 2> callbacks;
  std::uint32_t used = 0;
};
static_assert(sizeof(JobOfC) <= sizeof(headrace_job) && alignof(JobOfC) <= alignof(headrace_job));

JobOfC& of(const headrace_job* job) {
  HEADRACE_CHECK(job != nullptr, "a job is not null");
  return *std::launder(reinterpret_cast<JobOfC*>(const_cast<headrace_job*>(job)->opaque));
}

std::span<std::byte> bytes(void* first, std::size_t byte_count) {
  return {static_cast<std::byte*>(first), byte_count};
}

std::span<const std::byte> bytes(const void* first, std::size_t byte_count) {
  return {static_cast<const std::byte*>(first), byte_count};
}

engine::CrcOptions from_c(const headrace_crc_options* options) {
  if (options == nullptr) return {};
  return {options->seed, options->raw, !options->unreflected};
}

DifFormat from_c(const headrace_dif_format* format) {
  if (format == nullptr) return {};
  // Clamped, so that an invalid block size is still invalid as one byte: submission refuses it.
  const auto block = std::min<unsigned>(format->block, HEADRACE_DIF_4104 + 1U);
  return {static_cast<engine::DifBlock>(block), format->invert_seed, format->invert_guard};
}

DifSource from_c(const headrace_dif_source* check) {
  if (check == nullptr) return {};
  auto made = same<DifSource>(*check);
  made.check_guard = !check->skip_guard;
  made.check_reference = !check->skip_reference;
  return made;
}

DifTarget from_c(const headrace_dif_target* make) {
  return make == nullptr ? DifTarget() : same<DifTarget>(*make);
}

/// Names and texts of the library are string literals, hence zero-terminated.
const char* literal(std::string_view text) {
  return text.data();
}

/// The C++ object of a C handle.
engine::Engine& of(const headrace_engine* handle) {
  return headrace::c::object_of<engine::Engine>(handle);
}

engine::Channel& of(const headrace_channel* handle) {
  return headrace::c::object_of<engine::Channel>(handle);
}

/// Calls `submit` with `options` converted to C++. Stores their callback in `callback`, which must
/// live until it has been called.
template <typename Submission>
headrace_answer with_options(CallOfC& callback, const headrace_submit_options* options,
                             const Submission& submit) {
  engine::SubmitOptions made;
  if (options == nullptr) return to_c(submit(made));
  if (options->struct_size != sizeof(*options)) [[unlikely]] {
    const auto known = read_options(options, "submit");
    return known ? with_options(callback, &*known, submit) : HEADRACE_BAD_OPTION;
  }
  const bool bad_path = options->has_path && options->path > HEADRACE_PATH_CPU;
  if (bad_path || options->policy > HEADRACE_POLICY_BY_SIZE) return HEADRACE_BAD_OPTION;
  if (options->has_source_node) made.source_node = headrace::NodeId(options->source_node);
  if (options->has_target_node) made.target_node = headrace::NodeId(options->target_node);
  if (options->has_path) made.path = static_cast<engine::Path>(options->path);
  made.then = options->then;
  made.then_context = options->then_context;
  engine::MoverPolicy policy;  // Asked during the submission only.
  if (options->policy != HEADRACE_POLICY_DEFAULT) {
    policy = engine::movers::named()[options->policy - 1].choose;
    made.policy = &policy;
  }
  std::array<Job*, Job::kPredecessorMax + 1> after{};  // If too many, one too many, to be refused.
  made.after = std::span(after).first(std::min(options->after_count, after.size()));
  for (std::size_t i = 0; i < made.after.size() && options->after != nullptr; ++i) {
    if (headrace_job* const job = options->after[i]) after[i] = &of(job).job;
  }
  if (options->callback != nullptr) {
    callback = {options->callback, options->callback_context};
    made.callback = CallOfC::call;
    made.callback_context = &callback;
  }
  return to_c(submit(made));
}

/// As with_options(), for a job.
template <typename Submission>
headrace_answer start(JobOfC& box, const headrace_submit_options* options,
                      const Submission& submit) {
  box.used = 1 - box.used;
  const headrace_answer answer = with_options(box.callbacks[box.used], options, submit);
  // An accepted job may be destroyed by now.
  if (answer != HEADRACE_ACCEPTED) box.used = 1 - box.used;
  return answer;
}

headrace::Result<std::unique_ptr<engine::Engine>> make(const headrace_engine_options* given) {
  HEADRACE_TAKE(known, read_options(given, "make an engine"));
  const headrace_engine_options& options = *known;
  HEADRACE_TAKE(machine, headrace::topo::discover({.find_movers = !options.no_devices}));
  const auto refuse = [](const char* cause, const char* remedy) {
    return headrace::fail(headrace::Code::invalid_argument, "make an engine", cause, remedy);
  };
  if (options.path > HEADRACE_PATH_CPU || options.page_faults > HEADRACE_FAULT_BLOCK ||
      options.policy > HEADRACE_POLICY_BY_SIZE || options.waiting > HEADRACE_WAIT_SLEEP) {
    return refuse("an invalid path, policy, fault policy or waiting",
                  "pass one of the constants of headrace.h");
  }
  if ((options.nodes == nullptr && options.node_count != 0) ||
      (options.queues == nullptr && options.queue_count != 0)) {
    return refuse("the list of nodes or queues is null, but its count is not 0",
                  "pass the list, or 0 as its count");
  }
  engine::EngineOptions made;
  made.threads_per_node = options.threads_per_node;
  made.path = static_cast<engine::Path>(options.path);
  made.waiting = static_cast<engine::Waiting>(options.waiting);
  made.devices.use = !options.no_devices;
  made.check_memory = options.check_memory;
  made.devices.page_faults = static_cast<engine::FaultPolicy>(options.page_faults);
  if (options.late_writes_fail) made.devices.late_writes = engine::LateWrites::fail;
  if (options.timeout_ns != 0) made.devices.timeout = time_of(options.timeout_ns);
  if (options.policy != HEADRACE_POLICY_DEFAULT) {
    made.policy = engine::movers::named()[options.policy - 1].choose;
  }
  for (const std::uint32_t node : std::span(options.nodes, options.node_count)) {
    made.nodes.emplace_back(node);
  }
  for (const char* const queue : std::span(options.queues, options.queue_count)) {
    if (queue == nullptr) {
      return refuse("the name of a queue is null", "'headrace dsa list' shows the names");
    }
    made.devices.queues.emplace_back(queue);
  }
  if (options.has_thresholds) {
    made.thresholds = engine::PathThresholds{
        .synchronous = headrace::Bytes(options.thresholds.synchronous_bytes),
        .asynchronous = headrace::Bytes(options.thresholds.asynchronous_bytes),
        .batched = headrace::Bytes(options.thresholds.batched_bytes)};
  }
  if (options.piece_bytes != 0) made.piece = headrace::Bytes(options.piece_bytes);
  if (options.queue_depth_max != 0) made.queue_depth_max = options.queue_depth_max;
  return engine::Engine::make(*machine, std::move(made));
}

headrace::Result<std::unique_ptr<engine::Channel>> open_channel(
    engine::Engine& engine, const headrace_channel_options* given) {
  HEADRACE_TAKE(known, read_options(given, "open a channel"));
  const headrace_channel_options& options = *known;
  engine::ChannelOptions wanted;
  if (options.queue != nullptr) wanted.queue = options.queue;
  if (options.depth != 0) wanted.depth = options.depth;
  if (options.has_node) wanted.node = headrace::NodeId(options.node);
  wanted.latencies = options.latencies;
  return engine.open_channel(wanted);
}

/// The layouts are the same (see above): the engine accesses the caller's arrays directly.
engine::Batch to_batch(const headrace_operation* operations, headrace_completion* completions,
                       std::size_t operation_count) {
  engine::Batch batch{{reinterpret_cast<const Operation*>(operations), operation_count}, {}};
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
  return make_for_c<headrace_engine>("make an engine", error, [&] { return make(options); });
}

void headrace_engine_free(headrace_engine* engine) noexcept {
  delete reinterpret_cast<engine::Engine*>(engine);
}

void headrace_engine_stop(headrace_engine* engine) noexcept {
  of(engine).stop();
}

void headrace_engine_poll(headrace_engine* engine) noexcept {
  of(engine).poll();
}

headrace_waiting headrace_engine_waiting(const headrace_engine* engine) noexcept {
  return static_cast<headrace_waiting>(of(engine).waiting());
}

headrace_statistics headrace_engine_statistics(const headrace_engine* engine) noexcept {
  const engine::EngineStatistics totals = of(engine).statistics();
  headrace_statistics made{};
  std::memcpy(&made, &totals, sizeof made);  // A prefix of engine::EngineStatistics.
  return made;
}

const char* headrace_kind_name(headrace_kind kind) noexcept {
  return kind == HEADRACE_KIND_BATCH
             ? "batch"
             : literal(engine::name(static_cast<engine::OperationKind>(kind)));
}

bool headrace_engine_kind_statistics(const headrace_engine* engine, headrace_kind kind,
                                     headrace_kind_statistics* statistics) noexcept {
  const engine::Engine& asked = of(engine);
  if (statistics == nullptr || kind > HEADRACE_KIND_BATCH) return false;
  *statistics = same<headrace_kind_statistics>(asked.statistics().operations[kind]);
  return true;
}

uint64_t headrace_latency_max_ns(size_t latency_class) noexcept {
  const std::size_t known = std::min<std::size_t>(latency_class, HEADRACE_LATENCY_CLASSES - 1);
  const auto longest = engine::EngineStatistics::latency_max(known);
  return static_cast<std::uint64_t>(longest.count());
}

size_t headrace_mover_count(const headrace_engine* engine) noexcept {
  return of(engine).movers().size();
}

bool headrace_mover_info(const headrace_engine* engine, size_t mover_index,
                         headrace_mover* mover) noexcept {
  const std::vector<engine::MoverInfo>& infos = of(engine).movers();
  if (mover == nullptr || mover_index >= infos.size()) return false;
  const engine::MoverInfo& info = infos[mover_index];
  store(mover->name, info.name);
  store(mover->note, info.note);
  mover->node = info.node ? static_cast<std::int32_t>(info.node->value()) : -1;
  mover->hardware = info.hardware;
  mover->emulated = info.emulated;
  mover->queue_rank = info.queue_rank;
  return true;
}

bool headrace_mover_statistics(const headrace_engine* engine, size_t mover_index,
                               headrace_device_statistics* statistics) noexcept {
  try {
    const std::vector<engine::DeviceStatistics> all = of(engine).device_statistics();
    if (statistics == nullptr || mover_index >= all.size()) return false;
    *statistics = same<headrace_device_statistics>(all[mover_index]);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

const char* headrace_note(const headrace_engine* engine, size_t note_index) noexcept {
  const std::vector<std::string>& notes = of(engine).notes();
  return note_index < notes.size() ? notes[note_index].c_str() : nullptr;
}

headrace_thresholds headrace_engine_thresholds(const headrace_engine* engine) noexcept {
  const engine::Engine& asked = of(engine);
  const engine::PathThresholds values = asked.thresholds();
  return {.synchronous_bytes = values.synchronous.count(),
          .asynchronous_bytes = values.asynchronous.count(),
          .batched_bytes = values.batched.count(),
          .source = static_cast<headrace_threshold_source>(asked.threshold_source())};
}

const char* headrace_policy_name(headrace_policy policy) noexcept {
  if (policy == HEADRACE_POLICY_DEFAULT) return "default";
  const auto named = engine::movers::named();
  return policy <= named.size() ? literal(named[policy - 1].name) : "unknown";
}

const char* headrace_answer_name(headrace_answer answer) noexcept {
  return literal(engine::name(static_cast<Submit>(answer)));
}

const char* headrace_answer_text(headrace_answer answer) noexcept {
  return literal(engine::explain(static_cast<Submit>(answer)));
}

const char* headrace_state_name(uint32_t state) noexcept {
  return literal(engine::name(static_cast<engine::JobState>(state)));
}

const char* headrace_cause_name(uint8_t cause) noexcept {
  return literal(engine::name(static_cast<engine::Cause>(cause)));
}

const char* headrace_cause_text(uint8_t cause) noexcept {
  return literal(engine::explain(static_cast<engine::Cause>(cause)));
}

headrace_operation headrace_copy(void* target, const void* source, size_t byte_count) noexcept {
  return to_c(Operation::copy(bytes(target, byte_count), bytes(source, byte_count)));
}

headrace_operation headrace_fill(void* target, size_t byte_count, uint64_t pattern) noexcept {
  return to_c(Operation::fill(bytes(target, byte_count), pattern));
}

headrace_operation headrace_fill_16(void* target, size_t byte_count, uint64_t low,
                                    uint64_t high) noexcept {
  return to_c(Operation::fill(bytes(target, byte_count), low, high));
}

headrace_operation headrace_compare(const void* one, const void* other,
                                    size_t byte_count) noexcept {
  return to_c(Operation::compare(bytes(one, byte_count), bytes(other, byte_count)));
}

headrace_operation headrace_compare_pattern(const void* source, size_t byte_count,
                                            uint64_t pattern) noexcept {
  return to_c(Operation::compare_pattern(bytes(source, byte_count), pattern));
}

headrace_operation headrace_dualcast(void* target, void* second_target, const void* source,
                                     size_t byte_count) noexcept {
  return to_c(Operation::dualcast(bytes(target, byte_count), bytes(second_target, byte_count),
                                  bytes(source, byte_count)));
}

headrace_operation headrace_create_delta(void* record, size_t record_bytes, const void* before,
                                         const void* after, size_t byte_count) noexcept {
  return to_c(Operation::create_delta(bytes(record, record_bytes), bytes(before, byte_count),
                                      bytes(after, byte_count)));
}

headrace_operation headrace_apply_delta(void* target, size_t byte_count, const void* record,
                                        size_t record_bytes) noexcept {
  return to_c(Operation::apply_delta(bytes(target, byte_count), bytes(record, record_bytes)));
}

headrace_operation headrace_crc(const void* source, size_t byte_count,
                                const headrace_crc_options* options) noexcept {
  return to_c(Operation::crc(bytes(source, byte_count), from_c(options)));
}

headrace_operation headrace_copy_crc(void* target, const void* source, size_t byte_count,
                                     const headrace_crc_options* options) noexcept {
  return to_c(
      Operation::copy_crc(bytes(target, byte_count), bytes(source, byte_count), from_c(options)));
}

headrace_operation headrace_dif_check(const void* source, size_t source_bytes,
                                      const headrace_dif_format* format,
                                      const headrace_dif_source* check) noexcept {
  return to_c(Operation::dif_check(bytes(source, source_bytes), from_c(format), from_c(check)));
}

headrace_operation headrace_dif_insert(void* target, const void* source, size_t source_bytes,
                                       const headrace_dif_format* format,
                                       const headrace_dif_target* make) noexcept {
  const DifFormat made = from_c(format);
  const std::size_t block = block_bytes(made.block);
  const std::size_t target_bytes = source_bytes / block * (block + engine::kDifFieldBytes);
  return to_c(Operation::dif_insert(bytes(target, target_bytes), bytes(source, source_bytes), made,
                                    from_c(make)));
}

headrace_operation headrace_dif_strip(void* target, const void* source, size_t source_bytes,
                                      const headrace_dif_format* format,
                                      const headrace_dif_source* check) noexcept {
  const DifFormat made = from_c(format);
  const std::size_t block = block_bytes(made.block);
  const std::size_t target_bytes = source_bytes / (block + engine::kDifFieldBytes) * block;
  return to_c(Operation::dif_strip(bytes(target, target_bytes), bytes(source, source_bytes), made,
                                   from_c(check)));
}

headrace_operation headrace_dif_update(void* target, const void* source, size_t source_bytes,
                                       const headrace_dif_format* format,
                                       const headrace_dif_source* check,
                                       const headrace_dif_target* make) noexcept {
  return to_c(Operation::dif_update(bytes(target, source_bytes), bytes(source, source_bytes),
                                    from_c(format), from_c(check), from_c(make)));
}

headrace_operation headrace_cache_flush(void* target, size_t byte_count) noexcept {
  return to_c(Operation::cache_flush(bytes(target, byte_count)));
}

headrace_operation headrace_fenced(headrace_operation operation) noexcept {
  return to_c(same<Operation>(operation).fenced());
}

headrace_operation headrace_durable(headrace_operation operation) noexcept {
  return to_c(same<Operation>(operation).durable());
}

headrace_operation headrace_into_cache(headrace_operation operation) noexcept {
  return to_c(same<Operation>(operation).into_cache());
}

void headrace_job_init(headrace_job* job) noexcept {
  HEADRACE_CHECK(job != nullptr, "a job is not null");
  new (job->opaque) JobOfC;
}

void headrace_job_end(headrace_job* job) noexcept {
  if (job != nullptr) of(job).~JobOfC();
}

headrace_answer headrace_submit(headrace_engine* engine, headrace_job* job,
                                const headrace_operation* operation,
                                const headrace_submit_options* options) noexcept {
  if (engine == nullptr || job == nullptr || operation == nullptr) return HEADRACE_NULL_ADDRESS;
  return start(of(job), options, [&](const engine::SubmitOptions& made) {
    return of(engine).submit(of(job).job, same<Operation>(*operation), made);
  });
}

headrace_answer headrace_submit_batch(headrace_engine* engine, headrace_job* job,
                                      const headrace_operation* operations,
                                      headrace_completion* completions, size_t operation_count,
                                      const headrace_submit_options* options) noexcept {
  if (engine == nullptr || job == nullptr || (operations == nullptr && operation_count > 0)) {
    return HEADRACE_NULL_ADDRESS;
  }
  return start(of(job), options, [&](const engine::SubmitOptions& made) {
    const engine::Batch batch = to_batch(operations, completions, operation_count);
    return of(engine).submit_batch(of(job).job, batch, made);
  });
}

headrace_answer headrace_run(headrace_engine* engine, const headrace_operation* operation,
                             headrace_completion* completion,
                             const headrace_submit_options* options) noexcept {
  if (engine == nullptr || operation == nullptr) return HEADRACE_NULL_ADDRESS;
  CallOfC callback;  // Called before headrace_run() returns.
  return with_options(callback, options, [&](const engine::SubmitOptions& made) {
    Completion end;
    const Submit answer = of(engine).run(same<Operation>(*operation), end, made);
    if (answer == Submit::accepted && completion != nullptr) *completion = to_c(end);
    return answer;
  });
}

headrace_state headrace_job_state(const headrace_job* job) noexcept {
  return static_cast<headrace_state>(of(job).job.state());
}

bool headrace_poll(headrace_job* job) noexcept {
  return of(job).job.poll();
}

headrace_completion headrace_wait(headrace_job* job) noexcept {
  Completion end;  // `then` may release the job before this returns.
  static_cast<void>(of(job).job.wait_for(std::chrono::nanoseconds::max(), &end));
  return to_c(end);
}

bool headrace_wait_for(headrace_job* job, uint64_t time_ns_max) noexcept {
  return of(job).job.wait_for(time_of(time_ns_max));
}

headrace_completion headrace_job_completion(const headrace_job* job) noexcept {
  return to_c(of(job).job.completion());
}

void headrace_stop(headrace_job* job) noexcept {
  of(job).job.stop();
}

headrace_channel* headrace_channel_open(headrace_engine* engine,
                                        const headrace_channel_options* options,
                                        headrace_error* error) noexcept {
  return make_for_c<headrace_channel>("open a channel", error,
                                      [&] { return open_channel(of(engine), options); });
}

void headrace_channel_close(headrace_channel* channel) noexcept {
  delete reinterpret_cast<engine::Channel*>(channel);
}

headrace_answer headrace_channel_copy(headrace_channel* channel, void* target, const void* source,
                                      size_t byte_count, uint32_t* ticket) noexcept {
  if (channel == nullptr || ticket == nullptr) return HEADRACE_NULL_ADDRESS;
  engine::Ticket made{};
  const Submit answer = of(channel).submit_copy(
      {.target = bytes(target, byte_count), .source = bytes(source, byte_count)}, made);
  *ticket = static_cast<std::uint32_t>(made);
  return to_c(answer);
}

headrace_answer headrace_channel_submit(headrace_channel* channel,
                                        const headrace_operation* operation,
                                        uint32_t* ticket) noexcept {
  if (channel == nullptr || operation == nullptr || ticket == nullptr) return HEADRACE_NULL_ADDRESS;
  engine::Ticket made{};
  const Submit answer = of(channel).submit(same<Operation>(*operation), made);
  *ticket = static_cast<std::uint32_t>(made);
  return to_c(answer);
}

headrace_answer headrace_channel_submit_batch(headrace_channel* channel,
                                              const headrace_operation* operations,
                                              headrace_completion* completions,
                                              size_t operation_count, uint32_t* ticket) noexcept {
  if (channel == nullptr || ticket == nullptr || (operations == nullptr && operation_count > 0)) {
    return HEADRACE_NULL_ADDRESS;
  }
  engine::Ticket made{};
  const Submit answer =
      of(channel).submit_batch(to_batch(operations, completions, operation_count), made);
  *ticket = static_cast<std::uint32_t>(made);
  return to_c(answer);
}

bool headrace_channel_poll(headrace_channel* channel, uint32_t ticket,
                           headrace_completion* completion) noexcept {
  Completion end;
  if (!of(channel).poll(static_cast<engine::Ticket>(ticket), end)) return false;
  if (completion != nullptr) *completion = to_c(end);
  return true;
}

headrace_completion headrace_channel_wait(headrace_channel* channel, uint32_t ticket) noexcept {
  return to_c(of(channel).wait(static_cast<engine::Ticket>(ticket)));
}

size_t headrace_channel_in_flight(const headrace_channel* channel) noexcept {
  return of(channel).in_flight();
}

size_t headrace_channel_depth(const headrace_channel* channel) noexcept {
  return of(channel).depth();
}

const char* headrace_channel_queue(const headrace_channel* channel) noexcept {
  return of(channel).queue().c_str();
}
