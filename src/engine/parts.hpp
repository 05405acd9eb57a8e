// SPDX-License-Identifier: Apache-2.0
// Parts of jobs that are split among movers: where they are cut, and the memory for them, which is
// made with the engine so that no submission allocates.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "headrace/base/mutex.hpp"
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
  PartBlock* next = nullptr;  ///< In the pool.
};

/// Blocks live as long as the pool, so that a poller who looks at a job's parts too late reads the
/// hints of others, and nothing that is gone.
///
/// Threading: shared.
class PartPool {
 public:
  /// So many jobs are split at a time; others go to one mover each.
  static constexpr std::size_t kBlockCount = 64;

  /// `block_count` may be 0, where no job is split.
  explicit PartPool(std::size_t block_count);
  /// Null if all are in use.
  [[nodiscard]] PartBlock* take() noexcept;
  void give_back(PartBlock& block) noexcept;

 private:
  const std::unique_ptr<PartBlock[]> blocks_;
  Mutex mutex_;
  PartBlock* first_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
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
[[nodiscard]] std::size_t part_count(std::size_t byte_count, std::size_t mover_count);

/// Where a part ends that `index` of `count` parts come before, if `operation`, which has
/// independent parts, is cut into as many as part_count() said: even but for the alignment.
[[nodiscard]] std::size_t part_end(const Operation& operation, std::size_t index,
                                   std::size_t count);

}  // namespace detail
}  // namespace headrace::engine
