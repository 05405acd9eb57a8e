// SPDX-License-Identifier: Apache-2.0
// Fills and comparisons: names and availability of the kernels, and the tables of this process.
#include "headrace/copy/fill_compare.hpp"

#include <algorithm>
#include <cstring>

#include "default_kernels.hpp"
#include "headrace/base/check.hpp"
#include "headrace/base/names.hpp"
#include "headrace/platform/cpu.hpp"
#include "kernels/kernels.hpp"

namespace headrace::copy {
namespace {

/// Bytes per memcmp. A block that differs is read again up to the difference, ...
constexpr std::size_t kBlockBytes = 262144;
/// ... in smaller blocks.
constexpr std::size_t kSmallBlockBytes = 512;

/// Offset of the first difference of two blocks that differ.
[[gnu::noinline]] std::size_t difference_in(const std::byte* one, const std::byte* other,
                                            std::size_t byte_count) {
  std::size_t at = 0;
  while (byte_count - at > kSmallBlockBytes &&
         std::memcmp(one + at, other + at, kSmallBlockBytes) == 0) {
    at += kSmallBlockBytes;
  }
  while (byte_count - at >= sizeof(std::uint64_t)) {
    std::uint64_t left = 0;
    std::uint64_t right = 0;
    std::memcpy(&left, one + at, sizeof left);
    std::memcpy(&right, other + at, sizeof right);
    // The lowest byte is the first: little-endian, as every machine with a DSA.
    if (left != right) return at + static_cast<std::size_t>(__builtin_ctzll(left ^ right)) / 8;
    at += sizeof left;
  }
  while (at < byte_count && one[at] == other[at]) ++at;
  return at;
}

/// Uses memcmp; only a block that differs is searched further.
std::size_t first_difference_libc(const void* left, const void* right,
                                  std::size_t byte_count) noexcept {
  const auto* const one = static_cast<const std::byte*>(left);
  const auto* const other = static_cast<const std::byte*>(right);
  for (std::size_t at = 0; at < byte_count;) {
    const std::size_t block = std::min(kBlockBytes, byte_count - at);
    if (std::memcmp(one + at, other + at, block) != 0) {
      return at + difference_in(one + at, other + at, block);
    }
    at += block;
  }
  return byte_count;
}

// Constant-initialized: they serve callers before our constructors run.
constinit Dispatch<Fill> fills(&std::memset);
constinit Dispatch<FirstDifference> comparisons(&first_difference_libc);

}  // namespace

Dispatch<Fill>& detail::default_fills() {
  return fills;
}

Dispatch<FirstDifference>& detail::default_comparisons() {
  return comparisons;
}

Fill fill_of(FillKernel kernel) {
  const platform::CpuFeatures& features = platform::cpu_features();
  if (kernel == FillKernel::rep_stosb) return features.erms ? detail::set_rep_stosb : nullptr;
  if (kernel == FillKernel::zmm) return features.avx512 ? detail::set_avx512 : nullptr;
  if (!features.avx2) return nullptr;
  if (kernel == FillKernel::ymm) return detail::set_avx2;
  if (kernel == FillKernel::ymm_prefetch) return detail::set_avx2_prefetched;
  if (kernel == FillKernel::ymm_touch) return detail::set_avx2_touching;
  if (kernel == FillKernel::ymm_nontemporal) return detail::set_avx2_nontemporal;
  return nullptr;
}

FirstDifference first_difference_of(CompareKernel kernel) {
  const platform::CpuFeatures& features = platform::cpu_features();
  if (kernel == CompareKernel::zmm) return features.avx512 ? detail::difference_avx512 : nullptr;
  return features.avx2 ? detail::difference_avx2 : nullptr;
}

void set_bytes(std::span<std::byte> target, std::byte value) noexcept {
  if (target.empty()) return;  // The data of an empty span may be null, which memset forbids.
  fills.function_for(target.size())(target.data(), static_cast<int>(value), target.size());
}

std::size_t first_difference(std::span<const std::byte> left,
                             std::span<const std::byte> right) noexcept {
  HEADRACE_CHECK(left.size() == right.size(), "what is compared has the same length", left.size(),
                 right.size());
  if (left.empty()) return 0;  // As above, of memcmp.
  return comparisons.function_for(left.size())(left.data(), right.data(), left.size());
}

}  // namespace headrace::copy
