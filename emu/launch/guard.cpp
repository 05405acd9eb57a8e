// SPDX-License-Identifier: Apache-2.0
#include "emu/launch/guard.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace headrace::emu {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "headrace-emulator-";
constexpr useconds_t kLookEveryUs = 2000;
constexpr int kEmptyLooksMin = 3;
constexpr int kLooksMax = 2500;
/// Tries to remove a directory: a pause after each that failed, twice as long as the last.
constexpr int kRemovalsMax = 12;
constexpr useconds_t kFirstPauseUs = 5000;

struct Message {
  bool dismissed = false;
  NamespaceIdentity identity;
};

std::string temporary_directory() {
  std::error_code error;
  fs::path path = fs::temp_directory_path(error);
  return error ? "/tmp" : path.string();
}

void unmount(const std::string& directory) {
  if (::umount2(directory.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0 || errno == EINVAL) return;
  const std::array<std::string, 6> words{"fusermount3", "-u", "-z", "-q", "--", directory};
  static_cast<void>(run_quietly(words));
}

/// Takes the mount from the directory, and the directory away. True if it is gone.
bool remove(const std::string& directory) {
  if (::rmdir(directory.c_str()) == 0 || errno == ENOENT) return true;
  unmount(directory);
  return ::rmdir(directory.c_str()) == 0 || errno == ENOENT;
}

/// A fusermount3 that the launcher had started lives on when the launcher is killed, and may mount
/// after we looked for a mount, or unmount while we do, which makes ours fail.
void remove_for_good(const std::string& directory) {
  useconds_t pause_us = kFirstPauseUs;
  for (int attempt = 0; attempt < kRemovalsMax && !remove(directory); ++attempt) {
    ::usleep(pause_us);
    pause_us *= 2;
  }
}

/// Removes what launchers left whose process is gone: PREFIX uid - pid - start time.
void remove_stale(const std::string& parent) {
  const std::string own = fmt::format("{}{}-", kPrefix, ::geteuid());
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(own)) continue;
    struct stat status{};
    // lstat of a dead FUSE mount fails with ENOTCONN; of somebody else's directory it tells so.
    if (::lstat(entry.path().c_str(), &status) == 0 && status.st_uid != ::geteuid()) continue;
    pid_t process_id = 0;
    std::uint64_t started = 0;
    const char* end = name.data() + name.size();
    const auto first = std::from_chars(name.data() + own.size(), end, process_id);
    if (first.ec != std::errc() || first.ptr == end) continue;
    const auto second = std::from_chars(first.ptr + 1, end, started);
    if (second.ec != std::errc() || second.ptr != end) continue;
    if (start_time_of(process_id) == started) continue;
    // Where it cannot be removed now, the next start tries again.
    static_cast<void>(remove(entry.path()));
  }
}

/// The guard itself. Holds nothing of the caller's: no terminal, no pipe, no directory.
[[noreturn]] void stand_guard(int line, const std::string& directory) {
  ::setsid();
  ::prctl(PR_SET_NAME, "headrace-guard");
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  static_cast<void>(::chdir("/"));
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (int file = 0; file < 3; ++file) ::dup2(nowhere, file);
  ::dup2(line, 3);
  ::close_range(4, ~0U, 0);
  Message message;
  Message last;
  while (true) {
    const ssize_t count = ::recv(3, &message, sizeof message, MSG_WAITALL);
    if (count < 0 && errno == EINTR) continue;
    if (count != static_cast<ssize_t>(sizeof message)) break;
    if (message.dismissed) ::_exit(0);
    last = message;
  }
  if (last.identity.inode != 0) {
    int empty_count = 0;
    for (int look = 0; look < kLooksMax && empty_count < kEmptyLooksMin; ++look) {
      empty_count = signal_namespace(last.identity, SIGKILL) == 0 ? empty_count + 1 : 0;
      ::usleep(kLookEveryUs);
    }
  }
  remove_for_good(directory);
  ::_exit(0);
}

}  // namespace

Result<Guard> Guard::start() {
  Guard guard;
  const std::string parent = temporary_directory();
  remove_stale(parent);
  guard.directory_ = fmt::format("{}/{}{}-{}-{}", parent, kPrefix, ::geteuid(), ::getpid(),
                                 start_time_of(::getpid()));
  auto sockets = make_socket_pair();
  if (!sockets) return fail(sockets.error());
  // The guard comes first: whenever this process is killed, somebody is there to remove the
  // directory.
  guard.process_id_ = ::fork();
  if (guard.process_id_ == 0) stand_guard(sockets->theirs.get(), guard.directory_);
  if (guard.process_id_ < 0) {
    return fail(Code::io_failed, "start the emulator's guard",
                "the system allows no more processes", "end some", errno);
  }
  guard.line_ = std::move(sockets->ours);
  if (::mkdir(guard.directory_.c_str(), 0700) != 0) {
    const int error = errno;
    guard.dismiss();
    return fail(Code::io_failed, fmt::format("make the directory '{}'", guard.directory_),
                "the system refused it", "set TMPDIR to a directory that can be written to", error);
  }
  return guard;
}

void Guard::watch(const NamespaceIdentity& identity) {
  const Message message{.dismissed = false, .identity = identity};
  static_cast<void>(::send(line_.get(), &message, sizeof message, MSG_NOSIGNAL));
}

bool Guard::remove_directory() const {
  return ::rmdir(directory_.c_str()) == 0 || errno == ENOENT;
}

void Guard::dismiss() {
  if (!remove_directory()) {
    // It has more patience, and begins when nobody holds the line any more.
    line_.close();
    return;
  }
  const Message message{.dismissed = true, .identity = {}};
  if (::send(line_.get(), &message, sizeof message, MSG_NOSIGNAL) < 0) return;
  ::waitpid(process_id_, nullptr, 0);
}

}  // namespace headrace::emu
