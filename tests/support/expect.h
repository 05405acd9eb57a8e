/* SPDX-License-Identifier: Apache-2.0
 * EXPECT for tests in C: counts failures and continues. Include it in one file of a program. */
#ifndef HEADRACE_TESTS_EXPECT_H
#define HEADRACE_TESTS_EXPECT_H

#include <stdio.h>

static int failed_count = 0;

#define EXPECT(condition)                                                       \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: %s is not so\n", __FILE__, __LINE__, #condition); \
      ++failed_count;                                                           \
    }                                                                           \
  } while (0)

#endif
