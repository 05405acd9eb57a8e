// SPDX-License-Identifier: Apache-2.0
// CacheState::write_back(): dirty bytes go to their source by the engine.
#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "state.hpp"

namespace headrace::cache {
namespace {

/// Several, to use several movers; not all, because jobs are large.
constexpr std::size_t kWriteBacksAtOnce = 16;

}  // namespace

Result<Bytes> CacheState::write_back(const Region& region) {
  std::uint64_t byte_count = 0;
  const auto claimed = core_->dirty.claim([&](std::uint32_t number) {
    return number != 0 && core_->pool[number].region().overlaps(region);
  });
  for (const DirtyRanges::Range& range : claimed) byte_count += range.region.byte_count;
  const std::size_t late_count = write_back_by_engine(claimed);
  if (late_count != 0) {
    return fail(Code::hardware_absent, "write changed bytes back",
                "they are written, but a device that did not answer may write them once more",
                "reset the device before these bytes change again");
  }
  if (core_->dirty.is_changing(region)) {
    return fail(Code::capacity_exceeded, "write changed bytes back",
                "some of them are being changed", "end that change, and ask again");
  }
  return Bytes(byte_count);
}

std::size_t CacheState::write_back_by_engine(std::span<const DirtyRanges::Range> claimed) {
  if (claimed.empty()) return 0;
  std::size_t late_count = 0;
  std::array<engine::Job, kWriteBacksAtOnce> jobs;
  std::array<bool, kWriteBacksAtOnce> taken{};
  for (std::size_t first = 0; first < claimed.size(); first += jobs.size()) {
    const auto some = claimed.subspan(first, std::min(jobs.size(), claimed.size() - first));
    for (std::size_t i = 0; i < some.size(); ++i) {
      engine::SubmitOptions options;
      options.source_node = core_->nodes[core_->pool[some[i].entry].shard_number()];
      options.policy = mover_ ? &mover_ : nullptr;
      try {
        taken[i] =
            engine_.submit_copy(jobs[i], core_->write_back_plan(some[i].entry, some[i].region),
                                options) == engine::Submit::accepted;
      } catch (...) {
        taken[i] = false;
      }
    }
    for (std::size_t i = 0; i < some.size(); ++i) {
      const bool done = taken[i] && jobs[i].wait().state == engine::JobState::done;
      if (taken[i] && jobs[i].completion().late_write_possible) {
        // The device may also still read the copy, whose memory must not be reused.
        core_->pool[some[i].entry].keep_memory();
        core_->late_writes.add(1);
        ++late_count;
      }
      if (done) {
        core_->write_backs.add(1);
        core_->bytes_written_back.add(some[i].region.byte_count);
        core_->dirty.mark_clean(some[i]);
      } else {
        core_->return_bytes({&some[i], 1});
      }
    }
  }
  for (const DirtyRanges::Range& range : claimed) core_->tell_written_back(range);
  return late_count;
}

}  // namespace headrace::cache
