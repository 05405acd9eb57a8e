// SPDX-License-Identifier: Apache-2.0
// The scan kernel for any processor of the architecture.
#include "scan_words.hpp"

namespace headrace::query::detail {

void scan_words_baseline(const Q6Parameters& parameters, const ScanRows& rows,
                         std::size_t word_count, std::uint64_t* words) {
  scan_words(parameters, rows, word_count, words);
}

}  // namespace headrace::query::detail
