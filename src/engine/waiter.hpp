// SPDX-License-Identifier: Apache-2.0
// What a thread does between two checks of what it waits for, decided by elapsed time alone. Job
// and Channel do the checking.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include "headrace/base/atomic.hpp"
#include "headrace/engine/job.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/ticks.hpp"
#include "headrace/platform/wait.hpp"

namespace headrace::engine {

/// How long waits of an engine spin before they yield the processor, learned from earlier waits: a
/// sleep and wake-up cost several microseconds, spinning occupies a processor.
///
/// Threading: one thread, or several whose races the next wait corrects: relaxed.
class WaitHistory {
 public:
  static constexpr std::chrono::nanoseconds kLookMin = std::chrono::microseconds(1);
  static constexpr std::chrono::nanoseconds kSpinMax = std::chrono::microseconds(50);
  /// One wait in kTryOneOf spins for kSpinMax, to notice when waits have become shorter.
  static constexpr std::uint32_t kTryOneOf = 16;

  /// Ticks that a wait which begins now may spin.
  [[nodiscard]] std::uint64_t begin() noexcept {
    const std::uint32_t turn = wait_count_.load_relaxed();  // As said above.
    wait_count_.store_relaxed(turn + 1);                    // As said above.
    return turn % kTryOneOf == 0 ? max_ticks() : look_ticks();
  }
  /// A wait ended after `ticks`; `looked`: while it was spinning.
  void end(std::uint64_t ticks, bool looked) noexcept {
    static const std::uint64_t kMin = platform::to_ticks(kLookMin);
    const std::uint64_t before = look_ticks();
    const std::uint64_t after = looked ? std::max(before, 2 * ticks) : before - before / 8;
    // As said above.
    shorter_ticks_.store_relaxed(max_ticks() - std::clamp(after, kMin, max_ticks()));
  }

 private:
  static std::uint64_t max_ticks() noexcept {
    static const std::uint64_t kMax = platform::to_ticks(kSpinMax);
    return kMax;
  }
  [[nodiscard]] std::uint64_t look_ticks() const noexcept {
    return max_ticks() - shorter_ticks_.load_relaxed();  // As said above.
  }

  /// By how much a wait spins shorter than kSpinMax. A new history is of zero bytes.
  Atomic<std::uint64_t> shorter_ticks_{0};
  Atomic<std::uint32_t> wait_count_{0};
};

/// Waits (UMWAIT) until `line` is written, for at most `time_max`. Checks `has_come()` after arming
/// the monitor, because an earlier write does not wake it.
///
/// Returns: false, immediately, if the processor has no UMWAIT.
template <typename HasCome>
[[nodiscard]] bool rest_on_line(const void* line, std::chrono::nanoseconds time_max,
                                const HasCome& has_come) {
  if (!platform::has_line_wait()) return false;
  platform::watch_line(line);
  if (!has_come()) platform::wait_for_line(platform::ticks() + platform::to_ticks(time_max));
  return true;
}

/// One wait.
///
/// Threading: owned.
class Waiter {
 public:
  enum class Step : std::uint8_t {
    look,   ///< Check again immediately.
    pause,  ///< Execute PAUSE.
    rest,   ///< UMWAIT on the line if the processor has it, otherwise yield.
    sleep,  ///< Until woken, or for sleep_time() if no thread will wake it.
  };
  static constexpr std::chrono::nanoseconds kRestMax = std::chrono::milliseconds(1);
  static constexpr std::chrono::nanoseconds kSleepMin = std::chrono::microseconds(50);
  static constexpr std::chrono::nanoseconds kSleepMax = std::chrono::milliseconds(1);

  /// `polled`: no thread wakes a sleeper.
  Waiter(Waiting how, bool polled, WaitHistory& history, std::uint64_t now_ticks) noexcept
      : how_(how), polled_(polled), history_(history), begun_ticks_(now_ticks) {
    if (how == Waiting::adaptive) look_ticks_ = history.begin();
  }

  /// The step after a check at `now_ticks` that found nothing.
  [[nodiscard]] Step next(std::uint64_t now_ticks) noexcept {
    switch (how_) {
      case Waiting::spin:
        return Step::look;
      case Waiting::umwait:
        return Step::rest;
      case Waiting::sleep:
        return Step::sleep;
      case Waiting::adaptive:
        break;
    }
    const std::uint64_t waited_ticks = now_ticks - begun_ticks_;
    if (waited_ticks < look_ticks_) return Step::pause;
    looks_ = false;
    const bool rests = polled_ && waited_ticks < platform::to_ticks(kRestMax);
    return rests ? Step::rest : Step::sleep;
  }
  /// Executes next(). `rest` waits some microseconds on the line, or returns false; `sleep` is
  /// passed the longest time.
  template <typename Rest, typename Sleep>
  void pass(std::uint64_t now_ticks, const Rest& rest, const Sleep& sleep) {
    switch (next(now_ticks)) {
      case Step::look:
        return;
      case Step::pause:
        return platform::pause();
      case Step::rest:
        if (rest()) return;
        if (how_ == Waiting::umwait) return platform::pause();
        return std::this_thread::yield();
      case Step::sleep:
        return sleep(sleep_time(now_ticks));
    }
  }
  /// An eighth of the time waited so far, which bounds the relative delay.
  [[nodiscard]] std::chrono::nanoseconds sleep_time(std::uint64_t now_ticks) const noexcept {
    const double waited_s =
        static_cast<double>(now_ticks - begun_ticks_) / platform::ticks_per_second();
    const auto eighth = std::chrono::duration<double>(std::min(waited_s, 1.0) / 8);
    return std::clamp(std::chrono::duration_cast<std::chrono::nanoseconds>(eighth), kSleepMin,
                      kSleepMax);
  }
  /// The wait is over.
  void end(std::uint64_t now_ticks) noexcept {
    if (how_ == Waiting::adaptive) history_.end(now_ticks - begun_ticks_, looks_);
  }

 private:
  const Waiting how_;
  const bool polled_;
  WaitHistory& history_;
  const std::uint64_t begun_ticks_;
  std::uint64_t look_ticks_ = 0;
  bool looks_ = true;
};

}  // namespace headrace::engine
