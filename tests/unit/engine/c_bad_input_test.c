/* SPDX-License-Identifier: Apache-2.0
 * Every invalid argument from C: a named error, and nothing outside a target is written. */
#define _GNU_SOURCE
#include <headrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/expect.h"

enum { kPage = 4096, kPages = 8, kLarge = 2 << 20 };

static headrace_engine* make(bool check_memory) {
  const headrace_engine_options options = {.struct_size = sizeof(headrace_engine_options),
                                           .threads_per_node = 1,
                                           .no_devices = true,
                                           .check_memory = check_memory};
  headrace_error error;
  headrace_engine* const engine = headrace_engine_make(&options, &error);
  if (engine == NULL) {
    fprintf(stderr, "%s\n", error.text);
    exit(77); /* The machine gives no thread. */
  }
  return engine;
}

/* Far from where the system looks for room: a thread's memory must not fill the holes that are made
 * in it. AddressSanitizer allows other places than everybody else. */
#ifdef __SANITIZE_ADDRESS__
enum { kPlaceBit = 45 };
#else
enum { kPlaceBit = 36 };
#endif

static uint8_t* map(size_t byte_count, int protection) {
  static uintptr_t place = (uintptr_t)1 << kPlaceBit;
  void* const wish = (void*)place; /* NOLINT(performance-no-int-to-ptr) */
  place += byte_count + kPage;
  void* const made = mmap(wish, byte_count, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) abort();
  return made;
}

/* Of run, submit and a batch. */
static void expect_fault(headrace_engine* engine, headrace_operation operation,
                         const uint8_t* bad) {
  headrace_completion end;
  memset(&end, 0, sizeof end);
  EXPECT(headrace_run(engine, &operation, &end, NULL) == HEADRACE_ACCEPTED);
  EXPECT(end.state == HEADRACE_FAILED && end.cause == HEADRACE_CAUSE_PAGE_FAULT);
  EXPECT(end.fault_address >= (uintptr_t)bad && end.fault_address < (uintptr_t)bad + kPage);

  headrace_job job;
  headrace_job_init(&job);
  EXPECT(headrace_submit(engine, &job, &operation, NULL) == HEADRACE_ACCEPTED);
  end = headrace_wait(&job);
  EXPECT(end.cause == HEADRACE_CAUSE_PAGE_FAULT);
  EXPECT(headrace_submit_batch(engine, &job, &operation, &end, 1, NULL) == HEADRACE_ACCEPTED);
  const headrace_completion whole = headrace_wait(&job);
  EXPECT(whole.cause == HEADRACE_CAUSE_BATCH_FAILED && end.cause == HEADRACE_CAUSE_PAGE_FAULT);
  headrace_job_end(&job);
}

static void memory_is_named(void) {
  headrace_engine* const engine = make(true);
  uint8_t* const pages = map(kPages * kPage, PROT_READ | PROT_WRITE);
  uint8_t good[2 * kPage];
  memset(good, 7, sizeof good);
  uint8_t* const read_only = pages + 2 * kPage;
  uint8_t* const closed = pages + 4 * kPage;
  uint8_t* const absent = pages + 6 * kPage;
  EXPECT(mprotect(read_only, kPage, PROT_READ) == 0);
  EXPECT(mprotect(closed, kPage, PROT_NONE) == 0);
  EXPECT(munmap(absent, kPage) == 0);
  uint8_t* const bad[] = {read_only, closed, absent};
  for (size_t i = 0; i < 3; ++i) {
    expect_fault(engine, headrace_copy(bad[i] - 10, good, 20), bad[i]);
    expect_fault(engine, headrace_fill(bad[i], 1, 5), bad[i]);
    EXPECT(bad[i][-1] == 0 && bad[i][-10] == 0); /* Nothing was done. */
    if (i == 0) continue;
    expect_fault(engine, headrace_copy(good, bad[i], 100), bad[i]);
    expect_fault(engine, headrace_crc(bad[i] - 100, 200, NULL), bad[i]);
  }
  for (size_t i = 0; i < sizeof good; ++i) EXPECT(good[i] == 7);
  headrace_completion end;
  const headrace_operation fine = headrace_copy(good, read_only, kPage);
  EXPECT(headrace_run(engine, &fine, &end, NULL) == HEADRACE_ACCEPTED);
  EXPECT(end.state == HEADRACE_DONE);
  headrace_engine_free(engine);
  munmap(pages, kPages * kPage);
}

static void large_memory_is_named_by_default(void) {
  headrace_engine* const engine = make(false);
  uint8_t* const read_only = map(kLarge, PROT_READ);
  uint8_t* const good = map(kLarge, PROT_READ | PROT_WRITE);
  expect_fault(engine, headrace_copy(read_only, good, kLarge), read_only);
  EXPECT(munmap(read_only + kPage, kPage) == 0);
  expect_fault(engine, headrace_copy(good, read_only, kLarge), read_only + kPage);
  headrace_engine_free(engine);
}

static void what_cannot_be_is_refused(void) {
  headrace_engine* const engine = make(false);
  static uint64_t words[64];
  uint8_t* const bytes = (uint8_t*)words;
  const struct {
    headrace_operation operation;
    enum headrace_answer answer;
  } cases[] = {
      {headrace_copy(NULL, bytes, 8), HEADRACE_NULL_ADDRESS},
      {headrace_copy(bytes, NULL, 8), HEADRACE_NULL_ADDRESS},
      {headrace_copy(bytes, bytes + 1, 8), HEADRACE_OVERLAPPING},
      {headrace_create_delta(bytes, 80, bytes + 101, bytes + 208, 64), HEADRACE_MISALIGNED},
      {headrace_fill(bytes, 0, 1), HEADRACE_EMPTY},
      {headrace_crc(bytes, SIZE_MAX, NULL), HEADRACE_TOO_LARGE},
  };
  headrace_job job;
  headrace_job_init(&job);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    EXPECT(headrace_run(engine, &cases[i].operation, NULL, NULL) == cases[i].answer);
    EXPECT(headrace_submit(engine, &job, &cases[i].operation, NULL) == cases[i].answer);
    EXPECT(headrace_submit_batch(engine, &job, &cases[i].operation, NULL, 1, NULL) ==
           cases[i].answer);
  }
  for (size_t i = 0; i < sizeof words / sizeof words[0]; ++i) EXPECT(words[i] == 0);
  headrace_engine_stop(engine);
  const headrace_operation good = headrace_fill(bytes, 8, 1);
  EXPECT(headrace_run(engine, &good, NULL, NULL) == HEADRACE_CLOSED);
  EXPECT(headrace_submit(engine, &job, &good, NULL) == HEADRACE_CLOSED);
  EXPECT(words[0] == 0);
  headrace_job_end(&job);
  headrace_engine_free(engine);
}

static void options_beyond_their_limits_are_refused(void) {
  struct {
    headrace_engine_options options;
    const char* words;
  } cases[] = {
      {{.threads_per_node = SIZE_MAX}, "more than 1024"},
      {{.piece_bytes = UINT64_MAX}, "larger than 4 GiB"},
      {{.queue_depth_max = SIZE_MAX}, "more than 1048576"},
      {{.timeout_ns = UINT64_MAX}, "at most a year"},
      {{.path = (enum headrace_path)3}, "an invalid path, policy"},
      {{.page_faults = (enum headrace_fault_policy)3}, "an invalid path, policy"},
      {{.policy = (enum headrace_policy)9}, "an invalid path, policy"},
      {{.waiting = (enum headrace_waiting) - 1}, "an invalid path, policy"},
      {{.no_devices = true, .queues = (const char* const[]){"dsa0/wq0.0"}, .queue_count = 1},
       "'dsa0/wq0.0' is named"},
      {{.queues = (const char* const[]){"dsa77/wq77.0"}, .queue_count = 1}, "dsa77/wq77.0"},
      {{.queue_count = 1}, "is null"},
      {{.nodes = (const uint32_t[]){UINT32_MAX}, .node_count = 1}, "no node"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    headrace_error error = {0};
    cases[i].options.struct_size = sizeof cases[i].options;
    EXPECT(headrace_engine_make(&cases[i].options, &error) == NULL);
    EXPECT(strstr(error.text, cases[i].words) != NULL);
    if (strstr(error.text, cases[i].words) == NULL) fprintf(stderr, "%s\n", error.text);
  }
}

/* A program of a newer version sets an option that this library lacks. */
static void options_of_a_newer_version_are_refused(void) {
  struct {
    headrace_engine_options known;
    uint64_t newer;
  } options = {.known = {.struct_size = sizeof options, .no_devices = true}, .newer = 1};
  headrace_error error = {0};
  EXPECT(headrace_engine_make(&options.known, &error) == NULL);
  EXPECT(strcmp(error.code, "unsupported") == 0);
  options.newer = 0;
  headrace_engine* const engine = headrace_engine_make(&options.known, &error);
  EXPECT(engine != NULL);
  struct {
    headrace_submit_options known;
    uint64_t newer;
  } submission = {.known = {.struct_size = sizeof submission}, .newer = 1};
  const headrace_operation no_op = {{0}};
  headrace_job job;
  headrace_job_init(&job);
  EXPECT(headrace_submit(engine, &job, &no_op, &submission.known) == HEADRACE_BAD_OPTION);
  /* Without a size: the options of the first version, all of which are read. */
  const headrace_submit_options unsized = {.has_path = true, .path = (enum headrace_path)9};
  EXPECT(headrace_submit(engine, &job, &no_op, &unsized) == HEADRACE_BAD_OPTION);
  const headrace_submit_options defaults = {0};
  EXPECT(headrace_submit(engine, &job, &no_op, &defaults) == HEADRACE_ACCEPTED);
  headrace_wait(&job);
  headrace_job_end(&job);
  headrace_engine_free(engine);
}

static void hold(void* context, const headrace_completion* end) {
  (void)end;
  char byte = 0;
  while (read(*(int*)context, &byte, 1) < 0) {
  }
}

static void a_child_is_told(void) {
  headrace_engine* const engine = make(false);
  int gate[2];
  EXPECT(pipe(gate) == 0);
  static uint8_t first[64];
  static uint8_t second[64];
  const headrace_submit_options options = {.struct_size = sizeof(headrace_submit_options),
                                           .callback = hold,
                                           .callback_context = &gate[0],
                                           .has_path = true,
                                           .path = HEADRACE_PATH_CPU};
  headrace_job held;
  headrace_job queued;
  headrace_job_init(&held);
  headrace_job_init(&queued);
  const headrace_operation one = headrace_fill(first, 64, 1);
  const headrace_operation other = headrace_fill(second, 64, 1);
  EXPECT(headrace_submit(engine, &held, &one, &options) == HEADRACE_ACCEPTED);
  EXPECT(headrace_submit(engine, &queued, &other, &options) == HEADRACE_ACCEPTED);
  const pid_t child = fork();
  if (child == 0) {
    failed_count = 0;
    headrace_completion end;
    EXPECT(headrace_run(engine, &one, &end, NULL) == HEADRACE_FORKED);
    end = headrace_wait(&queued);
    EXPECT(end.state == HEADRACE_FAILED && end.cause == HEADRACE_CAUSE_FORKED);
    headrace_engine_poll(engine);
    _exit(failed_count == 0 ? 0 : 1);
  }
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT(write(gate[1], "xx", 2) == 2);
  const headrace_completion end = headrace_wait(&queued);
  EXPECT(end.state == HEADRACE_DONE && second[56] == 1);
  headrace_job_end(&held);
  headrace_job_end(&queued);
  headrace_engine_free(engine);
  close(gate[0]);
  close(gate[1]);
}

/* What the standard library throws becomes an error; nothing leaves the interface. */
static void a_process_without_threads_is_told(void) {
  const pid_t child = fork();
  if (child == 0) {
    /* Root is exempt from the limit. */
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(100);
    const struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_NPROC, &none) != 0) _exit(101);
    const headrace_engine_options options = {.struct_size = sizeof(headrace_engine_options),
                                             .no_devices = true};
    headrace_error error;
    if (headrace_engine_make(&options, &error) != NULL) _exit(102);
    _exit(strcmp(error.code, "unsupported") == 0 && strstr(error.text, "thread limit") != NULL
              ? 0
              : 103);
  }
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
  a_process_without_threads_is_told();
  memory_is_named();
  large_memory_is_named_by_default();
  what_cannot_be_is_refused();
  options_beyond_their_limits_are_refused();
  options_of_a_newer_version_are_refused();
  a_child_is_told();
  printf("bad input in C: %d failed\n", failed_count);
  return failed_count == 0 ? 0 : 1;
}
