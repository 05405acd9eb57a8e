// SPDX-License-Identifier: Apache-2.0
// Instructions that write cache lines back to memory, and their fences. Not for: what a flush
// guarantees on a medium (include/headrace/pmem/medium.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/base/line.hpp"

namespace headrace::platform {

enum class LineFlush : std::uint8_t {
  clflush,     ///< Writes back and drops the line; ordered with all stores and other clflush.
  clflushopt,  ///< Writes back and drops the line; complete at the next fence.
  clwb,        ///< Writes back and may keep the line; complete at the next fence.
};

/// Whether this processor has the instruction.
[[nodiscard]] bool has_line_flush(LineFlush flush) noexcept;

/// Flushes every line that holds a byte of the range; the processor must have the instruction.
///
/// Threading: shared.
void flush_lines(LineFlush flush, const std::byte* begin, std::size_t byte_count) noexcept;

/// Writes every line that holds a byte of `bytes` back to memory, and returns when that is
/// complete; the caches may keep the lines. Uses the best instruction of this processor. Not
/// ordered after earlier loads.
void write_back_lines(std::span<const std::byte> bytes) noexcept;
/// The same, and drops the lines from all caches.
void drop_lines(std::span<const std::byte> bytes) noexcept;

/// Copies by non-temporal stores of 16 aligned bytes, and ordinary stores for the unaligned ends.
/// The next store_fence() orders them before later stores.
void stream_bytes(std::byte* target, std::span<const std::byte> source) noexcept;

/// Orders all loads, stores and flushes before it with all after it.
inline void full_fence() noexcept {
  asm volatile("mfence" : : : "memory");
}

/// `sfence`: earlier clflushopt, clwb and non-temporal stores complete before any later store. It
/// does not order loads.
inline void store_fence() noexcept {
  asm volatile("sfence" : : : "memory");
}

}  // namespace headrace::platform
