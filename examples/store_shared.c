/* SPDX-License-Identifier: Apache-2.0
 * Share a store between processes, in C: the first process serves it, and the next ones connect.
 *
 *   store_shared SOCKET      puts a block, and reads it in place
 */
#include <headrace.h>
#include <stdio.h>
#include <string.h>

static int failed(const headrace_error* error) {
  fprintf(stderr, "store_shared: %s\n", error->text);
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  headrace_error error;
  headrace_engine* engine = headrace_engine_make(NULL, &error);
  if (engine == NULL) return failed(&error);
  /* Usually another process, or 'headrace store serve'. */
  const headrace_tier memory = {.struct_size = sizeof(headrace_tier), .capacity_bytes = 64 << 20};
  const headrace_store_options options = {.struct_size = sizeof(headrace_store_options),
                                          .tiers = &memory,
                                          .tier_count = 1,
                                          .share = argv[1]};
  headrace_store* served = headrace_store_make(engine, &options, &error);
  if (served == NULL && strcmp(error.code, "capacity_exceeded") != 0) return failed(&error);

  headrace_store* store = headrace_store_connect(engine, argv[1], 0, &error);
  if (store == NULL) return failed(&error);
  const headrace_put_block block = {"key", 3, "a block of any process", 22};
  headrace_transfer* put = headrace_store_put(store, &block, 1, 0);
  if (put == NULL || !headrace_transfer_wait(put, UINT64_MAX)) return 1;
  headrace_transfer_free(put);

  headrace_view view; /* The block stays as it is until the end of the view. */
  const enum headrace_outcome outcome = headrace_store_view(store, "key", 3, &view);
  printf("%s: %.*s%s\n", headrace_outcome_name(outcome), (int)view.byte_count,
         (const char*)view.bytes, view.in_place ? ", in place" : "");
  headrace_view_end(&view);
  headrace_store_free(store);
  headrace_store_free(served);
  headrace_engine_free(engine);
  return outcome != HEADRACE_OUTCOME_DONE;
}
