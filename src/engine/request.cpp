// SPDX-License-Identifier: Apache-2.0
#include "headrace/engine/request.hpp"

#include <algorithm>

#include "completions.hpp"
#include "headrace/base/check.hpp"
#include "job_word.hpp"

namespace headrace::engine {

bool Request::stop_requested() const noexcept {
  const Request& job = whole_ == nullptr ? *this : *whole_;
  return (job.word_.load_relaxed() & detail::kStopFlag) != 0;  // Advice; carries no data.
}

void Request::complete(const Completion& end) noexcept {
  HEADRACE_CHECK(on_done_ != nullptr, "a request is completed once");
  HEADRACE_CHECK(end.bytes_done <= byte_count_, "no more is done than was asked for",
                 end.bytes_done, byte_count_);
  HEADRACE_CHECK(end.bytes_done == byte_count_ || detail::is_stopped(end) ||
                     end.cause != Cause::none || end.result.different || is_batch(),
                 "a request that was done in part was stopped, failed or found what it looked for",
                 end.bytes_done, byte_count_);
  outcome = end;
  detail::set_state(outcome);
  std::exchange(on_done_, nullptr)(*this, false);
}

namespace detail {

void add_counts(Completion& whole, const Completion& one) noexcept {
  whole.bytes_done += one.bytes_done;
  whole.bytes_by_device += one.bytes_by_device;
  whole.page_faults += one.page_faults;
  whole.retries += one.retries;
  whole.fell_back = whole.fell_back || one.fell_back;
  if (whole.device_status == 0) whole.device_status = one.device_status;
}

void append(Completion& whole, const Completion& part, std::size_t offset_bytes) noexcept {
  add_counts(whole, part);
  whole.late_write_possible = whole.late_write_possible || part.late_write_possible;
  if (is_stopped(part)) whole.state = JobState::stopped;
  if (!whole.result.different) {
    whole.result = part.result;
    if (part.result.different) whole.result.difference_offset += offset_bytes;
  }
  if (whole.cause == Cause::none) {
    whole.cause = part.cause;
    whole.fault_address = part.fault_address;
  }
}

void merge(Completion& whole, const Completion& part, std::size_t offset_bytes) noexcept {
  const bool different_before = whole.result.different;
  const std::uint64_t before = whole.result.difference_offset;
  append(whole, part, offset_bytes);
  if (different_before && part.result.different) {
    whole.result.difference_offset = std::min(before, offset_bytes + part.result.difference_offset);
  }
}

}  // namespace detail
}  // namespace headrace::engine
