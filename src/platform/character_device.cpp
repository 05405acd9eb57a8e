// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/character_device.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace headrace::platform {
namespace {

constexpr std::size_t kPortalBytes = 4096;

Error denied(const std::string& tried, const char* cause, const char* remedy) {
  const int number = errno;
  const Code code = number == ENOENT                      ? Code::not_found
                    : number == EACCES || number == EPERM ? Code::permission_denied
                                                          : Code::unsupported;
  return Error{code, number, tried, cause, remedy};
}

}  // namespace

Result<CharacterDevice> CharacterDevice::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) {
    return fail(denied(fmt::format("open '{}'", path), "the operating system refused",
                       "'headrace doctor' shows why"));
  }
  return CharacterDevice(descriptor);
}

Result<std::byte*> CharacterDevice::map_page() {
  void* const page = ::mmap(nullptr, kPortalBytes, PROT_WRITE, MAP_SHARED, descriptor_.get(), 0);
  if (page == MAP_FAILED) {
    return fail(denied("map the portal of a work queue", "the operating system refused",
                       "give the process CAP_SYS_RAWIO, or submit by write()"));
  }
  page_.reset({static_cast<std::byte*>(page), kPortalBytes});
  return page_.get().data();
}

bool CharacterDevice::write(std::span<const std::byte> bytes) const noexcept {
  ssize_t done = 0;
  do {
    done = ::write(descriptor_.get(), bytes.data(), bytes.size());
  } while (done < 0 && errno == EINTR);
  return done == static_cast<ssize_t>(bytes.size());
}

}  // namespace headrace::platform
