// SPDX-License-Identifier: Apache-2.0
// The signature of the scan kernels; scan.hpp selects one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/query/q6.hpp"

namespace headrace::query::detail {

inline constexpr std::size_t kRowsPerWord = 64;

/// The filter columns, from the first row on.
struct ScanRows {
  const std::int32_t* ship_date;
  const std::int64_t* discount;
  const std::int64_t* quantity;
};

/// Sets `words[i]` to the selection of rows [64 i, 64 i + 64): bit j is row 64 i + j.
using ScanKernel = void (*)(const Q6Parameters& parameters, const ScanRows& rows,
                            std::size_t word_count, std::uint64_t* words);

void scan_words_baseline(const Q6Parameters& parameters, const ScanRows& rows,
                         std::size_t word_count, std::uint64_t* words);
void scan_words_avx2(const Q6Parameters& parameters, const ScanRows& rows, std::size_t word_count,
                     std::uint64_t* words);

}  // namespace headrace::query::detail
