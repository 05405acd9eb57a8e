// SPDX-License-Identifier: Apache-2.0
// Measures copies side by side. Not for deciding anything: who compares, repeats and chooses is the
// caller (headrace tune, headrace bench copy).
//
// Method. A round measures every subject once, in random order, so that a drift of the machine
// meets all of them; figures of one round can be compared, those of different rounds only by their
// ratios. A subject copies a batch; its time is the thread's processor time, so that what others do
// on this core is not counted, though what they do to shared caches is. Lengths and alignments are
// drawn before the clock starts, the same for all subjects of a round. After a batch the last copy
// is compared with its source.
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

/// Where the bytes are before they are copied.
enum class Temperature : std::uint8_t {
  hot,         ///< Few places again and again: in the caches of the core if they fit.
  last_level,  ///< Places of a region that fits the last-level cache, not those of the core.
  cold,        ///< Places of pools that fit no cache, each as rarely as possible.
};

struct Conditions {
  /// Lengths are drawn from [bytes_min, bytes_max].
  std::size_t bytes_min = 0;
  std::size_t bytes_max = 0;
  Temperature temperature = Temperature::hot;
  /// Both sides begin at a page; else anywhere.
  bool aligned = true;
  /// Threads that copy at the same time, each on a processor and in places of its own.
  std::size_t thread_count = 1;
};

/// What is measured: a function, called as a program calls memmove; or a table, asked as the entry
/// of a profile asks it, so that what the table costs is measured with what it finds.
struct Subject {
  Move move = nullptr;
  const Dispatch* table = nullptr;  ///< Preferred, if it is not null.
};

/// Threading: confined; measures with threads of its own.
class Meter {
 public:
  struct Options {
    /// Bytes of the pool of sources, and of that of targets.
    std::size_t pool_bytes = 0;
    /// Bytes of the region of Temperature::last_level, both sides together.
    std::size_t last_level_bytes = 0;
    std::uint64_t seed = 1;
    /// All bytes of both pools are equal and nothing is checked: for what fills and compares
    /// (kernel_moves.hpp).
    bool alike = false;
  };
  /// Fails: invalid_argument for a pool of less than a page; out_of_memory.
  [[nodiscard]] static Result<Meter> make(const Options& options);

  /// Measures each of `subjects` once.
  ///
  /// Returns: nanoseconds per copy, in the order of `subjects`.
  /// Fails: invalid_argument if the lengths do not fit the pools or there are more threads than
  ///        processors; corrupt_data if a subject copied wrongly; capacity_exceeded if the system
  ///        gives fewer threads.
  [[nodiscard]] Result<std::vector<double>> measure_round(std::span<const Subject> subjects,
                                                          const Conditions& conditions);
  /// Finds out how a byte from memory is told from one of the last-level cache. Nothing if they
  /// take nearly the same time here, or time is not counted so finely.
  [[nodiscard]] std::optional<ColdProbe> find_cold_probe();
  /// By which factor a copy of a page through registers of 64 bytes takes longer when it comes
  /// alone, after a millisecond without them, than it would if that cost it as much as one through
  /// 32 bytes. Nothing if there are no such registers here.
  ///
  /// Cost: a quarter of a second.
  [[nodiscard]] std::optional<double> find_wide_cost();
  /// Batches that were timed so far, over all subjects and rounds.
  [[nodiscard]] std::uint64_t batch_count() const;

  Meter(Meter&& other) noexcept;
  Meter& operator=(Meter&& other) noexcept;
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;
  ~Meter();

 private:
  struct State;
  explicit Meter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// A copy as folly's memcpy makes it: registers up to 256 bytes, batches of 128 bytes through
/// 32-byte registers up to 1 KiB, then the string move. A baseline. Null where this processor or
/// build cannot.
[[nodiscard]] Move folly_like_move();

}  // namespace headrace::copy::lab
