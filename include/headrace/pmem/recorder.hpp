// SPDX-License-Identifier: Apache-2.0
// Recorder: memory that records every store, flush and fence. explore() runs your recovery on the
// states that persistent memory could hold if power failed at any moment of the recording. It finds
// missing flushes, which go unnoticed on a machine until its power fails. For code that takes its
// memory as a template parameter with Medium's interface.
//
// The model is that of x86-64:
//   - A crash cannot split eight aligned bytes.
//   - A line may be written back at any time. Its durable part is a prefix of the stores to it in
//     program order; lines are independent of each other. The words of one store() count as stored
//     in any order, because memcpy may copy them in any order.
//   - clflush makes the stores to its line durable at once; clflushopt and clwb by the next
//     drain().
//   - Non-temporal stores are unordered, even within a line, until drain() makes them durable.
//   - With eADR (Granularity::byte) cached stores are durable at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/export.hpp"
#include "headrace/pmem/medium.hpp"

namespace headrace::pmem {

/// A recorded operation.
struct Event {
  enum class Kind : std::uint8_t { store, word, stream, flush, drain, mark };
  Kind kind = Kind::store;
  FlushInstruction instruction = FlushInstruction::clwb;  ///< Flush only.
  std::uint64_t offset = 0;                               ///< From the start of the memory.
  std::uint64_t byte_count = 0;
  std::size_t data = 0;     ///< Store only: index of its bytes in Recorder::data().
  std::uint32_t label = 0;  ///< Index into Recorder::labels().
  std::uint64_t mark = 0;
};

/// Threading: confined.
class HEADRACE_API Recorder {
 public:
  /// Memory initialised with `initial`, all of it durable.
  explicit Recorder(std::span<const std::byte> initial, Granularity granularity = Granularity::line,
                    FlushInstruction instruction = FlushInstruction::clwb);

  /// The memory as the processor sees it. Aligned to a page.
  [[nodiscard]] std::span<std::byte> memory() { return memory_; }

  // Medium's interface. Stores must lie in the memory (checked).
  void store(std::byte* target, std::span<const std::byte> source);
  void store_word(std::uint64_t& target, std::uint64_t value);
  void stream(std::byte* target, std::span<const std::byte> lines, Digest* digest = nullptr);
  void copy(std::byte* target, std::span<const std::byte> source);
  void fill(std::byte* target, std::byte value, std::size_t byte_count);
  void flush(const void* begin, std::size_t byte_count) {
    flush_with(instruction_, begin, byte_count);
  }
  void flush_with(FlushInstruction instruction, const void* begin, std::size_t byte_count);
  void drain();
  void persist(const void* begin, std::size_t byte_count) {
    flush(begin, byte_count);
    drain();
  }
  void label(const char* text);
  [[nodiscard]] Granularity granularity() const { return granularity_; }
  [[nodiscard]] Fault fault() const { return Fault::none; }

  /// Names the program's phase; reports prefix it to the labels.
  void phase(std::string text);
  /// From here on, recovery is verified against `mark`: what the program has promised so far.
  void mark(std::uint64_t mark);
  /// Calls `other` after each event with its index, to simulate another thread that uses the same
  /// recorder at that moment. Not called for the events that `other` records.
  void interleave(std::function<void(std::size_t)> other) { other_ = std::move(other); }

  [[nodiscard]] std::span<const std::byte> initial() const { return initial_; }
  [[nodiscard]] const std::vector<Event>& events() const { return events_; }
  [[nodiscard]] const std::vector<std::byte>& data() const { return data_; }
  [[nodiscard]] const std::vector<std::string>& labels() const { return labels_; }

 private:
  void add(Event event, std::span<const std::byte> bytes);
  [[nodiscard]] std::uint64_t offset_of(const void* begin, std::size_t byte_count) const;

  std::vector<std::byte> initial_;
  std::vector<std::byte> storage_;
  std::span<std::byte> memory_;
  Granularity granularity_;
  FlushInstruction instruction_;
  std::vector<Event> events_;
  std::vector<std::byte> data_;
  std::vector<std::string> labels_;
  std::string phase_;
  std::string label_;
  std::uint32_t label_index_ = 0;
  bool label_known_ = false;
  std::function<void(std::size_t)> other_;
  bool in_other_ = false;
};

struct ExploreOptions {
  /// If a moment has at most this many possible states, all are tried. If it has more: every line
  /// alone against all others, every combination of a few lines, then random states, until this
  /// many were tried.
  std::uint64_t states_per_moment_max = 4096;
  std::uint64_t seed = 1;
  /// Stop at the first bad state.
  bool stop_at_first = true;
};

/// A store that was kept or lost.
struct StoreFate {
  std::string label;
  std::uint64_t offset = 0;
  std::uint64_t byte_count = 0;
  std::size_t event_index = 0;
};

/// A state from which recovery breaks a promise.
struct BadState {
  std::size_t event_index = 0;  ///< Power failed before this event.
  std::string moment;           ///< Its label.
  std::uint64_t mark = 0;
  std::string verdict;  ///< From Verify.
  /// Executed stores that were lost, reduced to those needed for the failure.
  std::vector<StoreFate> lost;
  /// Of the other stores not certainly durable, those that reached the memory.
  std::vector<StoreFate> kept;

  /// Multi-line text for a person.
  [[nodiscard]] HEADRACE_API std::string report() const;
};

struct Exploration {
  std::uint64_t states_tried = 0;  ///< Distinct within each moment.
  std::uint64_t states_bad = 0;
  std::uint64_t moments = 0;
  std::uint64_t moments_exhaustive = 0;
  std::optional<BadState> first_bad;
};

/// Runs recovery on `memory`. Returns an empty string if the promise of `mark` holds, else what is
/// wrong. May write to the memory, which is a copy.
using Verify = std::function<std::string(std::span<std::byte> memory, std::uint64_t mark)>;

/// Tries the states that memory could be in at each moment of the recording. Possible states only
/// accumulate until a fence or clflush removes some, so it suffices to test the moments just before
/// those, before each mark and at the end.
HEADRACE_API Exploration explore(const Recorder& recorder, const Verify& verify,
                                 const ExploreOptions& options = {});

/// Flushes and fences without effect, and partially written blocks.
struct Waste {
  std::uint64_t clean_flushes = 0;    ///< Lines flushed without a store since their last flush.
  std::uint64_t needless_drains = 0;  ///< With no preceding flush or stream.
  std::uint64_t partial_blocks = 0;   ///< Blocks of which a fence makes only some lines durable.
  std::uint64_t blocks = 0;           ///< Blocks written.
  /// One line per kind and label, with a count.
  std::vector<std::string> details;
};
[[nodiscard]] HEADRACE_API Waste find_waste(const Recorder& recorder);

}  // namespace headrace::pmem
