/* SPDX-License-Identifier: Apache-2.0
 * A third-party C program: copies through the engine. */
#include <headrace.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  headrace_error error;
  headrace_engine* engine = headrace_engine_make(NULL, &error);
  if (engine == NULL) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  static char source[1 << 20] = "bytes";
  static char target[sizeof source];
  const headrace_operation copy = headrace_copy(target, source, sizeof source);
  headrace_completion end;
  if (headrace_run(engine, &copy, &end, NULL) != HEADRACE_ACCEPTED) return 1;
  if (end.state != HEADRACE_DONE || memcmp(target, source, sizeof source) != 0) return 1;
  headrace_engine_free(engine);
  printf("consumer in C: headrace %s, 1 MiB copied\n", headrace_version());
  return 0;
}
