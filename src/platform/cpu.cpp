// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/cpu.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace headrace::platform {
namespace {

CpuFeatures detect() {
  CpuFeatures features;
#if defined(__x86_64__) && HEADRACE_HAS_SIMD
  __builtin_cpu_init();
  features.avx2 = __builtin_cpu_supports("avx2") != 0;
  features.avx512 =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
#endif
#if defined(__x86_64__)
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    features.erms = (ebx & (1U << 9U)) != 0;
  }
#endif
  return features;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures kFeatures = detect();
  return kFeatures;
}

}  // namespace headrace::platform
