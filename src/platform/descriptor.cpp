// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/descriptor.hpp"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace headrace::platform {

Descriptor::~Descriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Failure file_failure(int os_errno, std::string tried) {
  switch (os_errno) {
    case ENOENT:
    case ENOTDIR:
      // No errno: its text would repeat the cause.
      return fail(Code::not_found, std::move(tried), "there is no such file or folder",
                  "check the path");
    case EEXIST:
      return fail(Code::invalid_argument, std::move(tried), "it already exists",
                  "choose another name, or remove it first");
    case EACCES:
    case EPERM:
    case EROFS:
      return fail(Code::permission_denied, std::move(tried), "it is not permitted",
                  "choose another place or change its permissions", os_errno);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return fail(Code::capacity_exceeded, std::move(tried), "no space left",
                  "free some space, or ask for less", os_errno);
    default:
      return fail(Code::io_failed, std::move(tried), "the operating system refused",
                  "check the disk and the path", os_errno);
  }
}

}  // namespace headrace::platform
