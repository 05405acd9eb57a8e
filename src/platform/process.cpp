// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/process.hpp"

#include <unistd.h>

namespace headrace::platform {

std::uint64_t process_id() {
  return static_cast<std::uint64_t>(::getpid());
}

std::uint64_t thread_id() {
  return static_cast<std::uint64_t>(::gettid());
}

}  // namespace headrace::platform
