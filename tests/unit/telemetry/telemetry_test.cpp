// SPDX-License-Identifier: Apache-2.0
#include "headrace/telemetry/telemetry.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "headrace/base/atomic.hpp"
#include "headrace/platform/wait.hpp"
#include "layout.hpp"

namespace headrace::telemetry {
namespace {

using namespace std::chrono_literals;

/// A separate folder for each test.
class Telemetry : public ::testing::Test {
 protected:
  Telemetry() {
    std::string name = std::filesystem::temp_directory_path() / "headrace-telemetry-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~Telemetry() override {
    stop();
    std::filesystem::remove_all(folder_);
  }

  Everything read() {
    Result<Everything> everything = read_all(folder_);
    EXPECT_TRUE(everything.has_value()) << everything.error().message();
    return std::move(*everything);
  }
  /// The file of the only publisher.
  std::string file() {
    for (const auto& each : std::filesystem::directory_iterator(folder_)) return each.path();
    return "";
  }
  std::size_t file_count() {
    const std::filesystem::directory_iterator files(folder_);
    return static_cast<std::size_t>(std::distance(begin(files), end(files)));
  }
  /// Waits until `is_true`, an effect of other threads or processes.
  static bool wait_until(const std::function<bool()>& is_true) {
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (std::chrono::steady_clock::now() < end) {
      if (is_true()) return true;
      platform::sleep(1ms);
    }
    return false;
  }

  std::string folder_;
};

Row row_of(std::uint64_t value) {
  return {.kind = "engine", .name = "engine", .values = {{"one", value}, {"two", value}}};
}

TEST_F(Telemetry, WhatASourceSaysIsRead) {
  const Source source("engine", [](std::uint64_t) { return std::vector<Row>{row_of(7)}; });
  ASSERT_TRUE(start(1ms, folder_).has_value());
  ASSERT_TRUE(wait_until([&] {
    const Everything all = read();
    return all.processes.size() == 1 && all.processes[0].publications > 3;
  }));
  const Everything all = read();
  const Process& process = all.processes[0];
  EXPECT_EQ(process.number, static_cast<std::uint64_t>(::getpid()));
  EXPECT_EQ(process.program, "telemetry_test");
  EXPECT_EQ(process.interval, 1ms);
  EXPECT_GE(process.written, process.began);
  ASSERT_EQ(process.rows.size(), 1U);
  EXPECT_EQ(process.rows[0].kind, "engine");
  ASSERT_EQ(process.rows[0].values.size(), 2U);
  EXPECT_EQ(process.rows[0].values[1].name, "two");
  EXPECT_EQ(process.rows[0].values[1].value, 7U);
}

TEST_F(Telemetry, RowsOfTwoPublicationsAreNeverMixed) {
  std::uint64_t count = 0;  // Only the publisher's thread accesses it.
  const Source source("engine", [&](std::uint64_t) {
    ++count;
    return std::vector<Row>(40, row_of(count));
  });
  ASSERT_TRUE(start(1ms, folder_).has_value());
  std::uint64_t last = 0;
  for (int i = 0; i < 500; ++i) {
    const Everything all = read();
    ASSERT_EQ(all.processes.size(), 1U);
    if (all.processes[0].rows.empty()) continue;
    ASSERT_EQ(all.processes[0].rows.size(), 40U);
    const std::uint64_t value = all.processes[0].rows[0].values[0].value;
    for (const Row& row : all.processes[0].rows) {
      for (const Value& each : row.values) ASSERT_EQ(each.value, value);
    }
    ASSERT_GE(value, last);
    last = value;
  }
  EXPECT_GT(last, 0U);
}

TEST_F(Telemetry, ASourceThatHasEndedIsNotAskedAgain) {
  ASSERT_TRUE(start(1ms, folder_).has_value());
  Atomic<std::uint32_t> has_ended{0};
  {
    const Source source("engine", [&](std::uint64_t) {
      EXPECT_EQ(has_ended.load_relaxed(), 0U);  // Relaxed: ordered by the destructor.
      return std::vector<Row>{row_of(1)};
    });
    ASSERT_TRUE(wait_until([&] { return read().processes.at(0).rows.size() == 1; }));
  }
  has_ended.store_relaxed(1);
  EXPECT_TRUE(wait_until([&] { return read().processes.at(0).rows.empty(); }));
}

TEST_F(Telemetry, WhatDoesNotFitIsCutOrCounted) {
  const Source source("engine", [](std::uint64_t) {
    Row row{.kind = std::string(99, 'k'), .name = std::string(99, 'n'), .values = {}};
    for (std::uint64_t i = 0; i < 50; ++i) row.values.push_back({std::string(99, 'v'), i});
    return std::vector<Row>(kRowsMax + 5, row);
  });
  ASSERT_TRUE(start(1ms, folder_).has_value());
  ASSERT_TRUE(wait_until([&] { return read().processes.at(0).publications > 0; }));
  const Process process = read().processes.at(0);
  EXPECT_EQ(process.rows.size(), kRowsMax);
  EXPECT_EQ(process.rows_left_out, 5U);
  EXPECT_EQ(process.rows[0].kind, std::string(15, 'k'));
  EXPECT_EQ(process.rows[0].name, std::string(63, 'n'));
  ASSERT_EQ(process.rows[0].values.size(), kValuesMax);
  EXPECT_EQ(process.rows[0].values[0].name, std::string(31, 'v'));
}

TEST_F(Telemetry, StoppingRemovesTheFile) {
  ASSERT_TRUE(start(1ms, folder_).has_value());
  EXPECT_EQ(file_count(), 1U);
  ASSERT_TRUE(start(1ms, folder_).has_value()) << "a second start changes nothing";
  EXPECT_EQ(file_count(), 1U);
  stop();
  EXPECT_EQ(file_count(), 0U);
  ASSERT_TRUE(start(1ms, folder_).has_value());
  EXPECT_EQ(read().processes.size(), 1U);
}

TEST_F(Telemetry, AProcessThatIsKilledIsNotTakenForAlive) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!start(1ms, folder_)) ::_exit(1);
    for (;;) ::pause();
  }
  ASSERT_TRUE(wait_until([&] {
    const Everything all = read();
    return all.processes.size() == 1 &&
           all.processes[0].number == static_cast<std::uint64_t>(child);
  }));
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(read().processes.empty());
  EXPECT_EQ(file_count(), 1U) << "a killed process cannot remove its file";
  ASSERT_TRUE(start(1ms, folder_).has_value());
  EXPECT_EQ(file_count(), 1U) << "the next publisher has removed it";
}

TEST_F(Telemetry, AChildOfForkDoesNotKeepItsParentAlive) {
  int pipes[2];
  ASSERT_EQ(::pipe(pipes), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    if (!start(1ms, folder_)) ::_exit(1);
    if (::fork() == 0) {
      // Once it runs, fork() has closed inherited descriptors.
      const pid_t child = ::getpid();
      if (::write(pipes[1], &child, sizeof(child)) != sizeof(child)) ::_exit(1);
    }
    for (;;) ::pause();
  }
  pid_t child = 0;
  ASSERT_EQ(::read(pipes[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  ASSERT_TRUE(wait_until([&] { return read().processes.size() == 1; }));
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  EXPECT_TRUE(read().processes.empty());
  ::kill(child, SIGKILL);
}

TEST_F(Telemetry, AChildOfForkMayPublishToo) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer ends a child of a process with threads that starts one";
#endif
  const Source source("engine", [](std::uint64_t) { return std::vector<Row>{row_of(1)}; });
  ASSERT_TRUE(start(1ms, folder_).has_value());
  const pid_t child = ::fork();
  if (child == 0) {
    if (!start(1ms, folder_)) ::_exit(1);
    ::exit(read_all(folder_)->processes.size() == 2 ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(read().processes.size(), 1U) << "the child has removed its file and not its parent's";
}

TEST_F(Telemetry, AForeignOrDamagedFileIsNamed) {
  ASSERT_TRUE(start(1ms, folder_).has_value());
  const std::string path = file();
  const auto put = [&](std::size_t offset, const auto& value) {
    std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(offset));
    out.write(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  const auto refused = [&](Code code) {
    const Everything all = read();
    EXPECT_TRUE(all.processes.empty());
    ASSERT_EQ(all.unreadable.size(), 1U);
    EXPECT_EQ(all.unreadable[0].path, path);
    EXPECT_EQ(all.unreadable[0].error.code, code) << all.unreadable[0].error.message();
  };
  const detail::Head head;
  put(offsetof(detail::Head, version), detail::kVersion + 1);
  refused(Code::version_mismatch);
  put(offsetof(detail::Head, version), detail::kVersion);
  put(offsetof(detail::Head, row_bytes), std::uint32_t{1});
  refused(Code::corrupt_data);
  put(offsetof(detail::Head, row_bytes), head.row_bytes);
  EXPECT_EQ(read().processes.size(), 1U);
  put(0, 'x');
  refused(Code::corrupt_data);
  put(0, head.magic);
  std::filesystem::resize_file(path, 100);
  refused(Code::corrupt_data);
}

TEST_F(Telemetry, FilesOfAnotherUserAreShownToRootAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root has files of two users";
  ASSERT_TRUE(start(1ms, folder_).has_value());
  std::filesystem::permissions(folder_, std::filesystem::perms(0755));
  ASSERT_EQ(::chown(file().c_str(), 65534, 65534), 0);
  EXPECT_EQ(read().processes.size(), 1U);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::seteuid(65533) != 0) ::_exit(2);
    const Result<Everything> all = read_all(folder_);
    ::_exit(all && all->processes.empty() && all->unreadable.empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Telemetry, APublisherThatStopsInTheMiddleIsNamed) {
  ASSERT_TRUE(start(1h, folder_).has_value());
  ASSERT_TRUE(wait_until([&] { return read().processes.at(0).publications == 1; }));
  std::fstream out(file(), std::ios::in | std::ios::out | std::ios::binary);
  const std::uint64_t odd = 3;
  out.seekp(detail::kTableOffset);
  out.write(reinterpret_cast<const char*>(&odd), sizeof(odd));
  out.flush();
  const Everything all = read();
  ASSERT_EQ(all.unreadable.size(), 1U);
  EXPECT_NE(all.unreadable[0].error.message().find("does not finish"), std::string::npos);
}

TEST_F(Telemetry, BadArgumentsAreRefused) {
  EXPECT_EQ(start(1us, folder_).error().code, Code::invalid_argument);
  EXPECT_EQ(start(1ms, folder_ + "/none").error().code, Code::not_found);
  EXPECT_EQ(read_all(folder_ + "/none").error().code, Code::not_found);
}

}  // namespace
}  // namespace headrace::telemetry
