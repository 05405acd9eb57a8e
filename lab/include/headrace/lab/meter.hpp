// SPDX-License-Identifier: Apache-2.0
// Measures copies side by side. Not for: comparing, repeating and choosing, which are the caller's
// (headrace tune, headrace bench copy).
//
// Method. A round measures every subject once, in random order, so that drift of the machine
// affects all subjects. Times are comparable within a round; across rounds only their ratios are. A
// subject copies a batch; its time is the thread's processor time, which excludes other programs on
// this core but not their effect on shared caches. Lengths and alignments are drawn before the
// clock starts, the same for all subjects of a round. After a batch the last copy is compared with
// its source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/copy/dispatch.hpp"
#include "headrace/copy/generated.hpp"

namespace headrace::copy::lab {

/// Where the bytes are before the copy.
enum class Temperature : std::uint8_t {
  hot,         ///< A few places reused: in the core's caches if they fit.
  last_level,  ///< Places in a region that fits the last-level cache but not the core's caches.
  cold,        ///< Places in pools larger than any cache, each reused as rarely as possible.
};

struct Conditions {
  /// Lengths are drawn from [bytes_min, bytes_max].
  std::size_t bytes_min = 0;
  std::size_t bytes_max = 0;
  Temperature temperature = Temperature::hot;
  /// Both sides begin at a page boundary; else anywhere.
  bool aligned = true;
  /// Threads that copy at the same time, each on a separate processor and in separate places.
  std::size_t thread_count = 1;
};

/// Threading: confined; starts its own threads to measure.
class Meter {
 public:
  struct Options {
    /// Size of the source pool; the target pool has the same size.
    std::size_t pool_bytes = 0;
    /// Bytes of the region of Temperature::last_level, both sides together.
    std::size_t last_level_bytes = 0;
    std::uint64_t seed = 1;
    /// All bytes of both pools are equal and no copy is checked: for fills and compares
    /// (kernel_moves.hpp).
    bool alike = false;
  };
  /// Fails: invalid_argument for a pool of less than a page; out_of_memory.
  [[nodiscard]] static Result<Meter> make(const Options& options);

  /// Measures each of `subjects` once; memmove is called through the PLT, as programs do.
  ///
  /// Returns: nanoseconds per copy, in the order of `subjects`.
  /// Fails: invalid_argument if the lengths do not fit the pools or there are more threads than
  ///        processors; corrupt_data if a subject copied wrongly; capacity_exceeded if fewer
  ///        threads can be started.
  [[nodiscard]] Result<std::vector<double>> measure_round(std::span<const Move> subjects,
                                                          const Conditions& conditions);
  /// Finds the latency that separates memory from the last-level cache. Nothing if both take nearly
  /// the same time, or if the clock is too coarse.
  [[nodiscard]] std::optional<ColdProbe> find_cold_probe();
  /// Cost of 64-byte registers in an isolated copy of a page, after a millisecond without them: its
  /// time over the time expected if isolation cost as much as with 32-byte registers. Nothing if
  /// this processor has no 64-byte registers.
  ///
  /// Cost: a quarter of a second.
  [[nodiscard]] std::optional<double> find_wide_cost();

  Meter(Meter&& other) noexcept;
  Meter& operator=(Meter&& other) noexcept;
  ~Meter();

 private:
  struct State;
  explicit Meter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace headrace::copy::lab
