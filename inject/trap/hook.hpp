// SPDX-License-Identifier: Apache-2.0
// HEADRACE_HOOK marks a function that takes the place of the C library's. Also listed in
// exports.map.
#pragma once

#define HEADRACE_HOOK [[gnu::visibility("default")]]
