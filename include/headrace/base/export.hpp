// SPDX-License-Identifier: Apache-2.0
// Requires C++20, and makes the symbols of the public interface visible; all others are hidden.
#pragma once

#if __cplusplus < 202002L
#error "Headrace needs C++20: compile with -std=c++20 or newer (headrace.h needs C99 or C++11)"
// A missing file ends the compilation here; after #error alone, hundreds of errors follow.
#include "headrace needs -std=c++20"
#endif

#if defined(HEADRACE_STATIC)
#define HEADRACE_API
#else
#define HEADRACE_API __attribute__((visibility("default")))
#endif
