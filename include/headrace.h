/* SPDX-License-Identifier: Apache-2.0
 * The Headrace engine for C and languages that call C: copies, fills, compares and checksums memory
 * on Intel DSA if present, else on processors. It includes, from headrace/c/, the cache, persistent
 * memory with its ring, and the block store. Needs C99 or C++11; link with -lheadrace.
 * Not here: topologies, custom policies, changes through the cache and message queues, which need
 * C++20 (the headers under headrace/).
 *
 * Conventions. Pointers must not be null unless the comment allows it; submissions answer a null
 * engine, job, channel or operation with HEADRACE_NULL_ADDRESS, other functions may abort. No
 * function throws, allocates for an operation, or sets errno. "Threading: shared" means callable
 * from any thread at any time. Options of an engine, submission, channel, cache, store or tier
 * begin with struct_size: the size of the struct that the program was compiled with, or 0 if it
 * sets no option that is newer than version 0.1. All else zero are the defaults. Values mean the
 * same as those of the same name in headrace/engine/{engine,job,operation}.hpp.
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
#else /* Not allowed in a function pointer type before C++17. */
#define HEADRACE_C_NOEXCEPT
#endif
/* C callers may pass any number; without a fixed underlying type, C++ could not read it. */
#define HEADRACE_C_ENUM : unsigned
#else
#define HEADRACE_C_NOEXCEPT
#define HEADRACE_C_ENUM
#endif
#ifndef HEADRACE_STATIC
#pragma GCC visibility push(default)
#endif

/* Version of the loaded library: "0.2.0". */
const char* headrace_version(void) HEADRACE_C_NOEXCEPT;

/* --- Engine ----------------------------------------------------------------------------------- */

typedef struct headrace_engine headrace_engine;

enum headrace_path HEADRACE_C_ENUM {
  HEADRACE_PATH_AUTO, /* A device where expected to be faster, else processors. */
  HEADRACE_PATH_DSA,  /* A device if there is one; else processors, with `fell_back`. */
  HEADRACE_PATH_CPU   /* Processors. */
};

enum headrace_fault_policy HEADRACE_C_ENUM {
  HEADRACE_FAULT_TOUCH_AND_RESUBMIT, /* Touch the page, then resubmit the rest to the device. */
  HEADRACE_FAULT_FINISH_ON_CPU,      /* A processor completes the rest. */
  HEADRACE_FAULT_BLOCK               /* The device waits for the page. */
};

/* What a thread does while it waits for a job. */
enum headrace_waiting HEADRACE_C_ENUM {
  HEADRACE_WAIT_ADAPTIVE, /* Spins as long as recently paid off, then rests, then sleeps. */
  HEADRACE_WAIT_SPIN,     /* Spins until the job has ended. */
  HEADRACE_WAIT_UMWAIT,   /* Rests by UMWAIT; spins if the processor lacks it. */
  HEADRACE_WAIT_SLEEP     /* Sleeps immediately. */
};

/* How the movers of a job are chosen; headrace/engine/mover.hpp describes each policy. */
enum headrace_policy HEADRACE_C_ENUM {
  HEADRACE_POLICY_DEFAULT, /* The engine's policy; in engine options: near_target. */
  HEADRACE_POLICY_NEAR_TARGET,
  HEADRACE_POLICY_NEAR_SOURCE,
  HEADRACE_POLICY_ALL,
  HEADRACE_POLICY_ROUND_ROBIN,
  HEADRACE_POLICY_LEAST_LOADED,
  HEADRACE_POLICY_PUSH_PULL,
  HEADRACE_POLICY_SMART_COPY,
  HEADRACE_POLICY_BY_SIZE
};
/* Such as "near_target". */
const char* headrace_policy_name(enum headrace_policy policy) HEADRACE_C_NOEXCEPT;

/* Origin of the sizes from which HEADRACE_PATH_AUTO uses a device. */
enum headrace_threshold_source HEADRACE_C_ENUM {
  HEADRACE_THRESHOLDS_PUBLISHED, /* The defaults. */
  HEADRACE_THRESHOLDS_PROFILE,   /* `headrace tune` measured them on this machine. */
  HEADRACE_THRESHOLDS_CALLER     /* The options of the engine. */
};
typedef struct headrace_thresholds {
  uint64_t synchronous_bytes;            /* headrace_run(). */
  uint64_t asynchronous_bytes;           /* headrace_submit(). */
  uint64_t batched_bytes;                /* headrace_submit_batch(): average operation size. */
  enum headrace_threshold_source source; /* Set by the library; ignored in options. */
} headrace_thresholds;

/* Numbers beyond their limits are refused. Its pointers are not used after headrace_engine_make().
 */
typedef struct headrace_engine_options {
  size_t struct_size;      /* sizeof(headrace_engine_options). */
  size_t threads_per_node; /* 0: one per two processors, at least one; at most 1024. */
  enum headrace_path path; /* Used when a job does not set it. */
  enum headrace_fault_policy page_faults;
  uint64_t timeout_ns;         /* Timeout, then a processor does the work; 0: 5 s; <= 1 year. */
  bool no_devices;             /* True: use no device. */
  enum headrace_policy policy; /* Used when a job does not set it. */
  const uint32_t* nodes;       /* Nodes that get workers; null: all. */
  size_t node_count;
  const char* const* queues; /* Use only these queues ("dsa0/wq0.0"); null: all. */
  size_t queue_count;
  bool has_thresholds; /* `thresholds` is set. */
  headrace_thresholds thresholds;
  /* Bytes a worker processes before it switches jobs; 0: 256 KiB; at most 4 GiB. */
  uint64_t piece_bytes;
  size_t queue_depth_max; /* Requests queued per node; 0: 1024; at most 2^20. */
  /* True: invalid memory fails the job on processors as it does on devices, instead of killing the
   * process; costs a system call per operand. */
  bool check_memory;
  enum headrace_waiting waiting;
  bool late_writes_fail; /* True: what a device may still write to fails at its timeout. */
} headrace_engine_options;

/* Why an engine, channel or store could not be made. */
typedef struct headrace_error {
  int os_errno;   /* Of the system call that failed; 0 if none did. */
  char code[32];  /* "invalid_argument", "permission_denied", ... */
  char text[480]; /* A sentence: what was tried, the cause, the remedy; may be truncated. */
} headrace_error;

/* Makes an engine on this machine's processors and devices. `options` and `error` may be null.
 *
 * Returns: null on failure, with the reason in `error`. Free it with headrace_engine_free(). */
headrace_engine* headrace_engine_make(const headrace_engine_options* options,
                                      headrace_error* error) HEADRACE_C_NOEXCEPT;
/* Stops it first. Null is ignored. No other call with this engine may be active. */
void headrace_engine_free(headrace_engine* engine) HEADRACE_C_NOEXCEPT;
/* Refuses new jobs, ends running ones as stopped or done, and returns when none is left.
 * Threading: shared; not from a callback. */
void headrace_engine_stop(headrace_engine* engine) HEADRACE_C_NOEXCEPT;
/* Completes jobs of devices, for programs that neither poll nor wait for each job. Never blocks.
 * Threading: shared. */
void headrace_engine_poll(headrace_engine* engine) HEADRACE_C_NOEXCEPT;

/* How threads wait: as requested, except that without WAITPKG UMWAIT becomes SPIN. */
enum headrace_waiting headrace_engine_waiting(const headrace_engine* engine) HEADRACE_C_NOEXCEPT;

/* Totals since the engine was made; each is exact, but not all from one instant. */
typedef struct headrace_statistics {
  uint64_t jobs_submitted;
  uint64_t jobs_done;
  uint64_t jobs_failed;
  uint64_t jobs_stopped;
  uint64_t submissions_refused;
  uint64_t bytes_moved;
  uint64_t bytes_by_device; /* Of bytes_moved. */
  uint64_t jobs_fell_back;
  uint64_t jobs_held_back; /* Of jobs_submitted: had to wait for predecessors. */
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
  uint64_t retries;     /* Times that started work found a queue full. */
  uint64_t page_faults; /* On devices. */
  uint64_t fallbacks;   /* Completions with `fell_back`. */
  /* From submission to end: class i counts jobs of at least headrace_latency_max_ns(i - 1) and less
   * than headrace_latency_max_ns(i). */
  uint64_t latency_counts[HEADRACE_LATENCY_CLASSES];
} headrace_kind_statistics;
/* False, with nothing written, if there is no such kind. */
bool headrace_engine_kind_statistics(const headrace_engine* engine, enum headrace_kind kind,
                                     headrace_kind_statistics* statistics) HEADRACE_C_NOEXCEPT;
uint64_t headrace_latency_max_ns(size_t latency_class) HEADRACE_C_NOEXCEPT;

typedef struct headrace_mover {
  char name[64];  /* "cpu/node0", "dsa0/wq0.0". */
  char note[192]; /* How it is accessed and why; may be empty. */
  int32_t node;   /* -1: none. */
  bool hardware;  /* No processor does the work. */
  bool emulated;  /* By 'headrace emulate': performance is not that of hardware. */
  /* Rank of a queue within its device. Policies that choose several movers take the first queue of
   * each device before the second of any. */
  uint32_t queue_rank;
} headrace_mover;
size_t headrace_mover_count(const headrace_engine* engine) HEADRACE_C_NOEXCEPT;
/* False, with nothing written, if there is no mover of that index. */
bool headrace_mover_info(const headrace_engine* engine, size_t mover_index,
                         headrace_mover* mover) HEADRACE_C_NOEXCEPT;

/* Totals of a device queue; zeros for processors. */
typedef struct headrace_device_statistics {
  uint64_t descriptors; /* Accepted by the queue; a batch counts once. */
  uint64_t retries;     /* Submissions that found the queue full. */
  uint64_t page_faults;
  uint64_t errors;       /* Completion records with a device error or reset. */
  uint64_t lost;         /* Descriptors that timed out. */
  uint64_t bytes_on_cpu; /* Done by a processor because of the above. */
} headrace_device_statistics;
/* As headrace_mover_info(); also false if out of memory. */
bool headrace_mover_statistics(const headrace_engine* engine, size_t mover_index,
                               headrace_device_statistics* statistics) HEADRACE_C_NOEXCEPT;

/* One sentence for each index from 0, null beyond the last: why a device or queue is not used, and
 * from which size HEADRACE_PATH_AUTO uses the others. Valid as long as the engine. */
const char* headrace_note(const headrace_engine* engine, size_t note_index) HEADRACE_C_NOEXCEPT;
headrace_thresholds headrace_engine_thresholds(const headrace_engine* engine) HEADRACE_C_NOEXCEPT;

/* --- Operations ------------------------------------------------------------------------------- */

/* A value made by the functions below, freely copied, checked at submission. All zero is a no-op.
 * Borrows the memory it names until its job has ended. */
typedef struct headrace_operation {
  uint64_t opaque[9];
} headrace_operation;

headrace_operation headrace_copy(void* target, const void* source,
                                 size_t byte_count) HEADRACE_C_NOEXCEPT;
/* Repeats the 8 bytes of `pattern`, the lowest first; the last repetition may be partial. */
headrace_operation headrace_fill(void* target, size_t byte_count,
                                 uint64_t pattern) HEADRACE_C_NOEXCEPT;
/* Repeats the 8 bytes of `low`, then those of `high`. */
headrace_operation headrace_fill_16(void* target, size_t byte_count, uint64_t low,
                                    uint64_t high) HEADRACE_C_NOEXCEPT;
/* Sets `different` and `difference_offset` of the completion. */
headrace_operation headrace_compare(const void* one, const void* other,
                                    size_t byte_count) HEADRACE_C_NOEXCEPT;
headrace_operation headrace_compare_pattern(const void* source, size_t byte_count,
                                            uint64_t pattern) HEADRACE_C_NOEXCEPT;
/* Copies to two targets, whose addresses agree in their lowest 12 bits. */
headrace_operation headrace_dualcast(void* target, void* second_target, const void* source,
                                     size_t byte_count) HEADRACE_C_NOEXCEPT;
/* Writes the changes from `before` to `after` to `record` (at least 80 bytes) and sets delta_bytes,
 * different and record_full of the completion. Addresses and byte_count are multiples of 8;
 * byte_count is at most 512 KiB. */
headrace_operation headrace_create_delta(void* record, size_t record_bytes, const void* before,
                                         const void* after, size_t byte_count) HEADRACE_C_NOEXCEPT;
headrace_operation headrace_apply_delta(void* target, size_t byte_count, const void* record,
                                        size_t record_bytes) HEADRACE_C_NOEXCEPT;

/* CRC-32C. All zero: the checksum of iSCSI and ext4; to continue one, pass its value as seed. */
typedef struct headrace_crc_options {
  uint32_t seed;
  bool raw;         /* Seed and value are the register: neither inverted nor reflected. */
  bool unreflected; /* Bits of each byte from the highest to the lowest. */
} headrace_crc_options;
/* `options` may be null. */
headrace_operation headrace_crc(const void* source, size_t byte_count,
                                const headrace_crc_options* options) HEADRACE_C_NOEXCEPT;
headrace_operation headrace_copy_crc(void* target, const void* source, size_t byte_count,
                                     const headrace_crc_options* options) HEADRACE_C_NOEXCEPT;

/* Block sizes of integrity fields (T10 DIF), 8 bytes after each block. Others are refused with
 * HEADRACE_BAD_OPTION. */
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
  uint16_t application_mask; /* Bits neither compared nor written. */
} headrace_dif_tags;
/* Checks of fields. All zero: guard and both tags; the reference tag counts blocks. */
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
/* How fields are generated. */
typedef struct headrace_dif_target {
  headrace_dif_tags tags; /* Of the first block. */
  bool fixed_reference;
  bool increment_application;
  bool keep_guard; /* This and the next two: update only; keep the source's value. */
  bool keep_application;
  bool keep_reference;
} headrace_dif_target;
/* `source_bytes` covers whole blocks, without fields for insert, else with them; the target holds
 * as many, without fields for strip, else with them. A bad field fails the job with
 * HEADRACE_CAUSE_INTEGRITY_ERROR. Null format, check or make: all zero. */
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

/* In a batch: begins after all before it; if one of them failed, it and later ones are skipped. */
headrace_operation headrace_fenced(headrace_operation operation) HEADRACE_C_NOEXCEPT;
/* Writes reach memory before the job ends: on persistent memory they are durable. */
headrace_operation headrace_durable(headrace_operation operation) HEADRACE_C_NOEXCEPT;
/* Hint: place the target in the last-level cache. */
headrace_operation headrace_into_cache(headrace_operation operation) HEADRACE_C_NOEXCEPT;

/* --- Jobs ------------------------------------------------------------------------------------- */

/* Result of a submission: nothing was started unless HEADRACE_ACCEPTED. */
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
/* "overlapping"; and a sentence with meaning and remedy. */
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
/* "page_fault"; and a sentence with meaning and remedy. */
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
  bool fell_back;           /* Not done entirely by the requested mover or path. */
  uint8_t device_status;    /* First error status of a device; 0: none. */
  bool late_write_possible; /* A device that timed out may still write to the target. */
  size_t bytes_done;
  size_t bytes_by_device;
  uint32_t page_faults;       /* On devices. */
  uint32_t retries;           /* Times that started work found a queue full. */
  uintptr_t fault_address;    /* Of a page fault. */
  uint64_t difference_offset; /* Of a comparison with `different`: first difference. */
  uint32_t crc;
  uint32_t delta_bytes;
  headrace_dif_tags source_tags; /* Of the block after the last one done. */
  headrace_dif_tags target_tags;
  bool different;
  bool record_full;
  uint8_t dif_errors; /* HEADRACE_DIF_ERROR_... */
} headrace_completion;

/* One unit of asynchronous work, in memory of the caller, who must not move or copy it. Idle after
 * headrace_job_init(), submitted any number of times, each after the last has ended, and released
 * by headrace_job_end(). */
typedef struct headrace_job {
  uint64_t opaque[88];
} headrace_job;

/* Called once per accepted submission by the thread that ends the job, before any waiter returns.
 * Must not block, stop the engine, or submit, wait for or release this job; may submit others. */
typedef void (*headrace_callback)(void* context,
                                  const headrace_completion* completion) HEADRACE_C_NOEXCEPT;
/* Called once after the job has ended, by the thread that ended it, without any lock held. May
 * submit and release ended jobs, this one included, also inside headrace_wait() or headrace_poll()
 * of it on this thread. While another thread waits for it or polls it, it may be submitted, and
 * that thread may see the end of a later submission only; it must not be released. Must not block,
 * nor stop or free the engine (checked: aborts). */
typedef void (*headrace_then)(void* context) HEADRACE_C_NOEXCEPT;

/* Zero, or null: the engine's defaults. */
typedef struct headrace_submit_options {
  size_t struct_size; /* sizeof(headrace_submit_options). */
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
  /* Predecessors: submitted jobs of this engine. The job is accepted now and begins when all of
   * them have ended; if one failed or was stopped, it never begins and fails with
   * HEADRACE_CAUSE_PREDECESSOR_FAILED. Borrowed until the submission returns; until then none may
   * be released or submitted again. */
  headrace_job* const* after;
  size_t after_count; /* At most HEADRACE_PREDECESSORS_MAX. */
} headrace_submit_options;
#define HEADRACE_PREDECESSORS_MAX 8

void headrace_job_init(headrace_job* job) HEADRACE_C_NOEXCEPT;
/* Releases the job, after stopping it and waiting if it runs. Null is ignored. */
void headrace_job_end(headrace_job* job) HEADRACE_C_NOEXCEPT;

/* Starts `operation` and returns. `options` may be null. The job must not be running.
 * Threading: shared, one thread at a time for one job. */
enum headrace_answer headrace_submit(headrace_engine* engine, headrace_job* job,
                                     const headrace_operation* operation,
                                     const headrace_submit_options* options) HEADRACE_C_NOEXCEPT;
/* Starts all `operations`, in any order except at fences. Borrows both arrays, of equal length,
 * until the job has ended; `completions` may be null. The job fails with
 * HEADRACE_CAUSE_BATCH_FAILED unless all operations are done. */
enum headrace_answer headrace_submit_batch(
    headrace_engine* engine, headrace_job* job, const headrace_operation* operations,
    headrace_completion* completions, size_t operation_count,
    const headrace_submit_options* options) HEADRACE_C_NOEXCEPT;
/* Executes `operation` and waits for it; never HEADRACE_FULL. `completion` and `options` may be
 * null. The callback runs on this thread or on one that polls, `then` on this thread. */
enum headrace_answer headrace_run(headrace_engine* engine, const headrace_operation* operation,
                                  headrace_completion* completion,
                                  const headrace_submit_options* options) HEADRACE_C_NOEXCEPT;

enum headrace_state headrace_job_state(const headrace_job* job) HEADRACE_C_NOEXCEPT;
/* Whether the job has ended; drives devices, never blocks. The job must have been submitted (a
 * violation, here and below, aborts with a message). Threading: shared. */
bool headrace_poll(headrace_job* job) HEADRACE_C_NOEXCEPT;
/* Blocks until the job has ended. */
headrace_completion headrace_wait(headrace_job* job) HEADRACE_C_NOEXCEPT;
/* As headrace_wait(), with a timeout. Returns whether the job has ended. */
bool headrace_wait_for(headrace_job* job, uint64_t time_ns_max) HEADRACE_C_NOEXCEPT;
/* The job must have ended. */
headrace_completion headrace_job_completion(const headrace_job* job) HEADRACE_C_NOEXCEPT;
/* Requests cancellation and returns immediately. */
void headrace_stop(headrace_job* job) HEADRACE_C_NOEXCEPT;

/* --- Channels --------------------------------------------------------------------------------- */

/* Entries of a device queue reserved for one thread: a copy costs a fraction of a job. A ticket
 * names each operation in flight, until poll or wait has reported it. Threading: one thread at a
 * time. */
typedef struct headrace_channel headrace_channel;

/* Zero: any queue, 8 operations in flight. */
typedef struct headrace_channel_options {
  size_t struct_size; /* sizeof(headrace_channel_options). */
  const char* queue;  /* "dsa0/wq0.0"; null: the queue with the most room. */
  size_t depth;       /* Maximum operations in flight; 0: 8. */
  bool has_node;      /* `node` is set. */
  uint32_t node;      /* Prefer queues of this node. */
  bool latencies;     /* Record each operation in latency_counts; adds time. */
} headrace_channel_options;

/* `options` and `error` may be null. Threading: shared.
 *
 * Returns: null, with the reason in `error`, if there is no device, no such queue, or no queue with
 *          `depth` free entries and one more for jobs. Close it with headrace_channel_close()
 *          before freeing the engine (checked). */
headrace_channel* headrace_channel_open(headrace_engine* engine,
                                        const headrace_channel_options* options,
                                        headrace_error* error) HEADRACE_C_NOEXCEPT;
/* Waits for operations in flight. Null is ignored. */
void headrace_channel_close(headrace_channel* channel) HEADRACE_C_NOEXCEPT;

/* Starts a copy and returns; borrows the bytes until poll or wait has reported it. HEADRACE_FULL:
 * `depth` operations are in flight, or the device queue is full; HEADRACE_CLOSED: the engine was
 * stopped, or the device does not respond. */
enum headrace_answer headrace_channel_copy(headrace_channel* channel, void* target,
                                           const void* source, size_t byte_count,
                                           uint32_t* ticket) HEADRACE_C_NOEXCEPT;
/* As headrace_channel_copy(), for any operation. */
enum headrace_answer headrace_channel_submit(headrace_channel* channel,
                                             const headrace_operation* operation,
                                             uint32_t* ticket) HEADRACE_C_NOEXCEPT;
/* As headrace_submit_batch(), with the answers of headrace_channel_copy(). */
enum headrace_answer headrace_channel_submit_batch(headrace_channel* channel,
                                                   const headrace_operation* operations,
                                                   headrace_completion* completions,
                                                   size_t operation_count,
                                                   uint32_t* ticket) HEADRACE_C_NOEXCEPT;

/* Whether the operation of `ticket` has ended. If so, fills in `completion`, which may be null, and
 * invalidates the ticket: using it again is an error (checked). */
bool headrace_channel_poll(headrace_channel* channel, uint32_t ticket,
                           headrace_completion* completion) HEADRACE_C_NOEXCEPT;
/* Waits for the operation. After the device timeout, a processor does it. */
headrace_completion headrace_channel_wait(headrace_channel* channel,
                                          uint32_t ticket) HEADRACE_C_NOEXCEPT;
/* Operations submitted and not yet reported by poll or wait. */
size_t headrace_channel_in_flight(const headrace_channel* channel) HEADRACE_C_NOEXCEPT;
/* Maximum operations in flight; smaller than requested after a device timeout. */
size_t headrace_channel_depth(const headrace_channel* channel) HEADRACE_C_NOEXCEPT;
/* Name of its queue; valid as long as the engine. */
const char* headrace_channel_queue(const headrace_channel* channel) HEADRACE_C_NOEXCEPT;

#include "headrace/c/cache.h"
#include "headrace/c/pmem.h"
#include "headrace/c/store.h"

#ifndef HEADRACE_STATIC
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
