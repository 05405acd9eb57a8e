// SPDX-License-Identifier: Apache-2.0
// Relacy without its macros that replace keywords and library functions.
#pragma once

#include <relacy/relacy.hpp>

#undef new
#undef delete
#undef malloc
#undef free
#undef calloc
#undef realloc
#undef assert
#undef errno
