// SPDX-License-Identifier: Apache-2.0
// Reaper: gives back what dead clients held in the queues, as soon as they are dead and however
// they came to be clients. That a portal's file was released does not say it: the kernel drops a
// dying process's files before it calls the process dead, and a client may close its portal and
// live on. So the processes themselves are watched.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "emu/device/device.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/base/result.hpp"
#include "launch/emulator/process.hpp"

namespace headrace::emu {

/// A thread that sleeps until a client dies; while no portal is open it has no other reason
/// to wake up.
///
/// Threading: shared.
class Reaper {
 public:
  /// `control` must outlive it.
  ///
  /// Fails: capacity_exceeded if the system gives no file descriptor or thread.
  static Result<std::unique_ptr<Reaper>> start(Control& control);
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;
  ~Reaper();

  /// A process that has opened a portal: may become a client from now on.
  void watch(pid_t process_id);
  /// A portal was closed, for one reason or another.
  void look();

 private:
  struct Watched {
    pid_t process_id;
    OwnedFile file;  ///< A pidfd; none where it was refused, or has told of the death.
    bool is_dead = false;
  };

  Reaper(Control& control, OwnedFile bell) : control_(control), bell_(std::move(bell)) {}
  void run();
  void take_in();
  void strike_out();
  [[nodiscard]] int pause_ms() const;
  void ring() const;

  Control& control_;
  const OwnedFile bell_;  ///< An eventfd.
  Mutex mutex_;
  std::vector<pid_t> announced_ HEADRACE_GUARDED_BY(mutex_);
  bool stopping_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::vector<Watched> watched_;  ///< The thread's own.
  std::thread thread_;
};

}  // namespace headrace::emu
