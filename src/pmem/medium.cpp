// SPDX-License-Identifier: Apache-2.0
#include "headrace/pmem/medium.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "headrace/base/check.hpp"
#include "headrace/base/names.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/line_flush.hpp"
#include "headrace/platform/memory.hpp"
#include "kernels/kernels.hpp"
#include "ranges.hpp"

namespace headrace::pmem {
namespace {

/// The enumerators are the same.
platform::LineFlush of_platform(FlushInstruction instruction) {
  return static_cast<platform::LineFlush>(instruction);
}
static_assert(static_cast<int>(FlushInstruction::clwb) ==
              static_cast<int>(platform::LineFlush::clwb));

detail::DigestLines digest_kernel() {
  static const detail::DigestLines kChosen = [] {
    if (platform::cpu_features().avx512) return detail::digest_lines_avx512;
    if (platform::cpu_features().avx2) return detail::digest_lines_avx2;
    return detail::digest_lines_baseline;
  }();
  return kChosen;
}

std::uint64_t mixed(std::uint64_t word) {
  // The finalizer of splitmix64.
  word = (word ^ (word >> 30U)) * 0xbf58476d1ce4e5b9U;
  word = (word ^ (word >> 27U)) * 0x94d049bb133111ebU;
  return word ^ (word >> 31U);
}

}  // namespace

std::span<const FlushInstruction> flush_instructions() {
  static const std::vector<FlushInstruction> kAvailable = [] {
    std::vector<FlushInstruction> available;
    for (const FlushInstruction each :
         {FlushInstruction::clflush, FlushInstruction::clflushopt, FlushInstruction::clwb}) {
      if (platform::has_line_flush(of_platform(each))) available.push_back(each);
    }
    return available;
  }();
  return kAvailable;
}

std::uint64_t Digest::value(std::uint64_t seed) const {
  // One bijection per lane, all in parallel: this is on the critical path of a short enqueue.
  std::uint64_t result = seed + line_count * detail::kDigestStep;
  for (std::size_t i = 0; i < 8; ++i) {
    result ^= (lanes[i] ^ (lanes[i] >> 32U)) * (detail::kDigestKeys[i] | 1U);
  }
  return mixed(result);
}

void digest_lines(std::span<const std::byte> lines, Digest& digest) {
  HEADRACE_CHECK(lines.size() % kLineBytes == 0, "a digest is of whole lines", lines.size());
  const std::size_t line_count = lines.size() / kLineBytes;
  digest_kernel()(nullptr, lines.data(), line_count, digest.lanes, digest.line_count);
  digest.line_count += line_count;
}

Medium::Medium(const Options& options)
    : granularity_(options.granularity), instruction_(options.instruction), fault_(options.fault) {
  HEADRACE_CHECK(granularity_ != Granularity::line ||
                     std::ranges::count(flush_instructions(), instruction_) == 1,
                 "this processor has the flush instruction", instruction_);
}

void Medium::store(std::byte* target, std::span<const std::byte> source) {
  if (!source.empty()) std::memcpy(target, source.data(), source.size());
}

void Medium::stream(std::byte* target, std::span<const std::byte> lines, Digest* digest) {
  HEADRACE_CHECK(
      reinterpret_cast<std::uintptr_t>(target) % kLineBytes == 0 && lines.size() % kLineBytes == 0,
      "whole lines are streamed", lines.size());
  const std::size_t line_count = lines.size() / kLineBytes;
  if (digest == nullptr && line_count == 1) {
    // A single line was mostly just written, word by word. A load wider than a pending store waits
    // for it, and that store waits for all lines streamed before it.
    detail::stream_words(target, lines.data());
  } else if (digest == nullptr) {
    detail::stream_lines(target, lines.data(), line_count);
  } else {
    digest_kernel()(target, lines.data(), line_count, digest->lanes, digest->line_count);
    digest->line_count += line_count;
  }
  if (granularity_ == Granularity::page) note(target, lines.size());
}

void Medium::copy(std::byte* target, std::span<const std::byte> source) {
  detail::copy_range(*this, target, source);
}

void Medium::fill(std::byte* target, std::byte value, std::size_t byte_count) {
  detail::fill_range(*this, target, value, byte_count);
}

void Medium::flush(const void* begin, std::size_t byte_count) {
  flush_with(instruction_, begin, byte_count);
}

void Medium::flush_with(FlushInstruction instruction, const void* begin, std::size_t byte_count) {
  switch (granularity_) {
    case Granularity::byte:
      return;
    case Granularity::line:
      platform::flush_lines(of_platform(instruction), static_cast<const std::byte*>(begin),
                            byte_count);
      return;
    case Granularity::page:
      note(begin, byte_count);
      return;
  }
}

void Medium::note(const void* begin, std::size_t byte_count) {
  if (byte_count == 0) return;
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  dirty_begin_ = dirty_end_ == 0 ? first : std::min(dirty_begin_, first);
  dirty_end_ = std::max(dirty_end_, first + byte_count);
}

void Medium::drain() {
  platform::store_fence();
  if (dirty_end_ == 0) return;
  const std::span<std::byte> dirty(reinterpret_cast<std::byte*>(dirty_begin_),
                                   dirty_end_ - dirty_begin_);
  dirty_begin_ = 0;
  dirty_end_ = 0;
  if (platform::sync_pages(dirty) != 0 && fault_ != nullptr) {
    std::uint32_t none = static_cast<std::uint32_t>(Fault::none);
    // Relaxed: publishes nothing. An earlier fault is kept.
    static_cast<void>(
        fault_->compare_exchange_relaxed(none, static_cast<std::uint32_t>(Fault::sync_failed)));
  }
}

Fault Medium::fault() const {
  // Set by this thread or a signal handler in it.
  return fault_ == nullptr ? Fault::none : static_cast<Fault>(fault_->load_relaxed());
}

}  // namespace headrace::pmem
