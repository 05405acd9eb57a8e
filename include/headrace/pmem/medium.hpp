// SPDX-License-Identifier: Apache-2.0
// Medium: the stores, flushes and fences that make bytes durable, one call each. A persistent data
// structure accesses its memory through an object with this interface, so the same code runs on
// memory (Medium) and under the crash checker (Recorder, recorder.hpp). Mapping memory:
// mapping.hpp.
//
// When is a byte durable? On x86-64 the caches may write a line back at any time; stores to one
// line become durable in program order. So a stored byte *may* be durable at once. It *is* durable,
// by granularity (what the platform saves when power fails):
//   byte   eADR: the caches are saved too. Cached stores are durable once visible; non-temporal
//          ones after drain().
//   line   ADR: after clflush of its line; after clflushopt or clwb of its line and drain(). A
//          non-temporal store needs drain() only.
//   page   An ordinary file: after drain(), an msync of everything flushed or streamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/base/atomic.hpp"
#include "headrace/base/export.hpp"
#include "headrace/base/line.hpp"
#include "headrace/base/names.hpp"
#include "headrace/base/result.hpp"

namespace headrace::pmem {

using headrace::name;

/// The unit in which a persistent DIMM writes (its ECC block). A smaller write causes a read and
/// write of the whole block.
inline constexpr std::size_t kBlockBytes = 256;

enum class FlushInstruction : std::uint8_t { clflush, clflushopt, clwb };
/// The flush instructions of this processor, the best one last.
///
/// Threading: shared.
[[nodiscard]] HEADRACE_API std::span<const FlushInstruction> flush_instructions();

/// The unit in which stores become durable; see above.
enum class Granularity : std::uint8_t { byte, line, page };

/// How mapped memory failed.
enum class Fault : std::uint32_t {
  none,
  lost,  ///< Pages are gone: the file was truncated, or its disk is full. Stores are discarded.
  sync_failed,  ///< An msync failed: stores since the last drain() may not be durable.
};

/// Running 64-bit checksum of lines, of the words and their order. Detects torn records; not
/// cryptographic. The same on every processor.
///
/// Threading: confined.
struct Digest {
  /// For word w of a line in lane i: a[i] += low(w^k) * high(w^k), a[i^1] += w. The key k differs
  /// by lane and line.
  std::uint64_t lanes[8] = {};
  std::uint64_t line_count = 0;

  /// Mixes the lanes, the count and `seed`.
  [[nodiscard]] HEADRACE_API std::uint64_t value(std::uint64_t seed) const;
};

/// Adds whole lines to `digest`.
HEADRACE_API void digest_lines(std::span<const std::byte> lines, Digest& digest);

/// Threading: confined: one per storing thread.
class HEADRACE_API Medium {
 public:
  struct Options {
    Granularity granularity = Granularity::line;
    FlushInstruction instruction = FlushInstruction::clflush;
    /// Set when the memory is lost or cannot be written back. Null: not reported.
    Atomic<std::uint32_t>* fault = nullptr;
  };
  /// The instruction must be one that this processor has (checked).
  explicit Medium(const Options& options);

  /// Copies `source` to `target` with cached stores.
  void store(std::byte* target, std::span<const std::byte> source);
  /// Stores eight bytes atomically, with release order. A crash leaves the old word or the new one.
  void store_word(std::uint64_t& target, std::uint64_t value) {
    // edge: ring-words (release)
    store_release(target, value);
  }
  /// Copies whole lines to `target`, aligned to a line, with non-temporal stores; adds them to
  /// `digest` if it is not null. Not ordered with any other store until drain().
  void stream(std::byte* target, std::span<const std::byte> lines, Digest* digest = nullptr);
  /// Copies any range: whole lines with non-temporal stores; partial lines at its ends with cached
  /// stores, flushed. Durable after drain(). Ranges may not overlap.
  void copy(std::byte* target, std::span<const std::byte> source);
  /// Sets every byte of a range to `value`, with the same stores as copy(). Durable after drain().
  void fill(std::byte* target, std::byte value, std::size_t byte_count);
  /// Starts writing back every line that holds a byte of the range.
  void flush(const void* begin, std::size_t byte_count);
  /// As flush(), with `instruction` instead of the medium's.
  void flush_with(FlushInstruction instruction, const void* begin, std::size_t byte_count);
  /// Waits until everything flushed and streamed so far is durable.
  void drain();
  void persist(const void* begin, std::size_t byte_count) {
    flush(begin, byte_count);
    drain();
  }
  /// Labels the following stores in a recorder; no effect here.
  void label(const char* /*text*/) {}

  [[nodiscard]] Granularity granularity() const { return granularity_; }
  [[nodiscard]] FlushInstruction instruction() const { return instruction_; }
  [[nodiscard]] Fault fault() const;

 private:
  void note(const void* begin, std::size_t byte_count);

  Granularity granularity_;
  FlushInstruction instruction_;
  Atomic<std::uint32_t>* fault_;
  // Page granularity: range that drain() must write back; begin < end, or both zero.
  std::uintptr_t dirty_begin_ = 0;
  std::uintptr_t dirty_end_ = 0;
};

}  // namespace headrace::pmem
