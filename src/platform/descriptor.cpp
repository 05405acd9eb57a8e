// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/descriptor.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace headrace::platform {

void close_descriptor(int descriptor) noexcept {
  if (descriptor >= 0) ::close(descriptor);
}

int write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor, bytes.data(), bytes.size());
    if (put < 0 && errno != EINTR) return errno;
    if (put > 0) bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return 0;
}

Failure file_failure(int os_errno, std::string tried) {
  switch (os_errno) {
    case ENOENT:
    case ENOTDIR:
      // No errno: its text would repeat the cause.
      return fail(Code::not_found, std::move(tried), "there is no such file or folder",
                  "check the path");
    case EEXIST:
      return fail(Code::invalid_argument, std::move(tried), "it already exists",
                  "choose another name, or remove it first");
    case EACCES:
    case EPERM:
    case EROFS:
      return fail(Code::permission_denied, std::move(tried), "it is not permitted",
                  "choose another place or change its permissions", os_errno);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return fail(Code::capacity_exceeded, std::move(tried), "no space left",
                  "free some space, or ask for less", os_errno);
    case EMFILE:
    case ENFILE:
      return fail(Code::capacity_exceeded, std::move(tried), "no descriptor is free",
                  "close descriptors, or raise the limit (ulimit -n)", os_errno);
    default:
      return fail(Code::io_failed, std::move(tried), "the operating system refused",
                  "check the disk and the path", os_errno);
  }
}

Result<EventDescriptor> EventDescriptor::make() {
  const int made = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (made >= 0) return EventDescriptor(made);
  return file_failure(errno, "make an event descriptor");
}

void EventDescriptor::signal() const noexcept {
  // Fails only at a count of nearly 2^64, and then the descriptor is readable anyway.
  static_cast<void>(::eventfd_write(descriptor_.get(), 1));
}

void EventDescriptor::reset() const noexcept {
  eventfd_t count = 0;
  static_cast<void>(::eventfd_read(descriptor_.get(), &count));
}

}  // namespace headrace::platform
