// SPDX-License-Identifier: Apache-2.0
// Filling by the processor with a pattern of 16 bytes, in registers as wide as it has. Where every
// byte is the same, memset does it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/base/export.hpp"

namespace headrace::copy {

/// Repeats the bytes of `low`, then those of `high`, each the lowest first; the last repetition may
/// be cut.
///
/// Threading: shared.
/// Cost: that of memset of as many bytes, more or less; see bench/engine/meter/software.cpp.
HEADRACE_API void fill_bytes(std::span<std::byte> target, std::uint64_t low,
                             std::uint64_t high) noexcept;

}  // namespace headrace::copy
