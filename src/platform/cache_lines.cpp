// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/cache_lines.hpp"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace headrace::platform {

#if defined(__x86_64__)
namespace {

bool has_clflushopt() noexcept {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & bit_CLFLUSHOPT) != 0;
}

}  // namespace

void flush_lines(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty()) return;
  static const bool kOptimised = has_clflushopt();
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data()) & ~(kLineBytes - 1);
  const auto last = reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size();
  for (std::uintptr_t line = first; line < last; line += kLineBytes) {
    const auto* const address = reinterpret_cast<const char*>(line);
    if (kOptimised) {
      asm volatile("clflushopt %0" : : "m"(*address) : "memory");
    } else {
      asm volatile("clflush %0" : : "m"(*address) : "memory");
    }
  }
  // CLFLUSHOPT is ordered by fences only.
  asm volatile("sfence" : : : "memory");
}
#else
void flush_lines(std::span<const std::byte>) noexcept {}
#endif

}  // namespace headrace::platform
