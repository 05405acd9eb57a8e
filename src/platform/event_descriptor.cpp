// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/event_descriptor.hpp"

#include <sys/eventfd.h>

#include <cerrno>

namespace headrace::platform {

Result<EventDescriptor> EventDescriptor::make() {
  const int made = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (made >= 0) return EventDescriptor(made);
  return file_failure(errno, "make an event descriptor");
}

void EventDescriptor::signal() const noexcept {
  // Fails only at a count of nearly 2^64, and then the descriptor is readable anyway.
  static_cast<void>(::eventfd_write(descriptor_.get(), 1));
}

}  // namespace headrace::platform
