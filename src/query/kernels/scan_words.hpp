// SPDX-License-Identifier: Apache-2.0
// The body of the scan kernels: which of 64 rows satisfy the three conditions, as the bits of one
// word. Plain loops that the compiler vectorizes. Each kernel file compiles this header with its
// own flags; only they include it, and everything in it has internal linkage, so that no code for
// one processor is linked into another kernel.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "scan_kernel.hpp"

namespace headrace::query::detail {
namespace {

/// Prefetch distance of the 8-byte columns. Hardware prefetchers stop at page ends and are shared
/// by three streams; see bench/query/q6_bench.cpp.
constexpr std::size_t kRowsAhead = 256;
constexpr std::size_t kRowsPerLine = 8;

/// Bit j of the result is byte j of `flags`, each 0 or 1.
[[gnu::always_inline]] inline std::uint64_t pack(const std::uint8_t* flags) {
  std::uint64_t word = 0;
  for (unsigned octet = 0; octet < 8; ++octet) {
    std::uint64_t eight = 0;
    if constexpr (std::endian::native == std::endian::little) {
      std::memcpy(&eight, flags + std::size_t{8} * octet, sizeof(eight));
    } else {
      for (unsigned j = 0; j < 8; ++j) eight |= std::uint64_t{flags[8 * octet + j]} << (8 * j);
    }
    // The multiplication adds up copies of `eight`, shifted so that byte j lands in bit 56 + j.
    word |= ((eight * 0x0102040810204080U) >> 56U) << (8 * octet);
  }
  return word;
}

[[gnu::always_inline]] inline void scan_words(const Q6Parameters& parameters, const ScanRows& rows,
                                              std::size_t word_count, std::uint64_t* words) {
  // Copies, because stores to `words` could alias references.
  const std::int32_t begin = parameters.ship_date_begin;
  const std::int32_t end = parameters.ship_date_end;
  const std::int64_t discount_min = parameters.discount_min;
  const std::int64_t discount_max = parameters.discount_max;
  const std::int64_t quantity_below = parameters.quantity_below;
  const std::int32_t* ship_date = rows.ship_date;
  const std::int64_t* discount = rows.discount;
  const std::int64_t* quantity = rows.quantity;
  for (std::size_t i = 0; i < word_count; ++i) {
    alignas(64) std::uint8_t flags[kRowsPerWord];
    for (std::size_t j = 0; j < kRowsPerWord; ++j) {
      flags[j] = static_cast<std::uint8_t>((ship_date[j] >= begin) & (ship_date[j] < end));
    }
    std::uint64_t eights[kRowsPerWord / 8];
    std::memcpy(eights, flags, sizeof(eights));
    std::uint64_t any = 0;
    for (const std::uint64_t eight : eights) any |= eight;
    // If dates are clustered, most words end here and the other columns are not touched. Finer
    // exits are slower: hardly any eight rows can be skipped, and the branches are unpredictable.
    if (any != 0) {
      for (std::size_t j = 0; j < kRowsPerWord; j += kRowsPerLine) {
        __builtin_prefetch(discount + kRowsAhead + j);
        __builtin_prefetch(quantity + kRowsAhead + j);
      }
      for (std::size_t j = 0; j < kRowsPerWord; ++j) {
        flags[j] &= static_cast<std::uint8_t>((discount[j] >= discount_min) &
                                              (discount[j] <= discount_max) &
                                              (quantity[j] < quantity_below));
      }
    }
    words[i] = any != 0 ? pack(flags) : 0;
    ship_date += kRowsPerWord;
    discount += kRowsPerWord;
    quantity += kRowsPerWord;
  }
}

}  // namespace
}  // namespace headrace::query::detail
