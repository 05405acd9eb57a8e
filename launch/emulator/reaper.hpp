// SPDX-License-Identifier: Apache-2.0
// Reaper: releases what clients held in the queues as soon as they die. Watches the processes
// themselves, because the release of a portal's file is not enough: the kernel closes a dying
// process's files before it reports the death, and a client may close its portal and live on.
#pragma once

#include <sys/types.h>

#include <memory>
#include <thread>
#include <vector>

#include "emu/device/device.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/base/result.hpp"
#include "launch/emulator/process.hpp"

namespace headrace::emu {

/// A thread that sleeps until a client dies; while no portal is open it never wakes otherwise.
///
/// Threading: shared.
class Reaper {
 public:
  /// `control` must outlive it.
  ///
  /// Fails: capacity_exceeded if no file descriptor or thread is available.
  static Result<std::unique_ptr<Reaper>> start(Control& control);
  Reaper& operator=(Reaper&&) = delete;
  ~Reaper();

  /// Watches a process that has opened a portal and may become a client.
  void watch(pid_t process_id);
  /// Checks for dead clients: call it after a portal was closed.
  void look();

 private:
  struct Watched {
    pid_t process_id;
    OwnedFile file;  ///< A pidfd; none if it was refused or has reported the death.
    bool is_dead = false;
  };

  Reaper(Control& control, headrace::platform::EventDescriptor bell)
      : control_(control), bell_(std::move(bell)) {}
  void run();
  void take_in();
  void erase_ended();
  [[nodiscard]] int pause_ms() const;

  Control& control_;
  const headrace::platform::EventDescriptor bell_;
  Mutex mutex_;
  std::vector<pid_t> ended_ HEADRACE_GUARDED_BY(mutex_);
  bool stopping_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::vector<Watched> watched_;  ///< Used by the thread only.
  std::thread thread_;
};

}  // namespace headrace::emu
