// SPDX-License-Identifier: Apache-2.0
// Hooks of the stat calls: a portal is a regular file of the FUSE file system, because a user
// namespace cannot open device files; these calls show it as the character device that the kernel's
// driver has.
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "inject/trap/connection.hpp"
#include "inject/trap/next.hpp"
#include "inject/trap/portals.hpp"

namespace headrace::emu {
namespace {

static_assert(sizeof(struct stat) == sizeof(struct stat64), "x86-64 has one layout");

using Stat = int(const char*, struct stat*);
using OldStat = int(int, const char*, struct stat*);

HEADRACE_NEXT<Stat> next_stat("stat");
HEADRACE_NEXT<Stat> next_lstat("lstat");
HEADRACE_NEXT<int(int, struct stat*)> next_fstat("fstat");
HEADRACE_NEXT<int(int, const char*, struct stat*, int)> next_fstatat("fstatat");
HEADRACE_NEXT<OldStat> next_old_stat("__xstat");
HEADRACE_NEXT<OldStat> next_old_lstat("__lxstat");
HEADRACE_NEXT<int(int, int, struct stat*)> next_old_fstat("__fxstat");
HEADRACE_NEXT<int(int, int, const char*, struct stat*, int)> next_old_fstatat("__fxstatat");
HEADRACE_NEXT<int(int, const char*, int, unsigned, struct statx*)> next_statx("statx");

int show(int result, struct stat* status) {
  if (result != 0 || !S_ISREG(status->st_mode) || !is_portal_inode(status->st_ino) || !emulated()) {
    return result;
  }
  status->st_mode = S_IFCHR | (status->st_mode & 07777);
  status->st_rdev = makedev(kPortalMajor, static_cast<unsigned>(status->st_ino - kPortalInode));
  status->st_size = 0;
  status->st_blocks = 0;
  return result;
}

int show(int result, struct statx* status) {
  if (result != 0 || !S_ISREG(status->stx_mode) || !is_portal_inode(status->stx_ino) ||
      !emulated()) {
    return result;
  }
  status->stx_mode = static_cast<std::uint16_t>(S_IFCHR | (status->stx_mode & 07777));
  status->stx_rdev_major = kPortalMajor;
  status->stx_rdev_minor = static_cast<std::uint32_t>(status->stx_ino - kPortalInode);
  status->stx_size = 0;
  status->stx_blocks = 0;
  return result;
}

}  // namespace

extern "C" {

HEADRACE_HOOK int stat(const char* path, struct stat* status) noexcept {
  return show(next_stat(path, status), status);
}
HEADRACE_HOOK int lstat(const char* path, struct stat* status) noexcept {
  return show(next_lstat(path, status), status);
}
HEADRACE_HOOK int fstat(int file, struct stat* status) noexcept {
  return show(next_fstat(file, status), status);
}
HEADRACE_HOOK int fstatat(int directory, const char* path, struct stat* status,
                          int flags) noexcept {
  return show(next_fstatat(directory, path, status, flags), status);
}
HEADRACE_HOOK_TOO(stat64, stat);
HEADRACE_HOOK_TOO(lstat64, lstat);
HEADRACE_HOOK_TOO(fstat64, fstat);
HEADRACE_HOOK_TOO(fstatat64, fstatat);

// Called by programs linked before glibc 2.33.
HEADRACE_HOOK int __xstat(int version, const char* path, struct stat* status) noexcept {
  return show(next_old_stat(version, path, status), status);
}
HEADRACE_HOOK int __lxstat(int version, const char* path, struct stat* status) noexcept {
  return show(next_old_lstat(version, path, status), status);
}
HEADRACE_HOOK int __fxstat(int version, int file, struct stat* status) noexcept {
  return show(next_old_fstat(version, file, status), status);
}
HEADRACE_HOOK int __fxstatat(int version, int directory, const char* path, struct stat* status,
                             int flags) noexcept {
  return show(next_old_fstatat(version, directory, path, status, flags), status);
}
HEADRACE_HOOK_TOO(__xstat64, __xstat);
HEADRACE_HOOK_TOO(__lxstat64, __lxstat);
HEADRACE_HOOK_TOO(__fxstat64, __fxstat);
HEADRACE_HOOK_TOO(__fxstatat64, __fxstatat);

HEADRACE_HOOK int statx(int directory, const char* path, int flags, unsigned mask,
                        struct statx* status) noexcept {
  return show(next_statx(directory, path, flags, mask, status), status);
}

}  // extern "C"
}  // namespace headrace::emu
