// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "headrace/base/atomic.hpp"
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

/// The target of a path's links, also if it does not exist yet.
static std::string behind_links(const std::string& path) {
  constexpr int kLinksMax = 40;  // As the kernel's.
  std::filesystem::path target = path;
  std::error_code error;
  for (int i = 0; i < kLinksMax && std::filesystem::is_symlink(target, error); ++i) {
    const std::filesystem::path next = std::filesystem::read_symlink(target, error);
    if (error) break;
    target = target.parent_path() / next;
  }
  return target.string();
}

Result<void> save_file(const std::string& path, std::string_view text) {
  const std::string tried = fmt::format("write '{}'", path);
  struct stat there{};
  const bool is_there = ::stat(path.c_str(), &there) == 0;
  if (is_there && !S_ISREG(there.st_mode)) {
    // The rename below would replace a device, a pipe or a folder by a file.
    return fail(Code::invalid_argument, tried, "it exists and is not a regular file",
                "name a file");
  }
  // Rename onto the target of a link, not onto the link.
  const std::string target = behind_links(path);
  // Unique among processes and threads; O_EXCL detects a leftover of a process with the same id.
  static Atomic<std::uint32_t> counter{0};
  const std::string temporary =
      fmt::format("{}.{}-{}", target, ::getpid(), counter.fetch_add_relaxed(1));  // A number only.
  const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0) return file_failure(errno, tried);
  const auto abandon = [&](int os_errno) {
    ::unlink(temporary.c_str());
    return file_failure(os_errno, tried);
  };
  const std::span<const char> letters(text);
  if (const int os_errno = write_all(file.get(), std::as_bytes(letters)); os_errno != 0) {
    return abandon(os_errno);
  }
  if (is_there && ::fchmod(file.get(), there.st_mode & 07777U) != 0) return abandon(errno);
  if (::fsync(file.get()) != 0) return abandon(errno);
  if (::rename(temporary.c_str(), target.c_str()) != 0) return abandon(errno);
  return {};
}

}  // namespace headrace::platform
