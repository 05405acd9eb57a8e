// SPDX-License-Identifier: Apache-2.0
#include "launch/output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "headrace/platform/descriptor.hpp"

namespace headrace::launch {
namespace {

bool write_all(int file, const std::string& text) {
  return (errno = platform::write_all(file, std::as_bytes(std::span(text)))) == 0;
}

bool is_regular(int file) {
  struct stat status{};
  return ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
}
bool is_same_file(int one, int other) {
  struct stat first{};
  struct stat second{};
  return ::fstat(one, &first) == 0 && ::fstat(other, &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace

Result<void> check_writable(const std::string& option, const std::string& path) {
  if (path == kStdout) return {};
  const std::string tried = fmt::format("write '{}' ({})", path, option);
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) {
      return fail(Code::invalid_argument, tried, "it is a directory", "name a file");
    }
    if (::access(path.c_str(), W_OK) != 0) {
      return fail(Code::permission_denied, tried, "it may not be written", "name another file");
    }
    if (!S_ISREG(status.st_mode)) return {};
  }
  const auto directory = std::filesystem::absolute(path).parent_path();
  if (::access(directory.c_str(), F_OK) != 0) {
    return fail(Code::not_found, tried, "its directory does not exist", "make it first");
  }
  if (::access(directory.c_str(), W_OK | X_OK) != 0) {
    return fail(Code::permission_denied, tried, "its directory may not be written to",
                "name another one");
  }
  return {};
}

Result<void> write_whole(const std::string& path, const std::string& text) {
  const std::string tried = fmt::format("write '{}'", path);
  const auto failed = [&](int error) {
    return fail(Code::io_failed, tried, "the system refused it", "name another file", error);
  };
  if (path == kStdout) {
    if (!write_all(STDOUT_FILENO, text)) return failed(errno);
    return {};
  }
  struct stat status{};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    // A device, a pipe or a link is written in place. Through a link such as /dev/stdout that may
    // be the file that CMD wrote to: append, to keep its content.
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
    if (file < 0) return failed(errno);
    const bool ours = is_same_file(file, STDOUT_FILENO) || is_same_file(file, STDERR_FILENO);
    const bool placed =
        !is_regular(file) || (ours ? ::lseek(file, 0, SEEK_END) >= 0 : ::ftruncate(file, 0) == 0);
    const bool written = placed && write_all(file, text);
    const int error = errno;
    ::close(file);
    if (!written) return failed(error);
    return {};
  }
  std::string beside = path + ".XXXXXX";
  const int file = ::mkstemp(beside.data());
  if (file < 0) return failed(errno);
  // A replacement keeps the old file's mode, and its owner where permitted.
  const bool replaces = status.st_nlink != 0;
  mode_t mode = status.st_mode & 07777;
  if (replaces) {
    static_cast<void>(::fchown(file, status.st_uid, status.st_gid) == 0);
  } else {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    mode = 0666 & ~mask;
  }
  const bool done = write_all(file, text) && ::fchmod(file, mode) == 0 &&
                    ::rename(beside.c_str(), path.c_str()) == 0;
  const int error = errno;
  ::close(file);
  if (done) return {};
  ::unlink(beside.c_str());
  return failed(error);
}

}  // namespace headrace::launch
