// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/executable.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "headrace/platform/memory.hpp"

namespace headrace::platform {

Result<ExecutablePages> ExecutablePages::make(std::size_t byte_count) {
  auto pages = allocate_pages(byte_count, std::nullopt);
  if (!pages) return fail(std::move(pages.error()));
  return ExecutablePages(*pages);
}

ExecutablePages::ExecutablePages(ExecutablePages&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})) {}

ExecutablePages& ExecutablePages::operator=(ExecutablePages&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

ExecutablePages::~ExecutablePages() {
  if (!bytes_.empty()) free_pages(bytes_);
}

Result<void> ExecutablePages::seal() {
  // One call takes the right to write away and gives the right to execute: there is no moment with
  // both. No instruction cache is to be flushed: on x86-64 it follows the stores, and the system
  // call serialises.
  if (::mprotect(bytes_.data(), bytes_.size(), PROT_READ | PROT_EXEC) != 0) {
    return fail(Code::permission_denied, "make generated code executable",
                "this process may not have executable memory",
                "allow it (SELinux execmem, seccomp), or go without generated copies", errno);
  }
  return {};
}

}  // namespace headrace::platform
