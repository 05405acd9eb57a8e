// SPDX-License-Identifier: Apache-2.0
// Symbol visibility of the public interface: everything else of the library is hidden.
#pragma once

#if defined(HEADRACE_STATIC)
#define HEADRACE_API
#else
#define HEADRACE_API __attribute__((visibility("default")))
#endif
