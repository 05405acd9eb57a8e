// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/namespace.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/emulator/driver.hpp"

namespace headrace::emu {
namespace {

namespace fs = std::filesystem;

const std::string kTried = "make a namespace for the emulated devices";
constexpr const char* kFilesPath = "/dev/dsa-emulator/files";
constexpr unsigned kFuseMajor = 10;
constexpr unsigned kFuseMinor = 229;
constexpr const char* kRootRemedy =
    "give this root CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN), or run as an ordinary user";

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool is_mount_point(const char* path) {
  struct statx status{};
  return ::statx(AT_FDCWD, path, 0, STATX_TYPE, &status) == 0 &&
         (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

/// Explains a refused unshare(CLONE_NEWUSER), or first mount after it.
Failure explain(int error) {
  const auto refused = [error](std::string cause, std::string remedy) {
    return fail(Code::unsupported, kTried, std::move(cause), std::move(remedy), error);
  };
  const std::string as_root = ", or run as root";
  if (first_line("/proc/sys/user/max_user_namespaces") == "0" || error == ENOSPC) {
    return refused("permission denied: user namespaces (user.max_user_namespaces)",
                   "allow them as root (sysctl -w user.max_user_namespaces=15000)" + as_root);
  }
  if (first_line("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1") {
    return refused("AppArmor forbids user namespaces to this program",
                   "allow them as root "
                   "(sysctl -w kernel.apparmor_restrict_unprivileged_userns=0)" +
                       as_root);
  }
  if (first_line("/proc/sys/kernel/unprivileged_userns_clone") == "0") {
    return refused("permission denied: user namespaces (kernel.unprivileged_userns_clone)",
                   "allow them as root (sysctl -w kernel.unprivileged_userns_clone=1)" + as_root);
  }
  if (!is_mount_point("/")) {
    return refused("the root directory is not a mount point, as in a chroot",
                   "make it one before you enter it (mount --bind DIR DIR), and enter it by "
                   "pivot_root, or as root");
  }
  if (status_field("self", "Seccomp:") == "2") {
    return refused("a system call filter (seccomp), such as a container's, forbids namespaces",
                   "start the container with --security-opt seccomp=unconfined, or as root with "
                   "--cap-add SYS_ADMIN");
  }
  if (error == EINVAL) {
    return refused("this kernel has no user namespaces", "run as root");
  }
  return refused("permission denied: user namespaces, as in a chroot",
                 "run as root, or where 'unshare -Um true' works");
}

bool write_file(const char* path, const std::string& text) {
  const OwnedFile file(::open(path, O_WRONLY | O_CLOEXEC));
  return file.valid() &&
         ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

Failure mount_failed(const std::string& what, int error) {
  return fail(
      Code::permission_denied, kTried, fmt::format("{} was refused", what),
      ::geteuid() == 0 ? kRootRemedy : "see whether 'unshare -Urm mount -t tmpfs x /mnt' works",
      error);
}

Result<void> bind_mount(const std::string& source, const std::string& target) {
  if (::mount(source.c_str(), target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0) return {};
  return mount_failed(fmt::format("the mount on {}", target), errno);
}

bool make_file(const std::string& path) {
  return OwnedFile(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0444)).valid();
}

/// Binds the entries of `from` into `to`, except those named in `hidden`.
Result<void> populate(const std::string& from, const std::string& to,
                      const std::vector<std::string_view>& hidden) {
  std::error_code error;
  for (fs::directory_iterator entries(from, error), end; !error && entries != end;
       entries.increment(error)) {
    const std::string name = entries->path().filename();
    if (std::ranges::find(hidden, name) != hidden.end()) continue;
    const std::string target = to + "/" + name;
    std::error_code ignored;
    if (entries->is_symlink(ignored)) {
      const std::string link = fs::read_symlink(entries->path(), ignored);
      static_cast<void>(::symlink(link.c_str(), target.c_str()));
      continue;
    }
    const bool made =
        entries->is_directory(ignored) ? ::mkdir(target.c_str(), 0755) == 0 : make_file(target);
    // Entries of /dev may disappear meanwhile.
    const std::string source = entries->path();
    if (made && ::mount(source.c_str(), target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0 &&
        errno != ENOENT) {
      return mount_failed(fmt::format("the mount on {}", target), errno);
    }
  }
  return {};
}

/// Mounts a tmpfs with the same content on `path`. Returns the covered directory.
Result<OwnedFile> cover(const char* path, const std::vector<std::string_view>& hidden) {
  OwnedFile former(::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!former.valid()) {
    return fail(Code::unsupported, kTried, fmt::format("{} cannot be listed", path),
                "mount sysfs on /sys and a devtmpfs or tmpfs on /dev", errno);
  }
  if (::mount("tmpfs", path, "tmpfs", MS_NOSUID, "mode=0755") != 0) {
    const int error = errno;
    return ::geteuid() == 0 ? mount_failed(fmt::format("the mount on {}", path), error)
                            : explain(error);
  }
  const std::string from = fmt::format("/proc/self/fd/{}", former.get());
  HEADRACE_TRY(populate(from, path, hidden));
  return former;
}

Result<void> make_directories(std::initializer_list<std::string> paths) {
  for (const std::string& path : paths) {
    if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
      return mount_failed(fmt::format("the directory {}", path), errno);
    }
  }
  return {};
}

Result<OwnedFile> open_fuse() {
  constexpr const char* kGive = "give the container the device (docker run --device /dev/fuse)";
  const auto refused = [](Code code, std::string cause, std::string remedy, int error) {
    return fail(code, "serve the files of the emulated devices by FUSE", std::move(cause),
                std::move(remedy), error);
  };
  // A container may replace it with another file, such as /dev/null.
  struct stat status{};
  if (::stat("/dev/fuse", &status) != 0) {
    return refused(Code::unsupported, "there is no /dev/fuse",
                   fmt::format("load the kernel module fuse, or {}", kGive),
                   errno == ENOENT ? 0 : errno);
  }
  if (!S_ISCHR(status.st_mode) || status.st_rdev != makedev(kFuseMajor, kFuseMinor)) {
    return refused(Code::unsupported, "/dev/fuse is not the FUSE device",
                   fmt::format("put the device there (as root: rm /dev/fuse; mknod -m 666 "
                               "/dev/fuse c {} {}), or {}",
                               kFuseMajor, kFuseMinor, kGive),
                   0);
  }
  OwnedFile file(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (file.valid()) return file;
  if (errno == EACCES) {
    return refused(Code::permission_denied, "permission denied: /dev/fuse",
                   "allow it as root (chmod 666 /dev/fuse)", errno);
  }
  if (errno == EPERM) {
    return refused(Code::permission_denied, "a container forbids its devices", kGive, errno);
  }
  return refused(Code::unsupported, "/dev/fuse cannot be opened",
                 "load the kernel module fuse as root (modprobe fuse)", errno);
}

/// A mount below /etc, detached before the overlay covers it.
struct Submount {
  std::string path;
  OwnedFile tree;
};

std::vector<Submount> take_submounts_of_etc() {
  std::vector<Submount> all;
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string path;
    for (int i = 0; i < 5; ++i) fields >> path;
    if (!path.starts_with("/etc/")) continue;
    OwnedFile tree(static_cast<int>(::syscall(SYS_open_tree, AT_FDCWD, path.c_str(),
                                              OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE)));
    if (tree.valid()) all.push_back({std::move(path), std::move(tree)});
  }
  return all;
}

}  // namespace

Result<void> enter_namespace() {
  if (::unshare(CLONE_NEWNS) == 0) {
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0) return {};
    const int error = errno;
    if (error != EINVAL) return mount_failed("making mounts private", error);
    return fail(Code::unsupported, kTried,
                "the root directory is not a mount point, as in a chroot",
                "make it one before you enter it: mount --bind DIR DIR");
  }
  const unsigned user = ::geteuid();
  const unsigned group = ::getegid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return explain(errno);
  // Without the right to change groups, no privilege is needed to map the own group.
  static_cast<void>(write_file("/proc/self/setgroups", "deny"));
  if (!write_file("/proc/self/uid_map", fmt::format("{} {} 1", user, user)) ||
      !write_file("/proc/self/gid_map", fmt::format("{} {} 1", group, group))) {
    return explain(errno);
  }
  return {};
}

Result<OwnedFile> make_places() {
  std::error_code no_directory;
  const std::string directory = fs::current_path(no_directory);
  auto fuse = open_fuse();
  if (!fuse) return fuse;
  HEADRACE_TAKE(devices, cover("/dev", {"dsa", "dsa-emulator", "char"}));
  HEADRACE_TAKE(buses, cover("/sys/bus", {"dsa", "iax", "pci"}));
  HEADRACE_TRY(cover("/sys/devices", {"pcid5a0:00"}));
  HEADRACE_TRY(cover("/sys/module", {"idxd"}));
  const std::string pci(kPciPath);
  const std::string real_pci = fmt::format("/proc/self/fd/{}/pci", buses->get());
  HEADRACE_TAKE(made, make_directories({std::string(kPortalPath), std::string(kCharPath),
                                        kEmulatorDirectory, kFilesPath, std::string(kBusPath), pci,
                                        pci + "/devices", pci + "/drivers", pci + "/drivers/idxd",
                                        std::string(kRootPath), std::string(kModulePath)}));
  if (made = populate(real_pci, pci, {"devices", "drivers"}); !made) return fail(made.error());
  if (made = populate(real_pci + "/drivers", pci + "/drivers", {"idxd"}); !made) {
    return fail(made.error());
  }
  // Programs of root may switch to other users.
  const std::string options =
      fmt::format("fd={},rootmode=40000,user_id={},group_id={},default_permissions{}", fuse->get(),
                  ::geteuid(), ::getegid(), ::geteuid() == 0 ? ",allow_other" : "");
  if (::mount("headrace-emulator", kFilesPath, "fuse.dsa", MS_NOSUID | MS_NODEV, options.c_str()) !=
      0) {
    return mount_failed("the FUSE mount", errno);
  }
  if (!no_directory && ::chdir(directory.c_str()) != 0) {
    return fail(Code::not_found, "enter the current directory in the emulator's namespace",
                "it is not there", "start from a directory outside /dev and /sys", errno);
  }
  return fuse;
}

Result<void> bind_files(bool trace) {
  const std::string pci(kPciPath);
  for (const std::string& path :
       {std::string(kBusPath), std::string(kRootPath), std::string(kModulePath),
        std::string(kPortalPath), std::string(kCharPath), pci + "/devices",
        pci + "/drivers/idxd"}) {
    if (auto done = bind_mount(kFilesPath + path, path); !done) return done;
  }
  const std::string trace_path(kTracePath);
  if (trace) {
    if (!make_file(trace_path)) return mount_failed("the trace", errno);
    if (auto done = bind_mount(kFilesPath + trace_path, trace_path); !done) return done;
  }
  ::umount2(kFilesPath, MNT_DETACH);
  return {};
}

Result<bool> preload_everywhere(const std::string& path) {
  if (!make_file(kPreloadPath)) return mount_failed("the library", errno);
  HEADRACE_TRY(bind_mount(path, kPreloadPath));
  const std::string layer = std::string(kEmulatorDirectory) + "/etc";
  HEADRACE_TRY(make_directories({layer}));
  std::ifstream given("/etc/ld.so.preload");
  std::ofstream list(layer + "/ld.so.preload");
  list << kPreloadPath << '\n';
  for (std::string line; std::getline(given, line);) {
    // A nested emulation sees the outer one's entry.
    if (line != kPreloadPath) list << line << '\n';
  }
  list.close();
  auto submounts = take_submounts_of_etc();
  const std::string options = fmt::format("lowerdir={}:/etc", layer);
  if (!list || ::mount("overlay", "/etc", "overlay", MS_RDONLY, options.c_str()) != 0) {
    static_cast<void>(make_file(kByEnvironmentPath));
    return false;
  }
  for (const Submount& each : submounts) {
    static_cast<void>(::syscall(SYS_move_mount, each.tree.get(), "", AT_FDCWD, each.path.c_str(),
                                MOVE_MOUNT_F_EMPTY_PATH));
  }
  return true;
}

}  // namespace headrace::emu
