// SPDX-License-Identifier: Apache-2.0
#include "emu/launch/sandbox.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <vector>

#include "emu/device/device.hpp"
#include "emu/launch/driver.hpp"

namespace headrace::emu {
namespace {

namespace fs = std::filesystem;

constexpr int kWaitMaxMs = 30'000;
const std::string kTried = "make a namespace for the emulated devices";

/// A directory in which something of ours has to appear: it becomes a private one, with everything
/// that is really there bound back, except `hidden`.
struct Refurnished {
  const char* path;
  std::array<std::string_view, 2> hidden;
};
constexpr std::array<Refurnished, 4> kRefurnished{{
    {"/dev", {"dsa", "dsa-emulator"}},
    {"/sys/bus", {"dsa", "iax"}},  // A real device must not be mixed with ours.
    {"/sys/devices", {"pcid5a0:00", ""}},
    {"/sys/module", {"idxd", ""}},
}};

Result<void> add_refurnished(std::vector<std::string>& words, const Refurnished& place) {
  std::error_code error;
  fs::directory_iterator entries(place.path, error);
  if (error) {
    return fail(Code::unsupported, kTried, fmt::format("{} cannot be listed", place.path),
                "mount sysfs on /sys and a devtmpfs or tmpfs on /dev", error.value());
  }
  words.insert(words.end(), {"--tmpfs", place.path});
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename();
    if (std::find(place.hidden.begin(), place.hidden.end(), name) != place.hidden.end()) continue;
    std::error_code ignored;
    if (entry.is_symlink(ignored)) {
      words.insert(words.end(),
                   {"--symlink", fs::read_symlink(entry.path(), ignored), entry.path()});
    } else {
      // Things come and go in /dev.
      words.insert(words.end(), {"--dev-bind-try", entry.path(), entry.path()});
    }
  }
  return {};
}

Result<std::vector<std::string>> bubblewrap_words(const SandboxOptions& options, int socket) {
  std::vector<std::string> words{"bwrap", "--dev-bind", "/", "/"};
  for (const Refurnished& place : kRefurnished) {
    if (auto added = add_refurnished(words, place); !added) return fail(added.error());
  }
  const auto bind = [&](std::string_view path) {
    words.insert(words.end(),
                 {"--bind", options.files_directory + std::string(path), std::string(path)});
  };
  for (const std::string_view path : {kBusPath, kRootPath, kModulePath, kPortalPath}) bind(path);
  words.insert(words.end(), {"--dir", kEmulatorDirectory});
  words.insert(words.end(), {"--ro-bind", options.preload_path, kPreloadPath});
  if (options.trace) bind(kTracePath);
  std::error_code ignored;
  const std::string self = fs::read_symlink("/proc/self/exe", ignored);
  words.insert(words.end(), {"--", self, "--hand-over", std::to_string(socket)});
  return words;
}

/// Bubblewrap's complaint in terms of what to do about it.
Failure explain(std::string said) {
  while (said.ends_with('\n') || said.ends_with('.')) said.pop_back();
  if (const std::size_t line = said.rfind('\n'); line != std::string::npos) {
    said.erase(0, line + 1);
  }
  const auto says = [&](std::string_view part) { return said.find(part) != std::string::npos; };
  if (says("pivot_root") || says("make / slave")) {
    return fail(Code::unsupported, kTried, "the root directory is no mount point, as in a chroot",
                "make it one before you enter it: mount --bind DIR DIR");
  }
  if (says("namespace") || says("uid map") || says("setting up")) {
    return fail(Code::unsupported, kTried,
                fmt::format("this user may not make user namespaces ({})", said),
                "allow them as root (sysctl -w user.max_user_namespaces=15000; on Ubuntu since "
                "23.10 also sysctl -w kernel.apparmor_restrict_unprivileged_userns=0), or run as "
                "root");
  }
  return fail(Code::unsupported, kTried, said.empty() ? "bubblewrap did not say why" : said,
              ::geteuid() == 0
                  ? "root needs CAP_SYS_ADMIN: give it (docker run --cap-add SYS_ADMIN)"
                  : "run 'bwrap --dev-bind / / true' to see what it lacks");
}

std::string read_all(int file) {
  std::string text;
  std::array<char, 4096> part{};
  ssize_t count = 0;
  while ((count = ::read(file, part.data(), part.size())) > 0) {
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  return text;
}

}  // namespace

Result<void> leave_mount_namespace() {
  if (::unshare(CLONE_NEWNS) != 0) {
    return fail(Code::permission_denied, kTried, "this root lacks CAP_SYS_ADMIN",
                "give it (docker run --cap-add SYS_ADMIN), or run as an ordinary user", errno);
  }
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    const int error = errno;
    if (error == EINVAL) return explain("make / slave");
    return fail(Code::permission_denied, kTried, "mounts cannot be made private", "", error);
  }
  return {};
}

Result<Sandbox> make_sandbox(const SandboxOptions& options) {
  auto sockets = make_socket_pair();
  if (!sockets) return fail(sockets.error());
  // Only bubblewrap may inherit it.
  OwnedFile inherited(::dup(sockets->theirs.get()));
  sockets->theirs.close();
  auto words = bubblewrap_words(options, inherited.get());
  if (!words) return fail(words.error());
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    return fail(Code::io_failed, kTried, "no pipe can be made", "", errno);
  }
  const OwnedFile said(pipe[0]);
  OwnedFile says(pipe[1]);
  auto started = start_program(*words, says.get());
  if (!started) {
    if (started.error().code == Code::not_found) {
      return fail(Code::unsupported, kTried, "there is no bwrap in PATH",
                  "install the package bubblewrap");
    }
    return fail(started.error().within(kTried));
  }
  says.close();
  // Or we would hold the other end ourselves and never see it close.
  inherited.close();
  std::vector<OwnedFile> files = receive_files(sockets->ours.get(), 3, kWaitMaxMs);
  if (files.empty()) ::kill(*started, SIGKILL);
  const std::string complaint = read_all(said.get());
  ::waitpid(*started, nullptr, 0);
  if (files.empty()) return explain(complaint);
  Sandbox sandbox;
  sandbox.registers = std::move(files[0]);
  sandbox.mount_namespace = std::move(files[1]);
  sandbox.user_namespace = std::move(files[2]);
  struct stat inside{};
  struct stat outside{};
  if (::fstat(sandbox.user_namespace.get(), &inside) == 0 &&
      ::stat("/proc/self/ns/user", &outside) == 0) {
    sandbox.has_user_namespace = inside.st_ino != outside.st_ino;
  }
  return sandbox;
}

int hand_over(int socket) {
  const int registers =
      ::open(kRegistersPath, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (registers < 0 || ::fchmod(registers, 0666) != 0 ||
      ::ftruncate(registers, static_cast<off_t>(registers_bytes())) != 0) {
    return 1;
  }
  const int mounts = ::open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
  const int users = ::open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
  const std::array<int, 3> files{registers, mounts, users};
  return mounts >= 0 && users >= 0 && send_files(socket, files) ? 0 : 1;
}

}  // namespace headrace::emu
