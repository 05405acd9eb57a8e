// SPDX-License-Identifier: Apache-2.0
// The rings to compare the library's ring with (naive, clflushopt and clwb), for any memory with
// Medium's interface, behind a head that format_ring() wrote. The entry becomes durable, then the
// position after it; an entry exists if it lies before the position. It needs two flushes, two
// fences and two fetched lines where the library's ring needs one fence, and it cannot detect
// damaged entries.
//
//   kept <= read <= written; written - kept <= capacity_bytes; between them is a chain of entries
//   whose bytes are all durable.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <utility>

#include "chain.hpp"
#include "headrace/base/atomic.hpp"

namespace headrace::pmem::lab {

using namespace detail;  // NOLINT(google-build-using-namespace): it shares the library's layout.

/// The rules of the protocol. For each, lab/ring_check.cpp has a ring that breaks it, and the crash
/// check must find it.
struct PositionRules {
  bool flushes_the_entry = true;
  bool flushes_every_line = true;       ///< Else the first one.
  bool flushes_the_right_lines = true;  ///< Else the following ones.
  bool stores_before_it_flushes = true;
  bool drains_after_the_entry = true;
  bool stores_the_position_last = true;
  bool flushes_the_position = true;
  bool drains_after_the_position = true;
  bool flushes_the_read_position = true;
  bool waits_for_the_acknowledgement = true;
  bool flushes_what_it_sees = true;
};

struct EntryHeader {
  std::uint64_t byte_count = 0;  ///< kSkip: continue at the start of the data.
  std::uint64_t ordinal = 0;

  static constexpr std::uint64_t kSkip = UINT64_MAX;
};

[[nodiscard]] constexpr std::uint64_t entry_extent(std::uint64_t entry_bytes) {
  return rounded_up(sizeof(EntryHeader) + entry_bytes, kLineBytes);
}
/// The longest entry with this layout.
[[nodiscard]] constexpr std::uint64_t position_entry_bytes_max(std::uint64_t capacity_bytes) {
  return record_bytes_max(capacity_bytes) - sizeof(EntryHeader);
}

/// Walks the entries of a ring.
class EntryReader {
 public:
  explicit EntryReader(const RingMemory& ring) : ring_(ring) {}

  [[nodiscard]] EntryHeader header_at(std::uint64_t position) const {
    EntryHeader header;
    std::memcpy(&header, ring_.at(position), sizeof(header));
    return header;
  }
  /// nullopt if no entry with that header fits there.
  [[nodiscard]] std::optional<std::uint64_t> extent(const EntryHeader& header,
                                                    std::uint64_t position) const {
    if (header.byte_count == EntryHeader::kSkip) return ring_.before_end(position);
    if (header.byte_count > record_bytes_max(ring_.capacity_bytes)) return std::nullopt;
    const std::uint64_t byte_count = entry_extent(header.byte_count);
    if (byte_count > ring_.before_end(position)) return std::nullopt;
    return byte_count;
  }

  /// Fails: corrupt_data.
  [[nodiscard]] Result<Chain> recover(const std::string& tried) const {
    Chain chain;
    const std::uint64_t read =
        load_acquire(ring_.head->durable.read);  // edge: ring-words (acquire)
    // edge: ring-words (acquire)
    const std::uint64_t written = load_acquire(ring_.head->durable.written);
    chain.generation = ring_.head->durable.generation;
    chain.kept = position_of(read);
    if (chain.kept % kLineBytes != 0 || written % kLineBytes != 0 || written < chain.kept ||
        written - chain.kept > ring_.capacity_bytes) {
      return damaged(tried, fmt::format("read position {} and write position {} are inconsistent",
                                        read, written));
    }
    chain.first = {.position = chain.kept, .ordinal = 0, .generation = 0};
    Cursor at = chain.first;
    bool first = nothing_read(read);
    while (at.position < written) {
      const EntryHeader header = header_at(at.position);
      const std::optional<std::uint64_t> byte_count = extent(header, at.position);
      if (!byte_count.has_value() || at.position + *byte_count > written) {
        return damaged(tried, fmt::format("no entry can be at {}", at.position));
      }
      if (header.byte_count != EntryHeader::kSkip) {
        if (at.position == chain.kept && !nothing_read(read)) at.ordinal = header.ordinal;
        if (header.ordinal != at.ordinal) {
          return damaged(tried, fmt::format("entry {} is not where it has to be", at.ordinal));
        }
        ++at.ordinal;
      }
      at.position += *byte_count;
      if (!first) {
        chain.first = at;
        first = true;
      }
    }
    chain.end = at;
    if (!first) return damaged(tried, "the last acknowledged entry is missing");
    return chain;
  }

 private:
  RingMemory ring_;
};

/// Flushes and fences as the instruction requires.
template <typename Memory>
class LineFlusher {
 public:
  LineFlusher(Memory& memory, FlushInstruction instruction)
      : memory_(memory), instruction_(instruction) {}
  void flush(const void* begin, std::size_t byte_count) {
    memory_.flush_with(instruction_, begin, byte_count);
  }
  /// clflush needs no fence.
  void drain() {
    if (instruction_ != FlushInstruction::clflush || memory_.granularity() != Granularity::line) {
      memory_.drain();
    }
  }

 private:
  Memory& memory_;
  FlushInstruction instruction_;
};

/// The producer's side.
///
/// Threading: confined.
template <typename Memory, typename Rules = AllRules<PositionRules>>
class PositionProducer {
 public:
  PositionProducer(Memory& memory, const RingMemory& ring, FlushInstruction instruction,
                   const Rules& rules = {})
      : memory_(memory), flusher_(memory, instruction), ring_(ring), reader_(ring), rules_(rules) {}

  [[nodiscard]] Result<Chain> attach(const std::string& tried) {
    Result<Chain> found = reader_.recover(tried);
    if (!found.has_value()) return found;
    chain_ = *found;
    memory_.label("generation");
    ++chain_.generation;
    memory_.store_word(ring_.head->durable.generation, chain_.generation);
    // The positions read may not be durable yet.
    flusher_.flush(&ring_.head->durable.generation, sizeof(std::uint64_t));
    flusher_.flush(&ring_.head->durable.read, 2 * sizeof(std::uint64_t));
    flusher_.drain();
    return chain_;
  }

  [[nodiscard]] Enqueue enqueue_all(std::span<const std::span<const std::byte>> entries) {
    std::uint64_t end = chain_.end.position;
    for (const std::span<const std::byte> entry : entries) {
      if (entry.size() > entry_bytes_max()) return Enqueue::too_large;
      const std::uint64_t byte_count = entry_extent(entry.size());
      if (byte_count > ring_.before_end(end)) end += ring_.before_end(end);
      end += byte_count;
    }
    if (end - chain_.end.position > ring_.capacity_bytes / 4) return Enqueue::too_large;
    // edge: ring-words (acquire)
    chain_.kept = position_of(load_acquire(ring_.head->durable.read));
    // The producer builds on the positions it read: they must be durable.
    memory_.label("positions");
    if (rules_.value.flushes_what_it_sees) {
      flusher_.flush(&ring_.head->durable.read, 2 * sizeof(std::uint64_t));
      flusher_.drain();
    }
    if (end - chain_.kept > ring_.capacity_bytes) return Enqueue::full;
    if (!rules_.value.stores_the_position_last) publish(end);
    for (const std::span<const std::byte> entry : entries) append(entry);
    if (rules_.value.drains_after_the_entry) flusher_.drain();
    // Publish a position only if everything before it is durable.
    if (memory_.fault() != Fault::none) return Enqueue::lost;
    if (rules_.value.stores_the_position_last) publish(end);
    return memory_.fault() == Fault::none ? Enqueue::done : Enqueue::lost;
  }

  [[nodiscard]] std::uint64_t next_ordinal() const { return chain_.end.ordinal; }
  void flush() {}
  [[nodiscard]] std::size_t entry_bytes_max() const {
    return static_cast<std::size_t>(position_entry_bytes_max(ring_.capacity_bytes));
  }

 private:
  void append(std::span<const std::byte> entry) {
    const std::uint64_t byte_count = entry_extent(entry.size());
    if (byte_count > ring_.before_end(chain_.end.position)) {
      write({}, {.byte_count = EntryHeader::kSkip, .ordinal = chain_.end.ordinal});
      chain_.end.position += ring_.before_end(chain_.end.position);
    }
    write(entry, {.byte_count = entry.size(), .ordinal = chain_.end.ordinal});
    chain_.end.position += byte_count;
    ++chain_.end.ordinal;
  }

  void write(std::span<const std::byte> entry, const EntryHeader& header) {
    std::byte* const place = ring_.at(chain_.end.position);
    if (!rules_.value.stores_before_it_flushes) flush_entry(place, entry.size());
    memory_.label("entry header");
    memory_.store(place, std::as_bytes(std::span(&header, 1)));
    memory_.label("entry");
    memory_.store(place + sizeof(header), entry);
    if (rules_.value.stores_before_it_flushes) flush_entry(place, entry.size());
  }

  void flush_entry(std::byte* place, std::size_t entry_bytes) {
    if (!rules_.value.flushes_the_entry) return;
    memory_.label("entry");
    const std::size_t byte_count = sizeof(EntryHeader) + entry_bytes;
    const std::size_t shift = rules_.value.flushes_the_right_lines ? 0 : kLineBytes;
    flusher_.flush(place + shift, rules_.value.flushes_every_line ? byte_count : 1);
  }

  void publish(std::uint64_t end) {
    memory_.label("write position");
    memory_.store_word(ring_.head->durable.written, end);
    if (rules_.value.flushes_the_position) {
      flusher_.flush(&ring_.head->durable.written, sizeof(std::uint64_t));
    }
    if (rules_.value.drains_after_the_position) flusher_.drain();
  }

  Memory& memory_;
  LineFlusher<Memory> flusher_;
  RingMemory ring_;
  EntryReader reader_;
  [[no_unique_address]] Rules rules_;
  Chain chain_;
};

/// The consumer's side.
///
/// Threading: confined.
template <typename Memory, typename Rules = AllRules<PositionRules>>
class PositionConsumer {
 public:
  PositionConsumer(Memory& memory, const RingMemory& ring, FlushInstruction instruction,
                   const Rules& rules = {})
      : memory_(memory), flusher_(memory, instruction), ring_(ring), reader_(ring), rules_(rules) {}

  [[nodiscard]] Result<Chain> attach(const std::string& tried, bool /*at_rest*/) {
    Result<Chain> found = reader_.recover(tried);
    if (!found.has_value()) return found;
    chain_ = *found;
    return chain_;
  }

  [[nodiscard]] Next next(Entry& entry) {
    for (;;) {
      // edge: ring-words (acquire)
      const std::uint64_t written = load_acquire(ring_.head->durable.written);
      memory_.label("positions");
      // Lend no entry that a crash could still undo.
      if (rules_.value.flushes_what_it_sees) {
        flusher_.flush(&ring_.head->durable.read, 2 * sizeof(std::uint64_t));
        flusher_.drain();
      }
      if (memory_.fault() != Fault::none) return Next::lost;
      if (chain_.first.position == written) return Next::empty;
      const std::uint64_t position = chain_.first.position;
      const EntryHeader header = reader_.header_at(position);
      const std::optional<std::uint64_t> byte_count = reader_.extent(header, position);
      // Keep the position at the damage: the next call reports it again.
      if (!byte_count.has_value() || *byte_count > written - position) return Next::damaged;
      const bool skip = header.byte_count == EntryHeader::kSkip;
      if (!skip && header.ordinal != chain_.first.ordinal) return Next::damaged;
      chain_.first.position += *byte_count;
      if (skip) continue;
      ++chain_.first.ordinal;
      entry.bytes = {ring_.at(position) + sizeof(header),
                     static_cast<std::size_t>(header.byte_count)};
      entry.ordinal = header.ordinal;
      lent_ = position;
      if (!rules_.value.waits_for_the_acknowledgement) acknowledge();
      return Next::entry;
    }
  }

  void acknowledge() {
    if (!lent_.has_value()) return;
    memory_.label("read position");
    memory_.store_word(ring_.head->durable.read, *std::exchange(lent_, std::nullopt));
    if (rules_.value.flushes_the_read_position) {
      flusher_.flush(&ring_.head->durable.read, sizeof(std::uint64_t));
      flusher_.drain();
    }
  }
  void flush() {}

 private:
  Memory& memory_;
  LineFlusher<Memory> flusher_;
  RingMemory ring_;
  EntryReader reader_;
  [[no_unique_address]] Rules rules_;
  Chain chain_;
  std::optional<std::uint64_t> lent_;
};

}  // namespace headrace::pmem::lab
