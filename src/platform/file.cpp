// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "headrace/platform/descriptor.hpp"

namespace headrace::platform {

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

}  // namespace headrace::platform
