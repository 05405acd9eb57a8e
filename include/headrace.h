/* SPDX-License-Identifier: Apache-2.0
 * The engine of Headrace for C, and for languages that call C. It moves, fills, compares, sums and
 * checks bytes by a DSA if there is one, else by processors; the block store at the end keeps
 * blocks by key. Link with -lheadrace.
 * Not here: the cache, topologies and policies, which are C++20 (the headers under headrace/). This
 * header needs C99 or C++11.
 *
 * Conventions. Pointers must not be null unless the comment allows it; a null engine, job or
 * operation is answered with HEADRACE_NULL_ADDRESS. No function throws, allocates for an operation,
 * or sets errno. A function marked "threading: shared" may be called from any thread at any time.
 * Values mean the same as those of the same name in headrace/engine/{engine,job,operation}.hpp.
 */
#ifndef HEADRACE_H
#define HEADRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#if __cplusplus >= 201703L
#define HEADRACE_C_NOEXCEPT noexcept
#else /* Not possible in the type of a callback. */
#define HEADRACE_C_NOEXCEPT
#endif
/* Callers in C may pass any number, which in C++ may not even be looked at without this. */
#define HEADRACE_C_ENUM : unsigned
#else
#define HEADRACE_C_NOEXCEPT
#define HEADRACE_C_ENUM
#endif
#ifndef HEADRACE_STATIC
#pragma GCC visibility push(default)
#endif

/* "0.1.0": of the library that is loaded. */
const char* headrace_version(void) HEADRACE_C_NOEXCEPT;

/* --- Engine ----------------------------------------------------------------------------------- */

typedef struct headrace_engine headrace_engine;

enum headrace_path HEADRACE_C_ENUM {
  HEADRACE_PATH_AUTOMATIC, /* A device where it is expected to be faster, else processors. */
  HEADRACE_PATH_HARDWARE,  /* A device if there is one; the completion says fell_back if not. */
  HEADRACE_PATH_SOFTWARE   /* Processors. */
};

enum headrace_fault_policy HEADRACE_C_ENUM {
  HEADRACE_FAULT_TOUCH_AND_RESUBMIT, /* The page is brought in, the device goes on. */
  HEADRACE_FAULT_FINISH_ON_CPU,      /* A processor does the rest. */
  HEADRACE_FAULT_BLOCK               /* The device waits for the page. */
};

/* What a thread does while it waits for a job. */
enum headrace_waiting HEADRACE_C_ENUM {
  HEADRACE_WAIT_ADAPTIVE, /* Spins for as long as recently paid off, then rests, then sleeps. */
  HEADRACE_WAIT_SPIN,     /* Spins until the job has ended. */
  HEADRACE_WAIT_UMWAIT,   /* Rests by UMWAIT; spins if the processor lacks it. */
  HEADRACE_WAIT_SLEEP     /* Sleeps immediately. */
};

/* How the movers of a job are chosen; headrace/engine/mover.hpp describes each policy. */
enum headrace_policy HEADRACE_C_ENUM {
  HEADRACE_POLICY_DEFAULT, /* The engine's policy; for an engine near_target. */
  HEADRACE_POLICY_NEAR_TARGET,
  HEADRACE_POLICY_NEAR_SOURCE,
  HEADRACE_POLICY_ALL,
  HEADRACE_POLICY_ROUND_ROBIN,
  HEADRACE_POLICY_LEAST_LOADED,
  HEADRACE_POLICY_PUSH_PULL,
  HEADRACE_POLICY_SMART_COPY,
  HEADRACE_POLICY_BY_SIZE
};
/* "near_target". */
const char* headrace_policy_name(enum headrace_policy policy) HEADRACE_C_NOEXCEPT;

/* Source of the sizes from which `automatic` uses a device. */
enum headrace_threshold_source HEADRACE_C_ENUM {
  HEADRACE_THRESHOLDS_PUBLISHED, /* The defaults. */
  HEADRACE_THRESHOLDS_PROFILE,   /* `headrace tune` measured them on this machine. */
  HEADRACE_THRESHOLDS_CALLER     /* The options of the engine. */
};
typedef struct headrace_thresholds {
  uint64_t synchronous_bytes;            /* headrace_run(). */
  uint64_t asynchronous_bytes;           /* headrace_submit(). */
  uint64_t batched_bytes;                /* Of each operation of a batch, on average. */
  enum headrace_threshold_source source; /* Set by the library; ignored in options. */
} headrace_thresholds;

/* All zero: the defaults. Numbers beyond their limits are refused. Its pointers are not used after
 * headrace_engine_make(). */
typedef struct headrace_engine_options {
  size_t threads_per_node; /* 0: one per two processors, at least one; at most 1024. */
  enum headrace_path path; /* Used when a job does not set it. */
  enum headrace_fault_policy page_faults;
  uint64_t answer_ns_max;      /* A device silent for longer is given up; 0: 5 s; <= 1 year. */
  bool no_devices;             /* True: use no device. */
  enum headrace_policy policy; /* Used when a job does not set it. */
  const uint32_t* nodes;       /* Nodes that get workers; null: all. */
  size_t node_count;
  const char* const* queues; /* Use only these queues ("dsa0/wq0.0"); null: all. */
  size_t queue_count;
  bool has_thresholds; /* `thresholds` is set. */
  headrace_thresholds thresholds;
  /* Bytes a worker does before it turns to other work; 0: 256 KiB; at most 4 GiB. */
  uint64_t piece_bytes;
  size_t queue_depth_max; /* Requests that the workers of a node hold; 0: 1024; at most 2^20. */
  /* True: on memory that is unmapped or may not be accessed, processors fail the job as devices do,
   * instead of ending the process; costs a system call per operand. */
  bool check_memory;
  enum headrace_waiting waiting;
} headrace_engine_options;

/* Why an engine could not be made. */
typedef struct headrace_error {
  int os_errno;   /* Of the system call that failed; 0 if none did. */
  char code[32];  /* "invalid_argument", "permission_denied", ... */
  char text[480]; /* One sentence with what was tried, the cause and the remedy; may be cut. */
} headrace_error;

/* Makes an engine of this machine's processors and devices. `options` and `error` may be null.
 *
 * Returns: null on failure, with the reason in `error`. Free it with headrace_engine_free(). */
headrace_engine* headrace_engine_make(const headrace_engine_options* options,
                                      headrace_error* error) HEADRACE_C_NOEXCEPT;
/* Stops it first. Null is ignored. No other call with this engine may be in progress. */
void headrace_engine_free(headrace_engine* engine) HEADRACE_C_NOEXCEPT;
/* Refuses new jobs, ends those that run as stopped or done, returns when none is left. Threading:
 * shared; not from a callback. */
void headrace_engine_stop(headrace_engine* engine) HEADRACE_C_NOEXCEPT;
/* Drives devices, which have no thread: for programs that neither poll nor wait for each job.
 * Never blocks. Threading: shared. */
void headrace_engine_poll(headrace_engine* engine) HEADRACE_C_NOEXCEPT;

/* How threads wait: as requested, except for an UMWAIT that this processor lacks. */
enum headrace_waiting headrace_engine_waiting(const headrace_engine* engine) HEADRACE_C_NOEXCEPT;

/* Totals since the engine was made; each is exact, but they are not from one instant. */
typedef struct headrace_statistics {
  uint64_t jobs_submitted;
  uint64_t jobs_done;
  uint64_t jobs_failed;
  uint64_t jobs_stopped;
  uint64_t submissions_refused;
  uint64_t bytes_moved;
  uint64_t bytes_by_device; /* Of bytes_moved. */
  uint64_t jobs_fell_back;
  uint64_t jobs_held_back; /* Of jobs_submitted: blocked by others first. */
} headrace_statistics;
headrace_statistics headrace_engine_statistics(const headrace_engine* engine) HEADRACE_C_NOEXCEPT;

/* Kinds of jobs, for statistics; the last counts batches. */
enum headrace_kind HEADRACE_C_ENUM {
  HEADRACE_KIND_NO_OP,
  HEADRACE_KIND_DRAIN,
  HEADRACE_KIND_COPY,
  HEADRACE_KIND_FILL,
  HEADRACE_KIND_COMPARE,
  HEADRACE_KIND_COMPARE_PATTERN,
  HEADRACE_KIND_CREATE_DELTA,
  HEADRACE_KIND_APPLY_DELTA,
  HEADRACE_KIND_DUALCAST,
  HEADRACE_KIND_CRC,
  HEADRACE_KIND_COPY_CRC,
  HEADRACE_KIND_DIF_CHECK,
  HEADRACE_KIND_DIF_INSERT,
  HEADRACE_KIND_DIF_STRIP,
  HEADRACE_KIND_DIF_UPDATE,
  HEADRACE_KIND_CACHE_FLUSH,
  HEADRACE_KIND_BATCH
};
const char* headrace_kind_name(enum headrace_kind kind) HEADRACE_C_NOEXCEPT;

#define HEADRACE_LATENCY_CLASSES 44
typedef struct headrace_kind_statistics {
  uint64_t jobs_done;
  uint64_t bytes;
  uint64_t bytes_by_device;
  uint64_t retries;     /* Times that started work had to wait for a full queue. */
  uint64_t page_faults; /* That a device met. */
  uint64_t fallbacks;   /* Completions that say `fell_back`. */
  /* From submission to end: class i counts jobs that took less than headrace_latency_max_ns(i) and
   * no less than headrace_latency_max_ns(i - 1). */
  uint64_t latency_counts[HEADRACE_LATENCY_CLASSES];
} headrace_kind_statistics;
/* False, and nothing is written, if there is no such kind. */
bool headrace_engine_kind_statistics(const headrace_engine* engine, enum headrace_kind kind,
                                     headrace_kind_statistics* statistics) HEADRACE_C_NOEXCEPT;
uint64_t headrace_latency_max_ns(size_t latency_class) HEADRACE_C_NOEXCEPT;

typedef struct headrace_mover {
  char name[64];  /* "cpu/node0", "dsa0/wq0.0". */
  char note[192]; /* How it is reached and why; may be empty. */
  int32_t node;   /* -1: none. */
  bool hardware;  /* No processor does the work. */
  bool emulated;  /* A device of 'headrace emulate': its figures say nothing of a real one. */
  /* Of a queue: its rank among the queues of its device. Policies that choose several movers take
   * the first queue of each device before the second of any. */
  uint32_t queue_rank;
} headrace_mover;
size_t headrace_mover_count(const headrace_engine* engine) HEADRACE_C_NOEXCEPT;
/* False, and nothing is written, if there is no mover of that index. */
bool headrace_mover_info(const headrace_engine* engine, size_t mover_index,
                         headrace_mover* mover) HEADRACE_C_NOEXCEPT;

/* Of the queue of a device; zeros for processors. */
typedef struct headrace_device_statistics {
  uint64_t descriptors; /* Accepted by the queue; a batch is one. */
  uint64_t retries;     /* Times that the queue was full. */
  uint64_t page_faults;
  uint64_t errors;       /* Records of device errors or resets. */
  uint64_t lost;         /* Descriptors that were not answered in time. */
  uint64_t bytes_on_cpu; /* Done by a processor because of these troubles. */
} headrace_device_statistics;
/* As headrace_mover_info(); false also without memory. */
bool headrace_mover_statistics(const headrace_engine* engine, size_t mover_index,
                               headrace_device_statistics* statistics) HEADRACE_C_NOEXCEPT;

/* Why a device or queue is not used, and from which size `automatic` uses the others: one sentence
 * for each index from 0; null beyond the last. Valid as long as the engine. */
const char* headrace_note(const headrace_engine* engine, size_t note_index) HEADRACE_C_NOEXCEPT;
headrace_thresholds headrace_engine_thresholds(const headrace_engine* engine) HEADRACE_C_NOEXCEPT;

/* --- Operations ------------------------------------------------------------------------------- */

/* What to do, as a value: made by the functions below, freely copied, checked when submitted. All
 * zero is a no-op. It borrows the memory that it names until its job has ended. */
typedef struct headrace_operation {
  uint64_t opaque[9];
} headrace_operation;

headrace_operation headrace_copy(void* target, const void* source,
                                 size_t byte_count) HEADRACE_C_NOEXCEPT;
/* Repeats the 8 bytes of `pattern`, the lowest first; the last repetition may be cut. */
headrace_operation headrace_fill(void* target, size_t byte_count,
                                 uint64_t pattern) HEADRACE_C_NOEXCEPT;
/* Repeats the 8 bytes of `low`, then those of `high`. */
headrace_operation headrace_fill_16(void* target, size_t byte_count, uint64_t low,
                                    uint64_t high) HEADRACE_C_NOEXCEPT;
/* The completion says `different` and where. */
headrace_operation headrace_compare(const void* one, const void* other,
                                    size_t byte_count) HEADRACE_C_NOEXCEPT;
headrace_operation headrace_compare_pattern(const void* source, size_t byte_count,
                                            uint64_t pattern) HEADRACE_C_NOEXCEPT;
/* One source, two targets, whose addresses agree in their lowest 12 bits. */
headrace_operation headrace_dualcast(void* target, void* second_target, const void* source,
                                     size_t byte_count) HEADRACE_C_NOEXCEPT;
/* Writes to `record` (at least 80 bytes) the changes that turn `before` into `after`; the
 * completion has delta_bytes, different and record_full. Addresses and byte_count are
 * multiples of 8, at most 512 KiB. */
headrace_operation headrace_create_delta(void* record, size_t record_bytes, const void* before,
                                         const void* after, size_t byte_count) HEADRACE_C_NOEXCEPT;
headrace_operation headrace_apply_delta(void* target, size_t byte_count, const void* record,
                                        size_t record_bytes) HEADRACE_C_NOEXCEPT;

/* CRC-32C. All zero: the usual checksum of iSCSI and ext4; to continue a checksum, pass its value
 * as seed. */
typedef struct headrace_crc_options {
  uint32_t seed;
  bool raw;         /* Seed and value as the register holds them: not inverted, not reflected. */
  bool unreflected; /* The bits of each byte are taken from the highest to the lowest. */
} headrace_crc_options;
/* `options` may be null. */
headrace_operation headrace_crc(const void* source, size_t byte_count,
                                const headrace_crc_options* options) HEADRACE_C_NOEXCEPT;
headrace_operation headrace_copy_crc(void* target, const void* source, size_t byte_count,
                                     const headrace_crc_options* options) HEADRACE_C_NOEXCEPT;

/* Integrity fields (T10 DIF): 8 bytes behind each block of data. An operation with another value is
 * answered with HEADRACE_BAD_OPTION. */
enum headrace_dif_block HEADRACE_C_ENUM {
  HEADRACE_DIF_512,
  HEADRACE_DIF_520,
  HEADRACE_DIF_4096,
  HEADRACE_DIF_4104
};
typedef struct headrace_dif_format {
  enum headrace_dif_block block;
  bool invert_seed;
  bool invert_guard;
} headrace_dif_format;
typedef struct headrace_dif_tags {
  uint32_t reference;
  uint16_t application;
  uint16_t application_mask; /* Bits that are neither compared nor written. */
} headrace_dif_tags;
/* How fields are checked; all zero: guard and both tags, the reference counting blocks. */
typedef struct headrace_dif_source {
  headrace_dif_tags tags; /* Of the first block. */
  bool skip_guard;
  bool skip_reference;
  bool fixed_reference;
  bool increment_application;
  bool skip_ones_in_application;
  bool skip_ones_in_tags;
  bool skip_ones_in_field;
  bool ones_in_field_are_an_error;
} headrace_dif_source;
/* How fields are made. */
typedef struct headrace_dif_target {
  headrace_dif_tags tags; /* Of the first block. */
  bool fixed_reference;
  bool increment_application;
  bool keep_guard; /* This and the next two, of an update only: what the source has. */
  bool keep_application;
  bool keep_reference;
} headrace_dif_target;
/* `source_bytes` are whole blocks, with their fields unless they are to be inserted; the target has
 * room for as many, with or without. A bad field ends the job as failed with
 * HEADRACE_CAUSE_INTEGRITY_ERROR. Format and checks may be null: all zero. */
headrace_operation headrace_dif_check(const void* source, size_t source_bytes,
                                      const headrace_dif_format* format,
                                      const headrace_dif_source* check) HEADRACE_C_NOEXCEPT;
headrace_operation headrace_dif_insert(void* target, const void* source, size_t source_bytes,
                                       const headrace_dif_format* format,
                                       const headrace_dif_target* make) HEADRACE_C_NOEXCEPT;
headrace_operation headrace_dif_strip(void* target, const void* source, size_t source_bytes,
                                      const headrace_dif_format* format,
                                      const headrace_dif_source* check) HEADRACE_C_NOEXCEPT;
headrace_operation headrace_dif_update(void* target, const void* source, size_t source_bytes,
                                       const headrace_dif_format* format,
                                       const headrace_dif_source* check,
                                       const headrace_dif_target* make) HEADRACE_C_NOEXCEPT;

headrace_operation headrace_cache_flush(void* target, size_t byte_count) HEADRACE_C_NOEXCEPT;

/* In a batch: begins after all before it; if one of those failed, it and later ones are skipped. */
headrace_operation headrace_fenced(headrace_operation operation) HEADRACE_C_NOEXCEPT;
/* What is written lies in memory when the job has ended: on persistent memory it is durable. */
headrace_operation headrace_durable(headrace_operation operation) HEADRACE_C_NOEXCEPT;
/* A hint: the target is wanted in the last-level cache. */
headrace_operation headrace_into_cache(headrace_operation operation) HEADRACE_C_NOEXCEPT;

/* --- Jobs ------------------------------------------------------------------------------------- */

/* The result of a submission: nothing was started unless it is HEADRACE_ACCEPTED. */
enum headrace_answer HEADRACE_C_ENUM {
  HEADRACE_ACCEPTED,
  HEADRACE_FULL,   /* Back-pressure, not an error: poll or wait, then try again. */
  HEADRACE_CLOSED, /* The engine was stopped, or a channel's device does not answer. */
  HEADRACE_FORKED,
  HEADRACE_NULL_ADDRESS,
  HEADRACE_EMPTY,
  HEADRACE_TOO_LARGE,
  HEADRACE_LENGTH_DIFFERS,
  HEADRACE_OVERLAPPING,
  HEADRACE_MISALIGNED,
  HEADRACE_BAD_OPTION,
  HEADRACE_BAD_PREDECESSOR,
  HEADRACE_TOO_MANY_PREDECESSORS
};
/* "overlapping", and a sentence with the meaning and the remedy. */
const char* headrace_answer_name(enum headrace_answer answer) HEADRACE_C_NOEXCEPT;
const char* headrace_answer_text(enum headrace_answer answer) HEADRACE_C_NOEXCEPT;

enum headrace_state HEADRACE_C_ENUM {
  HEADRACE_IDLE,
  HEADRACE_RUNNING,
  HEADRACE_DONE,
  HEADRACE_FAILED,
  HEADRACE_STOPPED
};
const char* headrace_state_name(uint32_t state) HEADRACE_C_NOEXCEPT;

enum headrace_cause HEADRACE_C_ENUM {
  HEADRACE_CAUSE_NONE,
  HEADRACE_CAUSE_PAGE_FAULT,
  HEADRACE_CAUSE_DEVICE_ERROR,
  HEADRACE_CAUSE_DEVICE_DEAD,
  HEADRACE_CAUSE_MOVER_REFUSED,
  HEADRACE_CAUSE_INTEGRITY_ERROR,
  HEADRACE_CAUSE_BAD_RECORD,
  HEADRACE_CAUSE_BATCH_FAILED,
  HEADRACE_CAUSE_FORKED,
  HEADRACE_CAUSE_FENCE_BROKEN,
  HEADRACE_CAUSE_PREDECESSOR_FAILED
};
/* "page_fault", and a sentence with the meaning and the remedy. */
const char* headrace_cause_name(uint8_t cause) HEADRACE_C_NOEXCEPT;
const char* headrace_cause_text(uint8_t cause) HEADRACE_C_NOEXCEPT;

/* Bits of headrace_completion.dif_errors. */
#define HEADRACE_DIF_ERROR_GUARD 1U
#define HEADRACE_DIF_ERROR_APPLICATION 2U
#define HEADRACE_DIF_ERROR_REFERENCE 4U
#define HEADRACE_DIF_ERROR_ALL_ONES 8U

/* How a job, or an operation of a batch, ended. Fields that do not apply are zero. */
typedef struct headrace_completion {
  uint32_t state;           /* enum headrace_state */
  uint8_t cause;            /* enum headrace_cause */
  bool fell_back;           /* Another mover, or a processor instead of a device, did some of it. */
  uint8_t device_status;    /* First error status of a device; 0: none. */
  bool late_write_possible; /* A device that was given up may still write to the target. */
  size_t bytes_done;
  size_t bytes_by_device;
  uint32_t page_faults;       /* That a device met. */
  uint32_t retries;           /* Times that started work had to wait for a full queue. */
  uintptr_t fault_address;    /* Of a page fault. */
  uint64_t difference_offset; /* If `different`: of the first difference of a comparison. */
  uint32_t crc;
  uint32_t delta_bytes;
  headrace_dif_tags source_tags; /* Of the block after the last one done. */
  headrace_dif_tags target_tags;
  bool different;
  bool record_full;
  uint8_t dif_errors; /* HEADRACE_DIF_ERROR_... */
} headrace_completion;

/* Room for one piece of asynchronous work. The caller owns it, on the stack or anywhere
 * else, and must not move or copy it. It is idle after headrace_job_init(), may be submitted again
 * after it has ended, and is released by headrace_job_end(). */
typedef struct headrace_job {
  uint64_t opaque[88];
} headrace_job;

/* Called once per accepted submission by the thread that ends the job, before any waiter returns.
 * It must not block, nor submit, wait for or end this job; it may submit others. */
typedef void (*headrace_callback)(void* context,
                                  const headrace_completion* completion) HEADRACE_C_NOEXCEPT;
/* Called once after the job has ended: here it may be ended or submitted again. It may not end the
 * engine. */
typedef void (*headrace_then)(void* context) HEADRACE_C_NOEXCEPT;

/* All zero, or null: the engine's defaults. */
typedef struct headrace_submit_options {
  headrace_callback callback;
  void* callback_context;
  headrace_then then;
  void* then_context;
  bool has_path; /* `path` is set. */
  enum headrace_path path;
  bool has_source_node; /* `source_node` is set. */
  bool has_target_node;
  uint32_t source_node; /* NUMA nodes of the operands, for the policy. */
  uint32_t target_node;
  enum headrace_policy policy;
  /* Jobs of this engine, submitted before, that have to end first: this one is accepted now and
   * begins when the last of them has ended; if one failed or was stopped, it never begins and fails
   * with HEADRACE_CAUSE_PREDECESSOR_FAILED. Borrowed until the submission returns; until then none
   * of them may be ended or submitted again. */
  headrace_job* const* after;
  size_t after_count; /* At most HEADRACE_PREDECESSORS_MAX. */
} headrace_submit_options;
#define HEADRACE_PREDECESSORS_MAX 8

void headrace_job_init(headrace_job* job) HEADRACE_C_NOEXCEPT;
/* Stops the job if it runs, and waits for it. Null is ignored. */
void headrace_job_end(headrace_job* job) HEADRACE_C_NOEXCEPT;

/* Starts `operation` and returns. `options` may be null. The job must not be running. Threading:
 * shared, one thread at a time for one job. */
enum headrace_answer headrace_submit(headrace_engine* engine, headrace_job* job,
                                     const headrace_operation* operation,
                                     const headrace_submit_options* options) HEADRACE_C_NOEXCEPT;
/* Starts all of `operations`, in any order except at fences. Both arrays are borrowed until the job
 * has ended; `completions` may be null, else it has the same length. The job fails with
 * HEADRACE_CAUSE_BATCH_FAILED unless all operations are done. */
enum headrace_answer headrace_submit_batch(
    headrace_engine* engine, headrace_job* job, const headrace_operation* operations,
    headrace_completion* completions, size_t operation_count,
    const headrace_submit_options* options) HEADRACE_C_NOEXCEPT;
/* Executes `operation` and returns when it has ended; never HEADRACE_FULL. `completion` and
 * `options` may be null; the callback runs here or on the thread that polls, `then` here. */
enum headrace_answer headrace_run(headrace_engine* engine, const headrace_operation* operation,
                                  headrace_completion* completion,
                                  const headrace_submit_options* options) HEADRACE_C_NOEXCEPT;

enum headrace_state headrace_job_state(const headrace_job* job) HEADRACE_C_NOEXCEPT;
/* True once the job has ended; drives devices, never blocks. The job must have been submitted (here
 * and below, a broken contract ends the program with a message). Threading: shared. */
bool headrace_poll(headrace_job* job) HEADRACE_C_NOEXCEPT;
/* Blocks until the job has ended; returns how. */
headrace_completion headrace_wait(headrace_job* job) HEADRACE_C_NOEXCEPT;
/* As headrace_wait(), for at most `time_ns_max`. Returns whether the job has ended. */
bool headrace_wait_for(headrace_job* job, uint64_t time_ns_max) HEADRACE_C_NOEXCEPT;
/* How the job ended; it must have ended. */
headrace_completion headrace_job_completion(const headrace_job* job) HEADRACE_C_NOEXCEPT;
/* Requests an early end and returns immediately. */
void headrace_stop(headrace_job* job) HEADRACE_C_NOEXCEPT;

/* --- Channels --------------------------------------------------------------------------------- */

/* Entries of a device's queue for the use of one thread: a copy costs a fraction of a job. A ticket
 * names each operation in flight until poll or wait has reported its end. Threading: one thread at
 * a time. */
typedef struct headrace_channel headrace_channel;

/* All zero: any queue, 8 operations in flight. */
typedef struct headrace_channel_options {
  const char* queue; /* The name of its mover, "dsa0/wq0.0"; null: the one with the most room. */
  size_t depth;      /* Operations in flight; 0: 8. */
  bool has_node;     /* `node` is set. */
  uint32_t node;     /* A queue of this node, if it has one. */
  bool latencies;    /* Count each operation in latency_counts; costs some time. */
} headrace_channel_options;

/* `options` and `error` may be null.
 *
 * Returns: null, with the reason in `error`, if there is no device, no such queue, or no queue with
 *          that many free entries and one more for jobs. Close it with headrace_channel_close(),
 *          before the engine is freed (checked). Threading: shared. */
headrace_channel* headrace_channel_open(headrace_engine* engine,
                                        const headrace_channel_options* options,
                                        headrace_error* error) HEADRACE_C_NOEXCEPT;
/* Waits for what is in flight. Null is ignored. */
void headrace_channel_close(headrace_channel* channel) HEADRACE_C_NOEXCEPT;

/* Starts a copy and returns. HEADRACE_FULL: `depth` operations are in flight, or the device's queue
 * is full; HEADRACE_CLOSED: the engine was stopped or the device does not answer. The bytes are
 * borrowed until poll or wait has reported the end. */
enum headrace_answer headrace_channel_copy(headrace_channel* channel, void* target,
                                           const void* source, size_t byte_count,
                                           uint32_t* ticket) HEADRACE_C_NOEXCEPT;
/* As headrace_channel_copy(), for any operation. */
enum headrace_answer headrace_channel_submit(headrace_channel* channel,
                                             const headrace_operation* operation,
                                             uint32_t* ticket) HEADRACE_C_NOEXCEPT;
/* As headrace_channel_copy(), for all of `operations`; else as headrace_submit_batch(). */
enum headrace_answer headrace_channel_submit_batch(headrace_channel* channel,
                                                   const headrace_operation* operations,
                                                   headrace_completion* completions,
                                                   size_t operation_count,
                                                   uint32_t* ticket) HEADRACE_C_NOEXCEPT;

/* Whether the operation of `ticket` has ended. If so, `completion`, which may be null, is filled
 * in, and the ticket is no longer valid: using it again is a broken contract (checked). */
bool headrace_channel_poll(headrace_channel* channel, uint32_t ticket,
                           headrace_completion* completion) HEADRACE_C_NOEXCEPT;
/* Waits for the end. What is not answered in time is done by a processor. */
headrace_completion headrace_channel_wait(headrace_channel* channel,
                                          uint32_t ticket) HEADRACE_C_NOEXCEPT;
/* Operations whose end has not been told. */
size_t headrace_channel_in_flight(const headrace_channel* channel) HEADRACE_C_NOEXCEPT;
/* Those that there may be: less than was asked for where a device did not answer. */
size_t headrace_channel_depth(const headrace_channel* channel) HEADRACE_C_NOEXCEPT;
/* The queue that it is a part of; valid for as long as the engine. */
const char* headrace_channel_queue(const headrace_channel* channel) HEADRACE_C_NOEXCEPT;

/* --- Block store ------------------------------------------------------------------------------ */

/* Blocks by key in tiers of memory and files, as in headrace/store/store.hpp. Threading: shared. */
typedef struct headrace_store headrace_store;
/* A batch that was submitted. Threading: shared, but for headrace_transfer_free(). */
typedef struct headrace_transfer headrace_transfer;

/* All zero but the capacity: memory wherever the system puts it. */
typedef struct headrace_tier {
  uint64_t capacity_bytes; /* 0, only of a file that is there: as it was made. */
  const char* path;        /* The tier is this file; null: memory. */
  bool has_node;           /* `node` is set. */
  uint32_t node;           /* Of memory. */
  bool process_only;       /* A file survives the end of the process, not the loss of power. */
  bool lru;                /* Evict by lru instead of s3_fifo. */
} headrace_tier;

typedef struct headrace_store_options {
  uint64_t block_bytes;       /* Of the longest block; 0: 1 MiB; at most 1 GiB. */
  const headrace_tier* tiers; /* The fastest first. */
  size_t tier_count;          /* 1 to 4. */
  bool checksums;             /* CRC-32C with each block, compared when it is read. */
  bool never_promote;         /* Else a block read twice from another tier goes to the first. */
  bool never_inline;          /* Else the caller copies transfers of up to 256 KiB in all. */
} headrace_store_options;

/* How the transfer of one block ended; headrace_outcome_text() says what it means. */
enum headrace_outcome HEADRACE_C_ENUM {
  HEADRACE_OUTCOME_RUNNING,
  HEADRACE_OUTCOME_DONE,
  HEADRACE_OUTCOME_UNKNOWN_KEY,
  HEADRACE_OUTCOME_BAD_KEY,
  HEADRACE_OUTCOME_WRONG_LENGTH,
  HEADRACE_OUTCOME_NO_SUCH_TIER,
  HEADRACE_OUTCOME_FULL,
  HEADRACE_OUTCOME_CORRUPT,
  HEADRACE_OUTCOME_FAILED,
  HEADRACE_OUTCOME_LATE_WRITE,
  HEADRACE_OUTCOME_IO_FAILED,
  HEADRACE_OUTCOME_CLOSED
};
/* "unknown_key"; and a sentence with meaning and remedy. */
const char* headrace_outcome_name(enum headrace_outcome outcome) HEADRACE_C_NOEXCEPT;
const char* headrace_outcome_text(enum headrace_outcome outcome) HEADRACE_C_NOEXCEPT;

/* The key is copied; the bytes are borrowed until the transfer has ended. */
typedef struct headrace_put_block {
  const void* key;
  size_t key_bytes; /* 1 to 192. */
  const void* source;
  size_t byte_count;
} headrace_put_block;
typedef struct headrace_get_block {
  const void* key;
  size_t key_bytes;
  void* target;
  size_t byte_count; /* Of the target: as long as the block, or longer. */
} headrace_get_block;

/* Makes a store; the engine outlives it. Blocks in its files are there again. `error` may be null.
 *
 * Returns: null on failure, with the reason in `error`. Free it with headrace_store_free(). */
headrace_store* headrace_store_make(headrace_engine* engine, const headrace_store_options* options,
                                    headrace_error* error) HEADRACE_C_NOEXCEPT;
/* Waits for all transfers first. Null is ignored. */
void headrace_store_free(headrace_store* store) HEADRACE_C_NOEXCEPT;

/* Starts copying blocks into a tier, or out, and returns.
 *
 * Returns: null if there is no memory left: nothing was started. Free it with
 *          headrace_transfer_free(). */
headrace_transfer* headrace_store_put(headrace_store* store, const headrace_put_block* blocks,
                                      size_t block_count, size_t tier) HEADRACE_C_NOEXCEPT;
headrace_transfer* headrace_store_get(headrace_store* store, const headrace_get_block* blocks,
                                      size_t block_count) HEADRACE_C_NOEXCEPT;
/* Whether every block has ended. Never blocks. */
bool headrace_transfer_poll(const headrace_transfer* transfer) HEADRACE_C_NOEXCEPT;
/* Waits for at most `time_ns_max`; UINT64_MAX is for ever. Returns whether it has ended. */
bool headrace_transfer_wait(const headrace_transfer* transfer,
                            uint64_t time_ns_max) HEADRACE_C_NOEXCEPT;
/* How block `index` ended, and its length, if it is done, in `byte_count`, which may be null.
 * RUNNING before the end of the transfer, and for an index beyond the last. */
enum headrace_outcome headrace_transfer_outcome(const headrace_transfer* transfer, size_t index,
                                                size_t* byte_count) HEADRACE_C_NOEXCEPT;
/* Waits for the end first. Null is ignored. */
void headrace_transfer_free(headrace_transfer* transfer) HEADRACE_C_NOEXCEPT;

/* Bytes of a block; 0 if there is none. */
size_t headrace_store_length(headrace_store* store, const void* key,
                             size_t key_bytes) HEADRACE_C_NOEXCEPT;
/* False if there is no such block, or, of unpin, none that is pinned. */
bool headrace_store_pin(headrace_store* store, const void* key,
                        size_t key_bytes) HEADRACE_C_NOEXCEPT;
bool headrace_store_unpin(headrace_store* store, const void* key,
                          size_t key_bytes) HEADRACE_C_NOEXCEPT;
bool headrace_store_remove(headrace_store* store, const void* key,
                           size_t key_bytes) HEADRACE_C_NOEXCEPT;
/* Removes every block; returns how many. */
size_t headrace_store_clear(headrace_store* store) HEADRACE_C_NOEXCEPT;
/* An eventfd to which 1 is added whenever a transfer ends; it belongs to the store. -1 if no
 * descriptor is left. */
int headrace_store_descriptor(headrace_store* store) HEADRACE_C_NOEXCEPT;

#ifndef HEADRACE_STATIC
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
