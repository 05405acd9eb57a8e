// SPDX-License-Identifier: Apache-2.0
// Whether another process still lives, and threads that the program around us does not notice.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace headrace::emu::platform {

enum class Life : std::uint8_t {
  running,
  stopped,  ///< By a signal or a debugger: it may go on later.
  dead      ///< Gone, a zombie, or its number belongs to a younger process now.
};

[[nodiscard]] std::int32_t this_process_id() noexcept;
/// When a process began, in the kernel's ticks since boot; 0 if it is gone.
[[nodiscard]] std::uint64_t start_time(std::int32_t process_id) noexcept;
/// `started`: the low `started_bits` of what start_time said. Running, if that cannot be found out
/// (no file descriptor left): a process that is called dead loses what it holds.
[[nodiscard]] Life life_of(std::int32_t process_id, std::uint64_t started,
                           std::uint32_t started_bits) noexcept;

/// A thread that takes no signal but those of its own faults.
///
/// Threading: owned.
class QuietThread {
 public:
  using Function = void (*)(void*);
  /// 0, or the errno with which the system refused a thread. May be called again then.
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
