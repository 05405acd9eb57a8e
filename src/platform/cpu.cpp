// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/cpu.hpp"

#include <cpuid.h>

#include <array>
#include <cstring>

namespace headrace::platform {
namespace {

CpuFeatures detect() {
  CpuFeatures features;
#if HEADRACE_HAS_SIMD
  __builtin_cpu_init();
  features.avx2 = __builtin_cpu_supports("avx2") != 0;
  features.avx512 =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  features.vpclmulqdq = features.avx512 && __builtin_cpu_supports("vpclmulqdq") != 0;
#endif
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    features.erms = (ebx & (1U << 9U)) != 0;
    features.clflushopt = (ebx & (1U << 23U)) != 0;
    features.clwb = (ebx & (1U << 24U)) != 0;
    features.waitpkg = (ecx & (1U << 5U)) != 0;
  }
  // Clang 16 has no name for it.
  if (features.avx2 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) {
    features.avx_vnni = (eax & (1U << 4U)) != 0;
  }
  return features;
}

/// Reads the caches of this core from CPUID, one subleaf each. Not by sysconf, which computes with
/// core counts that a hypervisor has made up.
void identify_caches(CpuIdentity& identity) {
  constexpr unsigned kIntel = 4;
  constexpr unsigned kAmd = 0x8000001D;
  const unsigned leaf =
      identity.vendor == "AuthenticAMD" || identity.vendor == "HygonGenuine" ? kAmd : kIntel;
  for (unsigned index = 0; index < 16; ++index) {
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    if (__get_cpuid_count(leaf, index, &eax, &ebx, &ecx, &edx) == 0) return;
    constexpr unsigned kInstructions = 2;
    const unsigned type = eax & 0x1FU;
    if (type == 0) return;
    if (type == kInstructions) continue;
    const std::uint64_t way_count = (ebx >> 22U) + 1U;
    const std::uint64_t partition_count = ((ebx >> 12U) & 0x3FFU) + 1U;
    const std::uint64_t line_bytes = (ebx & 0xFFFU) + 1U;
    const std::uint64_t set_count = std::uint64_t{ecx} + 1U;
    const std::uint64_t byte_count = way_count * partition_count * line_bytes * set_count;
    const std::array places{&identity.l1d_bytes, &identity.l2_bytes, &identity.l3_bytes};
    const unsigned level = (eax >> 5U) & 7U;
    if (level >= 1 && level <= places.size()) *places[level - 1] = byte_count;
  }
}

CpuIdentity identify() {
  CpuIdentity identity;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) != 0) {
    std::array<char, 12> vendor{};
    std::memcpy(vendor.data(), &ebx, 4);
    std::memcpy(vendor.data() + 4, &edx, 4);
    std::memcpy(vendor.data() + 8, &ecx, 4);
    identity.vendor.assign(vendor.data(), vendor.size());
  }
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) {
    // Family 15 and, for models, 6 have extended fields.
    const unsigned family = (eax >> 8U) & 0xFU;
    identity.stepping = eax & 0xFU;
    identity.model = (eax >> 4U) & 0xFU;
    if (family == 6 || family == 15) identity.model |= (eax >> 12U) & 0xF0U;
    identity.family = family == 15 ? family + ((eax >> 20U) & 0xFFU) : family;
  }
  identify_caches(identity);
  return identity;
}

}  // namespace

const CpuIdentity& cpu_identity() {
  static const CpuIdentity kIdentity = identify();
  return kIdentity;
}

const CpuFeatures& cpu_features() noexcept {
  static const CpuFeatures kFeatures = detect();
  return kFeatures;
}

}  // namespace headrace::platform
