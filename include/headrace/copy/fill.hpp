// SPDX-License-Identifier: Apache-2.0
// Filling by the processor with a pattern of 16 bytes, through its widest registers. If all bytes
// of the pattern are equal, memset does it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/base/export.hpp"

namespace headrace::copy {

/// Repeats the bytes of `low`, then those of `high`, each little-endian; the last repetition may be
/// partial.
///
/// Threading: shared.
/// Cost: about that of memset; see docs/concepts/engine.md.
HEADRACE_API void fill_bytes(std::span<std::byte> target, std::uint64_t low,
                             std::uint64_t high) noexcept;

}  // namespace headrace::copy
