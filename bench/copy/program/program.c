// SPDX-License-Identifier: Apache-2.0
// An ordinary C program that calls memcpy, memmove, memset and memcmp through its PLT, and times
// them. 'headrace bench copy' runs it without and with libraries preloaded. It knows nothing of
// Headrace.
//
//   headrace-bench-copy time BYTES_MAX POOL_BYTES MICROSECONDS [FUNCTION...]   times each point, as
//   JSON; 'elapsed'
//       instead of 'time' counts elapsed time, not the processor's
//   headrace-bench-copy call FUNCTION BYTES COUNT   makes COUNT equal calls, to count instructions
//   headrace-bench-copy check   prints a checksum over calls of many lengths, places and overlaps
//
// A point is a function, a length and a condition. The time of a point is the shortest of some
// batches: what disturbs a batch only adds to it. Lengths and places are drawn before the clock
// starts.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { kDrawnHot = 512, kDrawnMax = 4096, kBatches = 5, kPage = 4096, kMemoryBytes = 4 << 20 };
enum Function { kMemcpy, kMemmove, kMemset, kMemcmp, kFunctions };
static const char* const kNames[kFunctions] = {"memcpy", "memmove", "memset", "memcmp"};

struct Call {
  char* target;
  const char* source;
  size_t byte_count;
};

static volatile int differs;
static clockid_t timed_by = CLOCK_THREAD_CPUTIME_ID;
static uint64_t state = 88172645463325252u;

static uint64_t draw(uint64_t below) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return below < 2 ? 0 : state % below;
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(timed_by, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/// Makes `count` calls of a list, from its beginning again at its end.
static void make_calls(enum Function function, const struct Call* calls, size_t length,
                       size_t count) {
  for (size_t made = 0; made < count;) {
    const size_t turn = count - made < length ? count - made : length;
    const struct Call* const end = calls + turn;
    const struct Call* call = calls;
    switch (function) {
      case kMemcpy:
        for (; call != end; ++call) memcpy(call->target, call->source, call->byte_count);
        break;
      case kMemmove:
        for (; call != end; ++call) memmove(call->target, call->source, call->byte_count);
        break;
      case kMemset:
        for (; call != end; ++call) memset(call->target, 1, call->byte_count);
        break;
      default:
        for (; call != end; ++call) differs |= memcmp(call->target, call->source, call->byte_count);
    }
    made += turn;
  }
}

static int64_t time_calls(enum Function function, const struct Call* calls, size_t length,
                          size_t count) {
  const int64_t begin_ns = now_ns();
  make_calls(function, calls, length, count);
  return now_ns() - begin_ns;
}

/// A pool whose pages are present and whose bytes are all 1, so that comparisons find no
/// difference.
static char* make_pool(size_t byte_count) {
  char* const pool =
      mmap(NULL, byte_count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pool == MAP_FAILED) {
    perror("headrace-bench-copy: the pools do not fit into memory");
    exit(1);
  }
  for (size_t i = 0; i < byte_count; ++i) pool[i] = 1;
  return pool;
}

/// Draws calls: hot ones use one place of each pool, others any; random ones any length above half
/// of `bytes_max` at any address, others `bytes_max` bytes at pages (short ones from memory at
/// lines).
static void draw_calls(struct Call* calls, size_t length, char* targets, const char* sources,
                       size_t pool_bytes, size_t bytes_max, int hot, int random) {
  for (size_t i = 0; i < length; ++i) {
    const size_t step = bytes_max < kPage ? 64 : kPage;
    const size_t places = (pool_bytes - bytes_max - kPage) / step;
    char* target = targets + (hot ? 0 : draw(places) * step);
    const char* source = sources + (hot ? 0 : draw(places) * step);
    if (random) {
      target += draw(64);
      source += draw(64);
    }
    calls[i].target = target;
    calls[i].source = source;
    calls[i].byte_count = random ? bytes_max / 2 + 1 + draw(bytes_max - bytes_max / 2) : bytes_max;
  }
}

static void time_points(size_t bytes_max, size_t pool_bytes, int64_t batch_ns, const int* wanted) {
  static struct Call calls[kDrawnMax];
  char* const targets = make_pool(pool_bytes);
  char* const sources = make_pool(pool_bytes);
  const char* before = "[";
  for (size_t bytes = 16; bytes <= bytes_max; bytes *= 2) {
    for (int condition = 0; condition < 4; ++condition) {
      const int hot = condition < 2;
      const int random = condition % 2;
      for (enum Function function = kMemcpy; function < kFunctions; ++function) {
        if (!wanted[function]) continue;
        // From memory a batch makes each drawn call once, and the next one draws other places.
        size_t length = hot ? kDrawnHot : kMemoryBytes / bytes + 1;
        if (length > kDrawnMax) length = kDrawnMax;
        draw_calls(calls, length, targets, sources, pool_bytes, bytes, hot, random);
        size_t count = hot ? 1 : length;
        int64_t least_ns = time_calls(function, calls, length, count);  // Warms up.
        while (hot && least_ns < batch_ns && count < (size_t)1 << 24) {
          count *= 2;
          least_ns = time_calls(function, calls, length, count);
        }
        for (int batch = 1; batch < kBatches; ++batch) {
          if (!hot) draw_calls(calls, length, targets, sources, pool_bytes, bytes, hot, random);
          const int64_t spent_ns = time_calls(function, calls, length, count);
          if (spent_ns < least_ns) least_ns = spent_ns;
        }
        printf(
            "%s{\"function\": \"%s\", \"bytes_max\": %zu, \"temperature\": \"%s\", \"lengths\": "
            "\"%s\", "
            "\"ns\": %.4f}",
            before, kNames[function], bytes, hot ? "hot" : "memory", random ? "random" : "fixed",
            (double)least_ns / (double)count);
        before = ",\n";
      }
    }
  }
  puts("]");
}

static enum Function function_named(const char* name) {
  for (enum Function function = kMemcpy; function < kFunctions; ++function) {
    if (strcmp(name, kNames[function]) == 0) return function;
  }
  fprintf(stderr, "headrace-bench-copy: '%s' is not memcpy, memmove, memset or memcmp\n", name);
  exit(2);
}

/// Mixes the bytes of a buffer into a checksum.
static uint64_t mixed(uint64_t sum, const char* bytes, size_t byte_count) {
  for (size_t i = 0; i < byte_count; ++i) sum = (sum ^ (unsigned char)bytes[i]) * 1099511628211u;
  return sum;
}

static void check(void) {
  enum { kBytes = 3 << 20 };
  static char one[kBytes];
  static char other[kBytes];
  uint64_t sum = 14695981039346656037u;
  for (size_t i = 0; i < kBytes; ++i) one[i] = (char)draw(256);
  for (int i = 0; i < 20000; ++i) {
    const size_t longest = i % 500 == 0 ? kBytes / 2 : i % 20 == 0 ? 10000 : 600;
    const size_t byte_count = draw(longest);
    char* const target = other + draw(kBytes / 2);
    const char* const source = (i % 3 == 0 ? other : one) + draw(kBytes / 2);
    char* const near = other + ((size_t)(target - other) + draw(300)) % (kBytes / 2);
    memmove(near, target, byte_count);
    if (i % 3 != 0) memcpy(target, source, byte_count);
    if (i % 5 == 0) memset(near, i, byte_count / 2);
    const int order = memcmp(target, source, byte_count);
    sum = (sum ^ (order < 0 ? 1u : order > 0 ? 2u : 3u)) * 1099511628211u;
    if (i % 50 == 0) sum = mixed(sum, target, byte_count);
  }
  printf("%016llx\n", (unsigned long long)mixed(sum, other, kBytes));
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "check") == 0) {
    check();
    return 0;
  }
  if (argc == 5 && strcmp(argv[1], "call") == 0) {
    const enum Function function = function_named(argv[2]);
    const size_t bytes = strtoull(argv[3], NULL, 10);
    struct Call call = {make_pool(bytes + 1), make_pool(bytes + 1), bytes};
    make_calls(function, &call, 1, strtoull(argv[4], NULL, 10));
    return differs != 0;
  }
  const int elapsed = argc >= 5 && strcmp(argv[1], "elapsed") == 0;
  if (elapsed || (argc >= 5 && strcmp(argv[1], "time") == 0)) {
    if (elapsed) timed_by = CLOCK_MONOTONIC;
    int wanted[kFunctions] = {argc == 5, argc == 5, argc == 5, argc == 5};
    for (int i = 5; i < argc; ++i) wanted[function_named(argv[i])] = 1;
    time_points(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10),
                strtoll(argv[4], NULL, 10) * 1000, wanted);
    return differs != 0;
  }
  fputs(
      "usage: headrace-bench-copy time|elapsed BYTES_MAX POOL_BYTES MICROSECONDS [FUNCTION...]\n"
      "       headrace-bench-copy call FUNCTION BYTES COUNT\n"
      "       headrace-bench-copy check\n",
      stderr);
  return 2;
}
