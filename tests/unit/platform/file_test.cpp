// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/descriptor.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace headrace::platform {
namespace {

class File : public ::testing::Test {
 protected:
  File() { std::filesystem::create_directories(folder_); }
  ~File() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("headrace-file-test-" + std::to_string(::getpid()));
};

TEST_F(File, PipesDevicesAndSocketsAreNotWaitedFor) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  ASSERT_EQ(::mknod((folder_ / "socket").c_str(), S_IFSOCK | 0600, 0), 0);
  for (const std::filesystem::path& path :
       {folder_ / "pipe", folder_ / "socket", std::filesystem::path("/dev/zero"),
        std::filesystem::path("/dev/ptmx")}) {
    const auto loaded = load_file(path, 10);
    ASSERT_FALSE(loaded.has_value()) << path;
    EXPECT_EQ(loaded.error().code, Code::io_failed) << loaded.error().message();
  }
}

TEST_F(File, WholeFilesAreReadAndMissingFilesFoldersAndHugeFilesAreNamed) {
  EXPECT_EQ(load_file(folder_ / "none", 10).error().code, Code::not_found);
  EXPECT_EQ(load_file(folder_, 10).error().code, Code::io_failed);
  std::ofstream(folder_ / "a") << "0123456789A";
  EXPECT_EQ(load_file(folder_ / "a", 10).error().code, Code::capacity_exceeded);
  EXPECT_EQ(load_file(folder_ / "a", 11), "0123456789A");
}

}  // namespace
}  // namespace headrace::platform
