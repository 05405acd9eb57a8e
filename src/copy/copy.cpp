// SPDX-License-Identifier: Apache-2.0
// Names and availability of the kernels.
#include "headrace/copy/copy.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "headrace/base/check.hpp"
#include "headrace/base/names.hpp"
#include "headrace/platform/cpu.hpp"
#include "kernels/kernels.hpp"

namespace headrace::copy {
namespace {

std::size_t index_of(Kernel kernel) {
  const auto index = static_cast<std::size_t>(kernel);
  HEADRACE_CHECK(index < kKernelCount, "the kernel is one of the enumerators", index);
  return index;
}

/// The move of each kernel, null if this build lacks it or this processor cannot run it.
/// available[0, available_count) are the kernels whose move is not null, in the order of the enum.
///
/// Threading: immutable.
struct Table {
  std::array<detail::Move, kKernelCount> moves{};
  std::array<Kernel, kKernelCount> available{};
  std::size_t available_count = 0;

  void offer(Kernel kernel, detail::Move move) {
    moves[index_of(kernel)] = move;
    available[available_count++] = kernel;
  }
};

Table make_table() {
  Table table;
  [[maybe_unused]] const platform::CpuFeatures& features = platform::cpu_features();
  table.offer(Kernel::libc, detail::move_libc);
#if HEADRACE_HAS_REP_MOVSB
  if (features.erms) table.offer(Kernel::rep_movsb, detail::move_rep_movsb);
#endif
#if HEADRACE_HAS_VECTOR_KERNELS
  if (features.avx2) {
    table.offer(Kernel::avx2_temporal, detail::move_avx2_temporal);
    table.offer(Kernel::avx2_nontemporal, detail::move_avx2_nontemporal);
  }
  if (features.avx512) {
    table.offer(Kernel::avx512_temporal, detail::move_avx512_temporal);
    table.offer(Kernel::avx512_nontemporal, detail::move_avx512_nontemporal);
  }
#endif
  return table;
}

const Table& table() {
  static const Table kTable = make_table();
  return kTable;
}

}  // namespace

std::span<const Kernel> available_kernels() {
  return std::span(table().available).first(table().available_count);
}

void copy_bytes_with(Kernel kernel, std::span<std::byte> target,
                     std::span<const std::byte> source) {
  HEADRACE_CHECK(target.size() == source.size(), "source and target have the same length",
                 target.size(), source.size());
  const detail::Move move = table().moves[index_of(kernel)];
  HEADRACE_CHECK(move != nullptr, "the kernel is available on this machine", name(kernel));
  if (source.empty()) return;
  move(target.data(), source.data(), source.size());
}

}  // namespace headrace::copy
