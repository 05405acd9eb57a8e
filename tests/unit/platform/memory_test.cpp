// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/memory.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

namespace headrace::platform {
namespace {

TEST(Memory, PagesAreZeroedAlignedAndWritable) {
  const auto pages = allocate_pages(5000, std::nullopt);
  ASSERT_TRUE(pages.has_value()) << pages.error().message();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pages->data()) % page_bytes(), 0U);
  EXPECT_GE(pages->size(), 5000U);
  for (std::byte& byte : *pages) {
    ASSERT_EQ(byte, std::byte{0});
    byte = std::byte{1};
  }
  free_pages(*pages);
}

TEST(Memory, PrefaultedPagesLieOnTheNodeAskedFor) {
  const auto pages = allocate_pages(1 << 20, NodeId(0));
  ASSERT_TRUE(pages.has_value()) << pages.error().message();
  ASSERT_TRUE(prefault_pages(*pages).has_value());
  const auto node = node_of_address(pages->data() + pages->size() - 1);
  // Skipped if the kernel does not report the node of a page.
  EXPECT_EQ(node.value_or(NodeId(0)), NodeId(0));
  free_pages(*pages);
}

TEST(Memory, AnUnknownNodeIsRefusedByName) {
  const auto pages = allocate_pages(4096, NodeId(4095));
  ASSERT_FALSE(pages.has_value());
  EXPECT_NE(pages.error().message().find("node 4095"), std::string::npos);
}

TEST(Memory, MoreThanANodeHasLeftIsRefusedBeforeItIsTaken) {
  const auto available = available_on_node(NodeId(0));
  const std::uint64_t wanted = available.value_or(gib(1)).count() + gib(64).count();
  const auto pages = allocate_pages(wanted, NodeId(0));
  ASSERT_FALSE(pages.has_value());
  EXPECT_EQ(pages.error().code, Code::out_of_memory);
}

TEST(Memory, MoreThanANodeHasLeftIsRefusedRightAfterWhatFits) {
  for (int i = 0; i < 3; ++i) {
    const auto fits = allocate_pages(4096, NodeId(0));
    ASSERT_TRUE(fits.has_value()) << fits.error().message();
    const auto available = available_on_node(NodeId(0));
    const std::uint64_t wanted = available.value_or(gib(1)).count() * 2 + gib(64).count();
    const auto too_much = allocate_pages(wanted, NodeId(0));
    ASSERT_FALSE(too_much.has_value());
    if (available.has_value()) {
      EXPECT_NE(too_much.error().message().find("the node has only"), std::string::npos)
          << too_much.error().message();
    }
    free_pages(*fits);
  }
}

TEST(Memory, ANodeThatIsNotThereHasNothingToTell) {
  EXPECT_FALSE(available_on_node(NodeId(4095)).has_value());
}

/// Makes mappings until the process may have no more.
void map_all_that_may_be(std::size_t page) {
  std::size_t count = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> count;
  void* const all = ::mmap(nullptr, count * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* const first = static_cast<std::byte*>(all);
  for (std::size_t i = 1; i < count; i += 2) {
    if (::mprotect(first + i * page, page, PROT_READ) != 0) return;
  }
  _exit(2);
}

TEST(Memory, PagesThatCannotBeUnmappedAreFreedLater) {
  const std::size_t page = page_bytes();
  const pid_t child = ::fork();
  if (child == 0) {
    const std::span<std::byte> pages = allocate_pages(8 * page, std::nullopt).value();
    const std::span<std::byte> middle = pages.subspan(2 * page, 2 * page);
    map_all_that_may_be(page);
    free_pages(middle);  // Would split a mapping.
    const bool stays = is_mapped(middle);
    free_pages(pages.subspan(6 * page));  // Shortens a mapping.
    const bool waits = is_mapped(middle);
    free_pages(pages.first(2 * page));
    _exit(stays && waits && !is_mapped(middle) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Memory, AbsurdLengthsAreErrors) {
  EXPECT_EQ(allocate_pages(0, std::nullopt).error().code, Code::invalid_argument);
  EXPECT_EQ(allocate_pages(SIZE_MAX, std::nullopt).error().code, Code::invalid_argument);
  EXPECT_EQ(allocate_pages(std::size_t{1} << 60U, std::nullopt).error().code, Code::out_of_memory);
}

/// Pages of each kind that a program may have.
struct Kinds {
  Kinds() {
    const std::size_t page = page_bytes();
    const auto map = [&](int protection, int flags, int file) {
      void* const made = ::mmap(nullptr, page, protection, flags, file, 0);
      EXPECT_NE(made, MAP_FAILED);
      return reinterpret_cast<std::uintptr_t>(made);
    };
    constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    writable = map(PROT_READ | PROT_WRITE, kAnonymous, -1);
    read_only = map(PROT_READ, kAnonymous, -1);
    closed = map(PROT_NONE, kAnonymous, -1);
    absent = map(PROT_READ, kAnonymous, -1);
    ::munmap(reinterpret_cast<void*>(absent), page);
    const int file = ::memfd_create("empty", MFD_CLOEXEC);
    behind_the_end = map(PROT_READ | PROT_WRITE, MAP_SHARED, file);
    ::close(file);
  }

  void check() const {
    for (const bool write : {false, true}) {
      EXPECT_EQ(touch_pages(writable + 5, 100, write), 100U);
      EXPECT_EQ(touch_pages(closed, 1, write), 0U);
      EXPECT_EQ(touch_pages(absent, 1, write), 0U);
      EXPECT_EQ(touch_pages(behind_the_end, 1, write), 0U);
      EXPECT_EQ(touch_pages(0, 1, write), 0U);
    }
    EXPECT_EQ(touch_pages(read_only, 1, false), 1U);
    EXPECT_EQ(touch_pages(read_only, 1, true), 0U);
    EXPECT_EQ(*reinterpret_cast<const std::uint64_t*>(writable), 0U);
  }

  std::uintptr_t writable = 0;
  std::uintptr_t read_only = 0;
  std::uintptr_t closed = 0;
  std::uintptr_t absent = 0;
  std::uintptr_t behind_the_end = 0;  ///< Behind the end of its file.
};

TEST(Memory, APageIsTouchedOrToldToBeOutOfReachWhateverItIs) {
  Kinds().check();
}

/// From now on madvise() supports no populate, as before Linux 5.14. Call in a child.
void forget_madvise() {
  std::array filter{sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                    sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
                    sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
                    sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

TEST(Memory, WhereTheKernelCannotBringPagesInTheyAreTouchedOneByOne) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    forget_madvise();
    const Kinds kinds;
    kinds.check();
    const auto pages = allocate_pages(2 * page_bytes(), std::nullopt);
    const auto first = reinterpret_cast<std::uintptr_t>(pages->data());
    EXPECT_EQ(touch_pages(first + 1, 2 * page_bytes() - 1, true), page_bytes() - 1);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Memory, PagesOfTheKernelsOwnAreTouchedForReadingOnly) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line) && !line.ends_with("[vvar]")) {
  }
  if (!line.ends_with("[vvar]")) GTEST_SKIP() << "the kernel maps no clock into programs";
  const std::uintptr_t first = std::stoull(line, nullptr, 16);
  EXPECT_EQ(touch_pages(first + 64, 8, false), 8U);
  EXPECT_EQ(touch_pages(first + 64, 8, true), 0U);
}

}  // namespace
}  // namespace headrace::platform
