// SPDX-License-Identifier: Apache-2.0
// A baseline after folly's memcpy (AVX2): our kernels with folly's thresholds.
#include "headrace/lab/meter.hpp"
#include "headrace/platform/cpu.hpp"
#include "kernels/kernels.hpp"

namespace headrace::copy::lab {
namespace {

#if HEADRACE_HAS_VECTOR_KERNELS && HEADRACE_HAS_REP_MOVSB
constexpr std::size_t kStringMoveBytesMin = 1024;

void* move_like_folly(void* target, const void* source, std::size_t byte_count) noexcept {
  auto* const to = static_cast<std::byte*>(target);
  const auto* const from = static_cast<const std::byte*>(source);
  if (byte_count >= kStringMoveBytesMin) {
    detail::move_rep_movsb(to, from, byte_count);
  } else {
    detail::move_avx2_temporal(to, from, byte_count);
  }
  return target;
}
#endif

}  // namespace

Move folly_like_move() {
#if HEADRACE_HAS_VECTOR_KERNELS && HEADRACE_HAS_REP_MOVSB
  const platform::CpuFeatures& features = platform::cpu_features();
  if (features.avx2 && features.erms) return &move_like_folly;
#endif
  return nullptr;
}

}  // namespace headrace::copy::lab
