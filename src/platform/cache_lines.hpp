// SPDX-License-Identifier: Apache-2.0
// Lines of the processor's caches, written back and dropped.
#pragma once

#include <cstddef>
#include <span>

namespace headrace::platform {

inline constexpr std::size_t kLineBytes = 64;

/// Writes every line that holds a byte of `bytes` back to memory and drops it from all caches
/// (CLFLUSHOPT, else CLFLUSH), and returns when that is done (SFENCE). Does not order loads. Does
/// nothing on other architectures, whose memory is coherent with devices.
void flush_lines(std::span<const std::byte> bytes) noexcept;

}  // namespace headrace::platform
