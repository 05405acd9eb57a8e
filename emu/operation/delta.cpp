// SPDX-License-Identifier: Apache-2.0
// Create and apply a delta record: entries of 10 bytes, each the offset of an 8-byte unit (in
// units) and the unit's value in the second source.
#include <algorithm>

#include "emu/operation/operation.hpp"
#include "emu/operation/rules.hpp"
#include "emu/platform/bytes.hpp"

namespace headrace::emu {
namespace {

constexpr std::size_t kUnit = rules::kDeltaUnitBytes;
constexpr std::size_t kEntry = rules::kDeltaEntryBytes;
// Two sources share one scratch buffer; in the other, every unit may need an entry.
constexpr std::size_t kSourceBytes = 2048;
static_assert(kSourceBytes / kUnit * kEntry <= 4160);
constexpr std::size_t kRecordBytes = 4000;

}  // namespace

bool Operation::create_delta_piece(Memory& memory, std::size_t byte_count_max) {
  const std::size_t asked = std::max(byte_count_max / kUnit * kUnit, kUnit);
  const std::size_t byte_count = std::min({left(), asked, kSourceBytes});
  std::byte* const left_bytes = first_.data();
  std::byte* const right_bytes = first_.data() + kSourceBytes;
  const Reach one = read(memory, {left_bytes, byte_count}, descriptor_.src_addr + done_);
  const Reach two = read(memory, {right_bytes, one.byte_count}, descriptor_.src2_addr + done_);

  // Entries of the whole units that both sources have.
  const std::size_t whole = two.byte_count / kUnit * kUnit;
  std::size_t entry_count = 0;
  std::size_t taken = 0;  // Bytes of source whose entries fit.
  bool full = false;
  for (; taken < whole; taken += kUnit) {
    const auto unit = bytes::load_little<std::uint64_t>(right_bytes + taken);
    if (unit == bytes::load_little<std::uint64_t>(left_bytes + taken)) continue;
    const std::size_t record_bytes = delta_bytes_ + (entry_count + 1) * kEntry;
    full = record_bytes > descriptor_.max_delta_size;
    if (full) break;
    std::byte* const entry = second_.data() + entry_count++ * kEntry;
    bytes::store_little(entry, static_cast<std::uint16_t>((done_ + taken) / kUnit));
    bytes::store_little(entry + 2, unit);
  }

  const Reach record = write(memory, descriptor_.delta_addr + delta_bytes_,
                             std::span(second_).first(entry_count * kEntry));
  if (record.fault) return fail(*record.fault);
  delta_bytes_ += static_cast<std::uint32_t>(entry_count * kEntry);
  done_ += taken;
  if (full) return succeed(rules::kResultOverflow);
  return end_piece({two.fault, one.fault},
                   delta_bytes_ > 0 ? rules::kResultDifferent : rules::kResultEqual);
}

bool Operation::apply_delta_piece(Memory& memory, std::size_t byte_count_max) {
  const std::size_t asked = std::max(byte_count_max / kEntry * kEntry, kEntry);
  const std::size_t byte_count = std::min({left(), asked, kRecordBytes});
  const Reach record =
      read(memory, std::span(first_).first(byte_count), descriptor_.src_addr + done_);
  for (std::size_t at = 0; at + kEntry <= record.byte_count; at += kEntry) {
    const std::int32_t offset = bytes::load_little<std::uint16_t>(first_.data() + at);
    if (!rules::offset_increases(last_offset_, offset))
      return fail(dsa::Status::delta_offset_not_increasing);
    const std::uint64_t place = static_cast<std::uint64_t>(offset) * kUnit;
    if (place >= descriptor_.xfer_size) return fail(dsa::Status::delta_offset_out_of_range);
    if (rules::wraps(descriptor_.dst_addr, descriptor_.xfer_size)) {
      return fail({.address = descriptor_.dst_addr, .write = true});
    }
    const Reach target =
        write(memory, descriptor_.dst_addr + place, std::span(first_).subspan(at + 2, kUnit));
    if (target.fault) return fail(*target.fault);
    last_offset_ = offset;
    done_ += kEntry;
  }
  return end_piece({record.fault});
}

}  // namespace headrace::emu
