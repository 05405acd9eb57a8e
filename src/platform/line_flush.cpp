// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/line_flush.hpp"

#include <emmintrin.h>

#include <cstring>

#include "headrace/platform/cpu.hpp"

namespace headrace::platform {

bool has_line_flush(LineFlush flush) noexcept {
  if (flush == LineFlush::clflush) return true;  // Part of SSE2, and so of x86-64.
  return flush == LineFlush::clflushopt ? cpu_features().clflushopt : cpu_features().clwb;
}

void write_back_lines(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty()) return;
  const LineFlush best = has_line_flush(LineFlush::clwb)         ? LineFlush::clwb
                         : has_line_flush(LineFlush::clflushopt) ? LineFlush::clflushopt
                                                                 : LineFlush::clflush;
  flush_lines(best, bytes.data(), bytes.size());
  store_fence();
}

void drop_lines(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty()) return;
  const bool optimised = has_line_flush(LineFlush::clflushopt);
  flush_lines(optimised ? LineFlush::clflushopt : LineFlush::clflush, bytes.data(), bytes.size());
  store_fence();
}

void flush_lines(LineFlush flush, const std::byte* begin, std::size_t byte_count) noexcept {
  if (byte_count == 0) return;
  const auto first = reinterpret_cast<std::uintptr_t>(begin) & ~(kLineBytes - 1);
  const auto end = reinterpret_cast<std::uintptr_t>(begin) + byte_count;
  const auto each_line = [&](auto instruction) {
    for (std::uintptr_t line = first; line < end; line += kLineBytes) {
      instruction(reinterpret_cast<const char*>(line));
    }
  };
  // The "memory" clobbers keep the compiler from moving a store past the flush of its line.
  switch (flush) {
    case LineFlush::clflush:
      each_line([](const char* line) { asm volatile("clflush %0" : : "m"(*line) : "memory"); });
      return;
    case LineFlush::clflushopt:
      each_line([](const char* line) { asm volatile("clflushopt %0" : : "m"(*line) : "memory"); });
      return;
    case LineFlush::clwb:
      each_line([](const char* line) { asm volatile("clwb %0" : : "m"(*line) : "memory"); });
      return;
  }
}

void stream_bytes(std::byte* target, std::span<const std::byte> source) noexcept {
  if (source.empty()) return;
  constexpr std::size_t kStoreBytes = sizeof(__m128i);
  const std::byte* from = source.data();
  const std::byte* const end = from + source.size();
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(target) % kStoreBytes;
  if (source.size() >= before + kStoreBytes) {
    std::memcpy(target, from, before);
    target += before;
    from += before;
    for (; static_cast<std::size_t>(end - from) >= kStoreBytes;
         from += kStoreBytes, target += kStoreBytes) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(target),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    }
  }
  std::memcpy(target, from, static_cast<std::size_t>(end - from));
}

}  // namespace headrace::platform
