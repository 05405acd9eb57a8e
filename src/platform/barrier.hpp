// SPDX-License-Identifier: Apache-2.0
// Barriers of unequal weight: one side pays nothing, the other lets the kernel stop every processor
// of the process for a moment. For protocols in which each of two threads writes its own word and
// then reads the other's, and one of the two comes a thousand times as often.
//
// If one thread does    write A; light_barrier(); read B
// and another           write B; heavy_barrier(); read A
// then at least one of the two reads sees what the other wrote, and all that came before that write
// in its thread. Between two light barriers there is no order.
#pragma once

#include <atomic>

namespace headrace::platform {

/// True if the kernel can do what heavy_barrier() needs. Asked once; where it cannot, both sides
/// need sequentially consistent operations.
[[nodiscard]] bool has_heavy_barrier() noexcept;

/// Keeps the compiler from exchanging what comes before and what comes after; no instruction.
inline void light_barrier() noexcept {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

/// Makes every running thread of the process execute a full barrier (membarrier(2), private
/// expedited; x86: an interrupt to each processor that runs one of them). Only if
/// has_heavy_barrier().
///
/// Cost: one system call, about a microsecond for each other processor.
void heavy_barrier() noexcept;

}  // namespace headrace::platform
