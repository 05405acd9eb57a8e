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

#include "headrace/base/light_barrier.hpp"

namespace headrace::platform {

/// True if the kernel can do what heavy_barrier() needs. Asked once; where it cannot, both sides
/// need sequentially consistent operations.
[[nodiscard]] bool has_heavy_barrier() noexcept;

using headrace::light_barrier;

/// Makes every running thread of the process execute a full barrier (membarrier(2), private
/// expedited; x86: an interrupt to each processor that runs one of them). Only if
/// has_heavy_barrier().
///
/// Cost: one system call, about a microsecond for each other processor.
void heavy_barrier() noexcept;

/// Lets shared_heavy_barrier() of any process reach the threads of this one. Idempotent.
void join_shared_barrier() noexcept;
/// As heavy_barrier(), for the running threads of every process that has joined. Where the kernel
/// cannot do that it is a full barrier of this thread alone: a light barrier elsewhere may then be
/// passed, so a sleeper looks again after a short time.
///
/// Cost: as heavy_barrier().
void shared_heavy_barrier() noexcept;

}  // namespace headrace::platform
