// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/cgroup.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace headrace::platform {
namespace {

class Cgroup : public ::testing::Test {
 protected:
  Cgroup() { std::filesystem::create_directories(mount_); }
  ~Cgroup() override { std::filesystem::remove_all(mount_); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((mount_ / path).parent_path());
    std::ofstream(mount_ / path) << text;
  }
  [[nodiscard]] std::optional<Bytes> available() const {
    return available_in_cgroup(mount_ / "self", mount_);
  }
  const std::filesystem::path mount_ = std::filesystem::temp_directory_path() /
                                       ("headrace-cgroup-test-" + std::to_string(::getpid()));
};

TEST_F(Cgroup, TheTightestGroupOnTheWayUpCounts) {
  write("self", "0::/outer/inner\n");
  write("outer/inner/memory.max", "max\n");
  write("outer/inner/memory.current", "100\n");
  write("outer/memory.max", "1000\n");
  write("outer/memory.current", "400\n");
  EXPECT_EQ(available(), Bytes(600));
  write("outer/inner/memory.max", "500\n");
  EXPECT_EQ(available(), Bytes(400));
}

TEST_F(Cgroup, PageCacheThatIsNotInUseCountsAsFree) {
  write("self", "0::/\n");
  write("memory.max", "1000\n");
  write("memory.current", "900\n");
  write("memory.stat", "anon 100\nactive_file 50\ninactive_file 300\n");
  EXPECT_EQ(available(), Bytes(400));
}

TEST_F(Cgroup, VersionOneIsUnderstood) {
  write("self", "3:cpu,cpuacct:/a\n2:memory:/docker/1f\n");
  write("memory/docker/1f/memory.limit_in_bytes", "2000\n");
  write("memory/docker/1f/memory.usage_in_bytes", "500\n");
  write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("memory/memory.usage_in_bytes", "500\n");
  EXPECT_EQ(available(), Bytes(1500));
}

TEST_F(Cgroup, AContainerThatSeesItsGroupAsTheRootHasThatLimit) {
  write("self", "0::/system.slice/docker-1f.scope\n");
  write("memory.max", "1000\n");
  write("memory.current", "1200\n");
  EXPECT_EQ(available(), Bytes(0));
}

TEST_F(Cgroup, WhereNothingIsLimitedOrKnownThereIsNoAnswer) {
  EXPECT_EQ(available(), std::nullopt);
  write("self", "no colon\n::\n0::\n0::/a\n1:memory:/a\n");
  EXPECT_EQ(available(), std::nullopt);
  write("a/memory.max", "max\n");
  write("a/memory.current", "5\n");
  EXPECT_EQ(available(), std::nullopt);
}

}  // namespace
}  // namespace headrace::platform
