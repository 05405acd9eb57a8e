// SPDX-License-Identifier: Apache-2.0
// Whether another process is alive, and threads that are invisible to the host program.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace headrace::emu::platform {

enum class Life : std::uint8_t {
  running,
  stopped,  ///< By a signal or a debugger; may continue.
  dead      ///< Gone, a zombie, or its number was reused.
};

[[nodiscard]] std::int32_t this_process_id() noexcept;
/// Start time of a process, in kernel ticks since boot; 0 if it is gone.
[[nodiscard]] std::uint64_t start_time(std::int32_t process_id) noexcept;
/// `started`: the low `started_bits` of its start_time(). Returns running if unknown (no file
/// descriptor left), because a process that is called dead loses what it holds.
[[nodiscard]] Life life_of(std::int32_t process_id, std::uint64_t started,
                           std::uint32_t started_bits) noexcept;

/// A thread that blocks all signals but those of its own faults.
///
/// Threading: owned.
class QuietThread {
 public:
  using Function = void (*)(void*);
  /// Returns 0, or the errno of the failure; may then be called again.
  [[nodiscard]] int start(const char* name, Function function, void* argument) noexcept;
  [[nodiscard]] bool started() const noexcept { return started_; }
  void join() noexcept;

 private:
  pthread_t handle_{};
  Function function_ = nullptr;
  void* argument_ = nullptr;
  const char* name_ = nullptr;
  bool started_ = false;

  static void* enter(void* self);
};

}  // namespace headrace::emu::platform
