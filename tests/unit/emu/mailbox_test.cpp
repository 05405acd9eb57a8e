// SPDX-License-Identifier: Apache-2.0
// Submissions by write() to a full WQ: the driver retries as often as the WQ is configured to, then
// returns the descriptor.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "emu/device/client.hpp"
#include "emu/device/registers.hpp"
#include "support/emulator.hpp"

namespace headrace::emu::mailbox_test {
namespace {

constexpr DeviceId kDevice{0};
constexpr QueueId kQueue{0};

/// One WQ, full at the attempts selected by `rules`, and its client.
class Written {
 public:
  Written(dsa::QueueMode mode, std::initializer_list<FaultRule> rules, bool started = true) {
    EmulatorConfig config;
    config.devices = {test::one_queue({.engines = 4, .mode = mode})};
    for (const FaultRule& rule : rules) config.faults.rules[config.faults.rule_count++] = rule;
    control_.emplace(*Control::create(memory(), config));
    EXPECT_TRUE(control_->enable_device(kDevice));
    EXPECT_TRUE(control_->enable_queue(kDevice, kQueue));
    client_ = std::move(*Client::attach(memory(), process_memory()));
    if (started) start();
  }
  void start() { EXPECT_TRUE(client_->start()); }
  [[nodiscard]] Control& control() { return *control_; }
  /// Returns nothing if the write was accepted.
  std::optional<Code> write(std::chrono::milliseconds wait_max = std::chrono::seconds(60)) {
    const auto done =
        control_->submit_for(::getpid(), kDevice, kQueue, completions_.noop(0), wait_max);
    return done ? std::nullopt : std::optional(done.error().code);
  }
  [[nodiscard]] int status() const { return completions_.status(0); }
  [[nodiscard]] int await() const { return completions_.await(0); }
  [[nodiscard]] QueueStatistics statistics() const {
    return control_->statistics().devices[0].queues[0];
  }

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  [[nodiscard]] std::span<std::byte> memory() {
    return std::as_writable_bytes(std::span(lines_)).first(registers_bytes());
  }
  std::vector<Line> lines_{registers_bytes() / sizeof(Line) + 1};
  std::optional<Control> control_;
  test::Completions completions_{1};
  std::unique_ptr<Client> client_;
};

TEST(Mailbox, a_shared_queue_that_stays_full_gives_back_what_was_written) {
  Written written(dsa::QueueMode::shared, {{.kind = FaultKind::queue_full}});
  EXPECT_EQ(written.write(), Code::capacity_exceeded);
  EXPECT_EQ(written.status(), 0) << "it ran all the same";
  EXPECT_EQ(written.statistics().retried_count, kWriteRetries + 1);
  EXPECT_EQ(written.statistics().written_count, 0U);
  written.control().set_write_retries(kDevice, kQueue, 0);
  EXPECT_EQ(written.write(), Code::capacity_exceeded);
  EXPECT_EQ(written.statistics().retried_count, kWriteRetries + 2);
}

TEST(Mailbox, a_shared_queue_with_room_again_after_a_few_tries_takes_what_was_written) {
  Written written(dsa::QueueMode::shared, {{.kind = FaultKind::queue_full, .nth = 1},
                                           {.kind = FaultKind::queue_full, .nth = 2}});
  EXPECT_EQ(written.write(), std::nullopt);
  EXPECT_EQ(written.await(), DSA_COMP_SUCCESS);
  EXPECT_EQ(written.statistics().retried_count, 2U);
  EXPECT_EQ(written.statistics().written_count, 1U);
}

TEST(Mailbox, a_dedicated_queue_without_room_drops_what_was_written_without_a_word) {
  Written written(dsa::QueueMode::dedicated, {{.kind = FaultKind::queue_full, .nth = 1}});
  EXPECT_EQ(written.write(), std::nullopt);
  EXPECT_EQ(written.status(), 0);
  EXPECT_EQ(written.statistics().dropped_count, 1U);
  EXPECT_NE(written.control().error_registers(kDevice)[0], 0U);
  EXPECT_EQ(written.write(), std::nullopt);
  EXPECT_EQ(written.await(), DSA_COMP_SUCCESS);
}

TEST(Mailbox, a_write_returns_when_the_queue_has_taken_it_even_if_all_engines_are_busy) {
  Written written(dsa::QueueMode::shared, {{.kind = FaultKind::slow, .delay_ns = 20'000'000'000}});
  for (int i = 0; i < 16; ++i) EXPECT_EQ(written.write(), std::nullopt);
  EXPECT_EQ(written.status(), 0) << "it waited for an engine";
  EXPECT_EQ(written.write(), Code::capacity_exceeded) << "all entries are in use";
}

TEST(Mailbox, a_write_that_no_thread_of_its_process_takes_can_be_repeated) {
  Written written(dsa::QueueMode::shared, {}, false);
  EXPECT_EQ(written.write(std::chrono::milliseconds(100)), Code::capacity_exceeded);
  written.start();
  EXPECT_EQ(written.statistics().accepted_count, 0U) << "it was taken later";
  EXPECT_EQ(written.write(), std::nullopt);
  EXPECT_EQ(written.await(), DSA_COMP_SUCCESS);
}

}  // namespace
}  // namespace headrace::emu::mailbox_test
