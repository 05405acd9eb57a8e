// SPDX-License-Identifier: Apache-2.0
// Filling with a pattern: chooses the registers once.
#include "headrace/copy/fill.hpp"

#include <cstring>

#include "headrace/platform/cpu.hpp"
#include "kernels/kernels.hpp"

namespace headrace::copy {
namespace {

/// Runs on any processor.
void fill_plainly(std::byte* target, std::size_t byte_count, std::uint64_t low,
                  std::uint64_t high) {
  for (; byte_count >= 16; byte_count -= 16, target += 16) {
    std::memcpy(target, &low, 8);
    std::memcpy(target + 8, &high, 8);
  }
  if (byte_count >= 8) {
    std::memcpy(target, &low, 8);
    target += 8;
    byte_count -= 8;
    low = high;
  }
  for (; byte_count > 0; --byte_count, low >>= 8U) *target++ = static_cast<std::byte>(low);
}

/// The fill through the widest registers, and its minimum length.
///
/// Threading: immutable.
struct Choice {
  detail::PatternFill fill = fill_plainly;
  std::size_t byte_count_min = 0;
};

Choice choose() {
  const platform::CpuFeatures& features = platform::cpu_features();
  if (features.avx512) return {detail::fill_avx512, 64};
  if (features.avx2) return {detail::fill_avx2, 32};
  return {};
}

}  // namespace

void fill_bytes(std::span<std::byte> target, std::uint64_t low, std::uint64_t high) noexcept {
  static const Choice kChoice = choose();
  const auto fill = target.size() >= kChoice.byte_count_min ? kChoice.fill : fill_plainly;
  fill(target.data(), target.size(), low, high);
}

}  // namespace headrace::copy
