/* SPDX-License-Identifier: Apache-2.0
 * Many small copies by a channel, in C: several in flight, without jobs.
 * Without a DSA it prints why there is no channel; examples/copy.c needs no DSA. */
#include <headrace.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kPieceBytes = 4096, kPieces = 4096, kInFlight = 8 };

int main(void) {
  headrace_error error;
  headrace_engine* engine = headrace_engine_make(NULL, &error);
  if (engine == NULL) {
    fprintf(stderr, "channel: %s\n", error.text);
    return 1;
  }
  const headrace_channel_options options = {.struct_size = sizeof(headrace_channel_options),
                                            .depth = kInFlight};
  headrace_channel* channel = headrace_channel_open(engine, &options, &error);
  if (channel == NULL) {
    printf("no channel: %s\n", error.text);
    headrace_engine_free(engine);
    return 0;
  }
  unsigned char* source = malloc((size_t)kPieces * kPieceBytes);
  unsigned char* target = malloc((size_t)kPieces * kPieceBytes);
  if (source == NULL || target == NULL) return 1;
  for (size_t i = 0; i < (size_t)kPieces * kPieceBytes; ++i) source[i] = (unsigned char)(i * 7);

  uint32_t tickets[kInFlight];
  size_t by_device = 0;
  size_t begun = 0;
  for (size_t ended = 0; ended < kPieces;) {
    if (begun < kPieces && begun - ended < kInFlight) {
      const size_t at = begun * kPieceBytes;
      const enum headrace_answer answer = headrace_channel_copy(
          channel, target + at, source + at, kPieceBytes, &tickets[begun % kInFlight]);
      if (answer == HEADRACE_ACCEPTED) {
        ++begun;
        continue;
      }
      if (answer != HEADRACE_FULL) {
        fprintf(stderr, "channel: %s\n", headrace_answer_text(answer));
        return 1;
      }
      if (begun == ended) continue; /* Other clients filled the device queue: retry. */
    }
    by_device += headrace_channel_wait(channel, tickets[ended % kInFlight]).bytes_by_device;
    ++ended;
  }
  printf("%d copies of %d bytes by %s, %zu bytes by the device\n", kPieces, kPieceBytes,
         headrace_channel_queue(channel), by_device);
  const int wrong = memcmp(source, target, (size_t)kPieces * kPieceBytes) != 0;
  headrace_channel_close(channel);
  headrace_kind_statistics copies;
  headrace_engine_kind_statistics(engine, HEADRACE_KIND_COPY, &copies);
  printf("counted: %" PRIu64 " copies, %" PRIu64 " fallbacks\n", copies.jobs_done,
         copies.fallbacks);
  headrace_engine_free(engine);
  free(source);
  free(target);
  return wrong;
}
