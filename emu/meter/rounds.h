/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how fast a work queue answers, by the same method for the portal in this process and
 * for the trapped instruction, so that the two can be compared. */
#pragma once

#include <linux/idxd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct meter_portal {
  void* context;
  /* False: the queue is full, try again. */
  bool (*submit)(void* context, const struct dsa_hw_desc* descriptor);
};

struct meter_scale {
  unsigned round_count;
  unsigned noop_count; /* Descriptors of one round. */
  size_t copy_bytes;   /* Of one copy; a batch has 32. */
};

/* Measures and prints one JSON object with the times of every round, in ns per descriptor (no-ops)
 * or per batch (copies, alternating with the same copies by memcpy). Returns 0; 1 if the queue
 * does not answer or a copy is wrong, with a sentence on stderr. */
int meter_run(const struct meter_portal* portal, const struct meter_scale* scale, FILE* out);

#ifdef __cplusplus
}
#endif
