// SPDX-License-Identifier: Apache-2.0
#include "scan.hpp"

#include <array>
#include <bit>

#include "headrace/base/check.hpp"
#include "headrace/platform/cpu.hpp"

namespace headrace::query::detail {

std::span<const ScanKernel> available_scan_kernels() {
#if HEADRACE_QUERY_HAS_AVX2
  static constexpr std::array<ScanKernel, 2> kKernels{&scan_words_avx2, &scan_words_baseline};
  return std::span(kKernels).subspan(platform::cpu_features().avx2 ? 0 : 1);
#else
  static constexpr std::array<ScanKernel, 1> kKernels{&scan_words_baseline};
  return kKernels;
#endif
}

void scan(ScanKernel kernel, const Q6Parameters& parameters, const Q6Columns& columns,
          std::span<std::uint64_t> words) {
  const std::size_t row_count = columns.ship_date.size();
  HEADRACE_DCHECK(words.size() == words_for(row_count), "one bit per row", words.size(), row_count);
  const std::size_t whole_count = row_count / kRowsPerWord;
  kernel(parameters, {columns.ship_date.data(), columns.discount.data(), columns.quantity.data()},
         whole_count, words.data());
  if (whole_count == words.size()) return;
  std::uint64_t word = 0;
  for (std::size_t row = whole_count * kRowsPerWord; row < row_count; ++row) {
    const bool selected = columns.ship_date[row] >= parameters.ship_date_begin &&
                          columns.ship_date[row] < parameters.ship_date_end &&
                          columns.discount[row] >= parameters.discount_min &&
                          columns.discount[row] <= parameters.discount_max &&
                          columns.quantity[row] < parameters.quantity_below;
    word |= std::uint64_t{selected} << (row % kRowsPerWord);
  }
  words.back() = word;
}

std::uint64_t aggregate(std::span<const std::uint64_t> words,
                        std::span<const std::int64_t> extended_price,
                        std::span<const std::int64_t> discount, ExactSum& sum) {
  ExactSum chunk_sum;  // A local one stays in registers.
  std::uint64_t selected_count = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    selected_count += static_cast<std::uint64_t>(std::popcount(words[i]));
    for (std::uint64_t left = words[i]; left != 0; left &= left - 1) {
      const std::size_t row = i * kRowsPerWord + static_cast<std::size_t>(std::countr_zero(left));
      chunk_sum.add_product(extended_price[row], discount[row]);
    }
  }
  sum.add(chunk_sum);
  return selected_count;
}

}  // namespace headrace::query::detail
