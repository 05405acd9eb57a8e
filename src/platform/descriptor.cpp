// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/descriptor.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
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
    if (put == 0) return ENOSPC;  // Of an odd device, which would return it for ever.
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

Result<std::string> load_file(const std::string& path, std::size_t byte_count_max) {
  const std::string tried = fmt::format("read '{}'", path);
  // O_NONBLOCK: opening a pipe would block. It has no effect on a regular file.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) return file_failure(errno, tried);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return file_failure(errno, tried);
  if (!S_ISREG(status.st_mode)) {
    return fail(Code::io_failed, tried,
                S_ISDIR(status.st_mode) ? "it is a folder" : "it is not a regular file",
                "name a file");
  }
  std::string text;
  std::string chunk(1U << 16U, '\0');
  for (;;) {
    const ssize_t got = ::read(file.get(), chunk.data(), chunk.size());
    if (got == 0) return text;
    if (got < 0) {
      if (errno == EINTR) continue;
      return file_failure(errno, tried);
    }
    text.append(chunk, 0, static_cast<std::size_t>(got));
    if (text.size() > byte_count_max) {
      return fail(Code::capacity_exceeded, tried,
                  fmt::format("it is larger than {} bytes", byte_count_max),
                  "check that it is the right file");
    }
  }
}

bool is_file(const std::string& path) noexcept {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
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
