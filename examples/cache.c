/* SPDX-License-Identifier: Apache-2.0
 * Read a column from a copy in the fastest memory, and log the result durably, in C99. */
#include <headrace.h>
#include <stdio.h>
#include <stdlib.h>

static uint32_t column[1 << 20];

int main(int argc, char** argv) {
  const char* const path = argc > 1 ? argv[1] : "results.ring";
  headrace_error error;
  headrace_engine* engine = headrace_engine_make(NULL, &error);
  const headrace_cache_options options = {.struct_size = sizeof options,
                                          .placement = HEADRACE_PLACEMENT_LOCAL};
  headrace_cache* cache = engine == NULL ? NULL : headrace_cache_make(engine, &options, &error);
  if (cache == NULL || !headrace_ring_make(path, 65536, &error)) {
    fprintf(stderr, "cache: %s\n", error.text);
    return 1;
  }
  for (size_t i = 0; i < 1 << 20; ++i) column[i] = (uint32_t)i;

  headrace_entry entry;
  if (!headrace_cache_access(cache, column, sizeof column, &entry)) return 1;
  headrace_entry_wait(&entry, UINT64_MAX); /* After other work. */
  const uint32_t* const copy = headrace_entry_data(&entry);
  uint64_t sum = 0;
  for (size_t i = 0; i < 1 << 20; ++i) sum += copy[i];
  printf("%s, ", headrace_entry_cached(&entry) ? "a copy" : "the source");
  headrace_entry_release(&entry);

  headrace_ring_producer* producer = headrace_ring_produce(path, &error);
  headrace_ring_consumer* consumer = headrace_ring_consume(path, &error);
  if (producer == NULL || consumer == NULL) return 1;
  const void* found = NULL;
  size_t byte_count = 0;
  if (headrace_ring_enqueue(producer, &sum, sizeof sum) != HEADRACE_ENQUEUE_DONE ||
      headrace_ring_next(consumer, &found, &byte_count) != HEADRACE_NEXT_ENTRY)
    return 1;
  printf("sum %llu\n", (unsigned long long)*(const uint64_t*)found);
  headrace_ring_acknowledge(consumer);
  headrace_ring_consumer_free(consumer);
  headrace_ring_producer_free(producer);
  headrace_cache_free(cache);
  headrace_engine_free(engine);
  return remove(path);
}
