// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/executable.hpp"

#include <gtest/gtest.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace headrace::platform {
namespace {

constexpr std::size_t kPage = 4096;

struct Look {
  int file;
  std::size_t seen = 0;
  std::size_t unreadable = 0;
};

/// Checks each writable page of the program, which is the first module. The kernel reads, by a call
/// that no sanitizer sees, because most of the memory is not this test's.
int look_at_program(dl_phdr_info* module, std::size_t /*size*/, void* context) {
  auto& look = *static_cast<Look*>(context);
  for (std::size_t i = 0; i < module->dlpi_phnum; ++i) {
    const auto& segment = module->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) == 0) continue;
    const std::uintptr_t begin = module->dlpi_addr + segment.p_vaddr;
    for (std::uintptr_t at = begin; at < begin + segment.p_memsz; at += kPage - at % kPage) {
      ++look.seen;
      if (::syscall(SYS_pwrite64, look.file, at, 1UL, 0L) != 1) ++look.unreadable;
    }
  }
  return 1;
}

TEST(ExecutablePages, WhatIsGivenBackIsStillToBeReadByWhatLooksThroughAProgramsData) {
  {
    auto pages = ExecutablePages::make(2 * kPage);
    ASSERT_TRUE(pages.has_value()) << pages.error().message();
    pages->bytes()[0] = std::byte{0xC3};
    const auto sealed = pages->seal();
    ASSERT_TRUE(sealed.has_value()) << sealed.error().message();
  }
  Look look{.file = ::memfd_create("page", MFD_CLOEXEC)};
  ASSERT_GE(look.file, 0);
  ::dl_iterate_phdr(look_at_program, &look);
  ::close(look.file);
  EXPECT_GT(look.seen, 0U);
  EXPECT_EQ(look.unreadable, 0U) << "of " << look.seen << " pages";
}

}  // namespace
}  // namespace headrace::platform
