// SPDX-License-Identifier: Apache-2.0
#include "outcome.hpp"

#include <algorithm>

namespace headrace::engine::detail {

void append(ShareOutcome& whole, const ShareOutcome& part, std::size_t offset_bytes) noexcept {
  whole.bytes_done += part.bytes_done;
  whole.bytes_by_device += part.bytes_by_device;
  whole.page_faults += part.page_faults;
  whole.retries += part.retries;
  whole.fell_back = whole.fell_back || part.fell_back;
  whole.late_write_possible = whole.late_write_possible || part.late_write_possible;
  if (whole.device_status == 0) whole.device_status = part.device_status;
  whole.stopped = whole.stopped || part.stopped;
  if (!whole.result.different) {
    whole.result = part.result;
    if (part.result.different) whole.result.difference_offset += offset_bytes;
  }
  if (whole.cause == Cause::none) {
    whole.cause = part.cause;
    whole.fault_address = part.fault_address;
  }
}

void merge(ShareOutcome& whole, const ShareOutcome& part, std::size_t offset_bytes) noexcept {
  const bool different_before = whole.result.different;
  const std::uint64_t before = whole.result.difference_offset;
  append(whole, part, offset_bytes);
  if (different_before && part.result.different) {
    whole.result.difference_offset = std::min(before, offset_bytes + part.result.difference_offset);
  }
}

}  // namespace headrace::engine::detail
