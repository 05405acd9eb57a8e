// SPDX-License-Identifier: Apache-2.0
// Relacy without the macros by which it replaces words of the language.
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
