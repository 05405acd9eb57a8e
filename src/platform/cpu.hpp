// SPDX-License-Identifier: Apache-2.0
// What this processor can do, and its waiting instruction.
#pragma once

namespace headrace::platform {

struct CpuFeatures {
  bool avx2 = false;
  bool avx512 =
      false;          ///< Foundation, BW, VL and DQ, and the operating system saves the registers.
  bool erms = false;  ///< Fast rep movsb.
};

/// Asked of the processor once. A build without vector kernels sees none.
[[nodiscard]] const CpuFeatures& cpu_features();

/// Tells the processor that this is a spin loop.
inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("" ::: "memory");
#endif
}

}  // namespace headrace::platform
