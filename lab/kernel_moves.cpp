// SPDX-License-Identifier: Apache-2.0
#include "headrace/lab/kernel_moves.hpp"

#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

namespace headrace::copy::lab {
namespace {

/// Volatile, so that the comparison is not optimised away.
thread_local volatile bool was_equal = false;

/// A Move cannot carry its kernel: there is a place for each.
template <typename Kernel, std::size_t kIndex>
constinit Kernel kernel_at = nullptr;

template <typename Kernel, std::size_t kIndex>
void* call(void* target, const void* source, std::size_t byte_count) noexcept {
  if constexpr (std::is_same_v<Kernel, Fill>) {
    return kernel_at<Kernel, kIndex>(target, kFillValue, byte_count);
  } else {
    was_equal = kernel_at<Kernel, kIndex>(target, source, byte_count) == byte_count;
    return target;
  }
}

template <typename Kernel, std::size_t... kIndices>
Move move_of(std::size_t index, Kernel kernel, std::index_sequence<kIndices...> /*indices*/) {
  if (kernel == nullptr) return nullptr;
  *std::array{&kernel_at<Kernel, kIndices>...}.at(index) = kernel;
  return std::array<Move, sizeof...(kIndices)>{&call<Kernel, kIndices>...}.at(index);
}

}  // namespace

Move libc_fill_move() {
  return [](void* target, const void* /*source*/, std::size_t byte_count) noexcept {
    return std::memset(target, kFillValue, byte_count);
  };
}

Move libc_compare_move() {
  return [](void* target, const void* source, std::size_t byte_count) noexcept {
    was_equal = std::memcmp(target, source, byte_count) == 0;
    return target;
  };
}

Move kernel_move(FillKernel kernel) {
  return move_of(static_cast<std::size_t>(kernel), fill_of(kernel),
                 std::make_index_sequence<kFillKernelCount>());
}

Move kernel_move(CompareKernel kernel) {
  return move_of(static_cast<std::size_t>(kernel), first_difference_of(kernel),
                 std::make_index_sequence<kCompareKernelCount>());
}

}  // namespace headrace::copy::lab
