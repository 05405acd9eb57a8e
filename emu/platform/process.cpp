// SPDX-License-Identifier: Apache-2.0
#include "emu/platform/process.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace headrace::emu::platform {
namespace {

struct Stat {
  char state = 'X';
  std::uint64_t started = 0;
  bool known = true;  ///< False: there may be such a process, but it could not be inspected.
};

/// Reads state and start time from /proc/PID/stat: fields 3 and 22, counted from the last
/// parenthesis because the name before it may contain anything.
Stat read_stat(std::int32_t process_id) noexcept {
  char path[48];
  std::snprintf(path, sizeof path, "/proc/%d/stat", process_id);
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    // No file descriptor is free, or /proc hides other users' processes: the process is gone only
    // if the kernel reports ESRCH.
    const bool gone = ::kill(process_id, 0) != 0 && errno == ESRCH;
    return {.known = gone};
  }
  char text[1024];
  const ssize_t length = ::read(file, text, sizeof text - 1);
  ::close(file);
  if (length <= 0) return {};
  text[length] = '\0';
  const char* at = std::strrchr(text, ')');
  if (at == nullptr || at[1] == '\0') return {};
  Stat found{at[2], 0};
  for (int field = 2; field < 22 && at != nullptr; ++field) at = std::strchr(at + 1, ' ');
  if (at != nullptr) found.started = std::strtoull(at + 1, nullptr, 10);
  return found;
}

/// A process whose first thread has ended appears as a zombie while its other threads run.
bool has_other_threads(std::int32_t process_id) noexcept {
  char path[48];
  std::snprintf(path, sizeof path, "/proc/%d/task", process_id);
  DIR* directory = ::opendir(path);
  if (directory == nullptr) return errno != ENOENT;  // Could not look: it may be alive.
  bool found = false;
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_name[0] != '.' && std::atoi(entry->d_name) != process_id) found = true;
  }
  ::closedir(directory);
  return found;
}

}  // namespace

std::int32_t this_process_id() noexcept {
  return static_cast<std::int32_t>(::getpid());
}

std::uint64_t start_time(std::int32_t process_id) noexcept {
  return read_stat(process_id).started;
}

Life life_of(std::int32_t process_id, std::uint64_t started, std::uint32_t started_bits) noexcept {
  const Stat found = read_stat(process_id);
  if (!found.known) return Life::running;
  // 0: the process could not determine its own start time.
  const bool same = started == 0 || ((found.started ^ started) & ((1ULL << started_bits) - 1)) == 0;
  if (!same) return Life::dead;
  switch (found.state) {
    case 'Z':
    case 'X':
    case 'x':
      return has_other_threads(process_id) ? Life::running : Life::dead;
    case 'T':
    case 't':
      return Life::stopped;
    default:
      return Life::running;
  }
}

void* QuietThread::enter(void* self) {
  const auto* thread = static_cast<QuietThread*>(self);
  ::pthread_setname_np(::pthread_self(), thread->name_);
  thread->function_(thread->argument_);
  return nullptr;
}

int QuietThread::start(const char* name, Function function, void* argument) noexcept {
  name_ = name;
  function_ = function;
  argument_ = argument;
  sigset_t quiet;
  sigset_t former;
  ::sigfillset(&quiet);
  // Faults of our accesses raise these two.
  ::sigdelset(&quiet, SIGSEGV);
  ::sigdelset(&quiet, SIGBUS);
  // The new thread inherits this mask, so it never takes a signal.
  ::pthread_sigmask(SIG_SETMASK, &quiet, &former);
  const int failed = ::pthread_create(&handle_, nullptr, &QuietThread::enter, this);
  ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
  if (failed != 0) return failed;
  started_ = true;
  return 0;
}

void QuietThread::join() noexcept {
  if (!started_) return;
  ::pthread_join(handle_, nullptr);
  started_ = false;
}

}  // namespace headrace::emu::platform
