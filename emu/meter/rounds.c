/* SPDX-License-Identifier: Apache-2.0 */
#include "rounds.h"

#include <immintrin.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kBatch = 32, kWindow = 8, kSpins = 2000 };
static const double kPatienceNs = 10e9;

struct meter {
  const struct meter_portal* portal;
  struct dsa_hw_desc* descriptors;         /* kWindow lists of kBatch. */
  struct dsa_completion_record* records;   /* One per descriptor. */
  struct dsa_completion_record* summaries; /* kWindow, of the batches. */
  unsigned char* source;
  unsigned char* target;
};

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Spins a little, then yields: with few processors the engine may need this one. */
static bool patience(unsigned* spins, double* deadline_ns) {
  if (++*spins < kSpins) {
    _mm_pause();
    return true;
  }
  if (*spins == kSpins) *deadline_ns = now_ns() + kPatienceNs;
  sched_yield();
  return now_ns() < *deadline_ns;
}

static bool submit(const struct meter* meter, const struct dsa_hw_desc* descriptor) {
  unsigned spins = 0;
  double deadline_ns = 0;
  while (!meter->portal->submit(meter->portal->context, descriptor)) {
    if (!patience(&spins, &deadline_ns)) return false;
  }
  return true;
}

static bool wait_for(const struct dsa_completion_record* record) {
  unsigned spins = 0;
  double deadline_ns = 0;
  /* Acquire: pairs with the device's release of the status. */
  while (__atomic_load_n(&record->status, __ATOMIC_ACQUIRE) == DSA_COMP_NONE) {
    if (!patience(&spins, &deadline_ns)) return false;
  }
  return record->status == DSA_COMP_SUCCESS;
}

static void ask_for(struct dsa_hw_desc* descriptor, struct dsa_completion_record* record) {
  record->status = DSA_COMP_NONE;
  descriptor->flags = IDXD_OP_FLAG_CRAV | IDXD_OP_FLAG_RCR;
  descriptor->completion_addr = (uint64_t)(uintptr_t)record;
}

static bool submit_batch(const struct meter* meter, unsigned slot) {
  struct dsa_hw_desc batch = {0};
  batch.opcode = DSA_OPCODE_BATCH;
  batch.desc_list_addr = (uint64_t)(uintptr_t)(meter->descriptors + slot * kBatch);
  batch.desc_count = kBatch;
  ask_for(&batch, meter->summaries + slot);
  return submit(meter, &batch);
}

/* Single descriptors, kWindow in flight. Returns ns per descriptor, negative on failure. */
static double noop_ns(const struct meter* meter, unsigned count) {
  const double start_ns = now_ns();
  for (unsigned i = 0; i < count; ++i) {
    struct dsa_completion_record* record = meter->records + i % kWindow;
    if (i >= kWindow && !wait_for(record)) return -1;
    struct dsa_hw_desc noop = {0};
    noop.opcode = DSA_OPCODE_NOOP;
    ask_for(&noop, record);
    if (!submit(meter, &noop)) return -1;
  }
  for (unsigned i = 0; i < kWindow && i < count; ++i) {
    if (!wait_for(meter->records + i)) return -1;
  }
  return (now_ns() - start_ns) / count;
}

static double noop_batched_ns(const struct meter* meter, unsigned count) {
  memset(meter->descriptors, 0, sizeof(struct dsa_hw_desc) * kWindow * kBatch);
  for (unsigned i = 0; i < kWindow * kBatch; ++i)
    ask_for(meter->descriptors + i, meter->records + i);
  const unsigned batch_count = count / kBatch + 1;
  const double start_ns = now_ns();
  for (unsigned i = 0; i < batch_count; ++i) {
    if (i >= kWindow && !wait_for(meter->summaries + i % kWindow)) return -1;
    if (!submit_batch(meter, i % kWindow)) return -1;
  }
  for (unsigned i = 0; i < kWindow && i < batch_count; ++i) {
    if (!wait_for(meter->summaries + i)) return -1;
  }
  return (now_ns() - start_ns) / (batch_count * kBatch);
}

static double copy_ns(const struct meter* meter, size_t copy_bytes) {
  memset(meter->descriptors, 0, sizeof(struct dsa_hw_desc) * kBatch);
  for (unsigned i = 0; i < kBatch; ++i) {
    struct dsa_hw_desc* copy = meter->descriptors + i;
    copy->opcode = DSA_OPCODE_MEMMOVE;
    copy->src_addr = (uint64_t)(uintptr_t)(meter->source + i * copy_bytes);
    copy->dst_addr = (uint64_t)(uintptr_t)(meter->target + i * copy_bytes);
    copy->xfer_size = (uint32_t)copy_bytes;
    ask_for(copy, meter->records + i);
    copy->flags |= IDXD_OP_FLAG_BOF;
  }
  const double start_ns = now_ns();
  if (!submit_batch(meter, 0) || !wait_for(meter->summaries)) return -1;
  return now_ns() - start_ns;
}

static double memcpy_ns(const struct meter* meter, size_t copy_bytes) {
  const double start_ns = now_ns();
  for (unsigned i = 0; i < kBatch; ++i) {
    memcpy(meter->target + i * copy_bytes, meter->source + i * copy_bytes, copy_bytes);
    /* Keeps the compiler from removing the copy. */
    __asm__ volatile("" : : "r"(meter->target) : "memory");
  }
  return now_ns() - start_ns;
}

static void print_times(FILE* out, const char* name, const double* times_ns, unsigned count) {
  fprintf(out, "\"%s\": [", name);
  for (unsigned i = 0; i < count; ++i) fprintf(out, "%s%.1f", i == 0 ? "" : ", ", times_ns[i]);
  fprintf(out, "], ");
}

static int measure(const struct meter* meter, const struct meter_scale* scale, double* times_ns,
                   FILE* out) {
  const unsigned rounds = scale->round_count;
  double* single_ns = times_ns;
  double* batched_ns = times_ns + rounds;
  double* engine_ns = times_ns + 2 * rounds;
  double* baseline_ns = times_ns + 3 * rounds;
  const size_t all_bytes = kBatch * scale->copy_bytes;
  /* The first round of each warms up: starts threads, loads pages. */
  bool well = noop_ns(meter, scale->noop_count) >= 0 &&
              noop_batched_ns(meter, scale->noop_count) >= 0 &&
              memcpy_ns(meter, scale->copy_bytes) >= 0 && copy_ns(meter, scale->copy_bytes) >= 0;
  for (unsigned round = 0; round < rounds && well; ++round) {
    single_ns[round] = noop_ns(meter, scale->noop_count);
    batched_ns[round] = noop_batched_ns(meter, scale->noop_count);
    /* Alternating, also in which is first, so that drift of the machine affects both. */
    if (round % 2 == 0) baseline_ns[round] = memcpy_ns(meter, scale->copy_bytes);
    engine_ns[round] = copy_ns(meter, scale->copy_bytes);
    if (round % 2 != 0) baseline_ns[round] = memcpy_ns(meter, scale->copy_bytes);
    well = single_ns[round] >= 0 && batched_ns[round] >= 0 && engine_ns[round] >= 0;
  }
  if (!well) {
    fprintf(stderr, "a descriptor failed, or was not answered within %.0f s\n", kPatienceNs / 1e9);
    return 1;
  }
  memset(meter->target, 0, all_bytes);
  if (copy_ns(meter, scale->copy_bytes) < 0 ||
      memcmp(meter->source, meter->target, all_bytes) != 0) {
    fprintf(stderr, "a copy differs from its source\n");
    return 1;
  }
  fprintf(out, "{");
  print_times(out, "noop_ns", single_ns, rounds);
  print_times(out, "noop_batched_ns", batched_ns, rounds);
  print_times(out, "copy_ns", engine_ns, rounds);
  print_times(out, "memcpy_ns", baseline_ns, rounds);
  fprintf(out, "\"batch_count\": %d, \"copy_bytes\": %zu}\n", kBatch, scale->copy_bytes);
  return 0;
}

int meter_run(const struct meter_portal* portal, const struct meter_scale* scale, FILE* out) {
  const size_t all_bytes = kBatch * scale->copy_bytes;
  struct meter meter = {
      .portal = portal,
      .descriptors = aligned_alloc(64, sizeof(struct dsa_hw_desc) * kWindow * kBatch),
      .records = aligned_alloc(64, sizeof(struct dsa_completion_record) * kWindow * kBatch),
      .summaries = aligned_alloc(64, sizeof(struct dsa_completion_record) * kWindow),
      .source = aligned_alloc(4096, all_bytes),
      .target = aligned_alloc(4096, all_bytes),
  };
  double* times_ns = calloc((size_t)scale->round_count * 4, sizeof(double));
  int code = 1;
  if (meter.descriptors && meter.records && meter.summaries && meter.source && meter.target &&
      times_ns) {
    for (size_t i = 0; i < all_bytes; ++i)
      meter.source[i] = (unsigned char)(i * 2654435761U >> 24U);
    memset(meter.target, 0, all_bytes);
    code = measure(&meter, scale, times_ns, out);
  } else {
    fprintf(stderr, "there is not enough memory for %zu bytes\n", 2 * all_bytes);
  }
  free(meter.descriptors);
  free(meter.records);
  free(meter.summaries);
  free(meter.source);
  free(meter.target);
  free(times_ns);
  return code;
}
