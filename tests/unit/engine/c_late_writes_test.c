/* SPDX-License-Identifier: Apache-2.0
 * late_writes_fail of headrace.h, under headrace-emulator with a device that never answers: a copy
 * that the device may still write is done by a processor, or fails, as the engine's options say. */
#include <headrace.h>
#include <stdio.h>
#include <string.h>

#include "support/expect.h"

static void copies_end_as_told(bool late_writes_fail) {
  static uint8_t source[4096];
  static uint8_t target[4096];
  memset(source, 7, sizeof source);
  memset(target, 0, sizeof target);
  const headrace_engine_options options = {.struct_size = sizeof(headrace_engine_options),
                                           .path = HEADRACE_PATH_DSA,
                                           .timeout_ns = 200000000,
                                           .late_writes_fail = late_writes_fail};
  headrace_error error;
  headrace_engine* const engine = headrace_engine_make(&options, &error);
  EXPECT(engine != NULL);
  if (engine == NULL) return;
  headrace_completion end;
  memset(&end, 0, sizeof end);
  const headrace_operation copy = headrace_copy(target, source, sizeof source);
  EXPECT(headrace_run(engine, &copy, &end, NULL) == HEADRACE_ACCEPTED);
  EXPECT(end.state == (late_writes_fail ? HEADRACE_FAILED : HEADRACE_DONE));
  EXPECT(end.cause == (late_writes_fail ? HEADRACE_CAUSE_DEVICE_DEAD : HEADRACE_CAUSE_NONE));
  EXPECT(end.fell_back == !late_writes_fail);
  EXPECT(end.late_write_possible);
  if (!late_writes_fail) EXPECT(memcmp(source, target, sizeof source) == 0);
  headrace_engine_free(engine);
}

int main(void) {
  copies_end_as_told(false);
  copies_end_as_told(true);
  printf("late writes in C: %d failed\n", failed_count);
  return failed_count == 0 ? 0 : 1;
}
