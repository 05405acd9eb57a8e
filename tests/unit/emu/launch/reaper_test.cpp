// SPDX-License-Identifier: Apache-2.0
// A client's resources are released once it is dead, whatever its files indicated before.
#include "launch/emulator/reaper.hpp"

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <optional>
#include <thread>

#include "emu/device/client.hpp"
#include "support/emulator.hpp"
#include "support/watchdog.hpp"

namespace headrace::emu::reaper_test {
namespace {

using std::chrono::steady_clock;
constexpr DeviceId kDevice{0};
constexpr QueueId kQueue{0};
constexpr std::uint32_t kHeldCount = 3;

/// Devices in memory that children share.
///
/// Threading: owned.
class SharedDevices {
 public:
  SharedDevices()
      : memory_(static_cast<std::byte*>(::mmap(nullptr, registers_bytes(), PROT_READ | PROT_WRITE,
                                               MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
                registers_bytes()) {
    EmulatorConfig config;
    config.devices = {test::one_queue()};
    control_.emplace(*Control::create(memory_, config));
    EXPECT_TRUE(control_->enable_device(kDevice));
    EXPECT_TRUE(control_->enable_queue(kDevice, kQueue));
  }
  SharedDevices(const SharedDevices&) = delete;
  SharedDevices& operator=(const SharedDevices&) = delete;
  ~SharedDevices() { ::munmap(memory_.data(), memory_.size()); }
  [[nodiscard]] Control& control() { return *control_; }
  [[nodiscard]] std::span<std::byte> memory() const { return memory_; }
  [[nodiscard]] std::uint32_t held_count() const { return control_->occupancy(kDevice, kQueue); }
  /// Waits until `count` entries are held; returns false on timeout.
  [[nodiscard]] bool await_held(std::uint32_t count) const {
    const auto limit = steady_clock::now() + std::chrono::seconds(60);
    while (held_count() != count && steady_clock::now() < limit) std::this_thread::yield();
    return held_count() == count;
  }

 private:
  std::span<std::byte> memory_;
  std::optional<Control> control_;
};

/// A process that becomes a client on request, and holds entries that no thread processes. Create
/// it before any thread.
///
/// Threading: owned.
class Holder {
 public:
  explicit Holder(std::span<std::byte> memory) {
    EXPECT_EQ(::pipe(go_.data()), 0);
    EXPECT_EQ(::pipe(ready_.data()), 0);
    process_id_ = ::fork();
    if (process_id_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    char byte = 0;
    if (::read(go_[0], &byte, 1) != 1) ::_exit(1);
    auto client = Client::attach(memory, process_memory());
    for (std::uint32_t i = 0; i < kHeldCount; ++i) {
      if (!(*client)->enqueue(kDevice, kQueue, dsa::Descriptor{})) ::_exit(2);
    }
    if (::write(ready_[1], "x", 1) != 1) ::_exit(3);
    while (true) ::pause();
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() {
    kill();
    ::waitpid(process_id_, nullptr, 0);
    for (const int file : {go_[0], go_[1], ready_[0], ready_[1]}) ::close(file);
  }
  [[nodiscard]] pid_t process_id() const { return process_id_; }
  [[nodiscard]] bool attach() const {
    char byte = 0;
    return ::write(go_[1], "x", 1) == 1 && ::read(ready_[0], &byte, 1) == 1;
  }
  /// It stays a zombie: only its death can be detected.
  void kill() const { ::kill(process_id_, SIGKILL); }

 private:
  std::array<int, 2> go_{};
  std::array<int, 2> ready_{};
  pid_t process_id_ = 0;
};

/// From now on pidfd_open fails, as in containers whose seccomp filter does not know it.
bool refuse_pidfds() {
  std::array<sock_filter, 4> program{
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{.len = program.size(), .filter = program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(Reaper, a_portal_that_is_released_before_its_client_is_dead_is_not_all_that_is_looked_at) {
  SharedDevices devices;
  const Holder holder(devices.memory());
  const Holder other(devices.memory());
  const auto reaper = Reaper::start(devices.control());
  ASSERT_TRUE(reaper) << reaper.error().message();
  ASSERT_TRUE(devices.control().open_queue(kDevice, kQueue));
  (*reaper)->watch(holder.process_id());
  ASSERT_TRUE(holder.attach());
  ASSERT_TRUE(other.attach());
  EXPECT_EQ(devices.held_count(), 2 * kHeldCount);
  other.kill();
  devices.control().release_queue(kDevice, kQueue);
  (*reaper)->look();
  // The check ran, and live clients kept their entries.
  EXPECT_TRUE(devices.await_held(kHeldCount));
  holder.kill();
  EXPECT_TRUE(devices.await_held(0));
}

TEST(Reaper, who_became_a_client_by_an_inherited_portal_is_found) {
  SharedDevices devices;
  const Holder holder(devices.memory());
  const auto reaper = Reaper::start(devices.control());
  ASSERT_TRUE(reaper) << reaper.error().message();
  // Another process opened it.
  ASSERT_TRUE(devices.control().open_queue(kDevice, kQueue));
  (*reaper)->watch(::getpid());
  ASSERT_TRUE(holder.attach());
  EXPECT_EQ(devices.held_count(), kHeldCount);
  holder.kill();
  EXPECT_TRUE(devices.await_held(0));
}

TEST(Reaper, looks_by_itself_where_the_system_refuses_to_tell) {
  // In a separate process, which keeps the filter until it ends.
  test::expect_ends([] {
    SharedDevices devices;
    const Holder holder(devices.memory());
    const Holder other(devices.memory());
    // If filters are unavailable it uses pidfds, which is tested above.
    static_cast<void>(refuse_pidfds());
    const auto reaper = Reaper::start(devices.control());
    ASSERT_TRUE(reaper) << reaper.error().message();
    ASSERT_TRUE(devices.control().open_queue(kDevice, kQueue));
    (*reaper)->watch(holder.process_id());
    ASSERT_TRUE(holder.attach());
    ASSERT_TRUE(other.attach());
    devices.control().release_queue(kDevice, kQueue);
    (*reaper)->look();
    other.kill();
    EXPECT_TRUE(devices.await_held(kHeldCount));
    holder.kill();
    EXPECT_TRUE(devices.await_held(0));
  });
}

}  // namespace
}  // namespace headrace::emu::reaper_test
