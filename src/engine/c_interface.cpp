// SPDX-License-Identifier: Apache-2.0
// headrace.h by the C++ engine. Operations and completions have one layout on both sides, so that a
// batch is handed over as it lies; the asserts below hold them together.
#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>

#include "headrace.h"
#include "headrace/base/check.hpp"
#include "headrace/engine/engine.hpp"

namespace {

using headrace::engine::Batch;
using headrace::engine::Cause;
using headrace::engine::Completion;
using headrace::engine::CrcOptions;
using headrace::engine::DifBlock;
using headrace::engine::DifFormat;
using headrace::engine::DifSource;
using headrace::engine::DifTags;
using headrace::engine::DifTarget;
using headrace::engine::Engine;
using headrace::engine::EngineOptions;
using headrace::engine::FaultPolicy;
using headrace::engine::Job;
using headrace::engine::JobState;
using headrace::engine::Operation;
using headrace::engine::OperationResult;
using headrace::engine::Path;
using headrace::engine::Submit;
using headrace::engine::SubmitOptions;

// --- One layout ----------------------------------------------------------------------------------

static_assert(std::is_trivially_copyable_v<Operation> &&
              sizeof(headrace_operation) == sizeof(Operation) &&
              alignof(headrace_operation) == alignof(Operation));
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
static_assert(offsetof(headrace_dif_tags, reference) == offsetof(DifTags, reference) &&
              offsetof(headrace_dif_tags, application) == offsetof(DifTags, application) &&
              offsetof(headrace_dif_tags, application_mask) == offsetof(DifTags, application_mask));

// The same names have the same values: the last of each says so for those before it.
static_assert(HEADRACE_BAD_OPTION == static_cast<int>(Submit::bad_option));
static_assert(HEADRACE_STOPPED == static_cast<int>(JobState::stopped));
static_assert(HEADRACE_CAUSE_FENCE_BROKEN == static_cast<int>(Cause::fence_broken));
static_assert(HEADRACE_PATH_SOFTWARE == static_cast<int>(Path::software));
static_assert(HEADRACE_FAULT_BLOCK == static_cast<int>(FaultPolicy::block));
static_assert(HEADRACE_DIF_4104 == static_cast<int>(DifBlock::bytes_4104));
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

struct RoomyJob {
  Job job;
  CallOfC callback;
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

headrace_operation to_c(const Operation& operation) {
  headrace_operation made{};
  std::memcpy(&made, &operation, sizeof made);
  return made;
}

Operation from_c(const headrace_operation& operation) {
  Operation made;
  std::memcpy(static_cast<void*>(&made), &operation, sizeof made);
  return made;
}

// --- From C --------------------------------------------------------------------------------------

std::span<std::byte> bytes(void* first, std::size_t byte_count) {
  return {static_cast<std::byte*>(first), byte_count};
}
std::span<const std::byte> bytes(const void* first, std::size_t byte_count) {
  return {static_cast<const std::byte*>(first), byte_count};
}

CrcOptions from_c(const headrace_crc_options* options) {
  if (options == nullptr) return {};
  return {options->seed, options->raw, !options->unreflected};
}

DifFormat from_c(const headrace_dif_format* format) {
  if (format == nullptr) return {};
  // A block that there is not is refused all the same, see checked().
  return {static_cast<DifBlock>(format->block & 3), format->invert_seed, format->invert_guard};
}

/// In the place of an operation with an option that there is not: no target is there.
constexpr std::uint64_t kBad = ~std::uint64_t{0};

bool is_bad(const headrace_operation& operation) {
  return operation.opaque[0] == kBad;
}

/// `made`, or what is refused at submission if `format` is none that there is.
headrace_operation checked(const headrace_dif_format* format, headrace_operation made) {
  if (format != nullptr && format->block > HEADRACE_DIF_4104) made.opaque[0] = kBad;
  return made;
}

DifTags from_c(const headrace_dif_tags& tags) {
  return {tags.reference, tags.application, tags.application_mask};
}

DifSource from_c(const headrace_dif_source* check) {
  if (check == nullptr) return {};
  return {.tags = from_c(check->tags),
          .check_guard = !check->skip_guard,
          .check_reference = !check->skip_reference,
          .fixed_reference = check->fixed_reference,
          .increment_application = check->increment_application,
          .skip_ones_in_application = check->skip_ones_in_application,
          .skip_ones_in_tags = check->skip_ones_in_tags,
          .skip_ones_in_field = check->skip_ones_in_field,
          .ones_in_field_are_an_error = check->ones_in_field_are_an_error};
}

DifTarget from_c(const headrace_dif_target* make) {
  if (make == nullptr) return {};
  return {.tags = from_c(make->tags),
          .fixed_reference = make->fixed_reference,
          .increment_application = make->increment_application,
          .keep_guard = make->keep_guard,
          .keep_application = make->keep_application,
          .keep_reference = make->keep_reference};
}

/// How many blocks with (or without) fields are in `source_bytes`, and what they take with
/// `target_unit` bytes each. What is no whole block is refused at submission.
std::size_t blocks_of(std::size_t source_bytes, std::size_t source_unit, std::size_t target_unit) {
  return source_bytes / source_unit * target_unit;
}

SubmitOptions from_c(const headrace_submit_options* options) {
  SubmitOptions made;
  if (options == nullptr) return made;
  if (options->has_source_node) made.source_node = headrace::NodeId(options->source_node);
  if (options->has_target_node) made.target_node = headrace::NodeId(options->target_node);
  if (options->has_path) made.path = static_cast<Path>(options->path);
  made.then = options->then;
  made.then_context = options->then_context;
  return made;
}

bool is_path(enum headrace_path path) {
  return path <= HEADRACE_PATH_SOFTWARE;
}

bool is_bad(const headrace_submit_options* options) {
  return options != nullptr && options->has_path && !is_path(options->path);
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
  const std::size_t length = std::min(text.size(), kRoom - 1);
  std::memcpy(room, text.data(), length);
  room[length] = '\0';
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

/// Puts the callback of `options` where it is found when the job ends.
SubmitOptions prepare(CallOfC& callback, const headrace_submit_options* options) {
  SubmitOptions made = from_c(options);
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
  if (!is_path(options.path) || options.page_faults > HEADRACE_FAULT_BLOCK) {
    return headrace::fail(headrace::Code::invalid_argument, "make an engine",
                          "its path or fault policy is none of those that there are",
                          "pass one of the constants of headrace.h");
  }
  EngineOptions made;
  made.threads_per_node = options.threads_per_node;
  made.path = static_cast<Path>(options.path);
  made.devices.use = !options.no_devices;
  made.devices.page_faults = static_cast<FaultPolicy>(options.page_faults);
  if (options.answer_ns_max != 0) {
    made.devices.answer_max = std::chrono::nanoseconds(static_cast<std::int64_t>(
        std::min<std::uint64_t>(options.answer_ns_max, std::uint64_t{INT64_MAX} / 4)));
  }
  return Engine::make(*machine, std::move(made));
}

}  // namespace

const char* headrace_version(void) noexcept {
  return HEADRACE_LIBRARY_VERSION;
}

headrace_engine* headrace_engine_make(const headrace_engine_options* options,
                                      headrace_error* error) noexcept {
  try {
    auto made = make(options == nullptr ? headrace_engine_options{} : *options);
    if (made) return reinterpret_cast<headrace_engine*>(made->release());
    store(error, made.error());
  } catch (const std::bad_alloc&) {
    if (error != nullptr) {
      error->os_errno = 0;
      store(error->code, headrace::name(headrace::Code::out_of_memory));
      store(error->text, "cannot make an engine: there is no memory left; free some");
    }
  }
  return nullptr;
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

headrace_statistics headrace_engine_statistics(const headrace_engine* engine) noexcept {
  const headrace::engine::EngineStatistics totals = engine_of(engine).statistics();
  return {.jobs_submitted = totals.jobs_submitted,
          .jobs_done = totals.jobs_done,
          .jobs_failed = totals.jobs_failed,
          .jobs_stopped = totals.jobs_stopped,
          .submissions_refused = totals.submissions_refused,
          .bytes_moved = totals.bytes_moved,
          .bytes_by_device = totals.bytes_by_device,
          .jobs_fell_back = totals.jobs_fell_back};
}

size_t headrace_mover_count(const headrace_engine* engine) noexcept {
  return engine_of(engine).movers().size();
}

bool headrace_mover_info(const headrace_engine* engine, size_t mover_index,
                         headrace_mover* mover) noexcept {
  const std::vector<headrace::engine::MoverInfo> movers = engine_of(engine).movers();
  if (mover == nullptr || mover_index >= movers.size()) return false;
  const headrace::engine::MoverInfo& info = movers[mover_index];
  store(mover->name, info.name);
  store(mover->note, info.note);
  mover->node = info.node ? static_cast<std::int32_t>(info.node->value()) : -1;
  mover->hardware = info.hardware;
  return true;
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
  return checked(format, to_c(Operation::dif_check(bytes(source, source_bytes), from_c(format),
                                                   from_c(check))));
}

headrace_operation headrace_dif_insert(void* target, const void* source, size_t source_bytes,
                                       const headrace_dif_format* format,
                                       const headrace_dif_target* make) noexcept {
  const DifFormat made = from_c(format);
  const std::size_t block = block_bytes(made.block);
  const std::size_t target_bytes =
      blocks_of(source_bytes, block, block + headrace::engine::kDifFieldBytes);
  return checked(
      format, to_c(Operation::dif_insert(bytes(target, target_bytes), bytes(source, source_bytes),
                                         made, from_c(make))));
}

headrace_operation headrace_dif_strip(void* target, const void* source, size_t source_bytes,
                                      const headrace_dif_format* format,
                                      const headrace_dif_source* check) noexcept {
  const DifFormat made = from_c(format);
  const std::size_t block = block_bytes(made.block);
  const std::size_t target_bytes =
      blocks_of(source_bytes, block + headrace::engine::kDifFieldBytes, block);
  return checked(format,
                 to_c(Operation::dif_strip(bytes(target, target_bytes), bytes(source, source_bytes),
                                           made, from_c(check))));
}

headrace_operation headrace_dif_update(void* target, const void* source, size_t source_bytes,
                                       const headrace_dif_format* format,
                                       const headrace_dif_source* check,
                                       const headrace_dif_target* make) noexcept {
  return checked(
      format, to_c(Operation::dif_update(bytes(target, source_bytes), bytes(source, source_bytes),
                                         from_c(format), from_c(check), from_c(make))));
}

headrace_operation headrace_cache_flush(void* target, size_t byte_count) noexcept {
  return to_c(Operation::cache_flush(bytes(target, byte_count)));
}

headrace_operation headrace_fenced(headrace_operation operation) noexcept {
  return to_c(from_c(operation).fenced());
}

headrace_operation headrace_durable(headrace_operation operation) noexcept {
  return to_c(from_c(operation).durable());
}

headrace_operation headrace_into_cache(headrace_operation operation) noexcept {
  return to_c(from_c(operation).into_cache());
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
  if (is_bad(options) || is_bad(*operation)) return HEADRACE_BAD_OPTION;
  RoomyJob& box = roomy(job);
  return to_c(
      engine_of(engine).submit(box.job, from_c(*operation), prepare(box.callback, options)));
}

enum headrace_answer headrace_submit_batch(headrace_engine* engine, headrace_job* job,
                                           const headrace_operation* operations,
                                           headrace_completion* completions, size_t operation_count,
                                           const headrace_submit_options* options) noexcept {
  if (engine == nullptr || job == nullptr || (operations == nullptr && operation_count > 0)) {
    return HEADRACE_NULL_ADDRESS;
  }
  if (is_bad(options) || std::any_of(operations, operations + operation_count,
                                     [](const headrace_operation& one) { return is_bad(one); })) {
    return HEADRACE_BAD_OPTION;
  }
  RoomyJob& box = roomy(job);
  // One layout, see above: what the caller has is what the engine reads and writes.
  Batch batch{{reinterpret_cast<const Operation*>(operations), operation_count}, {}};
  if (completions != nullptr) {
    batch.completions = {reinterpret_cast<Completion*>(completions), operation_count};
  }
  return to_c(engine_of(engine).submit_batch(box.job, batch, prepare(box.callback, options)));
}

enum headrace_answer headrace_run(headrace_engine* engine, const headrace_operation* operation,
                                  headrace_completion* completion,
                                  const headrace_submit_options* options) noexcept {
  if (engine == nullptr || operation == nullptr) return HEADRACE_NULL_ADDRESS;
  if (is_bad(options) || is_bad(*operation)) return HEADRACE_BAD_OPTION;
  CallOfC callback;  // It is called before the end.
  Completion made;
  const Submit answer = engine_of(engine).run(from_c(*operation), made, prepare(callback, options));
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
  // Beyond some decades it is for ever: a sum with the time of day must not overflow.
  constexpr std::uint64_t kForeverFrom = std::uint64_t{INT64_MAX} / 4;
  const auto time = time_ns_max >= kForeverFrom
                        ? std::chrono::nanoseconds::max()
                        : std::chrono::nanoseconds(static_cast<std::int64_t>(time_ns_max));
  return roomy(job).job.wait_for(time);
}

headrace_completion headrace_job_completion(const headrace_job* job) noexcept {
  return to_c(job_of(job).completion());
}

void headrace_stop(headrace_job* job) noexcept {
  roomy(job).job.stop();
}
