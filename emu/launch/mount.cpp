// SPDX-License-Identifier: Apache-2.0
#define FUSE_USE_VERSION 312
#include "emu/launch/mount.hpp"

#include <fcntl.h>
#include <fuse_log.h>
#include <fuse_lowlevel.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <utility>
#include <vector>

namespace headrace::emu {
namespace {

/// The message that libfuse would have printed last.
std::string& last_log() {
  static std::string text;
  return text;
}
void keep_log(fuse_log_level, const char* format, std::va_list arguments) {
  std::array<char, 512> text{};
  std::vsnprintf(text.data(), text.size(), format, arguments);
  if (text[0] != '\0') last_log() = text.data();
}

/// What is written to stderr while it lives; libfuse lets fusermount3 write there.
///
/// Threading: confined; no other thread may be.
class StandardError {
 public:
  StandardError()
      : kept_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)),
        caught_(::memfd_create("stderr", MFD_CLOEXEC)) {
    if (kept_.get() >= 0 && caught_.get() >= 0) ::dup2(caught_.get(), STDERR_FILENO);
  }
  StandardError(const StandardError&) = delete;
  StandardError& operator=(const StandardError&) = delete;
  ~StandardError() {
    if (kept_.get() >= 0) ::dup2(kept_.get(), STDERR_FILENO);
  }
  /// All of it.
  std::string text() const {
    std::array<char, 512> text{};
    const ssize_t count = ::pread(caught_.get(), text.data(), text.size(), 0);
    return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
  }

 private:
  OwnedFile kept_;
  OwnedFile caught_;
};

/// Without line ends and full stops, as it goes into a sentence.
std::string last_line(std::string said) {
  while (said.ends_with('\n') || said.ends_with('.')) said.pop_back();
  return said.substr(said.rfind('\n') + 1);
}

}  // namespace

Mounted mount_fuse(const std::string& directory) {
  fuse_set_log_func(keep_log);
  std::string options = "default_permissions,fsname=headrace-emulator,subtype=dsa";
  // Root's programs may become other users; a user's mount is the user's alone.
  if (::geteuid() == 0) options += ",allow_other";
  std::array<std::string, 3> words{"headrace-emulator", "-o", options};
  std::array<char*, 3> pointers{words[0].data(), words[1].data(), words[2].data()};
  fuse_args arguments = FUSE_ARGS_INIT(static_cast<int>(pointers.size()), pointers.data());
  // It is never served from here: only what mounts is wanted of it.
  const fuse_lowlevel_ops nothing{};
  fuse_session* session = fuse_session_new(&arguments, &nothing, sizeof nothing, nullptr);
  fuse_opt_free_args(&arguments);
  if (session == nullptr) return {.file = {}, .complaint = last_line(last_log())};
  std::string said;
  OwnedFile file;
  {
    const StandardError standard_error;
    if (fuse_session_mount(session, directory.c_str()) == 0) {
      file = OwnedFile(fuse_session_fd(session));
    }
    said = last_line(standard_error.text());
  }
  if (file.valid()) {
    // Never destroyed: libfuse would close the file, and lose the directory's name, which it frees
    // when it unmounts only.
    static auto& mounted = *new std::vector<fuse_session*>;
    mounted.push_back(session);
  } else {
    fuse_session_destroy(session);
  }
  if (said.empty()) said = last_line(last_log());
  return {.file = std::move(file), .complaint = std::move(said)};
}

Failure explain_mount(std::string complaint) {
  const bool no_device = ::access("/dev/fuse", F_OK) != 0;
  const std::string tried = "serve the files of the emulated devices by FUSE";
  if (no_device) {
    return fail(Code::unsupported, tried, "there is no /dev/fuse",
                "load the kernel module fuse, or give the container the device "
                "(docker run --device /dev/fuse --cap-add SYS_ADMIN)");
  }
  if (::geteuid() != 0 && complaint.find("fusermount3") != std::string::npos &&
      complaint.find("No such file") != std::string::npos) {
    return fail(Code::unsupported, tried, "there is no fusermount3 in PATH",
                "install the package fuse3");
  }
  if (::geteuid() != 0 && ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1) {
    return fail(Code::permission_denied, tried,
                "this process may not gain privileges, which fusermount3 needs",
                "start it without no_new_privs (docker run --security-opt no-new-privileges sets "
                "it), or as root");
  }
  return fail(Code::permission_denied, tried,
              complaint.empty() ? "the mount was refused" : std::move(complaint),
              ::geteuid() == 0
                  ? "this root lacks CAP_SYS_ADMIN: give it (docker run --cap-add SYS_ADMIN)"
                  : "fusermount3 has to be set-user-ID root, and users may have to be allowed to "
                    "use it");
}

bool remove_mounted(const std::string& directory) {
  if (::rmdir(directory.c_str()) == 0 || errno == ENOENT) return true;
  if (::umount2(directory.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0 && errno != EINVAL) {
    const std::array<std::string, 6> words{"fusermount3", "-u", "-z", "-q", "--", directory};
    static_cast<void>(run_quietly(words));
  }
  return ::rmdir(directory.c_str()) == 0 || errno == ENOENT;
}

}  // namespace headrace::emu
