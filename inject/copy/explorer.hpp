// SPDX-License-Identifier: Apache-2.0
// Whether the copies of the profile are faster than the C library's in this program, too: found out
// with a small share of its calls, if it is asked for. Not for making or choosing copies: it says
// which of two a call shall try, and in the end which classes of lengths the profile has lost.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "headrace/base/atomic.hpp"
#include "headrace/copy/dispatch.hpp"

namespace headrace::preload {

/// For each class, kBurst calls in kInterval are made by either copy in turns, and the last of them
/// is timed: the first ones find the caches as the other copy has left them. Two such times are a
/// pair, which the cheaper one by the byte wins; kPairs of them decide, and then nothing is tried
/// any more. Wins are counted and not times added: calls that were interrupted then weigh no more
/// than others. If both are as fast, the C library's wins kLost pairs with a probability below one
/// in a hundred.
///
/// Threading: shared. All words are counts and hints from which nothing else follows: relaxed. Two
/// threads at one pair only make it a worse one.
class Explorer {
 public:
  static constexpr std::uint32_t kInterval = 256;
  static constexpr std::uint32_t kBurst = 8;
  static constexpr std::uint32_t kPairs = 64;
  static constexpr std::uint32_t kLost = 42;
  /// Shorter copies take less time than reading the clock.
  static constexpr std::size_t kBytesMin = 4096;

  /// What a call shall do.
  struct Turn {
    bool by_fallback = false;  ///< Be made by the C library's copy, not by that of the profile.
    bool timed = false;
  };

  constexpr Explorer() = default;

  /// What the next call of this class shall do.
  [[nodiscard]] Turn turn(std::size_t class_index) noexcept {
    Class& one = classes_[class_index];
    if (one.pairs.load_relaxed() >= kPairs) return {};          // A hint, as all here.
    const std::uint32_t call = one.calls.fetch_add_relaxed(1);  // As above.
    const std::uint32_t place = call % kInterval;
    return {.by_fallback = place < kBurst && call / kInterval % 2 != 0,
            .timed = place == kBurst - 1};
  }

  /// Tells how long a call that was to be timed took. True once, if with that the class is the C
  /// library's.
  [[nodiscard]] bool tell(std::size_t class_index, Turn turn, std::size_t byte_count,
                          std::uint64_t taken_ns) noexcept {
    Class& one = classes_[class_index];
    constexpr std::uint64_t kUnit = 4096;  // Costs of fractions of a nanosecond differ, too.
    const std::uint64_t cost = std::max<std::uint64_t>(taken_ns * kUnit / byte_count, 1);
    if (!turn.by_fallback) {
      one.cost.store_relaxed(cost);  // A hint, as all here.
      return false;
    }
    const std::uint64_t against = one.cost.load_relaxed();  // As above.
    if (against == 0) return false;
    if (cost < against) one.lost.fetch_add_relaxed(1);               // As above.
    if (one.pairs.fetch_add_relaxed(1) + 1 != kPairs) return false;  // As above.
    return one.lost.load_relaxed() >= kLost;                         // As above.
  }

 private:
  struct Class {
    Atomic<std::uint32_t> calls;
    Atomic<std::uint32_t> pairs;
    Atomic<std::uint32_t> lost;  ///< Pairs that the profile's copy lost.
    Atomic<std::uint64_t> cost;  ///< Of its last turn; 0 before the first.
  };
  std::array<Class, copy::Dispatch::kClassCount> classes_{};
};

}  // namespace headrace::preload
