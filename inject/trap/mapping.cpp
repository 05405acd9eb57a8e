// SPDX-License-Identifier: Apache-2.0
// Hooks of the calls that open and map files. Other files than portals are unaffected.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdarg>

#include "inject/kernel.hpp"
#include "inject/trap/connection.hpp"
#include "inject/trap/next.hpp"
#include "inject/trap/portals.hpp"
#include "inject/trap/process.hpp"

namespace headrace::emu {
namespace {

HEADRACE_NEXT<void*(void*, std::size_t, int, int, int, off_t)> next_mmap("mmap");
HEADRACE_NEXT<int(void*, std::size_t)> next_munmap("munmap");
HEADRACE_NEXT<void*(void*, std::size_t, std::size_t, int, ...)> next_mremap("mremap");
HEADRACE_NEXT<int(const char*, int, ...)> next_open("open");
HEADRACE_NEXT<int(int, const char*, int, ...)> next_openat("openat");
HEADRACE_NEXT<int(const char*, int)> next_open_2("__open_2");
HEADRACE_NEXT<int(int, const char*, int)> next_openat_2("__openat_2");

void forget(void* address, std::size_t byte_count) noexcept {
  process().portals.forget(reinterpret_cast<std::uint64_t>(address), byte_count);
}

void* map_portal(PortalName portal, void* address, std::size_t byte_count, int flags,
                 int file) noexcept {
  const auto refuse = [](int code) {
    errno = code;
    return MAP_FAILED;
  };
  if (mmap_refused()) return refuse(EPERM);
  // The driver maps one page, whatever the offset.
  if (byte_count == 0 || byte_count > kPageBytes) return refuse(EINVAL);
  // Inaccessible, so that every store traps: one that the CPU executed would be lost in the file.
  void* page = next_mmap(address, byte_count, PROT_NONE, (flags & ~MAP_POPULATE), file, off_t{0});
  if (page == MAP_FAILED) return page;
  ::madvise(page, kPageBytes, MADV_DONTFORK);  // As the driver: VM_DONTCOPY.
  process().portals.remember(reinterpret_cast<std::uint64_t>(page), portal);
  static_cast<void>(connection());
  return page;
}

/// Connects a process that opens a portal for writing, by whatever name: a write() finds the
/// process by its connection.
int opened(int file, int flags) noexcept {
  if (file < 0 || (flags & O_ACCMODE) == O_RDONLY || !emulated()) return file;
  struct stat status{};
  if (kernel::call(__NR_fstat, file, kernel::as_argument(&status)) == 0 &&
      is_portal_inode(status.st_ino)) {
    static_cast<void>(connection());
  }
  return file;
}

constexpr bool takes_mode(int flags) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

}  // namespace

extern "C" {

HEADRACE_HOOK void* mmap(void* address, std::size_t byte_count, int protection, int flags, int file,
                         off_t offset) noexcept {
  if (!emulated()) return next_mmap(address, byte_count, protection, flags, file, offset);
  if ((flags & MAP_ANONYMOUS) == 0 && file >= 0) {
    if (const auto portal = portal_of_file(file)) {
      return map_portal(*portal, address, byte_count, flags, file);
    }
  }
  void* result = next_mmap(address, byte_count, protection, flags, file, offset);
  // Another mapping may have replaced a portal, by MAP_FIXED or after a raw munmap.
  if (result != MAP_FAILED) forget(result, byte_count);
  return result;
}
HEADRACE_HOOK_TOO(mmap64, mmap);

HEADRACE_HOOK int munmap(void* address, std::size_t byte_count) noexcept {
  // Before the call: afterwards the page may already belong to another mapping.
  if (emulated()) forget(address, byte_count);
  return next_munmap(address, byte_count);
}

HEADRACE_HOOK void* mremap(void* address, std::size_t old_bytes, std::size_t new_bytes, int flags,
                           ...) noexcept {
  void* target = nullptr;
  if ((flags & MREMAP_FIXED) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    target = va_arg(arguments, void*);
    va_end(arguments);
  }
  void* result = next_mremap.get()(address, old_bytes, new_bytes, flags, target);
  // The next submission finds out where a portal has moved.
  if (emulated() && result != MAP_FAILED) {
    forget(address, old_bytes);
    forget(result, new_bytes);
  }
  return result;
}

#define HEADRACE_MODE(last)             \
  unsigned mode = 0;                    \
  if (takes_mode(last)) {               \
    va_list arguments;                  \
    va_start(arguments, last);          \
    mode = va_arg(arguments, unsigned); \
    va_end(arguments);                  \
  }

HEADRACE_HOOK int open(const char* path, int flags, ...) {
  HEADRACE_MODE(flags)
  return opened(next_open.get()(path, flags, mode), flags);
}
HEADRACE_HOOK_TOO(open64, open);
HEADRACE_HOOK int openat(int directory, const char* path, int flags, ...) {
  HEADRACE_MODE(flags)
  return opened(next_openat.get()(directory, path, flags, mode), flags);
}
HEADRACE_HOOK_TOO(openat64, openat);
HEADRACE_HOOK int __open_2(const char* path, int flags) {
  return opened(next_open_2(path, flags), flags);
}
HEADRACE_HOOK_TOO(__open64_2, __open_2);
HEADRACE_HOOK int __openat_2(int directory, const char* path, int flags) {
  return opened(next_openat_2(directory, path, flags), flags);
}
HEADRACE_HOOK_TOO(__openat64_2, __openat_2);

#undef HEADRACE_MODE

}  // extern "C"
}  // namespace headrace::emu
