// SPDX-License-Identifier: Apache-2.0
// EventDescriptor: a counter with a descriptor that poll(), epoll and event loops can wait for.
#pragma once

#include "headrace/base/result.hpp"

namespace headrace::platform {

/// Threading: shared.
/// Ownership: closes the descriptor.
class EventDescriptor {
 public:
  /// Fails: capacity_exceeded if no descriptor is left.
  [[nodiscard]] static Result<EventDescriptor> make();

  EventDescriptor(EventDescriptor&& other) noexcept;
  EventDescriptor& operator=(EventDescriptor&& other) noexcept;
  EventDescriptor(const EventDescriptor&) = delete;
  EventDescriptor& operator=(const EventDescriptor&) = delete;
  ~EventDescriptor();

  /// Adds 1. Never blocks.
  void signal() const noexcept;
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  explicit EventDescriptor(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace headrace::platform
