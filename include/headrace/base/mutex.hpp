// SPDX-License-Identifier: Apache-2.0
// Mutexes annotated for Clang's thread-safety analysis, as libstdc++'s are not.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define HEADRACE_TSA(attribute) __attribute__((attribute))
#else
#define HEADRACE_TSA(attribute)
#endif
/// The field may be accessed only while `mutex` is held.
#define HEADRACE_GUARDED_BY(mutex) HEADRACE_TSA(guarded_by(mutex))
/// The function may be called only while `mutex` is held.
#define HEADRACE_REQUIRES(mutex) HEADRACE_TSA(requires_capability(mutex))

namespace headrace {

/// Threading: shared.
class HEADRACE_TSA(capability("mutex")) Mutex {
 public:
  void lock() HEADRACE_TSA(acquire_capability()) { mutex_.lock(); }
  void unlock() HEADRACE_TSA(release_capability()) { mutex_.unlock(); }
  bool try_lock() HEADRACE_TSA(try_acquire_capability(true)) { return mutex_.try_lock(); }

 private:
  std::mutex mutex_;
};

/// Holds a Mutex for a scope.
template <typename M = Mutex>
class HEADRACE_TSA(scoped_lockable) Lock {
 public:
  explicit Lock(M& mutex) HEADRACE_TSA(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~Lock() HEADRACE_TSA(release_capability()) { mutex_.unlock(); }
  Lock& operator=(Lock&&) = delete;

 private:
  M& mutex_;
};

/// A condition variable for Mutex.
///
/// Threading: shared.
class Condition {
 public:
  /// Releases `mutex`, sleeps, reacquires it. Call it in a loop that tests the condition.
  void wait(Mutex& mutex) HEADRACE_REQUIRES(mutex) { condition_.wait(mutex); }
  /// As wait(), for at most `time_max`. Returns false on timeout.
  bool wait_for(Mutex& mutex, std::chrono::nanoseconds time_max) HEADRACE_REQUIRES(mutex) {
    return condition_.wait_for(mutex, time_max) == std::cv_status::no_timeout;
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable_any condition_;
};

}  // namespace headrace
