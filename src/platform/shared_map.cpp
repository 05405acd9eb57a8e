// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>

#include "headrace/platform/shared_file.hpp"

namespace headrace::platform {

Result<SharedMap> SharedMap::map(const SharedFile& file, std::uint64_t byte_count) {
  void* const mapped =
      ::mmap(nullptr, byte_count, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
  if (mapped == MAP_FAILED) {
    return fail(errno == ENOMEM ? Code::out_of_memory : Code::io_failed,
                fmt::format("map '{}'", file.path()), "the operating system refused",
                "check the file and its permissions, or ask for less", errno);
  }
  return SharedMap({static_cast<std::byte*>(mapped), static_cast<std::size_t>(byte_count)});
}

}  // namespace headrace::platform
