// SPDX-License-Identifier: Apache-2.0
// EventDescriptor: a counter with a descriptor that poll(), epoll and event loops can wait for.
#pragma once

#include "headrace/base/result.hpp"
#include "headrace/platform/descriptor.hpp"

namespace headrace::platform {

/// Threading: shared.
/// Ownership: closes the descriptor.
class EventDescriptor {
 public:
  /// Fails: capacity_exceeded if no descriptor is left.
  [[nodiscard]] static Result<EventDescriptor> make();

  /// Adds 1. Never blocks.
  void signal() const noexcept;
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }

 private:
  explicit EventDescriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor descriptor_;
};

}  // namespace headrace::platform
