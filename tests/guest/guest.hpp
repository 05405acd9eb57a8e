// SPDX-License-Identifier: Apache-2.0
// Properties of a guest for its tests: the number of tiles from tests/guest/test_nodes.py, and the
// kernel's memory statistics. Node n has the processor and DDR of tile n, node n + tiles its HBM.
#pragma once

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "headrace/base/units.hpp"
#include "headrace/platform/memory.hpp"

namespace headrace::test {

/// 0 outside of a guest.
inline std::uint32_t tile_count() {
  const char* const text = std::getenv("HEADRACE_GUEST_TILES");
  return text == nullptr ? 0 : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

/// Skips outside of a guest.
class InGuest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (tile_count() == 0) GTEST_SKIP() << "runs in a guest: scripts/guest";
  }
  const std::uint32_t tiles_ = tile_count();
};

/// Number of pages of `bytes` per node, by move_pages(2); negative keys: errno of absent pages. A
/// page that the kernel moves to make room (compaction) is absent at that moment, so absent pages
/// are read, which waits, and asked again.
inline std::map<int, std::size_t> pages_by_node(std::span<const std::byte> bytes) {
  const std::size_t page_bytes = platform::page_bytes();
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  std::vector<void*> pages;
  for (std::uintptr_t at = address / page_bytes * page_bytes; at < address + bytes.size();
       at += page_bytes) {
    pages.push_back(reinterpret_cast<void*>(at));
  }
  std::vector<int> places(pages.size(), -1);
  EXPECT_EQ(::syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, places.data(), 0), 0);
  std::map<int, std::size_t> counts;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    for (int again = 0; places[i] == -ENOENT && again < 100; ++again) {
      static_cast<void>(*static_cast<const volatile std::byte*>(pages[i]));
      EXPECT_EQ(::syscall(SYS_move_pages, 0, 1UL, &pages[i], nullptr, &places[i], 0), 0);
    }
    ++counts[places[i]];
  }
  return counts;
}

/// Bytes of this process on transparent huge pages, by its smaps.
inline std::uint64_t huge_page_bytes_of_this_process() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("AnonHugePages:", 0) == 0) return std::stoull(line.substr(14)) * 1024;
  }
  ADD_FAILURE() << "the kernel says nothing of huge pages";
  return 0;
}

/// Free bytes of a node, by its meminfo.
inline std::uint64_t free_bytes(std::uint32_t node) {
  std::ifstream file("/sys/devices/system/node/node" + std::to_string(node) + "/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t place = line.find("MemFree:");
    if (place != std::string::npos) return std::stoull(line.substr(place + 8)) * 1024;
  }
  ADD_FAILURE() << "node " << node << " says nothing of its memory";
  return 0;
}

}  // namespace headrace::test
