// SPDX-License-Identifier: Apache-2.0
// The scan kernel for processors with AVX2 (256-bit compares; AVX-512 gains nothing, because the
// scan waits for memory). Compiled only with HEADRACE_SIMD.
#include "scan_words.hpp"

namespace headrace::query::detail {

void scan_words_avx2(const Q6Parameters& parameters, const ScanRows& rows, std::size_t word_count,
                     std::uint64_t* words) {
  scan_words(parameters, rows, word_count, words);
}

}  // namespace headrace::query::detail
