// SPDX-License-Identifier: Apache-2.0
// Registers in memory that clients can write: corruption by one client does not harm others.
#include "emu/device/registers.hpp"
#include "emu/device/client.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/emulator.hpp"

namespace headrace::emu::registers_test {
namespace {

constexpr DeviceId kDevice{0};
constexpr QueueId kQueue{0};

class RegistersTest : public testing::Test {
 protected:
  RegistersTest() {
    EmulatorConfig config;
    config.devices = {test::one_queue()};
    auto made = Control::create(memory(), config);
    EXPECT_TRUE(made) << made.error().message();
    control_.emplace(*made);
    EXPECT_TRUE(control_->enable_device(kDevice));
    EXPECT_TRUE(control_->enable_queue(kDevice, kQueue));
  }
  [[nodiscard]] std::span<std::byte> memory() { return {memory_.data(), registers_bytes()}; }
  [[nodiscard]] Registers& registers() { return *reinterpret_cast<Registers*>(memory_.data()); }
  [[nodiscard]] Control& control() { return *control_; }

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  std::vector<Line> lines_{registers_bytes() / sizeof(Line) + 1};
  std::span<std::byte> memory_ = std::as_writable_bytes(std::span(lines_));
  std::optional<Control> control_;
};

TEST_F(RegistersTest, a_count_of_devices_that_a_client_wrote_is_not_believed) {
  registers().device_count.store_relaxed(~0U);
  EXPECT_EQ(control().device_count(), 1U);
  EXPECT_EQ(control().statistics().devices.size(), 1U);
  auto client = Client::attach(memory(), process_memory());
  ASSERT_TRUE(client);
  client->reset();  // Releases its entries on every device.
  EXPECT_EQ(control().reap(), 0U);
}

TEST_F(RegistersTest, what_was_written_for_a_former_client_runs_in_no_later_one) {
  auto client = Client::attach(memory(), process_memory());
  ASSERT_TRUE(client);
  ASSERT_TRUE((*client)->start());
  test::Completions completions(1);
  ASSERT_TRUE(control().submit_for(::getpid(), kDevice, kQueue, completions.noop(0),
                                   std::chrono::seconds(60)));
  ASSERT_EQ(completions.await(0), 1);
  completions.clear(0);
  // Its place had another holder when the controller looked, which has since exited.
  ClientRegisters& place = registers().clients[0];
  const Owner former = place.mailbox.owner.load_relaxed() ^ owner_of(0, 1) ^ owner_of(0, 2);
  ASSERT_EQ(client_index_of(former), 0U);
  place.mailbox.owner.store_relaxed(former);
  place.mailbox.state.store_release(MailboxRegisters::posted);
  ring(place, 0);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (place.mailbox.state.load_acquire() != MailboxRegisters::refused &&
         place.mailbox.state.load_acquire() != MailboxRegisters::taken &&
         std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();
  }
  EXPECT_EQ(place.mailbox.state.load_acquire(), MailboxRegisters::refused);
  EXPECT_EQ(completions.status(0), 0);
}

TEST_F(RegistersTest, a_threshold_beyond_the_entries_is_not_believed) {
  registers().devices[0].queues[0].threshold.store_relaxed(~0U);
  auto client = Client::attach(memory(), process_memory());
  ASSERT_TRUE(client);
  // Not started: its submissions stay queued.
  std::uint32_t accepted = 0;
  while (accepted < 1000 && (*client)->enqueue(kDevice, kQueue, dsa::Descriptor{})) ++accepted;
  EXPECT_EQ(accepted, kEntryMax);
}

TEST_F(RegistersTest, a_posted_descriptor_for_a_queue_that_does_not_exist_is_refused) {
  auto client = Client::attach(memory(), process_memory());
  ASSERT_TRUE(client);
  ASSERT_TRUE((*client)->start());
  ClientRegisters& place = registers().clients[0];
  place.mailbox.owner.store_relaxed(
      owner_of(0, PlaceWord{place.place.load_relaxed()}.incarnation()));
  place.mailbox.queue.store_relaxed(1'000'000'000);
  place.mailbox.state.store_release(MailboxRegisters::posted);
  ring(place, 0);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (place.mailbox.state.load_acquire() != MailboxRegisters::refused &&
         std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();
  }
  EXPECT_EQ(place.mailbox.state.load_acquire(), MailboxRegisters::refused);
}

TEST_F(RegistersTest, entries_that_were_cleared_under_a_client_lose_none_of_its_descriptors) {
  auto client = Client::attach(memory(), process_memory());
  ASSERT_TRUE(client);
  test::Completions completions(17);
  for (std::size_t i = 0; i < 16; ++i) {
    ASSERT_TRUE((*client)->enqueue(kDevice, kQueue, completions.noop(i)));
  }
  for (Atomic<Owner>& entry : registers().devices[0].queues[0].entries.words()) {
    entry.store_relaxed(kNobody);
  }
  EXPECT_FALSE((*client)->enqueue(kDevice, kQueue, completions.noop(16)));
  ASSERT_TRUE((*client)->start());
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(completions.await(i), 1) << i;
}

TEST_F(RegistersTest, what_is_held_by_nobody_is_given_back) {
  DeviceRegisters& device = registers().devices[0];
  for (Atomic<Owner>& entry : device.queues[0].entries.words()) entry.store_relaxed(owner_of(7, 9));
  for (EngineRegisters& engine : device.engines) engine.holder.store_relaxed(~0U);
  ASSERT_EQ(control().occupancy(kDevice, kQueue), kEntryMax);
  auto client = Client::attach(memory(), process_memory());
  ASSERT_TRUE(client);
  ASSERT_TRUE((*client)->start());
  test::Completions completions(1);
  ASSERT_TRUE((*client)->enqueue(kDevice, kQueue, completions.noop(0)));
  EXPECT_EQ(completions.await(0), 1);
  for (EngineRegisters& engine : device.engines) engine.holder.store_relaxed(owner_of(7, 9));
  completions.clear(0);
  ASSERT_TRUE((*client)->enqueue(kDevice, kQueue, completions.noop(0)));
  EXPECT_EQ(completions.await(0), 1) << "while it runs";
}

TEST_F(RegistersTest, terms_that_were_written_over_are_not_worked_with) {
  registers().run_options.faults.rule_count = 1'000'000;
  const auto client = Client::attach(memory(), process_memory());
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, Code::corrupt_data);
  EXPECT_FALSE(Control::open(memory()));
}

TEST_F(RegistersTest, options_beyond_their_range_are_refused_even_with_a_hash_that_agrees) {
  const auto is_refused = [this](auto change) {
    const RunOptions good = registers().run_options;
    change(registers().run_options);
    registers().options_hash = hash_of(registers().run_options);
    const auto client = Client::attach(memory(), process_memory());
    registers().run_options = good;
    return !client && client.error().code == Code::corrupt_data;
  };
  EXPECT_TRUE(is_refused([](RunOptions& options) { options.faults.rule_count = 33; }));
  EXPECT_TRUE(is_refused([](RunOptions& options) {
    std::memset(static_cast<void*>(&options.faults.rules[31].write), 7, 1);
  }));
  EXPECT_TRUE(is_refused([](RunOptions& options) {
    std::memset(static_cast<void*>(&options.run_in_submission), 7, 1);
  }));
  EXPECT_FALSE(is_refused([](RunOptions& options) { options.faults.rule_count = 32; }));
}

TEST_F(RegistersTest, only_processes_whose_submissions_were_accepted_count_as_clients) {
  auto client = Client::attach(memory(), process_memory());
  ASSERT_TRUE(client);
  (*client)->store(kDevice, kQueue, dsa::Descriptor{});  // The WQ is shared.
  EXPECT_EQ(control().statistics().client_count, 0U);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE((*client)->enqueue(kDevice, kQueue, dsa::Descriptor{}));
    EXPECT_EQ(control().statistics().client_count, 1U);
  }
}

TEST_F(RegistersTest, what_a_client_leaves_undone_is_unfinished) {
  const auto unfinished = [this] {
    return control().statistics().devices[0].queues[0].unfinished_count;
  };
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  int status = -1;
  ::waitpid(child, &status, 0);
  {
    auto client = Client::attach(memory(), process_memory());
    ASSERT_TRUE(client);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE((*client)->enqueue(kDevice, kQueue, dsa::Descriptor{}));
    }
    EXPECT_EQ(unfinished(), 3U) << "outstanding";
    // As if it belonged to a process that is gone.
    ClientRegisters& place = registers().clients[0];
    const PlaceWord own{place.place.load_relaxed()};
    place.place.store_relaxed(PlaceWord::make(child, 1, own.incarnation()).bits);
    EXPECT_EQ(control().reap(), 1U);
    EXPECT_EQ(control().occupancy(kDevice, kQueue), 0U);
    EXPECT_EQ(unfinished(), 3U);
  }
  auto client = Client::attach(memory(), process_memory());
  ASSERT_TRUE(client);
  ASSERT_TRUE((*client)->enqueue(kDevice, kQueue, dsa::Descriptor{}));
  client->reset();  // Aborts it, which is an end.
  EXPECT_EQ(unfinished(), 3U);
}

TEST_F(RegistersTest, a_client_does_not_look_at_terms_that_changed_under_it) {
  auto client = Client::attach(memory(), process_memory());
  ASSERT_TRUE(client);
  ASSERT_TRUE((*client)->start());
  registers().run_options.faults.rule_count = 1'000'000;
  registers().run_options.schedule = Schedule::deterministic;
  test::Completions completions(1);
  ASSERT_TRUE((*client)->enqueue(kDevice, kQueue, completions.noop(0)));
  EXPECT_EQ(completions.await(0), 1);
}

TEST_F(RegistersTest, the_highest_occupancy_is_that_of_entries_in_use_at_once) {
  auto client = Client::attach(memory(), process_memory());
  ASSERT_TRUE(client);
  const auto entries = registers().devices[0].queues[0].entries.words();
  // A client had six, and released all but the last.
  for (std::size_t i = 0; i < 5; ++i) entries[i].store_relaxed(owner_of(0, 1));
  ASSERT_TRUE((*client)->enqueue(kDevice, kQueue, dsa::Descriptor{}));
  EXPECT_EQ(control().statistics().devices[0].queues[0].occupancy_max, 6U);
  registers().devices[0].queues[0].occupancy_max.store_relaxed(0);
  for (std::size_t i = 0; i < 5; ++i) entries[i].store_relaxed(kNobody);
  ASSERT_TRUE((*client)->enqueue(kDevice, kQueue, dsa::Descriptor{}));
  EXPECT_EQ(control().statistics().devices[0].queues[0].occupancy_max, 2U);
  for (std::size_t i = 1; i < 5; ++i) entries[i].store_relaxed(owner_of(0, 1));
  ASSERT_TRUE((*client)->enqueue(kDevice, kQueue, dsa::Descriptor{}));
  EXPECT_EQ(control().statistics().devices[0].queues[0].occupancy_max, 7U);
}

TEST_F(RegistersTest, nothing_is_posted_to_a_client_that_is_not_set_up) {
  ClientRegisters& place = registers().clients[0];
  // During attach: the place is taken, the mailbox not yet emptied.
  place.place.store_relaxed(PlaceWord::make(::getpid(), 0, 1).bits);
  const auto post = [&] {
    return control().submit_for(::getpid(), kDevice, kQueue, dsa::Descriptor{},
                                std::chrono::milliseconds(20));
  };
  EXPECT_FALSE(post());
  EXPECT_EQ(place.mailbox.owner.load_relaxed(), kNobody);
  place.ready.store_release(owner_of(0, 1));
  EXPECT_FALSE(post()) << "nobody runs it";
  EXPECT_EQ(place.mailbox.owner.load_relaxed(), owner_of(0, 1));
}

/// Runs `scenario` in a child that may not create threads; 0 if all its expectations hold.
int in_a_process_without_threads(const std::function<int()>& scenario) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(100);
    // Root is exempt from the limit.
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) ::_exit(100);
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_NPROC, &none) != 0) ::_exit(101);
    ::_exit(scenario());
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

TEST_F(RegistersTest, a_client_without_a_thread_says_so) {
  EXPECT_EQ(in_a_process_without_threads([this] {
              auto client = Client::attach(memory(), process_memory());
              if (!client) return 1;
              for (int i = 0; i < 3; ++i) {
                const auto started = (*client)->start();
                if (started || started.error().code != Code::capacity_exceeded) return 2;
                if (started.error().os_errno != EAGAIN) return 3;
              }
              client->reset();
              return 0;
            }),
            0);
}

TEST_F(RegistersTest, a_device_in_a_process_without_a_thread_cannot_be_made) {
  EXPECT_EQ(in_a_process_without_threads([] {
              const DeviceConfig config = test::one_queue();
              return Device::create(std::span(&config, 1), {}) ? 1 : 0;
            }),
            0);
}

TEST_F(RegistersTest, submissions_that_nobody_can_run_are_counted_as_by_a_queue_that_is_off) {
  Client::refuse(memory(), kDevice, kQueue, dsa::Descriptor{}, dsa::QueueMode::shared);
  Client::refuse(memory(), kDevice, kQueue, dsa::Descriptor{}, dsa::QueueMode::dedicated);
  const QueueStatistics queue = control().statistics().devices[0].queues[0];
  EXPECT_EQ(queue.retried_count, 1U);
  EXPECT_EQ(queue.dropped_count, 1U);
  EXPECT_EQ(queue.accepted_count, 0U);
  EXPECT_EQ(control().error_registers(kDevice)[0] >> 8U & 0xffU, kErrorQueueNotEnabled);
}

}  // namespace
}  // namespace headrace::emu::registers_test
