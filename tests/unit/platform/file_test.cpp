// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace headrace::platform {
namespace {

class File : public ::testing::Test {
 protected:
  File() { std::filesystem::create_directories(folder_); }
  ~File() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("headrace-file-test-" + std::to_string(::getpid()));
};

TEST_F(File, WhatIsSavedIsLoaded) {
  const std::string text(100000, 'x');
  ASSERT_TRUE(save_file(folder_ / "a", "old").has_value());
  ASSERT_TRUE(save_file(folder_ / "a", text).has_value());
  EXPECT_EQ(load_file(folder_ / "a", text.size()), text);
}

TEST_F(File, AFailedSaveLeavesNothingBehind) {
  std::filesystem::create_directories(folder_ / "a");
  const auto saved = save_file(folder_ / "a", "text");
  ASSERT_FALSE(saved.has_value());
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++count;
  EXPECT_EQ(count, 1U);
}

TEST_F(File, DevicesAndPipesAreNotReplaced) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(save_file(folder_ / "pipe", "text").error().code, Code::invalid_argument);
  EXPECT_TRUE(std::filesystem::is_fifo(folder_ / "pipe"));
}

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

TEST_F(File, AFileIsSavedThroughItsLinkAndKeepsItsMode) {
  ASSERT_TRUE(save_file(folder_ / "a", "old").has_value());
  ASSERT_EQ(::chmod((folder_ / "a").c_str(), 0600), 0);
  std::filesystem::create_symlink("a", folder_ / "link");
  std::filesystem::create_symlink("later", folder_ / "dangling");
  ASSERT_TRUE(save_file(folder_ / "link", "new").has_value());
  ASSERT_TRUE(save_file(folder_ / "dangling", "first").has_value());
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "link"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "dangling"));
  EXPECT_EQ(load_file(folder_ / "a", 10), "new");
  EXPECT_EQ(load_file(folder_ / "later", 10), "first");
  EXPECT_EQ(std::filesystem::status(folder_ / "a").permissions(), std::filesystem::perms(0600));
}

TEST_F(File, ASavedFileHasThePermissionsOfAnyNewFile) {
  const mode_t mask = ::umask(0027);
  const auto saved = save_file(folder_ / "a", "text");
  ::umask(mask);
  ASSERT_TRUE(saved.has_value());
  EXPECT_EQ(std::filesystem::status(folder_ / "a").permissions(), std::filesystem::perms(0640));
}

TEST_F(File, MissingFilesFoldersAndHugeFilesAreNamed) {
  EXPECT_EQ(load_file(folder_ / "none", 10).error().code, Code::not_found);
  EXPECT_EQ(load_file(folder_, 10).error().code, Code::io_failed);
  ASSERT_TRUE(save_file(folder_ / "a", "0123456789A").has_value());
  EXPECT_EQ(load_file(folder_ / "a", 10).error().code, Code::capacity_exceeded);
  EXPECT_EQ(save_file(folder_ / "none" / "a", "x").error().code, Code::not_found);
}

}  // namespace
}  // namespace headrace::platform
