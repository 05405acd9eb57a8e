// SPDX-License-Identifier: Apache-2.0
// Registers that lie in memory which clients can write to: what they put there hurts nobody else.
#include "emu/device/registers.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "support/emulator.hpp"

namespace headrace::emu {
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
  client->reset();  // Gives back what it held, of every device.
  EXPECT_EQ(control().reap(), 0U);
}

TEST_F(RegistersTest, what_was_written_for_a_former_client_runs_in_no_later_one) {
  auto client = Client::attach(memory(), process_memory());
  ASSERT_TRUE(client);
  (*client)->start();
  test::Completions completions(1);
  ASSERT_TRUE(control().submit_for(::getpid(), kDevice, kQueue, completions.noop(0),
                                   std::chrono::seconds(10)));
  ASSERT_EQ(completions.status(0), 1);
  completions.clear(0);
  // Its place had another holder when the controller looked, which has gone since.
  ClientRegisters& place = registers().clients[0];
  const Owner former = place.mailbox.owner.load_relaxed() ^ owner_of(0, 1) ^ owner_of(0, 2);
  ASSERT_EQ(client_index_of(former), 0U);
  place.mailbox.owner.store_relaxed(former);
  place.mailbox.state.store_release(MailboxRegisters::posted);
  ring(place, 0);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (place.mailbox.state.load_acquire() != MailboxRegisters::refused &&
         place.mailbox.state.load_acquire() != MailboxRegisters::finished &&
         std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();
  }
  EXPECT_EQ(place.mailbox.state.load_acquire(), MailboxRegisters::refused);
  EXPECT_EQ(completions.status(0), 0);
}

}  // namespace
}  // namespace headrace::emu
