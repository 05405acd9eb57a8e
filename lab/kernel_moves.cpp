// SPDX-License-Identifier: Apache-2.0
#include "headrace/lab/kernel_moves.hpp"

#include <array>
#include <cstring>
#include <utility>

namespace headrace::copy::lab {
namespace {

/// Volatile, so that the comparison is not optimised away.
thread_local volatile bool was_equal = false;

template <std::size_t kIndex>
constinit KernelTable<Fill> fill_table(nullptr);
template <std::size_t kIndex>
constinit KernelTable<FirstDifference> compare_table(nullptr);

template <std::size_t kIndex>
void* fill_by(void* target, const void* /*source*/, std::size_t byte_count) noexcept {
  return fill_table<kIndex>.function_for(byte_count)(target, kFillValue, byte_count);
}
template <std::size_t kIndex>
void* compare_by(void* target, const void* source, std::size_t byte_count) noexcept {
  const FirstDifference find = compare_table<kIndex>.function_for(byte_count);
  was_equal = find(target, source, byte_count) == byte_count;
  return target;
}

template <typename Function>
void serve_all(KernelTable<Function>& table, Function function) {
  for (std::size_t i = 0; i < table.kClassCount; ++i) table.choose(i, function);
}

template <std::size_t... kIndices>
Move find_fill_move(std::size_t index, Fill fill, std::index_sequence<kIndices...> /*indices*/) {
  static constexpr std::array<Move, sizeof...(kIndices)> kMoves{&fill_by<kIndices>...};
  const std::array<KernelTable<Fill>*, sizeof...(kIndices)> tables{&fill_table<kIndices>...};
  serve_all(*tables.at(index), fill);
  return kMoves.at(index);
}
template <std::size_t... kIndices>
Move find_compare_move(std::size_t index, FirstDifference find,
                       std::index_sequence<kIndices...> /*indices*/) {
  static constexpr std::array<Move, sizeof...(kIndices)> kMoves{&compare_by<kIndices>...};
  const std::array<KernelTable<FirstDifference>*, sizeof...(kIndices)> tables{
      &compare_table<kIndices>...};
  serve_all(*tables.at(index), find);
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

Move tuned_fill_move() {
  return [](void* target, const void* /*source*/, std::size_t byte_count) noexcept {
    set_bytes({static_cast<std::byte*>(target), byte_count}, std::byte{kFillValue});
    return target;
  };
}

Move tuned_compare_move() {
  return [](void* target, const void* source, std::size_t byte_count) noexcept {
    was_equal = first_difference({static_cast<const std::byte*>(target), byte_count},
                                 {static_cast<const std::byte*>(source), byte_count}) == byte_count;
    return target;
  };
}

Move kernel_move(FillKernel kernel) {
  const Fill fill = fill_of(kernel);
  if (fill == nullptr) return nullptr;
  return find_fill_move(static_cast<std::size_t>(kernel), fill,
                        std::make_index_sequence<kFillKernelCount>());
}

Move kernel_move(CompareKernel kernel) {
  const FirstDifference find = first_difference_of(kernel);
  if (find == nullptr) return nullptr;
  return find_compare_move(static_cast<std::size_t>(kernel), find,
                           std::make_index_sequence<kCompareKernelCount>());
}

}  // namespace headrace::copy::lab
