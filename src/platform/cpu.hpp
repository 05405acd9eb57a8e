// SPDX-License-Identifier: Apache-2.0
// Features and identity of this processor, and its spin-wait instruction.
#pragma once

#include <cstdint>
#include <string>

namespace headrace::platform {

struct CpuFeatures {
  bool avx2 = false;
  bool avx512 =
      false;  ///< Foundation, BW, VL and DQ, and the operating system saves the registers.
  bool vpclmulqdq = false;  ///< On registers of 64 bytes.
  bool avx_vnni = false;    ///< Intel's with it do not run slower for registers of 64 bytes.
  bool erms = false;        ///< Fast rep movsb.
  bool clflushopt = false;
  bool clwb = false;
  bool waitpkg = false;  ///< umonitor and umwait.
};

/// Detected once. A build without vector kernels reports no vector instructions.
[[nodiscard]] const CpuFeatures& cpu_features() noexcept;

/// Model of the processor, and its caches as one core sees them; zero and empty are unknown.
struct CpuIdentity {
  std::string vendor;
  std::uint32_t family = 0;
  std::uint32_t model = 0;
  std::uint32_t stepping = 0;
  std::uint64_t l1d_bytes = 0;
  std::uint64_t l2_bytes = 0;
  std::uint64_t l3_bytes = 0;
};
[[nodiscard]] const CpuIdentity& cpu_identity();

/// Hint for spin loops.
inline void pause() noexcept {
  __builtin_ia32_pause();
}

}  // namespace headrace::platform
