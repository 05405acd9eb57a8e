/* SPDX-License-Identifier: Apache-2.0
 * The cache, persistent memory and its ring from C99: what they do, and every invalid argument. */
#define _DEFAULT_SOURCE
#include <headrace.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/expect.h"

enum { kBytes = 1 << 20 };
static headrace_error error;

static headrace_engine* make_engine(void) {
  headrace_engine* const engine = headrace_engine_make(NULL, &error);
  if (engine == NULL) exit(77); /* The machine gives no thread. */
  return engine;
}

static void a_copy_is_what_the_source_was(headrace_engine* engine) {
  headrace_cache_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.placement = HEADRACE_PLACEMENT_NODE;
  options.policy = HEADRACE_POLICY_NEAR_TARGET;
  options.lru = true;
  headrace_cache* const cache = headrace_cache_make(engine, &options, &error);
  unsigned char* const source = malloc(kBytes);
  EXPECT(cache != NULL && source != NULL);
  if (cache == NULL || source == NULL) return;
  memset(source, 7, kBytes);
  headrace_entry entry;
  EXPECT(headrace_cache_access(cache, source, kBytes, &entry));
  EXPECT(headrace_entry_wait(&entry, UINT64_MAX));
  EXPECT(headrace_entry_wait(&entry, 0));
  EXPECT(headrace_entry_cached(&entry));
  const unsigned char* const copy = headrace_entry_data(&entry);
  EXPECT(copy != source && memcmp(copy, source, kBytes) == 0);
  /* A change of the source is seen after invalidate; the handle keeps its copy. */
  source[5] = 8;
  EXPECT(headrace_cache_invalidate(cache, source, kBytes) == 1);
  EXPECT(copy[5] == 7);
  headrace_entry_release(&entry);
  EXPECT(headrace_cache_access(cache, source, kBytes, &entry));
  EXPECT(headrace_entry_wait(&entry, UINT64_MAX));
  EXPECT(((const unsigned char*)headrace_entry_data(&entry))[5] == 8);
  EXPECT(headrace_cache_flush_entries(cache));
  EXPECT(headrace_cache_invalidate(cache, source, kBytes) == 1); /* A handle held it. */
  headrace_cache_free(cache);
  EXPECT(((const unsigned char*)headrace_entry_data(&entry))[5] == 8);
  headrace_entry_release(&entry);
  headrace_cache_free(NULL);
  free(source);
}

static void expect_refused(headrace_engine* engine, const headrace_cache_options* options,
                           const char* code) {
  memset(&error, 0, sizeof error);
  EXPECT(headrace_cache_make(engine, options, &error) == NULL);
  EXPECT(strcmp(error.code, code) == 0);
  EXPECT(strlen(error.text) > 20);
}

static void options_are_refused_by_name(headrace_engine* engine) {
  struct {
    headrace_cache_options known;
    uint64_t of_a_newer_library;
  } longer;
  memset(&longer, 0, sizeof longer);
  expect_refused(NULL, NULL, "invalid_argument");
  longer.known.struct_size = sizeof longer;
  longer.of_a_newer_library = 1;
  expect_refused(engine, &longer.known, "unsupported");
  longer.of_a_newer_library = 0;
  headrace_cache* const cache = headrace_cache_make(engine, &longer.known, &error);
  EXPECT(cache != NULL);
  headrace_cache_free(cache);
  longer.known.placement = (enum headrace_placement)99;
  expect_refused(engine, &longer.known, "invalid_argument");
  longer.known.placement = HEADRACE_PLACEMENT_NODE;
  longer.known.node = 4000;
  expect_refused(engine, &longer.known, "not_found");
  /* An older program: its struct ends before the policy, which is garbage here. */
  longer.known.placement = HEADRACE_PLACEMENT_LOCAL;
  longer.known.policy = (enum headrace_policy)99;
  longer.known.struct_size = offsetof(headrace_cache_options, policy);
  headrace_cache* const older = headrace_cache_make(engine, &longer.known, &error);
  EXPECT(older != NULL);
  headrace_cache_free(older);
}

/* Tiers of a newer program are further apart than this library's struct is long. */
static void tiers_of_a_newer_program_are_read(headrace_engine* engine) {
  struct {
    headrace_tier known;
    uint64_t of_a_newer_library;
  } tiers[2];
  memset(tiers, 0, sizeof tiers);
  for (size_t i = 0; i < 2; ++i) {
    tiers[i].known.struct_size = sizeof tiers[0];
    tiers[i].known.capacity_bytes = (i + 1) * 4096;
  }
  const headrace_store_options options = {.struct_size = sizeof options,
                                          .block_bytes = 4096,
                                          .tiers = &tiers[0].known,
                                          .tier_count = 2};
  headrace_store* const store = headrace_store_make(engine, &options, &error);
  EXPECT(store != NULL);
  const headrace_put_block block = {.key = "k", .key_bytes = 1, .source = "bytes", .byte_count = 5};
  headrace_transfer* const transfer = headrace_store_put(store, &block, 1, 1);
  EXPECT(headrace_transfer_wait(transfer, UINT64_MAX));
  EXPECT(headrace_transfer_outcome(transfer, 0, NULL) == HEADRACE_OUTCOME_DONE);
  headrace_transfer_free(transfer);
  headrace_store_free(store);
  tiers[1].of_a_newer_library = 1;
  EXPECT(headrace_store_make(engine, &options, &error) == NULL);
  EXPECT(strcmp(error.code, "unsupported") == 0);
}

static void expect_put(headrace_store* store, const char* key, const char* bytes) {
  const headrace_put_block block = {key, strlen(key), bytes, strlen(bytes)};
  headrace_transfer* const transfer = headrace_store_put(store, &block, 1, 0);
  EXPECT(headrace_transfer_wait(transfer, UINT64_MAX));
  EXPECT(headrace_transfer_outcome(transfer, 0, NULL) == HEADRACE_OUTCOME_DONE);
  headrace_transfer_free(transfer);
}

static void a_store_is_shared(headrace_engine* engine, const char* path) {
  const headrace_tier tier = {.struct_size = sizeof tier, .capacity_bytes = 64 * 4096};
  const headrace_store_options options = {.struct_size = sizeof options,
                                          .block_bytes = 4096,
                                          .tiers = &tier,
                                          .tier_count = 1,
                                          .share = path,
                                          .clients_max = 1};
  EXPECT(headrace_store_connect(engine, path, 0, &error) == NULL);
  EXPECT(strcmp(error.code, "not_found") == 0);
  headrace_store* const served = headrace_store_make(engine, &options, &error);
  headrace_store* const client = headrace_store_connect(engine, path, 0, &error);
  EXPECT(served != NULL && client != NULL);
  EXPECT(headrace_store_connect(engine, path, 1000, &error) == NULL);
  EXPECT(strcmp(error.code, "capacity_exceeded") == 0);
  EXPECT(headrace_store_connect(engine, NULL, 0, &error) == NULL);
  expect_put(client, "k", "first");
  headrace_view view;
  EXPECT(headrace_store_view(client, "none", 4, &view) == HEADRACE_OUTCOME_UNKNOWN_KEY);
  EXPECT(view.bytes == NULL);
  headrace_view_end(&view);
  EXPECT(headrace_store_view(client, "k", 1, &view) == HEADRACE_OUTCOME_DONE);
  EXPECT(view.in_place);
  expect_put(served, "k", "second one");
  EXPECT(view.byte_count == 5 && memcmp(view.bytes, "first", 5) == 0);
  EXPECT(headrace_store_length(client, "k", 1) == 10);
  headrace_view_end(&view);
  EXPECT(headrace_store_view(served, "k", 1, &view) == HEADRACE_OUTCOME_DONE);
  EXPECT(!view.in_place && view.byte_count == 10);
  headrace_store_free(served);
  EXPECT(headrace_store_remove(client, "k", 1) == HEADRACE_OUTCOME_CLOSED);
  headrace_store_free(client);
  EXPECT(memcmp(view.bytes, "second one", 10) == 0);
  headrace_view_end(&view);
}

static void bytes_of_a_file_are_durable(const char* path) {
  EXPECT(headrace_pmem_map(path, &error) == NULL && strcmp(error.code, "not_found") == 0);
  EXPECT(headrace_pmem_map(NULL, &error) == NULL);
  FILE* const file = fopen(path, "w");
  EXPECT(file != NULL && ftruncate(fileno(file), 8192) == 0);
  fclose(file);
  headrace_pmem* const pmem = headrace_pmem_map(path, &error);
  EXPECT(pmem != NULL);
  if (pmem == NULL) return;
  unsigned char* const bytes = headrace_pmem_data(pmem);
  EXPECT(headrace_pmem_bytes(pmem) == 8192);
  EXPECT(headrace_pmem_set(pmem, bytes + 1, 0x55, 300));
  EXPECT(headrace_pmem_copy(pmem, bytes + 400, "durable", 8));
  bytes[500] = 9;
  EXPECT(headrace_pmem_persist(pmem, bytes + 500, 1));
  headrace_pmem_unmap(pmem);
  headrace_pmem_unmap(NULL);
  unsigned char found[8192];
  FILE* const again = fopen(path, "r");
  EXPECT(again != NULL && fread(found, 1, sizeof found, again) == sizeof found);
  fclose(again);
  EXPECT(found[0] == 0 && found[1] == 0x55 && found[300] == 0x55 && found[301] == 0);
  EXPECT(memcmp(found + 400, "durable", 8) == 0 && found[500] == 9);
  headrace_pmem* const truncated = headrace_pmem_map(path, &error);
  EXPECT(truncated != NULL && truncate(path, 4096) == 0);
  EXPECT(!headrace_pmem_set(truncated, (char*)headrace_pmem_data(truncated) + 5000, 1, 100));
  headrace_pmem_unmap(truncated);
  unlink(path);
}

static void entries_of_a_ring_come_in_order(const char* path) {
  EXPECT(headrace_ring_produce(path, &error) == NULL && strcmp(error.code, "not_found") == 0);
  EXPECT(!headrace_ring_make(path, 16, &error) && strcmp(error.code, "invalid_argument") == 0);
  EXPECT(!headrace_ring_make(NULL, 65536, &error));
  EXPECT(headrace_ring_make(path, 65536, &error));
  EXPECT(!headrace_ring_make(path, 65536, &error)); /* It exists. */
  headrace_ring_producer* const producer = headrace_ring_produce(path, &error);
  headrace_ring_consumer* const consumer = headrace_ring_consume(path, &error);
  EXPECT(producer != NULL && consumer != NULL);
  EXPECT(headrace_ring_produce(path, &error) == NULL); /* The role is taken. */
  const void* entry = NULL;
  size_t byte_count = 0;
  EXPECT(headrace_ring_next(consumer, &entry, &byte_count) == HEADRACE_NEXT_EMPTY);
  EXPECT(headrace_ring_enqueue(producer, "one", 4) == HEADRACE_ENQUEUE_DONE);
  EXPECT(headrace_ring_enqueue(producer, "two", 4) == HEADRACE_ENQUEUE_DONE);
  static const char too_large[65536];
  EXPECT(headrace_ring_enqueue(producer, too_large, sizeof too_large) ==
         HEADRACE_ENQUEUE_TOO_LARGE);
  EXPECT(headrace_ring_next(consumer, &entry, &byte_count) == HEADRACE_NEXT_ENTRY);
  EXPECT(byte_count == 4 && memcmp(entry, "one", 4) == 0);
  headrace_ring_acknowledge(consumer);
  headrace_ring_consumer_free(consumer);
  headrace_ring_consumer* const next = headrace_ring_consume(path, &error);
  EXPECT(headrace_ring_next(next, &entry, &byte_count) == HEADRACE_NEXT_ENTRY);
  EXPECT(byte_count == 4 && memcmp(entry, "two", 4) == 0);
  const pid_t child = fork();
  if (child == 0) {
    _exit(headrace_ring_enqueue(producer, "child", 6) == HEADRACE_ENQUEUE_FORKED ? 0 : 1);
  }
  int status = -1;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  headrace_ring_consumer_free(next);
  headrace_ring_producer_free(producer);
  unlink(path);
}

int main(void) {
  char folder[] = "/tmp/headrace-c-XXXXXX";
  char path[64];
  headrace_engine* const engine = make_engine();
  a_copy_is_what_the_source_was(engine);
  options_are_refused_by_name(engine);
  tiers_of_a_newer_program_are_read(engine);
  EXPECT(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/file", folder);
  a_store_is_shared(engine, path);
  headrace_engine_free(engine);
  bytes_of_a_file_are_durable(path);
  entries_of_a_ring_come_in_order(path);
  EXPECT(rmdir(folder) == 0);
  return failed_count == 0 ? 0 : 1;
}
