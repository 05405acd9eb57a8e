// SPDX-License-Identifier: Apache-2.0
// The emulated devices' files through the kernel. Skipped without FUSE.
#include "launch/emulator/file_system.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "emu/device/client.hpp"
#include "launch/emulator/driver.hpp"
#include "support/emulator.hpp"

// The threads that serve a mount live until the process ends, and only the kernel points to an open
// file: LeakSanitizer sees neither.
extern "C" [[gnu::visibility("default")]] const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:serve_files\nleak:open_file\nleak:libfuse3\n";
}

namespace headrace::emu {
namespace {

using std::chrono::steady_clock;
constexpr DeviceId kDevice{0};
constexpr QueueId kQueue{0};

std::span<std::byte> shared_memory() {
  void* memory =
      ::mmap(nullptr, registers_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return {static_cast<std::byte*>(memory), registers_bytes()};
}

/// Returns the wait status if the process ends within the limit, else -1.
int await_end(pid_t process_id, std::chrono::milliseconds limit) {
  const int file = static_cast<int>(::syscall(SYS_pidfd_open, process_id, 0));
  pollfd ended{.fd = file, .events = POLLIN, .revents = 0};
  const int count = ::poll(&ended, 1, static_cast<int>(limit.count()));
  ::close(file);
  int status = -1;
  if (count == 1) ::waitpid(process_id, &status, 0);
  return status;
}

/// Waits until the kernel has the request, for whose answer the writer then waits.
void await_waiting(pid_t process_id) {
  const std::string path = "/proc/" + std::to_string(process_id) + "/wchan";
  const auto end = steady_clock::now() + std::chrono::seconds(2);
  while (steady_clock::now() < end) {
    std::array<char, 64> text{};
    const int file = ::open(path.c_str(), O_RDONLY);
    const ssize_t count = file < 0 ? 0 : ::read(file, text.data(), text.size() - 1);
    ::close(file);
    if (count > 0 && std::string_view(text.data()).find("request_wait") != std::string_view::npos) {
      return;
    }
    std::this_thread::yield();
  }
}

class FileSystemTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::access("/dev/fuse", R_OK | W_OK) != 0) GTEST_SKIP() << "there is no /dev/fuse";
    EmulatorConfig config;
    config.devices = {test::one_queue()};
    auto control = Control::create(memory_, config);
    ASSERT_TRUE(control) << control.error().message();
    served_.control.emplace(*control);
    ASSERT_TRUE(served_.control->enable_device(kDevice));
    ASSERT_TRUE(served_.control->enable_queue(kDevice, kQueue));
    served_.driver.emplace(*served_.control, std::vector<DeviceExtras>(1));
    served_.driver->add_files(served_.tree);
    ASSERT_NE(::mkdtemp(directory_.data()), nullptr);
    ASSERT_EQ(::pipe(mounted_.data()), 0);
  }
  void TearDown() override {
    ::umount2(directory_.c_str(), MNT_DETACH);
    EXPECT_EQ(::rmdir(directory_.c_str()), 0);
  }
  /// A process with a connection that writes a descriptor once the files are mounted. Create it
  /// before any thread.
  pid_t start_writer(bool runs_what_it_writes) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::alarm(100);
    auto client = Client::attach(memory_, process_memory());
    if (!client) ::_exit(2);
    if (runs_what_it_writes && !(*client)->start()) ::_exit(2);
    char byte = 0;
    if (::read(mounted_[0], &byte, 1) != 1) ::_exit(3);
    const int file = ::open((directory_ + std::string(kPortalPath) + "/wq0.0").c_str(), O_RDWR);
    if (file < 0) ::_exit(4);
    const dsa::Descriptor descriptor{};
    if (::write(file, &descriptor, sizeof descriptor) == sizeof descriptor) ::_exit(0);
    ::_exit(errno == EAGAIN ? 6 : 5);
  }
  bool mount() {
    OwnedFile file(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
    const std::string options = "fd=" + std::to_string(file.get()) +
                                ",rootmode=40000,user_id=0,group_id=0,default_permissions";
    // Needs root; users mount in a private namespace, as tests/clients do.
    if (::mount("test", directory_.c_str(), "fuse", 0, options.c_str()) != 0) return false;
    auto reaper = Reaper::start(served_.control.value());
    if (!reaper) return false;
    served_.reaper = std::move(*reaper);
    const auto files = serve_files(
        std::move(file), {.tree = served_.tree, .control = *served_.control}, *served_.reaper);
    if (!files) return false;
    return ::write(mounted_[1], "x", 1) == 1;
  }

 private:
  /// As in the launcher, the serving threads use it until this process ends.
  struct Parts {
    std::optional<Control> control;
    std::optional<Driver> driver;
    std::unique_ptr<Reaper> reaper;
    Tree tree;
  };
  static Parts& serve_until_the_end() {
    static auto& all = *new std::vector<std::unique_ptr<Parts>>;
    return *all.emplace_back(std::make_unique<Parts>());
  }
  std::span<std::byte> memory_ = shared_memory();
  Parts& served_ = serve_until_the_end();
  std::string directory_ = testing::TempDir() + "headrace-files-XXXXXX";
  std::array<int, 2> mounted_{};
};

TEST_F(FileSystemTest, a_written_descriptor_is_run) {
  const pid_t writer = start_writer(true);
  if (!mount()) {
    ::kill(writer, SIGKILL);
    ::waitpid(writer, nullptr, 0);
    GTEST_SKIP() << "FUSE cannot be mounted here";
  }
  EXPECT_EQ(await_end(writer, std::chrono::seconds(60)), 0);
}

TEST_F(FileSystemTest, a_write_that_no_thread_of_its_process_takes_is_to_be_repeated) {
  const pid_t writer = start_writer(false);
  if (!mount()) {
    ::kill(writer, SIGKILL);
    ::waitpid(writer, nullptr, 0);
    GTEST_SKIP() << "FUSE cannot be mounted here";
  }
  const int status = await_end(writer, std::chrono::seconds(20));
  ASSERT_NE(status, -1) << "it still waits";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 6) << status;
}

class EndingWriterTest : public FileSystemTest, public testing::WithParamInterface<int> {};

TEST_P(EndingWriterTest, a_signal_that_ends_a_writer_does_so_while_it_waits) {
  const pid_t writer = start_writer(false);
  if (!mount()) {
    ::kill(writer, SIGKILL);
    ::waitpid(writer, nullptr, 0);
    GTEST_SKIP() << "FUSE cannot be mounted here";
  }
  await_waiting(writer);
  ::kill(writer, GetParam());
  // Less than the timeout of the write.
  const int status = await_end(writer, std::chrono::seconds(20));
  ASSERT_NE(status, -1) << "it still waits";
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == GetParam()) << status;
}

INSTANTIATE_TEST_SUITE_P(Signals, EndingWriterTest, testing::Values(SIGKILL, SIGTERM, SIGABRT));

TEST_F(FileSystemTest, a_signal_that_ends_nobody_does_not_end_a_write) {
  const pid_t writer = start_writer(false);
  if (!mount()) {
    ::kill(writer, SIGKILL);
    ::waitpid(writer, nullptr, 0);
    GTEST_SKIP() << "FUSE cannot be mounted here";
  }
  await_waiting(writer);
  ::kill(writer, SIGWINCH);
  EXPECT_EQ(await_end(writer, std::chrono::milliseconds(300)), -1);
  ::kill(writer, SIGKILL);
  EXPECT_NE(await_end(writer, std::chrono::seconds(20)), -1);
}

}  // namespace
}  // namespace headrace::emu
