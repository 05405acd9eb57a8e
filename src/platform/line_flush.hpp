// SPDX-License-Identifier: Apache-2.0
// The instructions that bring cache lines to memory, and the fences that wait for them. What a
// flush promises, and when, is the pmem layer's (include/headrace/pmem/medium.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/base/line.hpp"

namespace headrace::platform {

enum class LineFlush : std::uint8_t {
  clflush,     ///< Writes back and drops the line; ordered with all stores and other clflush.
  clflushopt,  ///< Writes back and drops the line; done at the next fence.
  clwb,        ///< Writes back and may keep the line; done at the next fence.
};

/// Whether this processor has the instruction; none on other architectures than x86-64.
[[nodiscard]] bool has_line_flush(LineFlush flush) noexcept;

/// Flushes every line that holds a byte of the range; the instruction must be there.
///
/// Threading: shared.
void flush_lines(LineFlush flush, const std::byte* begin, std::size_t byte_count) noexcept;

/// Writes every line that holds a byte of `bytes` back to memory, and returns when that is done;
/// the caches may keep them. By the best instruction of this processor; does nothing where there is
/// none. Not ordered behind earlier loads.
void write_back_lines(std::span<const std::byte> bytes) noexcept;
/// The same, and drops the lines from all caches. Where there is no instruction memory is coherent
/// with devices, and nothing is to be done.
void drop_lines(std::span<const std::byte> bytes) noexcept;

/// Copies by stores past the caches: 16 bytes each, where the target is aligned to that, ordinary
/// ones for what is left at both ends. They are done before what follows the next store_fence().
/// Elsewhere an ordinary copy.
void stream_bytes(std::byte* target, std::span<const std::byte> source) noexcept;

/// Whether this processor has CLDEMOTE.
[[nodiscard]] bool has_line_demote() noexcept;
/// Asks for every line that holds a byte of the range to be moved from this core's caches to the
/// shared one (CLDEMOTE): a hint. Does nothing where there is no such instruction.
void demote_lines(std::span<const std::byte> bytes) noexcept;

/// Orders all loads, stores and flushes before it with all after it.
inline void full_fence() noexcept {
#if defined(__x86_64__)
  asm volatile("mfence" : : : "memory");
#else
  __sync_synchronize();
#endif
}

/// `sfence`: flushes by clflushopt and clwb, and non-temporal stores, that came before it are done
/// before any store that comes after. It does not order loads. Elsewhere a full barrier.
inline void store_fence() noexcept {
#if defined(__x86_64__)
  asm volatile("sfence" : : : "memory");
#else
  __sync_synchronize();
#endif
}

}  // namespace headrace::platform
