// SPDX-License-Identifier: Apache-2.0
// Writing a report: a replaced file keeps its mode, a new one has that of the umask.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "launch/output.hpp"

namespace headrace::launch {
namespace {

TEST(Output, AReplacedFileKeepsItsMode) {
  std::string directory = ::testing::TempDir() + "report.XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const std::string path = directory + "/stats.json";
  for (const mode_t mode : {mode_t{0600}, mode_t{0664}}) {
    std::ofstream(path) << "before";
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    ASSERT_TRUE(write_whole(path, "after"));
    struct stat status{};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, mode);
    std::string text;
    std::ifstream(path) >> text;
    EXPECT_EQ(text, "after");
  }
  ::unlink(path.c_str());
  ::rmdir(directory.c_str());
}

TEST(Output, ANewFileHasTheModeOfTheMask) {
  std::string directory = ::testing::TempDir() + "report.XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const std::string path = directory + "/stats.json";
  const mode_t former = ::umask(027);
  ASSERT_TRUE(write_whole(path, "text"));
  ::umask(former);
  struct stat status{};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, mode_t{0640});
  ::unlink(path.c_str());
  ::rmdir(directory.c_str());
}

}  // namespace
}  // namespace headrace::launch
