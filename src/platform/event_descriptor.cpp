// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/event_descriptor.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace headrace::platform {

Result<EventDescriptor> EventDescriptor::make() {
  const int made = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (made >= 0) return EventDescriptor(made);
  return fail(Code::capacity_exceeded, "make an event descriptor", "the operating system refused",
              "close descriptors, or raise the limit (ulimit -n)", errno);
}

EventDescriptor::EventDescriptor(EventDescriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

EventDescriptor& EventDescriptor::operator=(EventDescriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

EventDescriptor::~EventDescriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void EventDescriptor::signal() const noexcept {
  // Fails only at a count of nearly 2^64, and then the descriptor is readable anyway.
  static_cast<void>(::eventfd_write(descriptor_, 1));
}

}  // namespace headrace::platform
