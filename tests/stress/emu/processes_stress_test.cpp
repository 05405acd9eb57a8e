// SPDX-License-Identifier: Apache-2.0
// Two processes on the same registers; one is killed at some instant. The other one finishes, and
// nothing of the dead one stays behind.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "emu/device/device.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/base/random.hpp"
#include "support/emulator.hpp"
#include "support/seed.hpp"
#include "support/watchdog.hpp"

namespace headrace::emu {
namespace {

using test::Completions;
using test::one_queue;

constexpr DeviceId kDevice{0};
constexpr QueueId kQueue{0};

std::span<std::byte> shared_memory() {
  void* memory =
      ::mmap(nullptr, registers_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return {static_cast<std::byte*>(memory), registers_bytes()};
}

Control make_control(std::span<std::byte> memory, const DeviceConfig& device) {
  EmulatorConfig config;
  config.devices = {device};
  auto control = Control::create(memory, config);
  EXPECT_TRUE(control) << control.error().message();
  EXPECT_TRUE(control->enable_device(kDevice));
  EXPECT_TRUE(control->enable_queue(kDevice, kQueue));
  return *control;
}

/// Submits copies without an end, several at a time.
[[noreturn]] void submit_for_ever(std::span<std::byte> memory) {
  auto client = Client::attach(memory, process_memory());
  if (!client) ::_exit(2);
  (*client)->start();
  Completions completions(8);
  std::vector<std::byte> source(8'000);
  std::vector<std::byte> target(source.size());
  while (true) {
    for (std::size_t i = 0; i < 8; ++i) {
      completions.clear(i);
      while (!(*client)->enqueue(kDevice, kQueue, completions.move(i, target, source))) {
        std::this_thread::yield();
      }
    }
    for (std::size_t i = 0; i < 8; ++i) completions.await(i);
  }
}

void kill_one_of_two(std::uint32_t engines, int rounds) {
  const std::span<std::byte> memory = shared_memory();
  Control control = make_control(memory, one_queue({.size = 16, .engines = engines}));
  Random random(test::seed());
  for (int round = 0; round < rounds; ++round) {
    const pid_t victim = ::fork();
    if (victim == 0) submit_for_ever(memory);
    {
      auto client = Client::attach(memory, process_memory());
      ASSERT_TRUE(client);
      (*client)->start();
      Completions completions(1);
      const std::uint64_t kill_at = random.below(60);
      for (std::uint64_t i = 0; i < 80; ++i) {
        if (i == kill_at) {
          ::kill(victim, SIGKILL);
          ::waitpid(victim, nullptr, 0);
        }
        completions.clear(0);
        while (!(*client)->enqueue(kDevice, kQueue, completions.noop(0))) {
          control.reap();
          std::this_thread::yield();
        }
        ASSERT_EQ(completions.await(0), 1) << "round " << round << ", descriptor " << i;
      }
    }
    control.reap();
    ASSERT_EQ(control.occupancy(kDevice, kQueue), 0U) << "round " << round;
  }
  ::munmap(memory.data(), memory.size());
}

TEST(ProcessesStress, a_killed_client_leaks_nothing_and_harms_nobody) {
  kill_one_of_two(2, 50);
}

TEST(ProcessesStress, a_killed_client_gives_up_the_only_engine) {
  kill_one_of_two(1, 15);
}

TEST(ProcessesStress, a_stopped_client_gives_up_the_only_engine) {
  const std::span<std::byte> memory = shared_memory();
  Control control = make_control(memory, one_queue({.size = 64, .engines = 1}));
  const pid_t other = ::fork();
  if (other == 0) submit_for_ever(memory);
  auto client = Client::attach(memory, process_memory());
  ASSERT_TRUE(client);
  (*client)->start();
  Completions completions(1);
  for (int i = 0; i < 20; ++i) {
    if (i % 2 == 0) ::kill(other, i % 4 == 0 ? SIGSTOP : SIGCONT);
    completions.clear(0);
    ASSERT_TRUE((*client)->enqueue(kDevice, kQueue, completions.noop(0)));
    ASSERT_EQ(completions.await(0), 1) << i;
  }
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  client->reset();
  control.reap();
  EXPECT_EQ(control.occupancy(kDevice, kQueue), 0U);
  ::munmap(memory.data(), memory.size());
}

TEST(ProcessesStress, a_written_descriptor_runs_in_the_process_that_wrote_it) {
  const std::span<std::byte> memory = shared_memory();
  Control control = make_control(memory, one_queue());
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  auto* record = static_cast<dsa::CompletionRecord*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const pid_t child = ::fork();
  if (child == 0) {
    auto client = Client::attach(memory, process_memory());
    if (!client) ::_exit(2);
    (*client)->start();
    if (::write(ready[1], "x", 1) != 1) ::_exit(3);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  dsa::Descriptor descriptor{};
  descriptor.flags = dsa::flag::record_address_valid | dsa::flag::request_record;
  descriptor.completion_addr = reinterpret_cast<std::uint64_t>(record);
  for (int i = 0; i < 100; ++i) {
    record->status = 0;
    auto done = control.submit_for(child, kDevice, kQueue, descriptor, std::chrono::seconds(10));
    ASSERT_TRUE(done) << done.error().message();
    ASSERT_EQ(dsa::load_status(*record), 1);
  }
  ASSERT_TRUE(control.disable_queue(kDevice, kQueue, std::chrono::seconds(1)));
  EXPECT_FALSE(control.submit_for(child, kDevice, kQueue, descriptor, std::chrono::seconds(10)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(control.submit_for(child, kDevice, kQueue, descriptor, std::chrono::seconds(10)));
  EXPECT_EQ(control.reap(), 1U);
  EXPECT_EQ(control.statistics().devices[0].queues[0].written_count, 100U);
  EXPECT_EQ(control.statistics().lost_client_count, 0U) << "it had nothing in use";
}

TEST(ProcessesStress, a_client_is_lost_if_it_ends_with_entries_in_use) {
  const std::span<std::byte> memory = shared_memory();
  Control control = make_control(memory, one_queue({.size = 16}));
  for (std::uint64_t in_use = 0; in_use < 3; ++in_use) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto client = Client::attach(memory, process_memory());
      // Not started: what it submits stays where it is.
      bool good = client.has_value();
      for (std::uint64_t i = 0; good && i < in_use; ++i) {
        good = (*client)->enqueue(kDevice, kQueue, dsa::Descriptor{});
      }
      ::_exit(good ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
    EXPECT_EQ(control.occupancy(kDevice, kQueue), in_use);
    EXPECT_EQ(control.reap(), 1U);
    EXPECT_EQ(control.occupancy(kDevice, kQueue), 0U);
    // The first had none.
    EXPECT_EQ(control.statistics().lost_client_count, in_use);
  }
  ::munmap(memory.data(), memory.size());
}

TEST(ProcessesStress, a_child_forked_while_its_parent_attaches_attaches_too) {
#if defined(__SANITIZE_ADDRESS__)
  // Its allocator's locks are not made whole in the child of a process with threads (GCC 12).
  GTEST_SKIP() << "AddressSanitizer cannot fork while another thread allocates";
#endif
  const std::span<std::byte> memory = shared_memory();
  make_control(memory, one_queue());
  Atomic<std::uint32_t> ended;
  std::thread parent([&] {
    while (ended.load_relaxed() == 0) {  // only to end
      EXPECT_TRUE(Client::attach(memory, process_memory()));
    }
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      ::_exit(Client::attach(memory, process_memory()) ? 0 : 2);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "child " << i;
    if (status != 0) break;
  }
  ended.store_relaxed(1);  // as above
  parent.join();
}

TEST(ProcessesStress, a_hundred_clients_share_a_queue) {
  const std::span<std::byte> memory = shared_memory();
  Control control = make_control(memory, one_queue({.size = 32, .engines = 2}));
  std::vector<pid_t> children;
  for (int i = 0; i < 100; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      auto client = Client::attach(memory, process_memory());
      if (!client) ::_exit(2);
      (*client)->start();
      Completions completions(1);
      for (int round = 0; round < 20; ++round) {
        completions.clear(0);
        while (!(*client)->enqueue(kDevice, kQueue, completions.noop(0))) {
          std::this_thread::yield();
        }
        if (completions.await(0) != 1) ::_exit(3);
      }
      client->reset();
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(control.occupancy(kDevice, kQueue), 0U);
  EXPECT_EQ(control.statistics().client_count, 100U);
  EXPECT_EQ(control.statistics().devices[0].queues[0].accepted_count, 2000U);
}

}  // namespace
}  // namespace headrace::emu
