// SPDX-License-Identifier: Apache-2.0
#include "salvage.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "block_ring.hpp"

namespace headrace::pmem::detail {
namespace {

/// Copies records of a ring.
///
/// Threading: confined.
class RecordCopier {
 public:
  explicit RecordCopier(const RingMemory& ring) : ring_(ring), reader_(ring) {}

  /// Copies the record at `offset` of the data, for entry(), and returns its header; nullopt if
  /// there is no whole one.
  [[nodiscard]] std::optional<RecordHeader> copy(std::uint64_t offset) {
    const RecordHeader seen = reader_.header_at(offset);
    if (seen.byte_count == RecordHeader::kSkip) return std::nullopt;
    const std::uint64_t byte_count = record_bytes(seen.byte_count);
    if (seen.position % ring_.capacity_bytes != offset ||
        byte_count > block_record_bytes_max(ring_.capacity_bytes) ||
        byte_count > ring_.before_end(offset)) {
      return std::nullopt;
    }
    bytes_.resize(static_cast<std::size_t>(byte_count));
    std::memcpy(bytes_.data(), ring_.at(offset), bytes_.size());
    RecordHeader header;
    std::memcpy(&header, bytes_.data(), sizeof(header));
    const bool same = header.byte_count == seen.byte_count && header.position == seen.position;
    if (!same || reader_.checksum(header, bytes_.data(), byte_count) != header.checksum) {
      return std::nullopt;
    }
    return header;
  }
  [[nodiscard]] std::span<const std::byte> entry(const RecordHeader& header) const {
    return std::span(bytes_).subspan(sizeof(RecordHeader), header.byte_count);
  }

 private:
  RingMemory ring_;
  RecordReader<> reader_;
  std::vector<std::byte> bytes_;
};

/// All whole records, by position, except those that a crash left after the end and that a later
/// producer passed.
std::vector<RecordHeader> find_records(RecordCopier& copier, std::uint64_t capacity_bytes) {
  std::vector<RecordHeader> found;
  for (std::uint64_t offset = 0; offset < capacity_bytes;) {
    const std::optional<RecordHeader> header = copier.copy(offset);
    if (header.has_value()) found.push_back(*header);
    offset += header.has_value() ? record_bytes(header->byte_count) : kBlockBytes;
  }
  std::ranges::sort(found, {}, &RecordHeader::position);
  std::vector<RecordHeader> kept;
  for (const RecordHeader& header : found) {
    // Generations never decrease along the ring.
    if (!kept.empty() && header.generation < kept.back().generation) continue;
    while (!kept.empty() && kept.back().ordinal >= header.ordinal) kept.pop_back();
    kept.push_back(header);
  }
  return kept;
}

}  // namespace

Salvage salvage_records(const RingMemory& ring, const std::function<void(const Entry&)>& take) {
  // edge: ring-words (acquire)
  const std::uint64_t read = load_acquire(ring.head->durable.read);
  RecordCopier copier(ring);
  Salvage salvage;
  std::uint64_t first = 0;
  std::uint64_t end = 0;
  for (const RecordHeader& header : find_records(copier, ring.capacity_bytes)) {
    const std::optional<RecordHeader> again = copier.copy(header.position % ring.capacity_bytes);
    // An attached producer may have overwritten it.
    if (!again.has_value() || again->checksum != header.checksum) continue;
    take({.bytes = copier.entry(header), .ordinal = header.ordinal});
    if (salvage.entry_count++ == 0) first = header.ordinal;
    end = header.ordinal + 1;
    if (!nothing_read(read) && header.position <= position_of(read)) ++salvage.acknowledged_count;
  }
  salvage.missing_count = end - first - salvage.entry_count;
  return salvage;
}

}  // namespace headrace::pmem::detail
