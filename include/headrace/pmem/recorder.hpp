// SPDX-License-Identifier: Apache-2.0
// Recorder: memory that remembers every store, flush and fence, and explore(): what persistent
// memory could hold if power failed at any moment of the recording, with your recovery run on each.
// Missing flushes show on no machine whose power stays on; here they do.
// Not for programs: for code that takes its memory as a template parameter of Medium's shape.
//
// The model is that of x86-64:
//   - A crash cannot split eight aligned bytes.
//   - A line may be written back at any time. What of it is durable is a beginning of the stores to
//     it in program order; lines know nothing of each other. One store() of several words counts as
//     stores in any order, because what copies bytes may do it in any order.
//   - clflush makes the stores to its line durable at once; clflushopt and clwb by the next
//   drain().
//   - Non-temporal stores have no order, not even within a line, until drain(), which makes them
//     durable.
//   - With eADR (Granularity::byte) stores through the caches are durable at once.
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

/// What a recorder remembers.
struct Event {
  enum class Kind : std::uint8_t { store, word, stream, flush, drain, mark };
  Kind kind = Kind::store;
  FlushInstruction instruction = FlushInstruction::clwb;  ///< Of a flush.
  std::uint64_t offset = 0;                               ///< From the beginning of the memory.
  std::uint64_t byte_count = 0;
  std::size_t data = 0;     ///< Of a store: where its bytes are in Recorder::data().
  std::uint32_t label = 0;  ///< Index into Recorder::labels().
  std::uint64_t mark = 0;
};

/// Threading: confined.
class HEADRACE_API Recorder {
 public:
  /// Memory that begins as `initial`, all of it durable.
  explicit Recorder(std::span<const std::byte> initial, Granularity granularity = Granularity::line,
                    FlushInstruction instruction = FlushInstruction::clwb);

  /// What the processor sees. Aligned to a page.
  [[nodiscard]] std::span<std::byte> memory() { return memory_; }

  // The shape of Medium. Stores outside the memory are a broken contract (checked).
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

  /// Names what the program does, for reports: goes before the labels.
  void phase(std::string text);
  /// From here on, recovery is asked with `mark`: what the program has promised by now.
  void mark(std::uint64_t mark);
  /// Called after each event with its index, for what another thread might do at that moment
  /// through the same recorder; not called for the events of that.
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
  /// A moment with at most so many possible states has all of them tried.
  std::uint64_t exhaustive_max = 4096;
  /// Where there are more: every line alone against all others, every choice among a few lines, and
  /// then drawn ones, until so many were tried.
  std::uint64_t states_per_moment_max = 4096;
  std::uint64_t seed = 1;
  /// Stop at the first bad state.
  bool stop_at_first = true;
};

/// A store and what became of it.
struct StoreFate {
  std::string label;
  std::uint64_t offset = 0;
  std::uint64_t byte_count = 0;
  std::size_t event_index = 0;
};

/// A state from which recovery does not live up to what was promised.
struct BadState {
  std::size_t event_index = 0;  ///< Power failed before this event.
  std::string moment;           ///< Its label.
  std::uint64_t mark = 0;
  std::string verdict;  ///< As recovery gave it.
  /// Stores that had been executed and were lost, as few of them as are needed to go wrong.
  std::vector<StoreFate> lost;
  /// Of the others that were not yet durable for certain, those that had reached the memory.
  std::vector<StoreFate> kept;

  /// Some lines of text.
  [[nodiscard]] HEADRACE_API std::string report() const;
};

struct Exploration {
  std::uint64_t states_tried = 0;  ///< Different ones, within a moment.
  std::uint64_t states_bad = 0;
  std::uint64_t moments = 0;
  std::uint64_t moments_exhaustive = 0;
  std::optional<BadState> first_bad;
};

/// What recovery says of a memory: an empty text if it lives up to `mark`, else what is wrong. May
/// write to the memory, which is a copy.
using Verify = std::function<std::string(std::span<std::byte> memory, std::uint64_t mark)>;

/// Tries the states that memory could be in at each moment of the recording. States only become
/// more until a fence or clflush takes some away, so the moments just before those, before each
/// mark and at the end have all of them.
HEADRACE_API Exploration explore(const Recorder& recorder, const Verify& verify,
                                 const ExploreOptions& options = {});

/// Work that made nothing durable, or more than was needed.
struct Waste {
  std::uint64_t clean_flushes = 0;    ///< Lines flushed without a store since their last flush.
  std::uint64_t needless_drains = 0;  ///< With nothing flushed or streamed to wait for.
  std::uint64_t partial_blocks = 0;   ///< Blocks of which a fence makes some lines durable only.
  std::uint64_t blocks = 0;           ///< Blocks that were written at all.
  /// One line for each kind and label, with a count.
  std::vector<std::string> details;
};
[[nodiscard]] HEADRACE_API Waste find_waste(const Recorder& recorder);

}  // namespace headrace::pmem
