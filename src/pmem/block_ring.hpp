// SPDX-License-Identifier: Apache-2.0
// The protocol of the ring, for any memory with Medium's interface.
//
// An entry is a record of whole blocks, written with non-temporal stores and validated by a
// checksum. So one fence makes it durable, no line is fetched to be written, and no position must
// be made durable. Recovery walks from the read position while each record is a valid next one.
//
// A record is a valid next one by its checksum (whole, of this ring), its position (of this lap),
// its ordinal (consecutive), and its generation, which never decreases along the chain and is at
// most that of the ring. The generation guards against records that a crash leaves after the end:
// of three records in one batch the third may be whole and the second torn. When the next producer
// fills the gap, the third must not become valid: its generation is older than that of the gap. The
// checksum of the torn record is erased before the gap is filled, since a second crash may leave
// words of both.
//
// A damaged record is distinguished from the torn record of an incomplete enqueue by either of two
// facts: a whole record of a later batch follows it, or the producer had published a position after
// it (ProducerWords::written, stored only after the entries before it are durable). After a power
// failure that word may be older than the last enqueue; only then is damage to the newest entries
// treated as a torn enqueue.
//
//   kept <= read <= written; written - kept <= capacity_bytes
//   the producer's `kept` is a durable value of `read`: an entry at which recovery may start is
//   never overwritten.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "chain.hpp"
#include "headrace/base/atomic.hpp"

namespace headrace::pmem::detail {

/// The rules of the protocol. For each, lab/ring_check.cpp has a ring that breaks it, and the crash
/// check must find it.
struct BlockRules {
  bool drains_before_it_returns = true;
  bool streams = true;  ///< Else cached stores, without a flush.
  bool streams_the_last_line = true;
  bool proves_the_whole_record = true;  ///< Else its first line only.
  bool checks_the_checksum = true;
  bool checks_the_position = true;
  bool checks_the_generation = true;
  bool keeps_what_may_be_read_again = true;  ///< Else only from `read` on.
  bool flushes_the_read_position = true;
  bool drains_the_read_position = true;
  bool waits_for_the_acknowledgement = true;
  bool finds_the_end = true;  ///< Else trusts the producer's word.
  bool flushes_what_it_sees = true;
  bool erases_what_was_torn = true;
};

struct RecordHeader {
  std::uint64_t checksum = 0;
  std::uint64_t position = 0;
  std::uint64_t ordinal = 0;
  std::uint64_t batch_position = 0;  ///< Start of the record's batch.
  std::uint32_t byte_count = 0;      ///< Of the entry; kSkip in a record that fills the end.
  std::uint32_t generation = 0;

  static constexpr std::uint32_t kSkip = 0xffffffffU;
};
static_assert(sizeof(RecordHeader) == 40 && offsetof(RecordHeader, checksum) == 0);
/// Bytes of the entry in the line of the header.
inline constexpr std::size_t kFirstLineRoom = kLineBytes - sizeof(RecordHeader);

[[nodiscard]] constexpr std::uint64_t record_bytes(std::uint64_t entry_bytes) {
  return rounded_up(sizeof(RecordHeader) + entry_bytes, kBlockBytes);
}
/// The longest record: whole blocks, with an entry length that fits RecordHeader::byte_count.
[[nodiscard]] constexpr std::uint64_t block_record_bytes_max(std::uint64_t capacity_bytes) {
  constexpr std::uint64_t kMax = std::uint64_t{RecordHeader::kSkip} / kBlockBytes * kBlockBytes;
  return std::min(record_bytes_max(capacity_bytes) / kBlockBytes * kBlockBytes, kMax);
}
/// The longest entry with this layout.
[[nodiscard]] constexpr std::uint64_t block_entry_bytes_max(std::uint64_t capacity_bytes) {
  return block_record_bytes_max(capacity_bytes) - sizeof(RecordHeader);
}

/// Reads and validates records, as described above.
template <typename Rules = AllRules<BlockRules>>
class RecordReader {
 public:
  explicit RecordReader(const RingMemory& ring, const Rules& rules = {})
      : ring_(ring), rules_(rules) {}

  [[nodiscard]] RecordHeader header_at(std::uint64_t position) const {
    RecordHeader header;
    std::memcpy(&header, ring_.at(position), sizeof(header));
    return header;
  }
  [[nodiscard]] std::uint64_t extent(const RecordHeader& header, std::uint64_t position) const {
    return header.byte_count == RecordHeader::kSkip ? ring_.before_end(position)
                                                    : record_bytes(header.byte_count);
  }
  /// True if the record belongs at `position` and its checksum matches. A skip has one block,
  /// however much it skips.
  [[nodiscard]] bool is_whole(const RecordHeader& header, std::uint64_t position) const {
    const bool skip = header.byte_count == RecordHeader::kSkip;
    if (rules_.value.checks_the_position && header.position != position) return false;
    if (!skip && (record_bytes(header.byte_count) > block_record_bytes_max(ring_.capacity_bytes) ||
                  record_bytes(header.byte_count) > ring_.before_end(position))) {
      return false;
    }
    if (!rules_.value.checks_the_checksum) return true;
    const std::uint64_t byte_count = skip ? kBlockBytes : record_bytes(header.byte_count);
    return checksum(header, ring_.at(position), byte_count) == header.checksum;
  }
  [[nodiscard]] bool follows(const RecordHeader& header, const Cursor& cursor,
                             std::uint64_t generation) const {
    if (rules_.value.checks_the_position &&
        (header.position != cursor.position || header.ordinal != cursor.ordinal)) {
      return false;
    }
    if (rules_.value.checks_the_generation &&
        (header.generation < cursor.generation || header.generation > generation)) {
      return false;
    }
    return is_whole(header, cursor.position);
  }
  [[nodiscard]] Cursor next_cursor(const RecordHeader& header, const Cursor& cursor) const {
    return {.position = cursor.position + extent(header, cursor.position),
            .ordinal = cursor.ordinal + (header.byte_count == RecordHeader::kSkip ? 0U : 1U),
            .generation = header.generation};
  }

  /// While a producer is attached (`at_rest` false) the end moves, so records after it prove no
  /// damage.
  ///
  /// Fails: corrupt_data.
  [[nodiscard]] Result<Chain> recover(const std::string& tried, bool at_rest) const;

  [[nodiscard]] std::uint64_t checksum(RecordHeader header, const std::byte* record,
                                       std::uint64_t byte_count) const {
    alignas(kLineBytes) std::array<std::byte, kLineBytes> first;
    std::memcpy(first.data(), record, kLineBytes);
    header.checksum = 0;
    std::memcpy(first.data(), &header, sizeof(header));
    Digest digest;
    digest_lines(first, digest);
    if (rules_.value.proves_the_whole_record) {
      digest_lines({record + kLineBytes, byte_count - kLineBytes}, digest);
    }
    return digest.value(ring_.ring_id);
  }

 private:
  /// Position of a whole record whose batch starts after the end, if there is one.
  [[nodiscard]] std::optional<std::uint64_t> durable_after(const Chain& chain) const {
    for (std::uint64_t at = chain.end.position + kBlockBytes;
         at < chain.kept + ring_.capacity_bytes; at += kBlockBytes) {
      const RecordHeader header = header_at(at);
      if (header.position == at && header.batch_position > chain.end.position &&
          header.batch_position <= at && is_whole(header, at)) {
        return at;
      }
    }
    return std::nullopt;
  }

  RingMemory ring_;
  [[no_unique_address]] Rules rules_;
};

template <typename Rules>
Result<Chain> RecordReader<Rules>::recover(const std::string& tried, bool at_rest) const {
  Chain chain;
  // Eight-byte words are never torn. The other end writes only its own words, and only a producer
  // may overwrite the acknowledged entry: this thread, or none.
  const std::uint64_t read = load_acquire(ring_.head->durable.read);  // edge: ring-words (acquire)
  chain.generation = load_acquire(ring_.head->durable.generation);    // edge: ring-words (acquire)
  // Stored only after the entries before it are durable. After a crash it may be older than the
  // end, never newer.
  // edge: ring-words (acquire)
  const std::uint64_t published = load_acquire(ring_.head->producer.written);
  chain.kept = position_of(read);
  if (chain.kept % kBlockBytes != 0) {
    return damaged(tried, fmt::format("the read position {} is invalid", read));
  }
  chain.first = {.position = chain.kept, .ordinal = 0, .generation = 0};
  if (!nothing_read(read)) {
    const RecordHeader last = header_at(chain.kept);
    if (!is_whole(last, chain.kept) || last.byte_count == RecordHeader::kSkip) {
      return damaged(tried,
                     fmt::format("the last acknowledged entry, at {}, is damaged", chain.kept));
    }
    chain.first.ordinal = last.ordinal;
    chain.first = next_cursor(last, chain.first);
  }
  chain.end = chain.first;
  if (!rules_.value.finds_the_end) {
    const std::uint64_t believed = ring_.head->producer.written;
    while (chain.end.position < believed) {
      const RecordHeader header = header_at(chain.end.position);
      if (extent(header, chain.end.position) > ring_.before_end(chain.end.position)) break;
      chain.end = next_cursor(header, chain.end);
    }
    return chain;
  }
  while (chain.end.position < chain.kept + ring_.capacity_bytes) {
    const RecordHeader header = header_at(chain.end.position);
    if (!follows(header, chain.end, chain.generation)) break;
    chain.end = next_cursor(header, chain.end);
  }
  if (chain.end.position > chain.kept + ring_.capacity_bytes) {
    return damaged(tried, "the entries are longer than the ring");
  }
  const std::optional<std::uint64_t> later = at_rest ? durable_after(chain) : std::nullopt;
  if (later.has_value()) {
    return damaged(tried, fmt::format("entry {} at {} is damaged: a later one, at {}, is whole",
                                      chain.end.ordinal, chain.end.position, *later));
  }
  if (chain.end.position < published) {
    return damaged(tried, fmt::format("entry {} at {} is damaged: entries up to {} were enqueued",
                                      chain.end.ordinal, chain.end.position, published));
  }
  return chain;
}

/// Flushes the recovered entries. A killed process may have stored them without draining: they must
/// be durable before a position after them is published.
template <typename Memory>
void flush_recovered(Memory& memory, const RingMemory& ring, const Chain& chain) {
  memory.label("recovered entries");
  for (std::uint64_t at = chain.first.position; at < chain.end.position;) {
    const std::uint64_t piece = std::min(chain.end.position - at, ring.before_end(at));
    memory.flush(ring.at(at), static_cast<std::size_t>(piece));
    at += piece;
  }
}

/// The producer's side.
///
/// Threading: confined.
template <typename Memory, typename Rules = AllRules<BlockRules>>
class BlockProducer {
 public:
  BlockProducer(Memory& memory, const RingMemory& ring, const Rules& rules = {})
      : memory_(memory), ring_(ring), reader_(ring, rules), rules_(rules) {}

  /// Recovers, and starts a new generation at the end.
  [[nodiscard]] Result<Chain> attach(const std::string& tried) {
    Result<Chain> found = reader_.recover(tried, true);
    if (!found.has_value()) return found;
    chain_ = *found;
    flush_recovered(memory_, ring_, chain_);
    // The room before the read position will be overwritten: the position must be durable.
    memory_.label("read");
    if (rules_.value.flushes_what_it_sees) {
      memory_.persist(&ring_.head->durable.read, sizeof(std::uint64_t));
    }
    if (rules_.value.erases_what_was_torn) erase_torn();
    memory_.label("generation");
    ++chain_.generation;
    memory_.store_word(ring_.head->durable.generation, chain_.generation);
    memory_.persist(&ring_.head->durable.generation, sizeof(std::uint64_t));
    publish();
    return chain_;
  }

  [[nodiscard]] Enqueue enqueue_all(std::span<const std::span<const std::byte>> entries) {
    std::uint64_t end = chain_.end.position;
    for (const std::span<const std::byte> entry : entries) {
      if (entry.size() > entry_bytes_max()) return Enqueue::too_large;
      const std::uint64_t byte_count = record_bytes(entry.size());
      if (byte_count > ring_.before_end(end)) end += ring_.before_end(end);
      end += byte_count;
    }
    if (end - chain_.end.position > ring_.capacity_bytes / 4) return Enqueue::too_large;
    if (!has_room_until(end)) return Enqueue::full;
    const std::uint64_t batch_position = chain_.end.position;
    for (const std::span<const std::byte> entry : entries) append(entry, batch_position);
    if (rules_.value.drains_before_it_returns) memory_.drain();
    if (memory_.fault() != Fault::none) return Enqueue::lost;
    publish();
    return Enqueue::done;
  }

  /// Makes the end durable, so that the next recovery does not treat damage to the newest entry as
  /// a torn enqueue.
  void flush() {
    memory_.label("written");
    memory_.persist(&ring_.head->producer.written, sizeof(std::uint64_t));
  }

  [[nodiscard]] std::uint64_t next_ordinal() const { return chain_.end.ordinal; }
  [[nodiscard]] std::size_t entry_bytes_max() const {
    return static_cast<std::size_t>(block_entry_bytes_max(ring_.capacity_bytes));
  }

 private:
  [[nodiscard]] bool has_room_until(std::uint64_t end) {
    if (end - chain_.kept <= ring_.capacity_bytes) return true;
    const std::uint64_t& word = rules_.value.keeps_what_may_be_read_again
                                    ? ring_.head->consumer.read_durable
                                    : ring_.head->durable.read;
    // After a crash the word may be older than the recovered one, never newer.
    // edge: ring-words (acquire)
    chain_.kept = std::max(chain_.kept, position_of(load_acquire(word)));
    return end - chain_.kept <= ring_.capacity_bytes;
  }

  /// The end may hold a torn record. If the next record, at the same place, is torn too, its words
  /// may be those that the first one lacked: that would be whole then, with a valid generation.
  /// Without its checksum it stays invalid. Only that word is stored: zeros, too, may be words that
  /// it lacked.
  void erase_torn() {
    // Without room no record was started there.
    if (!has_room_until(chain_.end.position + kBlockBytes)) return;
    memory_.label("torn record");
    auto& word = *reinterpret_cast<std::uint64_t*>(ring_.at(chain_.end.position));
    memory_.store_word(word, 0);
    memory_.persist(&word, sizeof(word));
  }

  void append(std::span<const std::byte> entry, std::uint64_t batch_position) {
    if (record_bytes(entry.size()) > ring_.before_end(chain_.end.position)) {
      write_record({}, RecordHeader::kSkip, batch_position);
      chain_.end.position += ring_.before_end(chain_.end.position);
    }
    write_record(entry, static_cast<std::uint32_t>(entry.size()), batch_position);
    chain_.end.position += record_bytes(entry.size());
    ++chain_.end.ordinal;
  }

  void write_record(std::span<const std::byte> entry, std::uint32_t byte_count,
                    std::uint64_t batch_position) {
    RecordHeader header{.position = chain_.end.position,
                        .ordinal = chain_.end.ordinal,
                        .batch_position = batch_position,
                        .byte_count = byte_count,
                        .generation = static_cast<std::uint32_t>(chain_.generation)};
    alignas(kLineBytes) std::array<std::byte, kLineBytes> first{};
    std::memcpy(first.data(), &header, sizeof(header));
    const std::span<const std::byte> head = entry.first(std::min(kFirstLineRoom, entry.size()));
    if (!head.empty()) std::memcpy(first.data() + sizeof(header), head.data(), head.size());
    std::byte* const place = ring_.at(chain_.end.position);
    const std::span<const std::byte> rest = entry.subspan(head.size());
    const std::size_t whole = rest.size() / kLineBytes * kLineBytes;
    // The rest, zero-padded to the end of the block. Assembled before anything is streamed: loads
    // of it wait for its stores, which wait for all lines streamed before them.
    alignas(kLineBytes) std::array<std::byte, kBlockBytes> last;
    const std::size_t last_bytes =
        static_cast<std::size_t>(record_bytes(entry.size())) - kLineBytes - whole;
    const std::size_t left = rest.size() - whole;
    if (left != 0) std::memcpy(last.data(), rest.data() + whole, left);
    std::memset(last.data() + left, 0, last_bytes - left);
    Digest digest;
    digest_lines(first, digest);
    memory_.label("entry");
    put(place + kLineBytes, rest.first(whole), &digest);
    if (rules_.value.streams_the_last_line) {
      put(place + kLineBytes + whole, {last.data(), last_bytes}, &digest);
    } else {
      digest_lines({last.data(), last_bytes}, digest);
      memory_.store(place + kLineBytes + whole, {last.data(), last_bytes});
    }
    if (rules_.value.proves_the_whole_record) {
      header.checksum = digest.value(ring_.ring_id);
    } else {
      header.checksum = reader_.checksum(header, first.data(), kLineBytes);
    }
    // Only the checksum, the first word, for the same reason.
    std::memcpy(first.data(), &header.checksum, sizeof(header.checksum));
    memory_.label("first line");
    put(place, first, nullptr);
  }

  void put(std::byte* target, std::span<const std::byte> lines, Digest* digest) {
    if (lines.empty()) return;
    if (rules_.value.streams) {
      memory_.stream(target, lines, digest);
    } else {
      if (digest != nullptr) digest_lines(lines, *digest);
      memory_.store(target, lines);
    }
  }

  void publish() {
    memory_.label("written (not durable)");
    // Tells the consumer; the entries are already durable.
    memory_.store_word(ring_.head->producer.written, chain_.end.position);
  }

  Memory& memory_;
  RingMemory ring_;
  RecordReader<Rules> reader_;
  [[no_unique_address]] Rules rules_;
  Chain chain_;
};

/// The consumer's side.
///
/// Threading: confined.
template <typename Memory, typename Rules = AllRules<BlockRules>>
class BlockConsumer {
 public:
  BlockConsumer(Memory& memory, const RingMemory& ring, Acknowledgement acknowledgement,
                const Rules& rules = {})
      : memory_(memory),
        ring_(ring),
        reader_(ring, rules),
        rules_(rules),
        lag_bytes_max_(acknowledgement == Acknowledgement::each ? 0 : ring.capacity_bytes / 4) {}

  /// Starts at the oldest entry. While a producer is attached, its word gives the end of the
  /// entries; otherwise (`at_rest`) the word may be stale after a crash, and is corrected.
  [[nodiscard]] Result<Chain> attach(const std::string& tried, bool at_rest) {
    Result<Chain> found = reader_.recover(tried, at_rest);
    if (!found.has_value()) return found;
    chain_ = *found;
    written_ = chain_.first.position;
    read_ = ring_.head->durable.read;
    if (at_rest) flush_recovered(memory_, ring_, chain_);
    // The word was visible but perhaps not durable; the producer may rely only on a durable one.
    memory_.label("read");
    memory_.persist(&ring_.head->durable.read, sizeof(read_));
    publish();
    if (at_rest) {
      memory_.label("written (not durable)");
      memory_.store_word(ring_.head->producer.written, chain_.end.position);
    }
    return chain_;
  }

  [[nodiscard]] Next next(Entry& entry) {
    for (;;) {
      if (chain_.first.position == written_) {
        // edge: ring-words (acquire)
        written_ = load_acquire(ring_.head->producer.written);
        if (memory_.fault() != Fault::none) return Next::lost;
        if (chain_.first.position == written_) return Next::empty;
      }
      const RecordHeader header = reader_.header_at(chain_.first.position);
      // No upper bound: the generation may have increased since this end attached.
      if (!reader_.follows(header, chain_.first, UINT64_MAX)) {
        return memory_.fault() != Fault::none ? Next::lost : Next::damaged;
      }
      const std::uint64_t position = chain_.first.position;
      chain_.first = reader_.next_cursor(header, chain_.first);
      if (header.byte_count == RecordHeader::kSkip) continue;
      if (memory_.fault() != Fault::none) return Next::lost;
      entry.bytes = {ring_.at(position) + sizeof(RecordHeader), header.byte_count};
      entry.ordinal = header.ordinal;
      lent_ = position;
      if (!rules_.value.waits_for_the_acknowledgement) acknowledge();
      return Next::entry;
    }
  }

  void acknowledge() {
    if (!lent_.has_value()) return;
    read_ = *std::exchange(lent_, std::nullopt);
    memory_.label("read");
    memory_.store_word(ring_.head->durable.read, read_);
    if (read_ - position_of(read_durable_) >= lag_bytes_max_) flush();
  }

  /// Makes the acknowledgements durable, and releases the room to the producer.
  void flush() {
    if (read_ == read_durable_) return;
    memory_.label("read");
    if (rules_.value.flushes_the_read_position) {
      memory_.flush(&ring_.head->durable.read, sizeof(std::uint64_t));
    }
    if (rules_.value.drains_the_read_position) memory_.drain();
    publish();
  }

 private:
  void publish() {
    // After a fault the position may not be durable: keep the entry at which recovery would start.
    // next() reports the fault.
    if (memory_.fault() != Fault::none) return;
    read_durable_ = read_;
    memory_.label("read_durable (not durable)");
    memory_.store_word(ring_.head->consumer.read_durable, read_durable_);
  }

  Memory& memory_;
  RingMemory ring_;
  RecordReader<Rules> reader_;
  [[no_unique_address]] Rules rules_;
  Chain chain_;
  std::uint64_t lag_bytes_max_;
  std::uint64_t read_ = DurableWords::kNothingRead;          ///< The word as stored.
  std::uint64_t read_durable_ = DurableWords::kNothingRead;  ///< Certainly durable.
  std::uint64_t written_ = 0;
  std::optional<std::uint64_t> lent_;
};

}  // namespace headrace::pmem::detail
