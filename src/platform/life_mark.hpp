// SPDX-License-Identifier: Apache-2.0
// A word in shared memory by which other processes see whether a thread still lives.
#pragma once

#include <linux/futex.h>
#include <pthread.h>

#include "headrace/base/atomic.hpp"

namespace headrace::platform {

/// The kernel marks it when the holder ends in any way, before it closes the files of the process.
/// Threading: shared, but one thread holds it.
class LifeMark {
 public:
  void hold() noexcept {
    pthread_mutexattr_t kind;
    ::pthread_mutexattr_init(&kind);
    ::pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    ::pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    ::pthread_mutex_init(&mutex_, &kind);
    ::pthread_mutex_lock(&mutex_);
  }
  void release() noexcept {
    // edge: life-mark (release)
    ::pthread_mutex_unlock(&mutex_);  // Or the kernel, when the thread ends.
  }
  [[nodiscard]] bool is_held() const noexcept {
    // edge: life-mark (acquire)
    const int word = load_acquire(mutex_.__data.__lock);
    return word != 0 && (word & FUTEX_OWNER_DIED) == 0;
  }

 private:
  pthread_mutex_t mutex_;  ///< Robust: begins with a futex that has the owner.
};

}  // namespace headrace::platform
