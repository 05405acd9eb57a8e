// SPDX-License-Identifier: Apache-2.0
// Asymmetric barriers: one side pays nothing, the other makes the kernel interrupt every processor
// that runs the process. For protocols in which each of two threads writes one word and then reads
// the other thread's word, and one of the two does so a thousand times as often.
//
// If one thread does    write A; light_barrier(); read B
// and another           write B; heavy_barrier(); read A
// then at least one of the two reads sees the other thread's write, and everything before it in
// that thread. Two light barriers do not order each other.
#pragma once

#include "headrace/base/light_barrier.hpp"

namespace headrace::platform {

/// True if the kernel supports heavy_barrier(). Checked once; otherwise both sides need
/// sequentially consistent operations.
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
/// As heavy_barrier(), for the running threads of every process that has joined. Without kernel
/// support it is a full barrier of this thread alone: then it is not ordered with light barriers
/// elsewhere, so a sleeper must wake up and check again after a short time.
///
/// Cost: as heavy_barrier().
void shared_heavy_barrier() noexcept;

}  // namespace headrace::platform
