// SPDX-License-Identifier: Apache-2.0
// Parts of jobs that are split among movers: where they are cut, and the memory for them, which is
// made with the engine so that no submission allocates.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "dsa/slot_words.hpp"
#include "headrace/engine/job.hpp"

namespace headrace::engine {

/// Threading: as Request.
struct Part : Request {
  Job* job = nullptr;
  std::size_t offset_bytes = 0;  ///< In the job.
};

/// The parts of one job.
struct PartBlock {
  std::array<Part, MoverChoice::kMoverMax> parts;
};

/// So many jobs are split at a time as SlotWords has slots; others go to one mover each. Blocks
/// live as long as the pool, so that a poller who looks at a job's parts too late reads the hints
/// of others, and nothing that is gone.
///
/// Threading: shared.
class PartPool {
 public:
  /// `block_count` may be 0, where no job is split.
  explicit PartPool(std::uint32_t block_count)
      : blocks_(std::make_unique<PartBlock[]>(block_count)), words_(block_count) {}
  /// Null if all are in use.
  [[nodiscard]] PartBlock* take() noexcept {
    const std::uint32_t index = words_.take();
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

/// A smaller part costs more to hand over and to wait for than a second mover gains.
inline constexpr std::size_t kPartBytesMin = 64U << 10U;
/// Parts meet at addresses of the target (of the source, where there is none) that are multiples of
/// this: no two movers write one line, or touch one page for the first time.
inline constexpr std::size_t kPartAlignment = 4096;

/// Among how many of `mover_count` movers (at least one) to split `byte_count` bytes.
///
/// Returns: 1 <= count <= min(mover_count, MoverChoice::kMoverMax).
[[nodiscard]] inline std::size_t part_count(std::size_t byte_count, std::size_t mover_count) {
  const std::size_t worthwhile = std::max<std::size_t>(1, byte_count / kPartBytesMin);
  return std::min({worthwhile, mover_count, MoverChoice::kMoverMax});
}

/// Where a part ends that `index` of `count` parts come before, if `operation`, which has
/// independent parts, is cut into as many as part_count() said: even but for the alignment.
[[nodiscard]] inline std::size_t part_end(const Operation& operation, std::size_t index,
                                          std::size_t count) {
  const std::size_t total = operation.byte_count();
  if (index + 1 == count) return total;
  const std::size_t cut = operation.cut_bytes();
  const std::byte* const first =
      operation.target().empty() ? operation.source().data() : operation.target().data();
  // Parts begin at multiples of the pattern, so the address counts only as far as it is one.
  const auto base = reinterpret_cast<std::uintptr_t>(first) / cut * cut;
  // Each part has kPartBytesMin or more before this moves its end by less than a page, so none
  // becomes empty and none ends before it begins.
  const std::size_t even = total / count * (index + 1) / cut * cut;
  return even - (base + even) % kPartAlignment;
}

}  // namespace detail
}  // namespace headrace::engine
