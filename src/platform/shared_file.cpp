// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/shared_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cerrno>

#include "headrace/platform/descriptor.hpp"

namespace headrace::platform {
namespace {

/// Beyond any file's end, so that these locks never conflict with others.
constexpr off_t kLockOffset = off_t{1} << 62U;

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

int lock_command(int descriptor, int command, short type, std::uint64_t index, struct flock& lock) {
  lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = kLockOffset + static_cast<off_t>(index);
  lock.l_len = 1;
  int result = 0;
  do {
    result = ::fcntl(descriptor, command, &lock);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

}  // namespace

Result<void> make_file(const std::string& path, std::uint64_t byte_count,
                       std::span<const std::byte> head, std::uint32_t permissions) {
  const std::string tried = fmt::format("make '{}'", path);
  if (::access(path.c_str(), F_OK) == 0) return file_failure(EEXIST, tried);
  // Unnamed until it is complete; if the file system cannot do that, under a temporary name.
  const std::string folder = folder_of(path);
  std::string temporary;
  int opened = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, permissions);
  if (opened < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    temporary = fmt::format("{}.{}", path, ::getpid());
    opened = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, permissions);
  }
  if (opened < 0) return file_failure(errno, tried);
  const Descriptor file(opened);
  const auto abandon = [&](int os_errno) {
    if (!temporary.empty()) ::unlink(temporary.c_str());
    return file_failure(os_errno, tried);
  };
  int os_errno = ::posix_fallocate(file.get(), 0, static_cast<off_t>(byte_count));
  if (os_errno == 0) os_errno = write_all(file.get(), head);
  if (os_errno == 0 && ::fsync(file.get()) != 0) os_errno = errno;
  if (os_errno != 0) return abandon(os_errno);
  // link(), not rename(): it never replaces a file.
  const int linked = temporary.empty()
                         ? ::linkat(AT_FDCWD, fmt::format("/proc/self/fd/{}", file.get()).c_str(),
                                    AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW)
                         : ::link(temporary.c_str(), path.c_str());
  if (linked != 0) return abandon(errno);
  if (!temporary.empty()) ::unlink(temporary.c_str());
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) ::fsync(directory.get());
  return {};
}

bool is_character_device(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISCHR(status.st_mode);
}

Result<SharedFile> SharedFile::open(const std::string& path, bool writable) {
  const std::string tried = fmt::format("open '{}'", path);
  int opened = -1;
  do {
    opened =
        ::open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  } while (opened < 0 && errno == EINTR);
  if (opened < 0) {
    if (errno == EISDIR) {
      return fail(Code::invalid_argument, tried, "it is a folder", "name a file");
    }
    return file_failure(errno, tried);
  }
  SharedFile file(opened, false, path);
  struct stat status{};
  if (::fstat(opened, &status) != 0) return file_failure(errno, tried);
  if (!S_ISREG(status.st_mode) && !S_ISCHR(status.st_mode)) {
    return fail(Code::invalid_argument, tried, "it is neither a file nor a character device",
                "name a file, or a device such as /dev/dax0.0");
  }
  file.is_device_ = S_ISCHR(status.st_mode);
  return file;
}

Result<SharedFile> SharedFile::open_again(int descriptor) {
  if (::fcntl(descriptor, F_GETFD) < 0) {
    return fail(Code::invalid_argument, fmt::format("open descriptor {} again", descriptor),
                "it is not open", "pass an open descriptor", errno);
  }
  return open(fmt::format("/proc/self/fd/{}", descriptor), true);
}

Result<SharedFile> SharedFile::make_sealed(std::uint64_t byte_count,
                                           std::span<const std::byte> head,
                                           std::optional<SharedMap>* only) {
  const std::string tried = fmt::format("make {} bytes of shared memory", byte_count);
  const int made = ::memfd_create("headrace", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (made < 0) return file_failure(errno, tried);
  SharedFile file(made, false, "shared memory");
  // Allocate the pages now: a failure later would be a signal.
  // The kernel would end other processes first.
  struct sysinfo memory{};
  const bool fits = ::sysinfo(&memory) != 0 || byte_count / memory.mem_unit < memory.totalram;
  int os_errno = fits ? ::posix_fallocate(made, 0, static_cast<off_t>(byte_count)) : ENOMEM;
  if (os_errno == 0) os_errno = write_all(made, head);
  if (os_errno == 0 && ::fchmod(made, 0600) != 0) os_errno = errno;
  int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (os_errno == 0 && only != nullptr) {
    HEADRACE_TAKE(mapped, SharedMap::map(file, byte_count));
    *only = std::move(*mapped);
    seals |= F_SEAL_FUTURE_WRITE;
  }
  if (os_errno == 0 && ::fcntl(made, F_ADD_SEALS, seals) != 0) os_errno = errno;
  if (os_errno == ENOMEM) {
    return fail(Code::out_of_memory, tried, "not enough memory", "ask for less", os_errno);
  }
  if (os_errno != 0) return file_failure(os_errno, tried);
  return file;
}

std::optional<std::uint64_t> SharedFile::byte_count() const {
  struct stat status{};
  if (is_device_ || ::fstat(descriptor(), &status) != 0) return std::nullopt;
  return static_cast<std::uint64_t>(status.st_size);
}

Result<std::size_t> SharedFile::read_at(std::uint64_t offset, std::span<std::byte> target) const {
  std::size_t read_count = 0;
  while (read_count < target.size()) {
    const ssize_t got =
        ::pread(descriptor(), target.data() + read_count, target.size() - read_count,
                static_cast<off_t>(offset + read_count));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_failure(errno, fmt::format("read '{}'", path_));
    if (got == 0) break;
    read_count += static_cast<std::size_t>(got);
  }
  return read_count;
}

SharedFile::Identity SharedFile::identity() const {
  struct stat status{};
  if (::fstat(descriptor(), &status) != 0) return {};
  return {.device = status.st_dev, .inode = status.st_ino, .owner = status.st_uid};
}

std::optional<SharedFile::Identity> SharedFile::identity_at(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return Identity{.device = status.st_dev, .inode = status.st_ino, .owner = status.st_uid};
}

std::uint32_t effective_user() {
  return ::geteuid();
}

Result<void> SharedFile::reserve() const {
  const std::optional<std::uint64_t> all = byte_count();
  if (!all.has_value() || *all == 0) return {};
  const auto length = static_cast<off_t>(*all);
  if (::fallocate(descriptor(), FALLOC_FL_KEEP_SIZE, 0, length) == 0 ||
      (errno != ENOSPC && errno != EDQUOT)) {
    return {};
  }
  return file_failure(errno, fmt::format("allocate disk space for '{}'", path_));
}

Result<bool> SharedFile::try_lock(std::uint64_t index) const {
  struct flock lock{};
  // Locks of the open file description, not of the process: two SharedFiles of one process
  // conflict.
  const int os_errno = lock_command(descriptor(), F_OFD_SETLK, F_WRLCK, index, lock);
  if (os_errno == 0) return true;
  if (os_errno == EAGAIN || os_errno == EACCES) return false;
  return file_failure(os_errno, fmt::format("lock '{}'", path_));
}

Result<void> SharedFile::lock(std::uint64_t index) const {
  struct flock lock{};
  const int os_errno = lock_command(descriptor(), F_OFD_SETLKW, F_WRLCK, index, lock);
  if (os_errno == 0) return {};
  return file_failure(os_errno, fmt::format("lock '{}'", path_));
}

void SharedFile::unlock(std::uint64_t index) const {
  struct flock lock{};
  static_cast<void>(lock_command(descriptor(), F_OFD_SETLK, F_UNLCK, index, lock));
}

bool SharedFile::is_locked_by_another(std::uint64_t index) const {
  struct flock lock{};
  return lock_command(descriptor(), F_OFD_GETLK, F_RDLCK, index, lock) == 0 &&
         lock.l_type != F_UNLCK;
}

Result<SharedMap> SharedMap::map(const SharedFile& file, std::uint64_t byte_count, bool writable) {
  void* const mapped = ::mmap(nullptr, byte_count, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                              MAP_SHARED, file.descriptor(), 0);
  if (mapped == MAP_FAILED) {
    return fail(errno == ENOMEM ? Code::out_of_memory : Code::io_failed,
                fmt::format("map '{}'", file.path()), "the operating system refused",
                "check the file and its permissions, or ask for less", errno);
  }
  return SharedMap({static_cast<std::byte*>(mapped), static_cast<std::size_t>(byte_count)});
}

}  // namespace headrace::platform
