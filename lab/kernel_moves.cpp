// SPDX-License-Identifier: Apache-2.0
#include "headrace/lab/kernel_moves.hpp"

#include <array>
#include <cstring>
#include <utility>

namespace headrace::copy::lab {
namespace {

/// Volatile, so that the comparison is not optimised away.
thread_local volatile bool was_equal = false;

/// The kernel of each index: a Move cannot carry one.
template <std::size_t kIndex>
constinit Fill fill = nullptr;
template <std::size_t kIndex>
constinit FirstDifference comparison = nullptr;

template <std::size_t kIndex>
void* fill_by(void* target, const void* /*source*/, std::size_t byte_count) noexcept {
  return fill<kIndex>(target, kFillValue, byte_count);
}
template <std::size_t kIndex>
void* compare_by(void* target, const void* source, std::size_t byte_count) noexcept {
  was_equal = comparison<kIndex>(target, source, byte_count) == byte_count;
  return target;
}

template <std::size_t... kIndices>
Move find_fill_move(std::size_t index, Fill kernel, std::index_sequence<kIndices...> /*indices*/) {
  static constexpr std::array<Move, sizeof...(kIndices)> kMoves{&fill_by<kIndices>...};
  const std::array<Fill*, sizeof...(kIndices)> places{&fill<kIndices>...};
  *places.at(index) = kernel;
  return kMoves.at(index);
}
template <std::size_t... kIndices>
Move find_compare_move(std::size_t index, FirstDifference kernel,
                       std::index_sequence<kIndices...> /*indices*/) {
  static constexpr std::array<Move, sizeof...(kIndices)> kMoves{&compare_by<kIndices>...};
  const std::array<FirstDifference*, sizeof...(kIndices)> places{&comparison<kIndices>...};
  *places.at(index) = kernel;
  return kMoves.at(index);
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
  const Fill function = fill_of(kernel);
  if (function == nullptr) return nullptr;
  return find_fill_move(static_cast<std::size_t>(kernel), function,
                        std::make_index_sequence<kFillKernelCount>());
}

Move kernel_move(CompareKernel kernel) {
  const FirstDifference function = first_difference_of(kernel);
  if (function == nullptr) return nullptr;
  return find_compare_move(static_cast<std::size_t>(kernel), function,
                           std::make_index_sequence<kCompareKernelCount>());
}

}  // namespace headrace::copy::lab
