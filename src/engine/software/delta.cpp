// SPDX-License-Identifier: Apache-2.0
// Creates and applies delta records: entries of 10 bytes, each the index of an 8-byte unit and its
// new value.
#include <algorithm>
#include <cstring>

#include "headrace/copy/fill_compare.hpp"
#include "software.hpp"

namespace headrace::engine::software {
namespace {

/// Bytes compared unit by unit after a difference: differences cluster.
constexpr std::size_t kCloselyBytes = 1024;

}  // namespace

Completion create_delta(const Operation& operation) noexcept {
  const std::byte* const before = operation.source().data();
  const std::byte* const after = operation.second_source().data();
  const std::size_t byte_count = operation.byte_count();
  const std::span<std::byte> record = operation.target();
  Completion outcome;
  std::size_t made = 0;
  std::size_t at = 0;
  while (at < byte_count) {
    const std::size_t same = copy::first_difference(operation.source().subspan(at),
                                                    operation.second_source().subspan(at));
    at += same / kDeltaUnitBytes * kDeltaUnitBytes;
    const std::size_t end = std::min(byte_count, at + kCloselyBytes);
    for (; at < end; at += kDeltaUnitBytes) {
      std::uint64_t old_unit = 0;
      std::uint64_t new_unit = 0;
      std::memcpy(&old_unit, before + at, sizeof old_unit);
      std::memcpy(&new_unit, after + at, sizeof new_unit);
      if (old_unit == new_unit) continue;
      if (made + kDeltaEntryBytes > record.size()) {
        outcome.result.record_full = true;
        outcome.result.different = true;
        outcome.bytes_done = at;
        outcome.result.delta_bytes = static_cast<std::uint32_t>(made);
        return outcome;
      }
      const auto index = static_cast<std::uint16_t>(at / kDeltaUnitBytes);
      std::memcpy(record.data() + made, &index, sizeof index);
      std::memcpy(record.data() + made + sizeof index, &new_unit, sizeof new_unit);
      made += kDeltaEntryBytes;
    }
  }
  outcome.bytes_done = byte_count;
  outcome.result.different = made > 0;
  outcome.result.delta_bytes = static_cast<std::uint32_t>(made);
  return outcome;
}

Completion apply_delta(const Operation& operation) noexcept {
  const std::span<const std::byte> record = operation.source();
  const std::span<std::byte> target = operation.target();
  std::int32_t last_index = -1;
  for (std::size_t at = 0; at < record.size(); at += kDeltaEntryBytes) {
    std::uint16_t index = 0;
    std::memcpy(&index, record.data() + at, sizeof index);
    const std::size_t place = std::size_t{index} * kDeltaUnitBytes;
    // Entries applied so far stay; as on a device, their number is not reported.
    if (index <= last_index || place >= target.size()) return {.cause = Cause::bad_record};
    std::memcpy(target.data() + place, record.data() + at + sizeof index, kDeltaUnitBytes);
    last_index = index;
  }
  return {.bytes_done = record.size()};
}

}  // namespace headrace::engine::software
