// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/local_socket.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace headrace::platform {
namespace {

constexpr std::size_t kAttachedMax = 2;

/// Calls bind() or connect() for a new socket.
template <typename Call>
Result<Descriptor> socket_at(const std::string& path, const std::string& tried, const Call& call) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return file_failure(ENAMETOOLONG, tried);
  path.copy(static_cast<char*>(address.sun_path), path.size());
  Descriptor made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (made.get() >= 0 &&
      call(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    return made;
  }
  if (errno != ECONNREFUSED && errno != ENOENT && errno != EAGAIN) {
    return file_failure(errno, tried);
  }
  return fail(Code::not_found, tried, "no server answers there", "start it, or check the path");
}

}  // namespace

void poll_until(std::span<pollfd> watched, std::chrono::nanoseconds time_max,
                bool (*is_interrupted)()) {
  const auto until = std::chrono::steady_clock::now() + time_max;
  while (true) {
    const std::chrono::nanoseconds now_left = until - std::chrono::steady_clock::now();
    const auto left = std::max(now_left, std::chrono::nanoseconds(0)).count();
    const timespec limit{.tv_sec = left / 1'000'000'000, .tv_nsec = left % 1'000'000'000};
    if (::ppoll(watched.data(), watched.size(), &limit, nullptr) >= 0 || errno != EINTR) return;
    if (is_interrupted != nullptr && is_interrupted()) return;
  }
}

Result<LocalSocket> LocalSocket::listen(const std::string& path,
                                        std::optional<std::uint32_t> group) {
  const std::string tried = fmt::format("listen at '{}'", path);
  LocalSocket made(-1);
  std::error_code is_gone;  // The current directory: then opening says so.
  made.path_ = std::filesystem::absolute(path, is_gone).string();
  const std::string lock_path = made.path_ + ".lock";
  Descriptor lock;
  struct stat status{};
  struct stat locked{};
  do {  // Again if a listener has removed the file at its end.
    lock = Descriptor(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (lock.get() < 0) return file_failure(errno, tried);
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      return fail(Code::capacity_exceeded, tried, "another process listens there",
                  "connect to that one, or end it first");
    }
  } while (::fstat(lock.get(), &locked) != 0 || ::stat(lock_path.c_str(), &status) != 0 ||
           status.st_dev != locked.st_dev || status.st_ino != locked.st_ino);
  made.lock_ = std::move(lock);
  if (::stat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) return file_failure(EEXIST, tried);
    ::unlink(path.c_str());
  }
  HEADRACE_TAKE(bound, socket_at(path, tried, ::bind));
  made.descriptor_ = std::move(*bound);
  made.bound_ = SharedFile::identity_at(made.path_);
  // No client can connect before listen().
  if ((group && ::chown(path.c_str(), static_cast<uid_t>(-1), *group) != 0) ||
      ::chmod(path.c_str(), group ? 0660 : 0600) != 0 ||
      ::listen(made.descriptor(), SOMAXCONN) != 0) {
    return file_failure(errno, tried);
  }
  return made;
}

LocalSocket::~LocalSocket() {
  if (lock_.get() < 0) return;
  hide();
  struct stat ours{};
  const std::string lock_path = path_ + ".lock";
  const auto there = SharedFile::identity_at(lock_path);
  const bool is_ours = ::fstat(lock_.get(), &ours) == 0 && there && there->inode == ours.st_ino;
  if (is_ours) ::unlink(lock_path.c_str());
}

void LocalSocket::hide() const noexcept {
  // If its folder was emptied, another may listen there by now.
  if (bound_ && SharedFile::identity_at(path_) == bound_) ::unlink(path_.c_str());
}

Result<LocalSocket> LocalSocket::connect(const std::string& path) {
  HEADRACE_TAKE(made, socket_at(path, fmt::format("connect to '{}'", path), ::connect));
  return LocalSocket(made->release());
}

Result<void> LocalSocket::end_listener(const std::string& path, std::chrono::nanoseconds time_max,
                                       bool (*is_interrupted)()) {
  const std::string tried = fmt::format("end the server at '{}'", path);
  const auto connected = connect(path);
  if (!connected) {
    return connected.error().code == Code::not_found ? Result<void>() : fail(connected.error());
  }
  const auto process = static_cast<pid_t>(connected->peer());
  if (process == 0 || process == ::getpid()) {
    return fail(Code::unsupported, tried,
                process == 0 ? "it is in another container" : "this process serves there",
                "end it yourself, then start the new one");
  }
  const Descriptor watched(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  if (watched.get() < 0 ||
      ::syscall(SYS_pidfd_send_signal, watched.get(), SIGTERM, nullptr, 0) != 0) {
    return errno == ESRCH ? Result<void>() : file_failure(errno, tried);
  }
  pollfd ended{.fd = watched.get(), .events = POLLIN, .revents = 0};
  poll_until({&ended, 1}, time_max, is_interrupted);
  if (ended.revents != 0) return {};
  return fail(Code::capacity_exceeded, tried,
              fmt::format("process {} was sent SIGTERM, and has not ended in time", process),
              "wait longer, or end it by 'kill -KILL': what its file has acknowledged, stays");
}

std::optional<LocalSocket> LocalSocket::accept() const {
  const int accepted = ::accept4(descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  return accepted < 0 ? std::nullopt : std::optional(LocalSocket(accepted));
}

bool LocalSocket::send(std::span<const std::byte> first, std::span<const std::byte> second,
                       std::span<const int> attached) const {
  std::array<iovec, 2> parts{iovec{const_cast<std::byte*>(first.data()), first.size()},
                             iovec{const_cast<std::byte*>(second.data()), second.size()}};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kAttachedMax * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  if (!attached.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(attached.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(attached.size_bytes());
    std::memcpy(CMSG_DATA(header), attached.data(), attached.size_bytes());
  }
  return ::sendmsg(descriptor(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

std::optional<std::size_t> LocalSocket::receive(std::span<std::byte> target,
                                                std::vector<Descriptor>* attached) const {
  iovec part{target.data(), target.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kAttachedMax * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = attached == nullptr ? 0 : control.size();
  const ssize_t count = ::recvmsg(descriptor(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  const cmsghdr* const header = count < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    std::array<int, kAttachedMax> found{};
    const std::size_t byte_count = header->cmsg_len - CMSG_LEN(0);
    std::memcpy(found.data(), CMSG_DATA(header), byte_count);
    for (std::size_t i = 0; i < byte_count / sizeof(int); ++i) attached->emplace_back(found[i]);
  }
  return static_cast<std::size_t>(std::max<ssize_t>(count, 0));
}

std::uint32_t LocalSocket::peer() const {
  ucred known{};
  socklen_t length = sizeof(known);
  ::getsockopt(descriptor(), SOL_SOCKET, SO_PEERCRED, &known, &length);
  return static_cast<std::uint32_t>(known.pid);
}

void LocalSocket::end() const noexcept {
  ::shutdown(descriptor(), SHUT_RDWR);
}

}  // namespace headrace::platform
