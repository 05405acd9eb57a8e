/* SPDX-License-Identifier: Apache-2.0
 * Store blocks by key in memory and in a file, in C. */
#include <headrace.h>
#include <stdio.h>
#include <string.h>

enum { BLOCKS = 64, BLOCK_BYTES = 65536 };
static unsigned char source[BLOCKS][BLOCK_BYTES];
static unsigned char target[BLOCKS][BLOCK_BYTES];

int main(int argc, char** argv) {
  headrace_error error;
  headrace_engine* engine = headrace_engine_make(NULL, &error);
  if (engine == NULL) {
    fprintf(stderr, "store: %s\n", error.text);
    return 1;
  }
  /* The second tier is a file if named, else memory. */
  const headrace_tier tiers[2] = {
      {.struct_size = sizeof(headrace_tier), .capacity_bytes = 16 * BLOCK_BYTES},
      {.struct_size = sizeof(headrace_tier),
       .capacity_bytes = 2 * BLOCKS * BLOCK_BYTES, .path = argc > 1 ? argv[1] : NULL}};
  const headrace_store_options options = {.struct_size = sizeof(headrace_store_options),
                                          .block_bytes = BLOCK_BYTES,
                                          .tiers = tiers,
                                          .tier_count = 2};
  headrace_store* store = headrace_store_make(engine, &options, &error);
  if (store == NULL) {
    fprintf(stderr, "store: %s\n", error.text);
    return 1;
  }

  headrace_put_block puts[BLOCKS];
  headrace_get_block gets[BLOCKS];
  char keys[BLOCKS][16];
  for (int i = 0; i < BLOCKS; ++i) {
    const size_t key_bytes = (size_t)snprintf(keys[i], sizeof keys[i], "block %d", i);
    memset(source[i], i + 1, BLOCK_BYTES);
    puts[i] = (headrace_put_block){keys[i], key_bytes, source[i], BLOCK_BYTES};
    gets[i] = (headrace_get_block){keys[i], key_bytes, target[i], BLOCK_BYTES};
  }
  headrace_transfer* put = headrace_store_put(store, puts, BLOCKS, 0);
  /* ... other work while the blocks move ... */
  if (put == NULL || !headrace_transfer_wait(put, UINT64_MAX)) return 1;
  headrace_transfer_free(put);

  headrace_transfer* get = headrace_store_get(store, gets, BLOCKS);
  if (get == NULL || !headrace_transfer_wait(get, UINT64_MAX)) return 1;
  int wrong = memcmp(source, target, sizeof source) != 0;
  for (size_t i = 0; i < BLOCKS; ++i) {
    const enum headrace_outcome outcome = headrace_transfer_outcome(get, i, NULL);
    if (outcome == HEADRACE_OUTCOME_DONE) continue;
    fprintf(stderr, "%s: %s\n", keys[i], headrace_outcome_text(outcome));
    wrong = 1;
  }
  headrace_transfer_free(get);

  const headrace_get_block absent = {"absent", 6, target[0], BLOCK_BYTES};
  headrace_transfer* missed = headrace_store_get(store, &absent, 1);
  if (missed == NULL || !headrace_transfer_wait(missed, UINT64_MAX)) return 1;
  printf("%d blocks of %d bytes came back%s; absent: %s\n", BLOCKS, BLOCK_BYTES,
         wrong ? " WRONG" : " as they were",
         headrace_outcome_name(headrace_transfer_outcome(missed, 0, NULL)));
  headrace_transfer_free(missed);
  headrace_store_free(store);
  headrace_engine_free(engine);
  return wrong;
}
