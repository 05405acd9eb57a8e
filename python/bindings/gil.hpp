// SPDX-License-Identifier: Apache-2.0
// The GIL for threads that may outlive the interpreter. Not nanobind's guards: see
// entering_python().
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>

#include <chrono>
#include <thread>

namespace headrace::python {

/// Calls `enter`, which takes the GIL or runs Python code.
///
/// Once the interpreter ends, Python before 3.14 ends each thread that takes the GIL by
/// pthread_exit(). That unwinds the stack, and in a function that must not throw, such as a
/// destructor, it ends the process by std::terminate. Such a thread sleeps here instead until the
/// process ends, as in Python 3.14.
template <typename Enter>
decltype(auto) entering_python(const Enter& enter) {
  try {
    return enter();
  } catch (abi::__forced_unwind&) {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

/// Releases the GIL for a scope.
///
/// Threading: owned.
class GilReleased {
 public:
  GilReleased() = default;
  GilReleased& operator=(GilReleased&&) = delete;
  ~GilReleased() {
    entering_python([&] { PyEval_RestoreThread(state_); });
  }

 private:
  PyThreadState* const state_ = PyEval_SaveThread();
};

/// What `work` returns, called without the GIL.
template <typename Work>
auto without_gil(const Work& work) {
  const GilReleased released;
  return work();
}

/// Holds the GIL for a scope, on any thread.
///
/// Threading: owned.
class GilAcquired {
 public:
  GilAcquired() = default;
  GilAcquired& operator=(GilAcquired&&) = delete;
  ~GilAcquired() { PyGILState_Release(state_); }

 private:
  const PyGILState_STATE state_ = entering_python([] { return PyGILState_Ensure(); });
};

}  // namespace headrace::python
