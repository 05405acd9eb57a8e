// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/remains.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <utility>

#include "headrace/platform/attribute.hpp"
#include "launch/emulator/process.hpp"

namespace headrace::emu {
namespace {

namespace fs = std::filesystem;

constexpr long kLookEveryNs = 10'000'000;
constexpr int kAskedLooks = 100;
constexpr int kKilledLooks = 500;
/// A process that forks and exits during a scan hides its child from it; a daemon does so twice.
constexpr int kEmptyLooksMin = 3;

struct Found {
  pid_t process_id;
  pid_t parent_id;
  OwnedFile file;  ///< A pidfd.
};

int send(const Found& process, int number) {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, process.file.get(), number, nullptr, 0));
}

/// The parent of a running process; 0 if it has ended.
pid_t parent_of(pid_t process_id) {
  const std::string process = std::to_string(process_id);
  const pid_t parent = std::atoi(status_field(process, "PPid:").c_str());
  const std::string state = status_field(process, "State:");
  return state.starts_with('Z') || state.starts_with('X') ? 0 : parent;
}

bool is_in(pid_t process_id, const struct stat& mounts) {
  struct stat status{};
  const std::string link = "/proc/" + std::to_string(process_id) + "/ns/mnt";
  return ::stat(link.c_str(), &status) == 0 && status.st_dev == mounts.st_dev &&
         status.st_ino == mounts.st_ino;
}

/// Every process, with a pidfd taken before its parent is read.
std::vector<Found> all_processes() {
  std::vector<Found> all;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    const auto process_id = headrace::platform::parse_number<pid_t>(name);
    if (!process_id) continue;
    OwnedFile file(static_cast<int>(::syscall(SYS_pidfd_open, *process_id, 0)));
    const pid_t parent = parent_of(*process_id);
    if (file.valid() && parent != 0) all.push_back({*process_id, parent, std::move(file)});
  }
  return all;
}

bool is_among(const std::vector<pid_t>& processes, pid_t process_id) {
  return std::ranges::find(processes, process_id) != processes.end();
}

std::vector<Found> find(Ending ending, const std::vector<pid_t>& spared) {
  std::vector<Found> all = all_processes();
  if (ending == Ending::kill_in_namespace) {
    struct stat mounts{};
    ::stat("/proc/self/ns/mnt", &mounts);
    std::erase_if(all, [&](const Found& each) {
      return is_among(spared, each.process_id) || !is_in(each.process_id, mounts);
    });
    return all;
  }
  std::vector<pid_t> family{::getpid()};
  for (std::size_t i = 0; i < family.size(); ++i) {
    for (const Found& each : all) {
      if (each.parent_id == family[i] && !is_among(spared, each.process_id)) {
        family.push_back(each.process_id);
      }
    }
  }
  family.erase(family.begin());
  std::erase_if(all, [&](const Found& each) { return !is_among(family, each.process_id); });
  return all;
}

}  // namespace

std::vector<pid_t> children_of_this_process() {
  std::vector<pid_t> children;
  for (const Found& each : all_processes()) {
    if (each.parent_id == ::getpid()) children.push_back(each.process_id);
  }
  return children;
}

std::vector<pid_t> end_processes(Ending ending, const std::vector<pid_t>& spared) {
  const int asked_looks = ending == Ending::ask_descendants ? kAskedLooks : 0;
  int empty_count = 0;
  std::vector<pid_t> left;
  for (int look = 0; look < asked_looks + kKilledLooks && empty_count < kEmptyLooksMin; ++look) {
    // By number, so that spared children are left for their own waiter.
    for (const pid_t each : left) ::waitpid(each, nullptr, WNOHANG);
    left.clear();
    for (const Found& each : find(ending, spared)) {
      left.push_back(each.process_id);
      if (look >= asked_looks) send(each, SIGKILL);
      if (look != 0 || asked_looks == 0) continue;
      send(each, SIGTERM);
      send(each, SIGCONT);  // A stopped process handles SIGTERM only after SIGCONT.
    }
    empty_count = left.empty() ? empty_count + 1 : 0;
    if (left.empty()) continue;
    const timespec pause{0, kLookEveryNs};
    ::nanosleep(&pause, nullptr);
  }
  return left;
}

}  // namespace headrace::emu
