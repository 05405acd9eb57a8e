/* SPDX-License-Identifier: Apache-2.0
 * headrace.h in a C program: every function, with a strict C11 compiler. Operations are tested in
 * C++; this checks that C gives the same results. */
#include <headrace.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/expect.h"

enum { kBytes = 1 << 20, kSmall = 4096 };

static uint8_t* filled(size_t byte_count, unsigned seed) {
  uint8_t* const bytes = aligned_alloc(4096, byte_count);
  if (bytes == NULL) abort();
  for (size_t i = 0; i < byte_count; ++i) bytes[i] = (uint8_t)(i * 7 + (i >> 8) + seed);
  return bytes;
}

static headrace_completion run(headrace_engine* engine, headrace_operation operation) {
  headrace_completion completion;
  memset(&completion, 0, sizeof completion);
  EXPECT(headrace_run(engine, &operation, &completion, NULL) == HEADRACE_ACCEPTED);
  return completion;
}

static void every_operation_does_what_it_says(headrace_engine* engine) {
  uint8_t* const source = filled(kBytes, 1);
  uint8_t* const target = filled(kBytes, 2);
  uint8_t* const second = filled(kBytes, 3);
  headrace_completion end = run(engine, headrace_copy(target, source, kBytes));
  EXPECT(end.state == HEADRACE_DONE && end.cause == HEADRACE_CAUSE_NONE);
  EXPECT(end.bytes_done == kBytes && memcmp(source, target, kBytes) == 0);

  end = run(engine, headrace_compare(source, target, kBytes));
  EXPECT(!end.different);
  target[777777] ^= 1;
  end = run(engine, headrace_compare(source, target, kBytes));
  EXPECT(end.different && end.difference_offset == 777777);

  run(engine, headrace_fill(target, 12, 0x0807060504030201));
  EXPECT(memcmp(target, "\1\2\3\4\5\6\7\10\1\2\3\4", 12) == 0);
  run(engine, headrace_fill_16(target, 17, 1, 2));
  EXPECT(target[0] == 1 && target[8] == 2 && target[16] == 1);
  run(engine, headrace_fill(target, kSmall, 5));
  EXPECT(!run(engine, headrace_compare_pattern(target, kSmall, 5)).different);
  EXPECT(run(engine, headrace_compare_pattern(target, kSmall, 6)).different);

  run(engine, headrace_dualcast(target, second, source, kBytes));
  EXPECT(memcmp(target, source, kBytes) == 0 && memcmp(second, source, kBytes) == 0);

  uint8_t zeros[32] = {0};
  EXPECT(run(engine, headrace_crc(zeros, sizeof zeros, NULL)).crc == 0x8a9136aa); /* RFC 3720. */
  const headrace_crc_options half = {run(engine, headrace_crc(zeros, 16, NULL)).crc, false, false};
  EXPECT(run(engine, headrace_crc(zeros + 16, 16, &half)).crc == 0x8a9136aa);
  end = run(engine, headrace_copy_crc(target, zeros, sizeof zeros, NULL));
  EXPECT(end.crc == 0x8a9136aa && target[31] == 0);

  uint64_t record[20];
  memcpy(target, source, kSmall);
  target[100] ^= 1;
  end = run(engine, headrace_create_delta(record, sizeof record, source, target, kSmall));
  EXPECT(end.different && !end.record_full && end.delta_bytes == 10);
  run(engine, headrace_apply_delta(second, kSmall, record, end.delta_bytes));
  EXPECT(memcmp(second, target, kSmall) == 0);

  const headrace_dif_format format = {HEADRACE_DIF_520, true, false};
  const headrace_dif_target make = {.tags = {.reference = 9, .application = 4}};
  headrace_dif_source check = {.tags = make.tags};
  end = run(engine, headrace_dif_insert(target, source, 520 * 3, &format, &make));
  EXPECT(end.target_tags.reference == 12);
  EXPECT(run(engine, headrace_dif_check(target, 528 * 3, &format, &check)).state == HEADRACE_DONE);
  end = run(engine, headrace_dif_strip(second, target, 528 * 3, &format, &check));
  EXPECT(end.state == HEADRACE_DONE && memcmp(second, source, 520 * 3) == 0);
  end = run(engine, headrace_dif_update(second, target, 528 * 3, &format, &check, &make));
  EXPECT(end.state == HEADRACE_DONE && memcmp(second, target, 528 * 3) == 0);
  check.tags.application = 5;
  end = run(engine, headrace_dif_check(target, 528 * 3, &format, &check));
  EXPECT(end.state == HEADRACE_FAILED && end.cause == HEADRACE_CAUSE_INTEGRITY_ERROR);
  EXPECT(end.dif_errors == HEADRACE_DIF_ERROR_APPLICATION && end.bytes_done == 0);

  EXPECT(run(engine, headrace_cache_flush(target, kBytes)).state == HEADRACE_DONE);
  const headrace_operation nothing = {{0}};
  EXPECT(run(engine, nothing).state == HEADRACE_DONE);
  free(source);
  free(target);
  free(second);
}

static sem_t ended;
static unsigned called_back = 0;

static void count_end(void* context, const headrace_completion* completion) {
  (void)completion;
  ++*(int*)context;
}

static void note_end(void* context, const headrace_completion* completion) {
  *(headrace_completion*)context = *completion;
  ++called_back;
}

static void end_job(void* context) {
  headrace_job_end(context);
  sem_post(&ended);
}

static void jobs_end_once_and_say_how(headrace_engine* engine) {
  uint8_t* const source = filled(kBytes, 1);
  uint8_t* const target = filled(kBytes, 2);
  headrace_job job;
  headrace_job_init(&job);
  EXPECT(headrace_job_state(&job) == HEADRACE_IDLE);
  headrace_operation copy =
      headrace_durable(headrace_into_cache(headrace_copy(target, source, kBytes)));
  headrace_completion seen = {0};
  headrace_submit_options options = {.struct_size = sizeof(headrace_submit_options)};
  options.callback = note_end;
  options.callback_context = &seen;
  options.has_path = true;
  options.path = HEADRACE_PATH_CPU;
  EXPECT(headrace_submit(engine, &job, &copy, &options) == HEADRACE_ACCEPTED);
  EXPECT(headrace_wait(&job).bytes_done == kBytes);
  EXPECT(called_back == 1 && seen.state == HEADRACE_DONE && seen.bytes_done == kBytes);
  EXPECT(headrace_poll(&job) && headrace_job_completion(&job).state == HEADRACE_DONE);
  EXPECT(memcmp(source, target, kBytes) == 0);
  seen.state = HEADRACE_IDLE;
  EXPECT(headrace_run(engine, &copy, NULL, &options) == HEADRACE_ACCEPTED);
  EXPECT(called_back == 2 && seen.state == HEADRACE_DONE && seen.bytes_done == kBytes);

  /* Again, with the same room, and for a time beyond all clocks. */
  EXPECT(headrace_submit(engine, &job, &copy, NULL) == HEADRACE_ACCEPTED);
  headrace_stop(&job);
  EXPECT(headrace_wait_for(&job, UINT64_MAX));
  EXPECT(headrace_job_state(&job) == HEADRACE_DONE || headrace_job_state(&job) == HEADRACE_STOPPED);
  headrace_job_end(&job);
  headrace_job_end(NULL);

  headrace_job gone;
  headrace_job_init(&gone);
  sem_init(&ended, 0, 0);
  const headrace_submit_options follow = {
      .struct_size = sizeof(headrace_submit_options), .then = end_job, .then_context = &gone};
  EXPECT(headrace_submit(engine, &gone, &copy, &follow) == HEADRACE_ACCEPTED);
  while (sem_wait(&ended) != 0) {
  }
  sem_destroy(&ended);
  free(source);
  free(target);
}

static void wait_for_post(void* context, const headrace_completion* completion) {
  (void)completion;
  while (sem_wait(context) != 0) {
  }
}

/* A submission that is refused leaves the callback of a job alone, which may still run. */
static void a_refused_submission_changes_no_callback(headrace_engine* engine) {
  uint8_t* const source = filled(kBytes, 1);
  uint8_t* const target = filled(kBytes, 2);
  headrace_job first;
  headrace_job job;
  headrace_job_init(&first);
  headrace_job_init(&job);
  sem_t go_on;
  EXPECT(sem_init(&go_on, 0, 0) == 0);
  const headrace_operation copy = headrace_copy(target, source, kBytes);
  const headrace_operation nothing = headrace_fill(target, 0, 0);
  headrace_submit_options options = {.struct_size = sizeof(headrace_submit_options),
                                     .callback = wait_for_post,
                                     .callback_context = &go_on};
  EXPECT(headrace_submit(engine, &first, &copy, &options) == HEADRACE_ACCEPTED);
  /* `job` runs until `first` has ended, and that one waits for the semaphore. */
  int called = 0;
  int called_of_refused = 0;
  headrace_job* const named = &first;
  options = (headrace_submit_options){.struct_size = sizeof(headrace_submit_options),
                                      .callback = count_end,
                                      .callback_context = &called,
                                      .after = &named,
                                      .after_count = 1};
  EXPECT(headrace_submit(engine, &job, &copy, &options) == HEADRACE_ACCEPTED);
  options = (headrace_submit_options){.struct_size = sizeof(headrace_submit_options),
                                      .callback = count_end,
                                      .callback_context = &called_of_refused};
  EXPECT(headrace_submit(engine, &job, &nothing, &options) == HEADRACE_EMPTY);
  EXPECT(headrace_submit_batch(engine, &job, &nothing, NULL, 1, &options) == HEADRACE_EMPTY);
  EXPECT(sem_post(&go_on) == 0);
  EXPECT(headrace_wait(&job).state == HEADRACE_DONE);
  EXPECT(called == 1 && called_of_refused == 0);
  headrace_job_end(&job);
  headrace_job_end(&first);
  EXPECT(sem_destroy(&go_on) == 0);
  free(source);
  free(target);
}

static void a_batch_keeps_its_fences(headrace_engine* engine) {
  uint64_t target[8] = {0};
  uint64_t record[2] = {200, 0}; /* An offset far behind the target. */
  const headrace_operation operations[] = {
      headrace_fill(target, 8, 1),
      headrace_apply_delta(target, sizeof target, record, 10),
      headrace_fenced(headrace_fill(target + 1, 8, 2)),
  };
  headrace_completion completions[3];
  headrace_job job;
  headrace_job_init(&job);
  EXPECT(headrace_submit_batch(engine, &job, operations, completions, 3, NULL) ==
         HEADRACE_ACCEPTED);
  EXPECT(headrace_wait(&job).cause == HEADRACE_CAUSE_BATCH_FAILED);
  EXPECT(completions[0].state == HEADRACE_DONE && completions[0].bytes_done == 8);
  EXPECT(completions[1].cause == HEADRACE_CAUSE_BAD_RECORD);
  EXPECT(completions[2].cause == HEADRACE_CAUSE_FENCE_BROKEN);
  EXPECT(target[0] == 1 && target[1] == 0);
  EXPECT(headrace_submit_batch(engine, &job, operations, NULL, 1, NULL) == HEADRACE_ACCEPTED);
  EXPECT(headrace_wait(&job).state == HEADRACE_DONE);
  EXPECT(headrace_submit_batch(engine, &job, NULL, NULL, 0, NULL) == HEADRACE_EMPTY);
  EXPECT(headrace_submit_batch(engine, &job, NULL, NULL, 1, NULL) == HEADRACE_NULL_ADDRESS);
  headrace_job_end(&job);
}

static void mistakes_have_names(headrace_engine* engine) {
  uint64_t memory[32] = {0};
  headrace_job job;
  headrace_job_init(&job);
  const headrace_operation overlapping = headrace_copy(memory + 1, memory, 16);
  const headrace_operation null = headrace_copy(NULL, memory, 16);
  const headrace_operation empty = headrace_crc(memory, 0, NULL);
  const headrace_operation ragged = headrace_dif_check(memory, 100, NULL, NULL);
  const headrace_operation good = headrace_fill(memory, 8, 0);
  const headrace_submit_options nowhere = {.struct_size = sizeof(headrace_submit_options),
                                           .has_path = true,
                                           .path = (enum headrace_path)9};
  EXPECT(headrace_submit(engine, &job, &overlapping, NULL) == HEADRACE_OVERLAPPING);
  EXPECT(headrace_submit(engine, &job, &null, NULL) == HEADRACE_NULL_ADDRESS);
  EXPECT(headrace_submit(engine, &job, &empty, NULL) == HEADRACE_EMPTY);
  EXPECT(headrace_run(engine, &ragged, NULL, NULL) == HEADRACE_MISALIGNED);
  EXPECT(headrace_run(engine, &good, NULL, &nowhere) == HEADRACE_BAD_OPTION);
  const int no_blocks[] = {4, 7, -1};
  for (size_t i = 0; i < 3; ++i) {
    const headrace_dif_format no_format = {(enum headrace_dif_block)no_blocks[i], false, false};
    const headrace_operation bad[] = {
        headrace_dif_check(memory, 520, &no_format, NULL),
        headrace_fenced(headrace_dif_insert(memory, memory, 512, &no_format, NULL)),
        headrace_dif_strip(memory, memory, 520, &no_format, NULL),
        headrace_dif_update(memory, memory, 520, &no_format, NULL, NULL)};
    for (size_t j = 0; j < 4; ++j) {
      EXPECT(headrace_run(engine, &bad[j], NULL, NULL) == HEADRACE_BAD_OPTION);
      EXPECT(headrace_submit(engine, &job, &bad[j], NULL) == HEADRACE_BAD_OPTION);
      const headrace_operation both[] = {good, bad[j]};
      EXPECT(headrace_submit_batch(engine, &job, both, NULL, 2, NULL) == HEADRACE_BAD_OPTION);
    }
  }
  EXPECT(headrace_submit(NULL, &job, &good, NULL) == HEADRACE_NULL_ADDRESS);
  EXPECT(headrace_submit(engine, NULL, &good, NULL) == HEADRACE_NULL_ADDRESS);
  EXPECT(headrace_submit(engine, &job, NULL, NULL) == HEADRACE_NULL_ADDRESS);
  EXPECT(headrace_run(engine, &good, NULL, NULL) == HEADRACE_ACCEPTED);
  EXPECT(headrace_job_state(&job) == HEADRACE_IDLE);
  headrace_job_end(&job);
  EXPECT(strcmp(headrace_answer_name(HEADRACE_OVERLAPPING), "overlapping") == 0);
  EXPECT(strstr(headrace_answer_text(HEADRACE_OVERLAPPING), "separate") != NULL);
  EXPECT(strcmp(headrace_state_name(HEADRACE_STOPPED), "stopped") == 0);
  EXPECT(strcmp(headrace_cause_name(HEADRACE_CAUSE_BAD_RECORD), "bad_record") == 0);
  EXPECT(strstr(headrace_cause_text(HEADRACE_CAUSE_BAD_RECORD), "create_delta") != NULL);

  headrace_error error;
  headrace_engine_options bad = {.struct_size = sizeof(headrace_engine_options),
                                 .threads_per_node = (size_t)1 << 40,
                                 .no_devices = true};
  EXPECT(headrace_engine_make(&bad, &error) == NULL);
  EXPECT(strcmp(error.code, "invalid_argument") == 0 && strstr(error.text, "threads") != NULL);
  EXPECT(headrace_engine_make(&bad, NULL) == NULL);
  bad = (headrace_engine_options){.struct_size = sizeof(headrace_engine_options),
                                  .path = (enum headrace_path)9};
  EXPECT(headrace_engine_make(&bad, &error) == NULL && strstr(error.text, "path") != NULL);
  bad = (headrace_engine_options){.struct_size = sizeof(headrace_engine_options),
                                  .waiting = (enum headrace_waiting)5};
  EXPECT(headrace_engine_make(&bad, &error) == NULL && strstr(error.text, "waiting") != NULL);
  bad = (headrace_engine_options){.struct_size = sizeof(headrace_engine_options),
                                  .waiting = HEADRACE_WAIT_SLEEP,
                                  .no_devices = true};
  headrace_engine* const sleeps = headrace_engine_make(&bad, &error);
  EXPECT(sleeps != NULL && headrace_engine_waiting(sleeps) == HEADRACE_WAIT_SLEEP);
  headrace_engine_free(sleeps);
}

static void statistics_are_kept_by_kind(headrace_engine* engine) {
  /* So long that each one is timed. */
  static uint64_t memory[32 * 1024];
  headrace_kind_statistics before;
  headrace_kind_statistics after;
  EXPECT(headrace_engine_kind_statistics(engine, HEADRACE_KIND_FILL, &before));
  run(engine, headrace_fill(memory, sizeof memory, 7));
  EXPECT(headrace_engine_kind_statistics(engine, HEADRACE_KIND_FILL, &after));
  EXPECT(after.jobs_done == before.jobs_done + 1 && after.bytes == before.bytes + sizeof memory);
  EXPECT(after.bytes_by_device == 0 && after.fallbacks == 0);
  uint64_t count_before = 0;
  uint64_t count_after = 0;
  for (size_t i = 0; i < HEADRACE_LATENCY_CLASSES; ++i) {
    count_before += before.latency_counts[i];
    count_after += after.latency_counts[i];
    if (i > 0) EXPECT(headrace_latency_max_ns(i) >= headrace_latency_max_ns(i - 1));
  }
  EXPECT(count_after == count_before + 1);
  EXPECT(headrace_engine_kind_statistics(engine, HEADRACE_KIND_BATCH, &after));
  EXPECT(!headrace_engine_kind_statistics(engine, (enum headrace_kind)17, &after));
  EXPECT(!headrace_engine_kind_statistics(engine, HEADRACE_KIND_FILL, NULL));
  EXPECT(strcmp(headrace_kind_name(HEADRACE_KIND_CACHE_FLUSH), "cache_flush") == 0);
  EXPECT(strcmp(headrace_kind_name(HEADRACE_KIND_BATCH), "batch") == 0);
  headrace_device_statistics device = {.lost = 1};
  EXPECT(headrace_mover_statistics(engine, 0, &device) && device.lost == 0);
  EXPECT(!headrace_mover_statistics(engine, headrace_mover_count(engine), &device));
}

static void engines_take_their_options(void) {
  headrace_error error = {0};
  const uint32_t node = 0;
  const headrace_engine_options options = {.struct_size = sizeof(headrace_engine_options),
                                           .threads_per_node = 1,
                                           .no_devices = true,
                                           .policy = HEADRACE_POLICY_LEAST_LOADED,
                                           .nodes = &node,
                                           .node_count = 1,
                                           .has_thresholds = true,
                                           .thresholds = {.synchronous_bytes = 3 << 20,
                                                          .asynchronous_bytes = 2 << 20,
                                                          .batched_bytes = 1 << 20},
                                           .piece_bytes = 4096,
                                           .queue_depth_max = 2};
  headrace_engine* const engine = headrace_engine_make(&options, &error);
  EXPECT(engine != NULL);
  if (engine == NULL) return;
  const headrace_thresholds thresholds = headrace_engine_thresholds(engine);
  EXPECT(thresholds.synchronous_bytes == 3 << 20 && thresholds.asynchronous_bytes == 2 << 20);
  EXPECT(thresholds.batched_bytes == 1 << 20 && thresholds.source == HEADRACE_THRESHOLDS_CALLER);
  EXPECT(headrace_mover_count(engine) == 1);
  /* A C program can ask why no device is used. */
  EXPECT(headrace_note(engine, 0) != NULL && strstr(headrace_note(engine, 0), "options") != NULL);
  EXPECT(headrace_note(engine, 1000) == NULL);

  uint64_t memory[64] = {0};
  const headrace_operation fill = headrace_fill(memory, sizeof memory, 7);
  for (unsigned policy = HEADRACE_POLICY_DEFAULT; policy <= HEADRACE_POLICY_BY_SIZE; ++policy) {
    const headrace_submit_options chosen = {.struct_size = sizeof(headrace_submit_options),
                                            .policy = (enum headrace_policy)policy};
    headrace_job job;
    headrace_job_init(&job);
    EXPECT(headrace_submit(engine, &job, &fill, &chosen) == HEADRACE_ACCEPTED);
    EXPECT(headrace_wait(&job).state == HEADRACE_DONE);
    headrace_job_end(&job);
  }
  const headrace_submit_options unknown_policy = {.struct_size = sizeof(headrace_submit_options),
                                                  .policy = (enum headrace_policy)9};
  EXPECT(headrace_run(engine, &fill, NULL, &unknown_policy) == HEADRACE_BAD_OPTION);
  EXPECT(strcmp(headrace_policy_name(HEADRACE_POLICY_NEAR_TARGET), "near_target") == 0);
  EXPECT(strcmp(headrace_policy_name(HEADRACE_POLICY_BY_SIZE), "by_size") == 0);
  EXPECT(strcmp(headrace_policy_name((enum headrace_policy)9), "unknown") == 0);
  headrace_engine_free(engine);

  headrace_engine_options bad = options;
  bad.policy = (enum headrace_policy)9;
  EXPECT(headrace_engine_make(&bad, &error) == NULL && strstr(error.text, "policy") != NULL);
  const uint32_t nowhere = 4711;
  bad = options;
  bad.nodes = &nowhere;
  EXPECT(headrace_engine_make(&bad, &error) == NULL && strstr(error.text, "4711") != NULL);
  const char* const queue = "dsa9/wq9.9";
  bad = options;
  bad.no_devices = false;
  bad.queues = &queue;
  bad.queue_count = 1;
  EXPECT(headrace_engine_make(&bad, &error) == NULL);
  EXPECT(strcmp(error.code, "hardware_absent") == 0 && strstr(error.text, queue) != NULL);

  bad = options;
  bad.nodes = NULL;
  EXPECT(headrace_engine_make(&bad, &error) == NULL && strstr(error.text, "list") != NULL);
  bad = options;
  bad.queue_count = 1;
  EXPECT(headrace_engine_make(&bad, &error) == NULL && strstr(error.text, "list") != NULL);
  const char* const nameless = NULL;
  bad.queues = &nameless;
  EXPECT(headrace_engine_make(&bad, &error) == NULL);
  EXPECT(strcmp(error.code, "invalid_argument") == 0 && strstr(error.text, "name") != NULL);
}

static void a_job_begins_after_those_it_names(headrace_engine* engine) {
  uint8_t* const source = filled(kBytes, 1);
  uint8_t* const between = filled(kBytes, 2);
  uint8_t* const target = filled(kBytes, 3);
  headrace_job jobs[3];
  for (int i = 0; i < 3; ++i) headrace_job_init(&jobs[i]);
  headrace_job* named[HEADRACE_PREDECESSORS_MAX + 1] = {&jobs[0]};
  headrace_submit_options options = {
      .struct_size = sizeof(headrace_submit_options), .after = named, .after_count = 1};
  const headrace_operation first = headrace_copy(between, source, kBytes);
  const headrace_operation second = headrace_copy(target, between, kBytes);
  EXPECT(headrace_submit(engine, &jobs[1], &second, &options) == HEADRACE_BAD_PREDECESSOR);
  EXPECT(headrace_submit(engine, &jobs[0], &first, NULL) == HEADRACE_ACCEPTED);
  EXPECT(headrace_submit(engine, &jobs[1], &second, &options) == HEADRACE_ACCEPTED);
  named[0] = &jobs[1];
  const headrace_operation compare = headrace_compare(source, target, kBytes);
  headrace_completion end;
  EXPECT(headrace_run(engine, &compare, &end, &options) == HEADRACE_ACCEPTED && !end.different);
  options.after_count = 2;
  EXPECT(headrace_submit(engine, &jobs[2], &first, &options) == HEADRACE_NULL_ADDRESS);
  options.after_count = (size_t)-1;
  EXPECT(headrace_submit_batch(engine, &jobs[2], &first, NULL, 1, &options) ==
         HEADRACE_TOO_MANY_PREDECESSORS);
  options.after = NULL;
  options.after_count = 1;
  EXPECT(headrace_submit(engine, &jobs[2], &first, &options) == HEADRACE_NULL_ADDRESS);
  for (int i = 0; i < 3; ++i) headrace_job_end(&jobs[i]);
  EXPECT(strcmp(headrace_cause_name(HEADRACE_CAUSE_PREDECESSOR_FAILED), "predecessor_failed") == 0);
  free(source);
  free(between);
  free(target);
}

/* What a channel does is tested in channel_test.cpp, on a device. */
static void without_a_device_there_is_no_channel(headrace_engine* engine) {
  headrace_error error = {0};
  const headrace_channel_options options = {
      .struct_size = sizeof(headrace_channel_options), .queue = "dsa0/wq0.0", .depth = 4};
  EXPECT(headrace_channel_open(engine, &options, &error) == NULL);
  EXPECT(strcmp(error.code, "hardware_absent") == 0 && strstr(error.text, "dsa0/wq0.0") != NULL);
  EXPECT(headrace_channel_open(engine, NULL, NULL) == NULL);
  headrace_channel_close(NULL);
  uint32_t ticket = 0;
  const headrace_operation nothing = {{0}};
  EXPECT(headrace_channel_submit(NULL, &nothing, &ticket) == HEADRACE_NULL_ADDRESS);
  EXPECT(headrace_channel_submit_batch(NULL, &nothing, NULL, 1, &ticket) == HEADRACE_NULL_ADDRESS);
  EXPECT(headrace_channel_copy(NULL, &ticket, &error, 4, &ticket) == HEADRACE_NULL_ADDRESS);
}

int main(void) {
  EXPECT(strcmp(headrace_version(), HEADRACE_EXPECTED_VERSION) == 0);
  headrace_error error = {0};
  const headrace_engine_options options = {
      .struct_size = sizeof(headrace_engine_options), .threads_per_node = 2, .no_devices = true};
  headrace_engine* const engine = headrace_engine_make(&options, &error);
  if (engine == NULL) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  EXPECT(headrace_engine_waiting(engine) == HEADRACE_WAIT_ADAPTIVE);
  headrace_mover mover = {.queue_rank = 7};
  EXPECT(headrace_mover_count(engine) >= 1 && headrace_mover_info(engine, 0, &mover));
  EXPECT(strncmp(mover.name, "cpu/", 4) == 0 && !mover.hardware && mover.node >= 0);
  EXPECT(!mover.emulated);
  EXPECT(mover.queue_rank == 0);
  EXPECT(!headrace_mover_info(engine, headrace_mover_count(engine), &mover));

  every_operation_does_what_it_says(engine);
  jobs_end_once_and_say_how(engine);
  a_refused_submission_changes_no_callback(engine);
  a_batch_keeps_its_fences(engine);
  mistakes_have_names(engine);
  statistics_are_kept_by_kind(engine);
  engines_take_their_options();
  a_job_begins_after_those_it_names(engine);
  without_a_device_there_is_no_channel(engine);

  headrace_engine_poll(engine);
  headrace_engine_stop(engine);
  const headrace_statistics totals = headrace_engine_statistics(engine);
  EXPECT(totals.jobs_submitted > 20 && totals.bytes_moved > kBytes && totals.jobs_failed == 2);
  EXPECT(totals.jobs_submitted == totals.jobs_done + totals.jobs_failed + totals.jobs_stopped);
  EXPECT(totals.bytes_by_device == 0 && totals.jobs_fell_back == 0);
  const headrace_operation nothing = {{0}};
  EXPECT(headrace_run(engine, &nothing, NULL, NULL) == HEADRACE_CLOSED);
  headrace_engine_free(engine);
  headrace_engine_free(NULL);
  if (failed_count == 0) puts("the C interface does what it says");
  return failed_count == 0 ? 0 : 1;
}
