// SPDX-License-Identifier: Apache-2.0
// What this process has of the system: to find what leaks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace headrace::test {

struct Taken {
  Taken() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) ++mappings;
    std::uint64_t all = 0;
    std::ifstream("/proc/self/statm") >> all >> pages;
    namespace fs = std::filesystem;
    files = std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  }
  std::uint64_t mappings = 0;
  std::uint64_t pages = 0;  ///< Resident.
  std::ptrdiff_t files = 0;
};

}  // namespace headrace::test
