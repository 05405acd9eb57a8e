// SPDX-License-Identifier: Apache-2.0
// Closable: an end of a queue or ring, or a queue, that can be closed while Python still refers to
// it.
#pragma once

#include <optional>
#include <utility>

#include "bindings.hpp"
#include "headrace/base/mutex.hpp"

namespace headrace::python {

/// Calls of several threads are serialised. `Words` has kTried, kClosed and kRemedy of the error of
/// a closed handle, and whether the object stays with the process that made it (kStays): a child of
/// fork() shares memory and role with its parent, which still uses them.
///
/// Threading: shared.
template <typename Object, typename Words>
class Closable {
 public:
  using Held = Object;
  explicit Closable(Held held) : held_(std::move(held)) {}
  Closable& operator=(Closable&&) = delete;
  ~Closable() { close(); }

  /// Calls `work` with the held object, without the GIL.
  ///
  /// Fails: Failed (closed), with kStays also in a child of fork().
  template <typename Work>
  auto with(const Work& work) {
    // Before the lock, which another thread of the parent may have held at the fork.
    if (is_elsewhere()) {
      throw Failed{Error{Code::closed, 0, Words::kTried,
                         "forked: it belongs to the parent of this process",
                         "attach in the child after the parent has closed it"}};
    }
    const GilReleased released;
    const Lock lock(mutex_);
    if (!held_.has_value()) {
      throw Failed{Error{Code::closed, 0, Words::kTried, Words::kClosed, Words::kRemedy}};
    }
    return work(*held_);
  }
  /// Calls a member function without arguments.
  template <auto kMember>
  auto call() {
    return with([](Held& held) { return (held.*kMember)(); });
  }
  void close() {
    if (is_elsewhere()) {
      if (held_.has_value()) abandon(std::move(*held_));
      return;
    }
    const GilReleased released;
    const Lock lock(mutex_);
    held_.reset();
  }

 private:
  [[nodiscard]] bool is_elsewhere() const { return Words::kStays && origin_.is_elsewhere(); }

  const Origin origin_;
  Mutex mutex_;
  std::optional<Held> held_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::python
