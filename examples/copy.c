/* SPDX-License-Identifier: Apache-2.0
 * Copy and checksum in one operation, in C: on a DSA if present, else on processors. */
#include <headrace.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
  headrace_error error;
  headrace_engine* engine = headrace_engine_make(NULL, &error);
  if (engine == NULL) {
    fprintf(stderr, "copy: %s\n", error.text);
    return 1;
  }
  const size_t byte_count = (size_t)8 << 20;
  unsigned char* source = malloc(byte_count);
  unsigned char* target = malloc(byte_count);
  if (source == NULL || target == NULL) return 1;
  memset(source, 1, byte_count);

  headrace_job job;
  headrace_job_init(&job);
  const headrace_operation copy = headrace_copy_crc(target, source, byte_count, NULL);
  const headrace_submit_options options = {.struct_size = sizeof(headrace_submit_options),
                                           .has_path = true,
                                           .path = HEADRACE_PATH_DSA};
  const enum headrace_answer answer = headrace_submit(engine, &job, &copy, &options);
  if (answer != HEADRACE_ACCEPTED) {
    fprintf(stderr, "copy: %s\n", headrace_answer_text(answer));
    return 1;
  }
  /* ... other work while the bytes move ... */
  const headrace_completion end = headrace_wait(&job);
  headrace_job_end(&job);

  printf("%s, %zu bytes, %zu of them by a device%s, crc %08" PRIx32 "\n",
         headrace_state_name(end.state), end.bytes_done, end.bytes_by_device,
         end.fell_back ? " (fell back to processors)" : "", end.crc);
  headrace_mover mover;
  for (size_t i = 0; headrace_mover_info(engine, i, &mover); ++i) {
    printf("  %s: %s\n", mover.name, mover.hardware ? mover.note : "worker threads");
  }
  /* Why devices are not used, or from which sizes they are. */
  for (size_t i = 0; headrace_note(engine, i) != NULL; ++i) {
    printf("  %s\n", headrace_note(engine, i));
  }
  const int wrong = end.state != HEADRACE_DONE || memcmp(source, target, byte_count) != 0;
  headrace_engine_free(engine);
  free(source);
  free(target);
  return wrong;
}
