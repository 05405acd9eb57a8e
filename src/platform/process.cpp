// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/process.hpp"

#include <sys/auxv.h>
#include <unistd.h>

#include <cstdlib>

namespace headrace::platform {

std::uint64_t process_id() {
  return static_cast<std::uint64_t>(::getpid());
}

std::uint64_t thread_id() {
  return static_cast<std::uint64_t>(::gettid());
}

bool has_borrowed_rights() {
  return ::getauxval(AT_SECURE) != 0;
}

std::optional<std::string> trusted_variable(const char* name) {
  if (has_borrowed_rights()) return std::nullopt;
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

}  // namespace headrace::platform
