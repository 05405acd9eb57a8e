// SPDX-License-Identifier: Apache-2.0
#include "scan.hpp"

#include <bit>
#include <cstring>

#include "headrace/base/check.hpp"

namespace headrace::query::lab {

namespace {

/// Prefetch distance of the 8-byte columns. Hardware prefetchers stop at page ends and are shared
/// by three streams.
constexpr std::size_t kRowsAhead = 256;
constexpr std::size_t kRowsPerLine = 8;

/// Bit j of the result is byte j of `flags`, each 0 or 1.
[[gnu::always_inline]] inline std::uint64_t pack(const std::uint8_t* flags) {
  std::uint64_t word = 0;
  for (unsigned octet = 0; octet < 8; ++octet) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, flags + std::size_t{8} * octet, sizeof(eight));  // Little-endian.
    // The multiplication adds up copies of `eight`, shifted so that byte j lands in bit 56 + j.
    word |= ((eight * 0x0102040810204080U) >> 56U) << (8 * octet);
  }
  return word;
}

/// Sets `words[i]` to the selection of rows [64 i, 64 i + 64): bit j is row 64 i + j. Plain loops
/// for the baseline: AVX2 and AVX-512 gain nothing, because the scan waits for memory.
void scan_words(const Q6Parameters& parameters, const Q6Columns& columns, std::size_t word_count,
                std::uint64_t* words) {
  // Copies, because stores to `words` could alias references.
  const std::int32_t begin = parameters.ship_date_begin;
  const std::int32_t end = parameters.ship_date_end;
  const std::int64_t discount_min = parameters.discount_min;
  const std::int64_t discount_max = parameters.discount_max;
  const std::int64_t quantity_below = parameters.quantity_below;
  const std::int32_t* ship_date = columns.ship_date.data();
  const std::int64_t* discount = columns.discount.data();
  const std::int64_t* quantity = columns.quantity.data();
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

void scan(const Q6Parameters& parameters, const Q6Columns& columns,
          std::span<std::uint64_t> words) {
  const std::size_t row_count = columns.ship_date.size();
  HEADRACE_CHECK(words.size() == words_for(row_count), "one bit per row", words.size(), row_count);
  const std::size_t whole_count = row_count / kRowsPerWord;
  scan_words(parameters, columns, whole_count, words.data());
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

}  // namespace headrace::query::lab
