// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/growing_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "headrace/platform/descriptor.hpp"

namespace headrace::platform {

Result<GrowingFile> GrowingFile::open(const std::string& path, std::string_view head,
                                      std::size_t same_bytes, std::uint64_t byte_count_max) {
  const std::string tried = fmt::format("write '{}'", path);
  const int opened =
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  if (opened < 0) return file_failure(errno, tried);
  const auto abandon = [&](Failure failure) {
    ::close(opened);
    return failure;
  };
  struct stat status{};
  // A process that holds the lock alone may empty the file: no other maps it. The lock belongs to
  // the open file, so a child of fork() keeps it.
  const bool alone = ::flock(opened, LOCK_EX | LOCK_NB) == 0;
  if ((!alone && ::flock(opened, LOCK_SH) != 0) || ::fstat(opened, &status) != 0) {
    return abandon(file_failure(errno, tried));
  }
  std::string begins(same_bytes, '\0');
  const bool is_same =
      S_ISREG(status.st_mode) &&
      ::pread(opened, begins.data(), same_bytes, 0) == static_cast<ssize_t>(same_bytes) &&
      begins == head.substr(0, same_bytes);
  if (!S_ISREG(status.st_mode) || (status.st_size != 0 && !is_same)) {
    return abandon(fail(Code::invalid_argument, tried, "it exists and is something else",
                        "name another file, or remove it"));
  }
  if (alone && (::ftruncate(opened, 0) != 0 ||
                ::pwrite(opened, head.data(), head.size(), 0) != std::ssize(head) ||
                ::flock(opened, LOCK_SH) != 0)) {
    return abandon(file_failure(errno, tried));
  }
  void* const mapped =
      ::mmap(nullptr, byte_count_max, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
  if (mapped == MAP_FAILED) return abandon(file_failure(errno, tried));
  return GrowingFile(opened, {static_cast<std::byte*>(mapped), byte_count_max});
}

bool GrowingFile::write(std::uint64_t begin, std::span<const std::byte> bytes) const noexcept {
  return ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(begin)) ==
         std::ssize(bytes);
}

}  // namespace headrace::platform
