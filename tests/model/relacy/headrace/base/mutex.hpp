// SPDX-License-Identifier: Apache-2.0
// headrace/base/mutex.hpp for the model checker.
#pragma once

#include "headrace/base/relacy.hpp"

#define HEADRACE_GUARDED_BY(mutex)
#define HEADRACE_REQUIRES(mutex)

namespace headrace {

/// Threading: shared by the threads of a simulation.
class Mutex {
 public:
  void lock() { mutex_.lock($); }
  void unlock() { mutex_.unlock($); }

 private:
  rl::mutex mutex_;
};

/// Holds a Mutex for a scope.
class Lock {
 public:
  explicit Lock(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Lock() { mutex_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Mutex& mutex_;
};

/// wait() wakes spuriously, as the checker's Atomic::wait_acquire: the caller polls.
class Condition {
 public:
  void wait(Mutex& mutex) {
    mutex.unlock();
    rl::yield(1, $);
    mutex.lock();
  }
  void notify_one() {}
  void notify_all() {}
};

}  // namespace headrace
