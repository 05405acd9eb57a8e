// SPDX-License-Identifier: Apache-2.0
#include "emu/launch/guard.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "emu/launch/mount.hpp"

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
/// The guard's end of the line.
constexpr int kLine = 3;
const std::string kTried = "start the emulator's guard";

/// What the launcher sends: each but `watch`, with which the namespace comes, is answered.
enum class Order : std::uint8_t { detach, watch, dismiss };
enum class Answer : std::uint8_t { done, no_directory, no_mount, still_there };
struct Reply {
  Answer answer = Answer::done;
  int error = 0;                      ///< Of no_directory.
  std::array<char, 400> complaint{};  ///< Of no_mount.
};

std::string temporary_directory() {
  std::error_code error;
  fs::path path = fs::temp_directory_path(error);
  return error ? "/tmp" : path.string();
}

/// fusermount3 may fail for a moment, where processes or files have run out.
void remove_for_good(const std::string& directory) {
  useconds_t pause_us = kFirstPauseUs;
  for (int attempt = 0; attempt < kRemovalsMax && !remove_mounted(directory); ++attempt) {
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
    static_cast<void>(remove_mounted(entry.path()));
  }
}

/// Holds nothing of the launcher's but `line`: no terminal, no pipe, no directory, no process
/// group.
void stand_apart(int line) {
  ::setsid();
  ::prctl(PR_SET_NAME, "headrace-guard");
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  static_cast<void>(::chdir("/"));
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (int file = 0; file < 3; ++file) ::dup2(nowhere, file);
  ::dup2(line, kLine);
  ::close_range(kLine + 1, ~0U, 0);
  ::fcntl(kLine, F_SETFD, FD_CLOEXEC);
}

void reply(const Reply& reply, std::span<const int> files) {
  // A launcher that is gone is found to be so when its next order does not come.
  static_cast<void>(send_message(kLine, std::as_bytes(std::span(&reply, 1)), files));
}

/// Mounts, and tells the launcher, who alone holds what answers the files afterwards: they end with
/// it.
void make_files(const std::string& directory) {
  Reply told;
  if (::mkdir(directory.c_str(), 0700) != 0) {
    told.error = errno;
    told.answer = Answer::no_directory;
    return reply(told, {});
  }
  const Mounted mounted = mount_fuse(directory);
  const int file = mounted.file.get();
  if (mounted.file.valid()) return reply(told, {&file, 1});
  told.answer = Answer::no_mount;
  mounted.complaint.copy(told.complaint.data(), told.complaint.size() - 1);
  reply(told, {});
}

void kill_all(const OwnedFile& mount_namespace) {
  const NamespaceIdentity identity = identity_of(mount_namespace);
  int empty_count = 0;
  for (int look = 0; look < kLooksMax && empty_count < kEmptyLooksMin; ++look) {
    empty_count = signal_namespace(identity, SIGKILL) == 0 ? empty_count + 1 : 0;
    ::usleep(kLookEveryUs);
  }
}

/// The guard itself.
[[noreturn]] void stand_guard(int line, const std::string& directory) {
  stand_apart(line);
  make_files(directory);
  Order order{};
  std::vector<OwnedFile> files;
  // Held, so that no other namespace comes by its number.
  OwnedFile watched;
  // The line breaks when the launcher is dead and its child is none of it any more: the command,
  // in the namespace, or gone.
  while (receive_message(kLine, std::as_writable_bytes(std::span(&order, 1)), files)) {
    if (order == Order::watch) {
      if (!files.empty()) watched = std::move(files.front());
      continue;
    }
    const bool gone = remove_mounted(directory);
    reply({.answer = gone ? Answer::done : Answer::still_there, .error = 0, .complaint = {}}, {});
    if (order == Order::detach) continue;
    // The launcher has ended all of it.
    watched.close();
    break;
  }
  if (watched.valid()) kill_all(watched);
  remove_for_good(directory);
  ::_exit(0);
}

/// Gives the order; whether it was followed.
bool ask(const OwnedFile& line, Order order) {
  if (!send_message(line.get(), std::as_bytes(std::span(&order, 1)), {})) return false;
  Reply told;
  std::vector<OwnedFile> none;
  return receive_message(line.get(), std::as_writable_bytes(std::span(&told, 1)), none) &&
         told.answer == Answer::done;
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
  guard.process_id_ = ::fork();
  if (guard.process_id_ == 0) stand_guard(sockets->theirs.get(), guard.directory_);
  if (guard.process_id_ < 0) {
    return fail(Code::io_failed, kTried, "the system allows no more processes", "end some", errno);
  }
  guard.line_ = std::move(sockets->ours);
  return guard;
}

Result<OwnedFile> Guard::take_files() {
  Reply told;
  std::vector<OwnedFile> files;
  if (!receive_message(line_.get(), std::as_writable_bytes(std::span(&told, 1)), files)) {
    return fail(Code::io_failed, kTried, "it was killed", "try again");
  }
  if (told.answer == Answer::no_directory) {
    return fail(Code::io_failed, fmt::format("make the directory '{}'", directory_),
                "the system refused it", "set TMPDIR to a directory that can be written to",
                told.error);
  }
  if (told.answer != Answer::done) return explain_mount(told.complaint.data());
  if (files.empty()) {
    return fail(Code::capacity_exceeded, kTried, "the system gives no file descriptor",
                "raise the limit (ulimit -n)");
  }
  return std::move(files.front());
}

void Guard::detach() {
  // Where the guard is gone; else this finds nothing more to do.
  if (!ask(line_, Order::detach)) static_cast<void>(remove_mounted(directory_));
}

void Guard::watch(const OwnedFile& mount_namespace) {
  const Order order = Order::watch;
  const int file = mount_namespace.get();
  static_cast<void>(send_message(line_.get(), std::as_bytes(std::span(&order, 1)), {&file, 1}));
}

void Guard::dismiss() {
  // A guard that could not remove the directory at once has more patience than a caller.
  if (ask(line_, Order::dismiss)) ::waitpid(process_id_, nullptr, 0);
}

}  // namespace headrace::emu
