// SPDX-License-Identifier: Apache-2.0
// The kernels that copy whole lines past the caches. Which of them exist is decided by
// src/pmem/CMakeLists.txt, which may run by src/pmem/medium.cpp; calling one that the processor
// lacks is an illegal instruction.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::pmem::detail {

/// Keys of the lanes of a digest, and what is added to them from line to line: odd, from the digits
/// of pi.
inline constexpr std::uint64_t kDigestKeys[8] = {
    0x243f6a8885a308d3U, 0x13198a2e03707345U, 0xa4093822299f31d1U, 0x082efa98ec4e6c89U,
    0x452821e638d01377U, 0xbe5466cf34e90c6dU, 0xc0ac29b7c97c50ddU, 0x3f84d5b5b5470917U};
inline constexpr std::uint64_t kDigestStep = 0x9216d5d98979fb1bU;

/// Copies `line_count` lines to `target`, which is aligned to a line. With `lanes`, eight of them,
/// takes the lines into the digest, the first one as number `line_index`.
using StreamLines = void (*)(std::byte* target, const std::byte* source, std::size_t line_count,
                             std::uint64_t* lanes, std::uint64_t line_index);

void stream_lines_baseline(std::byte* target, const std::byte* source, std::size_t line_count,
                           std::uint64_t* lanes, std::uint64_t line_index);
/// A line by stores of eight bytes.
void stream_words(std::byte* target, const std::byte* source);
void stream_lines_avx2(std::byte* target, const std::byte* source, std::size_t line_count,
                       std::uint64_t* lanes, std::uint64_t line_index);
void stream_lines_avx512(std::byte* target, const std::byte* source, std::size_t line_count,
                         std::uint64_t* lanes, std::uint64_t line_index);

/// Takes lines into the digest and copies nothing.
using DigestLines = void (*)(const std::byte* source, std::size_t line_count, std::uint64_t* lanes,
                             std::uint64_t line_index);
void digest_lines_baseline(const std::byte* source, std::size_t line_count, std::uint64_t* lanes,
                           std::uint64_t line_index);
void digest_lines_avx2(const std::byte* source, std::size_t line_count, std::uint64_t* lanes,
                       std::uint64_t line_index);
void digest_lines_avx512(const std::byte* source, std::size_t line_count, std::uint64_t* lanes,
                         std::uint64_t line_index);

}  // namespace headrace::pmem::detail
