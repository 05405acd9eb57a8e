// SPDX-License-Identifier: Apache-2.0
// Parts of jobs that are split among movers: where a job is cut, and the pool of parts, allocated
// with the engine so that submission does not allocate.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "dsa/slot_words.hpp"
#include "headrace/engine/job.hpp"
#include "headrace/platform/thread.hpp"

namespace headrace::engine {

/// Threading: as Request.
struct Part : Request {
  Job* job = nullptr;
  std::size_t offset_bytes = 0;  ///< Within the job.
};

/// The parts of one job.
struct PartBlock {
  std::array<Part, MoverChoice::kMoverMax> parts;
};

/// At most SlotWords::kSlotMax jobs are split at a time; further ones go to one mover each. Blocks
/// live as long as the pool: a late poller may read the hints of another job's parts, but never
/// freed memory.
///
/// Threading: shared.
class PartPool {
 public:
  /// `block_count` may be 0: no job is split.
  explicit PartPool(std::uint32_t block_count)
      : blocks_(std::make_unique<PartBlock[]>(block_count)), words_(block_count) {}
  /// Null if all are in use.
  [[nodiscard]] PartBlock* take() noexcept {
    const std::uint32_t index = words_.take(platform::thread_number());
    return index == SlotWords::kNoSlot ? nullptr : &blocks_[index];
  }
  void give_back(const PartBlock& block) noexcept {
    words_.free(static_cast<std::uint32_t>(&block - blocks_.get()));
  }

 private:
  const std::unique_ptr<PartBlock[]> blocks_;
  SlotWords words_;
};

namespace detail {

/// Posting and awaiting a smaller part costs more than a second mover gains.
inline constexpr std::size_t kPartBytesMin = 64U << 10U;
/// Parts are cut at multiples of this address of the target, or of the source if there is no
/// target, so that no two movers write to one cache line or first-touch one page.
inline constexpr std::size_t kPartAlignment = 4096;

/// Number of parts for `byte_count` bytes and `mover_count` movers.
///
/// Returns: 1 <= count <= min(mover_count, MoverChoice::kMoverMax).
[[nodiscard]] inline std::size_t part_count(std::size_t byte_count, std::size_t mover_count) {
  const std::size_t worthwhile = std::max<std::size_t>(1, byte_count / kPartBytesMin);
  return std::min({worthwhile, mover_count, MoverChoice::kMoverMax});
}

/// The end of part `index` of `count` equal parts, rounded down to the alignment. `operation` has
/// independent parts, and `count` is at most part_count().
[[nodiscard]] inline std::size_t part_end(const Operation& operation, std::size_t index,
                                          std::size_t count) {
  const std::size_t total = operation.byte_count();
  if (index + 1 == count) return total;
  const std::size_t cut = operation.cut_bytes();
  const std::byte* const first =
      operation.target().empty() ? operation.source().data() : operation.target().data();
  // Parts begin at multiples of the pattern.
  const auto base = reinterpret_cast<std::uintptr_t>(first) / cut * cut;
  // Moves the end by less than a page and so less than kPartBytesMin: no part becomes empty.
  const std::size_t even = total / count * (index + 1) / cut * cut;
  return even - (base + even) % kPartAlignment;
}

}  // namespace detail
}  // namespace headrace::engine
