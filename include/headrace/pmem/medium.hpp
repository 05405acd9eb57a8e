// SPDX-License-Identifier: Apache-2.0
// Medium: the stores, flushes and fences by which bytes become durable, one call each. What a
// persistent data structure does to its memory goes through an object of this shape, so that the
// same code runs on memory (Medium) and under the crash checker (Recorder, recorder.hpp).
// Not for finding or mapping memory: mapping.hpp does.
//
// When is a byte durable? On x86-64 the caches lie between a store and the memory, and write lines
// back when they like, the stores to one line in program order. So a stored byte *may* be durable
// at once, and *is* durable, by granularity (what the platform saves when power fails):
//   byte   eADR: the caches are saved too. Stores through them are durable when they are visible;
//          non-temporal ones after drain().
//   line   ADR: after the flush of its line; by clflush at once, by clflushopt and clwb, and of a
//          non-temporal store without a flush, after drain().
//   page   An ordinary file: after drain(), which is an msync of what was flushed or streamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "headrace/base/atomic.hpp"
#include "headrace/base/export.hpp"
#include "headrace/base/line.hpp"
#include "headrace/base/result.hpp"

namespace headrace::pmem {

/// The unit in which a persistent DIMM writes (its ECC block). A smaller write makes it read and
/// write the whole block.
inline constexpr std::size_t kBlockBytes = 256;

enum class FlushInstruction : std::uint8_t { clflush, clflushopt, clwb };
[[nodiscard]] HEADRACE_API std::string_view name(FlushInstruction instruction);
/// Fails: invalid_argument, naming the instructions there are.
[[nodiscard]] HEADRACE_API Result<FlushInstruction> parse_flush_instruction(std::string_view text);
/// What this processor has, the best one last; empty where there is none (not x86-64).
///
/// Threading: shared.
[[nodiscard]] HEADRACE_API std::span<const FlushInstruction> flush_instructions();

/// The unit in which stores become durable; see above.
enum class Granularity : std::uint8_t { byte, line, page };
[[nodiscard]] HEADRACE_API std::string_view name(Granularity granularity);
/// Fails: invalid_argument, naming the granularities there are.
[[nodiscard]] HEADRACE_API Result<Granularity> parse_granularity(std::string_view text);

/// What can happen to mapped memory behind the back of who uses it.
enum class Fault : std::uint32_t {
  none,
  lost,         ///< Pages are gone: the file was truncated, or its disk is full. Stores go nowhere.
  sync_failed,  ///< An msync failed: what was stored since the last drain() may not be durable.
};
[[nodiscard]] HEADRACE_API std::string_view name(Fault fault);

/// Running checksum of lines: 64 bits in which every word and its place count. For telling a whole
/// record from a torn one, not for secrets. The same on every processor.
///
/// Threading: confined.
struct Digest {
  /// Of the words w of a line, each in its lane: a[i] += low(w^k) * high(w^k), a[i^1] += w, with
  /// keys k that differ by lane and line.
  std::uint64_t lanes[8] = {};
  std::uint64_t line_count = 0;

  /// Mixes the lanes, the count and `seed`.
  [[nodiscard]] HEADRACE_API std::uint64_t value(std::uint64_t seed) const;
};

/// Takes whole lines into `digest`.
HEADRACE_API void digest_lines(std::span<const std::byte> lines, Digest& digest);

/// Threading: confined: each thread that stores has its own.
class HEADRACE_API Medium {
 public:
  struct Options {
    Granularity granularity = Granularity::line;
    FlushInstruction instruction = FlushInstruction::clflush;
    /// Set when the memory under the medium is lost or cannot be written back; may be
    /// null: the loss is not reported.
    Atomic<std::uint32_t>* fault = nullptr;
  };
  /// The instruction must be one that this processor has (checked).
  explicit Medium(const Options& options);

  /// Copies `source` to `target` through the caches.
  void store(std::byte* target, std::span<const std::byte> source);
  /// Stores eight bytes at once, after all that came before for other threads: a crash leaves the
  /// old word or the new one.
  void store_word(std::uint64_t& target, std::uint64_t value) {
    // edge: ring-words (release)
    store_release(target, value);
  }
  /// Copies whole lines to `target`, which begins at one, past the caches (non-temporal), and takes
  /// them into `digest` on the way if there is one. Not ordered with any other store until drain().
  void stream(std::byte* target, std::span<const std::byte> lines, Digest* digest = nullptr);
  /// Copies any range: whole lines past the caches, the partial ones at its ends through them,
  /// flushed. Durable after drain(). Ranges may not overlap.
  void copy(std::byte* target, std::span<const std::byte> source);
  /// Sets every byte of a range to `value`, by the same stores as copy(). Durable after drain().
  void fill(std::byte* target, std::byte value, std::size_t byte_count);
  /// Starts writing back every line that holds a byte of the range.
  void flush(const void* begin, std::size_t byte_count);
  /// The same with clflush, whatever the medium's own instruction is.
  void flush_with(FlushInstruction instruction, const void* begin, std::size_t byte_count);
  /// Waits until what was flushed and streamed before is durable.
  void drain();
  void persist(const void* begin, std::size_t byte_count) {
    flush(begin, byte_count);
    drain();
  }
  /// Names what follows, for a recorder; here nothing.
  void label(const char* /*text*/) {}

  [[nodiscard]] Granularity granularity() const { return granularity_; }
  [[nodiscard]] FlushInstruction instruction() const { return instruction_; }
  [[nodiscard]] Fault fault() const;

 private:
  void note(const void* begin, std::size_t byte_count);

  Granularity granularity_;
  FlushInstruction instruction_;
  Atomic<std::uint32_t>* fault_;
  // Page granularity: what drain() has to write back; begin < end, or both zero.
  std::uintptr_t dirty_begin_ = 0;
  std::uintptr_t dirty_end_ = 0;
};

}  // namespace headrace::pmem
