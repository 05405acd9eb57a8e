// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/reaper.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace headrace::emu {
namespace {

/// While a portal is open: a process may inherit its file descriptor and become a client without
/// notice.
constexpr int kSeldomMs = 1000;
/// While a client cannot be watched (no pidfds: Linux before 5.3, a container's seccomp filter, no
/// free file descriptor), or is dead and not yet reaped.
constexpr int kOftenMs = 20;

bool contains(const std::vector<pid_t>& processes, pid_t process_id) {
  return std::ranges::find(processes, process_id) != processes.end();
}

}  // namespace

Result<std::unique_ptr<Reaper>> Reaper::start(Control& control) {
  const std::string tried = "watch over the processes that use the emulated devices";
  HEADRACE_TAKE_WITHIN(tried, bell, headrace::platform::EventDescriptor::make());
  std::unique_ptr<Reaper> reaper(new Reaper(control, std::move(*bell)));
  try {
    reaper->thread_ = std::thread([raw = reaper.get()] { raw->run(); });
  } catch (const std::system_error& error) {
    return fail(Code::capacity_exceeded, tried, "a thread cannot be created",
                "end some processes, or raise the limit (ulimit -u)", error.code().value());
  }
  return reaper;
}

Reaper::~Reaper() {
  if (!thread_.joinable()) return;
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  look();
  thread_.join();
}

void Reaper::watch(pid_t process_id) {
  {
    const Lock lock(mutex_);
    ended_.push_back(process_id);
  }
  look();
}

void Reaper::look() {
  bell_.signal();
}

/// Opens pidfds to poll: readable when the last thread has ended, the same condition as is_dead.
void Reaper::take_in() {
  std::vector<pid_t> processes = control_.client_processes();
  {
    const Lock lock(mutex_);
    for (const pid_t each : ended_) {
      if (!contains(processes, each)) processes.push_back(each);
    }
    ended_.clear();
  }
  for (const pid_t each : processes) {
    if (std::ranges::find(watched_, each, &Watched::process_id) != watched_.end()) continue;
    OwnedFile file(static_cast<int>(::syscall(SYS_pidfd_open, each, 0)));
    const bool is_gone = !file.valid() && errno == ESRCH;
    watched_.push_back({.process_id = each, .file = std::move(file), .is_dead = is_gone});
  }
}

/// Drops processes that hold nothing. A process that cannot be watched stays while it is a client,
/// and is checked often.
void Reaper::erase_ended() {
  const std::vector<pid_t> clients = control_.client_processes();
  std::erase_if(watched_, [&clients](const Watched& each) {
    return (each.is_dead || !each.file.valid()) && !contains(clients, each.process_id);
  });
}

int Reaper::pause_ms() const {
  const auto is_blind = [](const Watched& each) { return !each.file.valid(); };
  if (std::ranges::any_of(watched_, is_blind)) return kOftenMs;
  return control_.portal_is_open() ? kSeldomMs : -1;
}

void Reaper::run() {
  std::vector<pollfd> files;
  while (true) {
    {
      const Lock lock(mutex_);
      if (stopping_) return;
    }
    // Watch first, then reap: poll reports a death in between.
    take_in();
    static_cast<void>(control_.reap());
    erase_ended();
    files.assign(1, {.fd = bell_.descriptor(), .events = POLLIN, .revents = 0});
    for (const Watched& each : watched_) {
      files.push_back({.fd = each.file.get(), .events = POLLIN, .revents = 0});
    }
    ::poll(files.data(), files.size(), pause_ms());
    bell_.reset();
    for (std::size_t i = 0; i < watched_.size(); ++i) {
      if ((files[i + 1].revents & (POLLIN | POLLERR | POLLNVAL)) == 0) continue;
      watched_[i].is_dead = true;
      watched_[i].file.reset();
    }
  }
}

}  // namespace headrace::emu
