// SPDX-License-Identifier: Apache-2.0
// Copying by the processor: one function tuned to the machine, and kernels to compare it with.
// Not for: choosing the mover (engine) or the target (cache).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "headrace/base/check.hpp"
#include "headrace/base/export.hpp"
#include "headrace/base/names.hpp"
#include "headrace/base/result.hpp"
#include "headrace/copy/dispatch.hpp"

namespace headrace::copy {

using headrace::name;

/// A way to move bytes with the processor. Every kernel is correct for every size, alignment and
/// overlap, as memmove is; they differ in speed and in what they leave in the caches.
enum class Kernel : std::uint8_t {
  libc,       ///< memmove of the C library.
  rep_movsb,  ///< Microcoded string move; memmove where the target starts inside the source.
  avx2_temporal,
  avx2_nontemporal,  ///< Stores bypass the caches: the target is not cached afterwards. A copy of
                     ///< up to 256 bytes, and one that overlaps, is avx2_temporal.
  avx512_temporal,
  avx512_nontemporal,  ///< As avx2_nontemporal; up to 512 bytes, and overlapping: avx512_temporal.
};
inline constexpr std::size_t kKernelCount = 6;

/// Kernels that this build contains and this processor can run; always includes libc, and rep_movsb
/// only if the processor reports ERMS.
///
/// Threading: shared.
[[nodiscard]] HEADRACE_API std::span<const Kernel> available_kernels();

/// Copies `source` to `target`, which may overlap, with the variant that the profile in use names
/// for the length (profile.hpp); without a profile, with memmove.
///
/// Threading: shared.
/// Fails: never; the spans must have the same length (checked).
/// Cost: two predictable branches above move_bytes; see bench/copy/copy_bench.cpp.
inline void copy_bytes(std::span<std::byte> target, std::span<const std::byte> source) {
  HEADRACE_CHECK(target.size() == source.size(), "source and target have the same length",
                 target.size(), source.size());
  if (source.empty()) return;  // The data of an empty span may be null, which memmove forbids.
  move_bytes(target.data(), source.data(), source.size());
}

/// One copy of a list; source and target may overlap.
struct CopyItem {
  std::byte* target = nullptr;
  const std::byte* source = nullptr;
  std::size_t byte_count = 0;
};

/// Makes the copies of a list in order, each as copy_bytes does. For many short copies: looks up
/// the table once, copies up to 16 bytes without a call, and prefetches for later copies of some
/// hundred bytes or more.
///
/// Threading: shared.
/// Fails: never.
/// Cost: less than that of single copies; see bench/copy/copy_many_bench.cpp.
HEADRACE_API void copy_many(std::span<const CopyItem> items) noexcept;

/// As copy_bytes with a given kernel, which must be available (checked).
HEADRACE_API void copy_bytes_with(Kernel kernel, std::span<std::byte> target,
                                  std::span<const std::byte> source);

}  // namespace headrace::copy
