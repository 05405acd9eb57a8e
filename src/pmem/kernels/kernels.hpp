// SPDX-License-Identifier: Apache-2.0
// The kernels that digest lines and copy them with non-temporal stores. src/pmem/CMakeLists.txt
// decides which are built, src/pmem/medium.cpp which may run; one that the processor does not
// support raises SIGILL.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::pmem::detail {

/// Keys of the lanes of a digest, and their increment per line: odd, from the digits of pi.
inline constexpr std::uint64_t kDigestKeys[8] = {
    0x243f6a8885a308d3U, 0x13198a2e03707345U, 0xa4093822299f31d1U, 0x082efa98ec4e6c89U,
    0x452821e638d01377U, 0xbe5466cf34e90c6dU, 0xc0ac29b7c97c50ddU, 0x3f84d5b5b5470917U};
inline constexpr std::uint64_t kDigestStep = 0x9216d5d98979fb1bU;

/// Adds `line_count` lines to the digest of eight `lanes`; `line_index` is the number of the first.
/// Also copies them to `target`, which is aligned to a line, unless it is null.
using DigestLines = void (*)(std::byte* target, const std::byte* source, std::size_t line_count,
                             std::uint64_t* lanes, std::uint64_t line_index);
void digest_lines_baseline(std::byte* target, const std::byte* source, std::size_t line_count,
                           std::uint64_t* lanes, std::uint64_t line_index);
void digest_lines_avx2(std::byte* target, const std::byte* source, std::size_t line_count,
                       std::uint64_t* lanes, std::uint64_t line_index);
void digest_lines_avx512(std::byte* target, const std::byte* source, std::size_t line_count,
                         std::uint64_t* lanes, std::uint64_t line_index);

/// Copies lines without a digest. Stores of 32 or 64 bytes took as long as these of 16.
void stream_lines(std::byte* target, const std::byte* source, std::size_t line_count);
/// Copies one line with eight-byte stores.
void stream_words(std::byte* target, const std::byte* source);

}  // namespace headrace::pmem::detail
