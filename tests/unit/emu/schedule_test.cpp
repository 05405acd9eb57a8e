// SPDX-License-Identifier: Apache-2.0
// Order of descriptors, full queues, and injected faults.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "emu/device/client.hpp"
#include "emu/device/device.hpp"
#include "headrace/base/atomic.hpp"
#include "support/emulator.hpp"

namespace headrace::emu {
namespace {

using test::Completions;
using test::one_queue;

constexpr DeviceId kDevice{0};
constexpr QueueId kQueue{0};
constexpr QueueId kOther{1};

std::unique_ptr<Device> make(const DeviceConfig& config, DeviceOptions options = {}) {
  auto device = Device::create(std::span(&config, 1), std::move(options));
  EXPECT_TRUE(device) << device.error().message();
  return device ? std::move(*device) : nullptr;
}

DeviceOptions deterministic(std::uint64_t seed = 1) {
  DeviceOptions options;
  options.schedule = Schedule::deterministic;
  options.seed = seed;
  return options;
}

FaultScript script(const std::string& text) {
  auto parsed = parse_fault_script(text, "faults.toml");
  EXPECT_TRUE(parsed) << parsed.error().message();
  return parsed ? *parsed : FaultScript{};
}

TEST(Schedule, a_shared_queue_takes_as_many_as_its_threshold_and_answers_the_rest_with_retry) {
  DeviceConfig config = one_queue({.size = 16});
  config.queues[0].threshold = 4;
  auto device = make(config, deterministic());
  Completions completions(5);
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(i)));
  }
  EXPECT_FALSE(device->portal(kDevice, kQueue).submit(completions.noop(4)));
  EXPECT_EQ(device->control().occupancy(kDevice, kQueue), 4U);
  device->client().run_until_idle();
  EXPECT_EQ(device->control().occupancy(kDevice, kQueue), 0U);
  EXPECT_EQ(completions.status(3), 1);
  EXPECT_EQ(completions.status(4), 0);
  const QueueStatistics queue = device->control().statistics().devices[0].queues[0];
  EXPECT_EQ(queue.retried_count, 1U);
  EXPECT_EQ(queue.occupancy_max, 4U);
}

TEST(Schedule, a_dedicated_queue_drops_what_it_cannot_hold_and_reports_it) {
  auto device = make(one_queue({.size = 2, .mode = dsa::QueueMode::dedicated}), deterministic());
  Completions completions(3);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(i)));
  }
  EXPECT_EQ(device->control().statistics().devices[0].queues[0].dropped_count, 1U);
  EXPECT_EQ(device->control().error_registers(kDevice)[0] & 1U, 1U);
  device->client().run_until_idle();
  EXPECT_EQ(completions.status(1), 1);
  EXPECT_EQ(completions.status(2), 0);
}

TEST(Schedule, a_fence_stops_the_batch_after_a_failure) {
  for (const std::uint32_t engines : {1U, 4U}) {
    auto device = make(one_queue({.engines = engines}));
    Completions completions(5);
    alignas(64) std::array<dsa::Descriptor, 4> list{completions.noop(0), completions.noop(1),
                                                    completions.noop(2), completions.noop(3)};
    list[1].opcode = 0x3f;  // No such opcode.
    list[2].flags = list[2].flags | dsa::flag::fence;
    ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.batch(4, list)));
    EXPECT_EQ(completions.await(4), 5);
    EXPECT_EQ(completions.record(4).bytes_completed, 2U);
    EXPECT_EQ(completions.status(0), 1);
    EXPECT_EQ(completions.status(1), 0x10);
    EXPECT_EQ(completions.status(2), 0);
    EXPECT_EQ(completions.status(3), 0);
  }
}

TEST(Schedule, without_a_fence_the_batch_goes_on_after_a_failure) {
  auto device = make(one_queue());
  Completions completions(4);
  alignas(64) std::array<dsa::Descriptor, 3> list{completions.noop(0), completions.noop(1),
                                                  completions.noop(2)};
  list[0].opcode = 0x3f;
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.batch(3, list)));
  EXPECT_EQ(completions.await(3), 5);
  EXPECT_EQ(completions.record(3).bytes_completed, 3U);
  EXPECT_EQ(completions.status(2), 1);
}

TEST(Schedule, a_fault_on_the_list_ends_the_batch_with_what_could_be_fetched) {
  auto device = make(one_queue());
  auto* pages = static_cast<std::byte*>(
      ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_EQ(::munmap(pages + 4096, 4096), 0);
  Completions completions(9);
  auto* list = reinterpret_cast<dsa::Descriptor*>(pages + 4096) - 2;
  list[0] = completions.noop(0);
  list[1] = completions.noop(1);
  dsa::Descriptor batch = completions.batch(8, std::span(list, 1));
  batch.desc_count = 8;
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(batch));
  EXPECT_EQ(completions.await(8), 6);
  EXPECT_EQ(completions.record(8).bytes_completed, 2U);
  EXPECT_EQ(completions.record(8).fault_addr, reinterpret_cast<std::uint64_t>(pages + 4096));
  EXPECT_EQ(completions.status(1), 1);
  ::munmap(pages, 4096);
}

TEST(Schedule, engines_all_on_batches_do_not_wait_for_each_other) {
  auto device = make(one_queue({.size = 64, .engines = 4}));
  constexpr std::size_t kBatches = 32;
  Completions completions(kBatches * 5);
  std::vector<std::byte> source(60'000);
  // Separate targets: descriptors that write to the same bytes are unordered.
  std::vector<std::byte> targets(source.size() * kBatches * 4);
  alignas(64) std::array<std::array<dsa::Descriptor, 4>, kBatches> lists;
  for (std::size_t b = 0; b < kBatches; ++b) {
    for (std::size_t i = 0; i < 4; ++i) {
      const auto target = std::span(targets).subspan((b * 4 + i) * source.size(), source.size());
      lists[b][i] = completions.move(b * 5 + i, target, source);
      if (i == 2) lists[b][i].flags = lists[b][i].flags | dsa::flag::fence;
    }
    ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.batch(b * 5 + 4, lists[b])));
  }
  for (std::size_t b = 0; b < kBatches; ++b) EXPECT_EQ(completions.await(b * 5 + 4), 1);
}

TEST(Schedule, a_drain_ends_after_all_that_came_before_it) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<TraceEvent> events;
    DeviceOptions options = deterministic(seed);
    options.trace = [&](const TraceEvent& event) { events.push_back(event); };
    auto device = make(one_queue({.size = 32, .engines = 4}), std::move(options));
    Completions completions(8);
    std::vector<std::byte> source(100'000);
    std::vector<std::byte> target(source.size());
    for (std::size_t i = 0; i < 5; ++i) {
      ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.move(i, target, source)));
    }
    ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.drain(5)));
    ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(6)));
    device->client().run_until_idle();
    std::size_t finished = 0;
    for (const TraceEvent& event : events) {
      if (event.kind != TraceKind::finished) continue;
      if (event.sequence == 5) {
        EXPECT_EQ(finished, 5U);
      }
      if (event.sequence < 5) ++finished;
    }
    EXPECT_EQ(completions.status(6), 1);
  }
}

TEST(Schedule, a_queue_of_high_priority_goes_first_and_starves_nobody) {
  DeviceConfig config = default_device(2, 0, 1, "test");
  config.queues[0].priority = 15;
  config.queues[1].priority = 1;
  std::vector<TraceEvent> events;
  DeviceOptions options;
  options.trace = [&](const TraceEvent& event) { events.push_back(event); };
  // The first one keeps the only engine busy while the queues fill.
  options.faults = script("[[fault]]\nkind = 'slow'\nnth = 1\ndelay_ns = 100000000\n");
  auto device = make(config, std::move(options));
  Completions completions(121);
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(120)));
  for (std::size_t i = 0; i < 60; ++i) {
    ASSERT_TRUE(device->portal(kDevice, kOther).submit(completions.noop(60 + i)));
    ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(i)));
  }
  for (std::size_t i = 0; i < 121; ++i) ASSERT_EQ(completions.await(i), 1);
  device.reset();
  std::size_t high = 0;
  std::size_t low = 0;
  for (const TraceEvent& event : events) {
    if (event.kind != TraceKind::started || high + low == 33) continue;
    (event.queue == 0 ? high : low) += 1;
  }
  EXPECT_GE(high, 29U);
  EXPECT_GE(low, 1U);
}

std::string trace_of(std::uint64_t seed) {
  std::string text;
  DeviceOptions options = deterministic(seed);
  options.trace = [&](const TraceEvent& event) { text += to_json(event) + "\n"; };
  auto device = make(default_device(2, 0, 4, "test"), std::move(options));
  Completions completions(40);
  std::vector<std::byte> source(60'000);
  std::vector<std::byte> target(source.size());
  alignas(64) std::array<dsa::Descriptor, 8> list;
  for (std::size_t i = 0; i < 8; ++i) list[i] = completions.move(i, target, source);
  for (std::size_t i = 8; i < 20; ++i) {
    EXPECT_TRUE(device->portal(kDevice, kQueue).submit(completions.move(i, target, source)));
    EXPECT_TRUE(device->portal(kDevice, kOther).submit(completions.noop(i + 12)));
  }
  EXPECT_TRUE(device->portal(kDevice, kOther).submit(completions.batch(39, list)));
  device->client().run_until_idle();
  EXPECT_EQ(completions.status(39), 1);
  return text;
}

TEST(Schedule, the_same_seed_gives_the_same_trace_and_another_one_another) {
  const std::string first = trace_of(7);
  EXPECT_EQ(first, trace_of(7));
  EXPECT_NE(first, trace_of(8));
}

TEST(Schedule, a_reset_ends_what_is_half_done_and_whole_batches) {
  auto device = make(one_queue({.size = 32, .engines = 2}), deterministic());
  Completions completions(14);
  std::vector<std::byte> source(1 << 20);
  std::vector<std::byte> target(source.size());
  alignas(64) std::array<dsa::Descriptor, 8> list;
  for (std::size_t i = 0; i < 8; ++i) list[i] = completions.move(i, target, source);
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.batch(8, list)));
  for (std::size_t i = 9; i < 14; ++i) {
    ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.move(i, target, source)));
  }
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(device->client().step());
  device->control().reset(kDevice);
  device->client().run_until_idle();
  for (std::size_t i = 0; i < 14; ++i) EXPECT_EQ(completions.status(i), 0xff) << i;
  EXPECT_EQ(device->control().occupancy(kDevice, kQueue), 0U);
}

TEST(Schedule, a_command_takes_the_steps_that_it_waits_for) {
  Completions completions(24);
  std::vector<std::byte> source(64 << 10);
  std::vector<std::byte> target(source.size());
  auto device = make(one_queue({.size = 32, .engines = 2}), deterministic());
  const auto submit = [&](std::size_t first) {
    for (std::size_t i = first; i < first + 8; ++i) {
      ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.move(i, target, source)));
    }
  };
  submit(0);
  device->control().reset(kDevice);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(completions.status(i), 0xff) << i;
  // Accepted descriptors are carried out before the WQ is disabled, if time permits.
  submit(8);
  ASSERT_TRUE(device->control().disable_queue(kDevice, kQueue, std::chrono::hours(1)));
  for (std::size_t i = 8; i < 16; ++i) EXPECT_EQ(completions.status(i), 1) << i;
  ASSERT_TRUE(device->control().enable_queue(kDevice, kQueue));
  submit(16);
  ASSERT_TRUE(device->control().disable_queue(kDevice, kQueue, std::chrono::seconds(0)));
  for (std::size_t i = 16; i < 24; ++i) EXPECT_EQ(completions.status(i), 0xff) << i;
  // Waiting by the clock instead of stepping would not have shown this.
  EXPECT_EQ(device->control().occupancy(kDevice, kQueue), 0U);
}

TEST(Schedule, a_halted_device_does_not_keep_a_command_waiting) {
  Completions completions(4);
  auto device = make(one_queue(), deterministic());
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(i)));
  }
  device->control().halt(kDevice);
  ASSERT_TRUE(device->control().disable_queue(kDevice, kQueue, std::chrono::hours(1)));
  device->control().reset(kDevice);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(completions.status(i), 0xff) << i;
}

TEST(Schedule, a_queue_with_work_on_a_halted_device_is_disabled_at_once) {
  DeviceOptions options;
  options.faults = script("[[fault]]\nkind = \"halt\"\n");
  auto device = make(one_queue(), std::move(options));
  Completions completions(1);
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(0)));
  const auto begun = std::chrono::steady_clock::now();
  while (device->control().phase(kDevice) != DevicePhase::halted &&
         std::chrono::steady_clock::now() - begun < std::chrono::seconds(60)) {
    std::this_thread::yield();
  }
  const auto halted = std::chrono::steady_clock::now();
  ASSERT_TRUE(device->control().disable_queue(kDevice, kQueue, std::chrono::minutes(4)));
  EXPECT_LT(std::chrono::steady_clock::now() - halted, std::chrono::minutes(2));
  EXPECT_EQ(completions.status(0), 0);
  device->control().reset(kDevice);
  EXPECT_EQ(completions.await(0), dsa::kStatusAborted);
}

TEST(Schedule, commands_are_in_the_trace_among_what_they_did) {
  std::vector<std::string> told;
  DeviceOptions options = deterministic();
  options.trace = [&](const TraceEvent& event) {
    const std::string line = to_json(event);
    const std::size_t command = line.find("\"command\":\"");
    if (event.kind == TraceKind::control) {
      told.push_back(line.substr(command + 11, line.size() - command - 13));
    } else {
      EXPECT_EQ(command, std::string::npos) << line;
      if (event.kind == TraceKind::aborted) told.emplace_back("aborted");
    }
  };
  Completions completions(1);
  auto device = make(one_queue(), std::move(options));
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(0)));
  Control& control = device->control();
  control.halt(kDevice);
  control.reset(kDevice);
  ASSERT_TRUE(control.disable_queue(kDevice, kQueue, std::chrono::seconds(60)));
  EXPECT_FALSE(control.disable_queue(kDevice, kQueue, std::chrono::seconds(60)));
  ASSERT_TRUE(control.enable_queue(kDevice, kQueue));
  ASSERT_TRUE(control.disable_device(kDevice));
  EXPECT_EQ(told, (std::vector<std::string>{"halt", "reset", "aborted", "disable_queue",
                                            "enable_queue", "disable_device"}));
}

TEST(Schedule, an_interrupt_carries_its_handle) {
  std::vector<std::uint32_t> handles;
  DeviceOptions options = deterministic();
  options.interrupt = [&](std::uint32_t handle) { handles.push_back(handle); };
  auto device = make(one_queue(), std::move(options));
  Completions completions(1);
  dsa::Descriptor descriptor = completions.noop(0);
  descriptor.flags = descriptor.flags | dsa::flag::request_interrupt;
  descriptor.int_handle = 17;
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(descriptor));
  device->client().run_until_idle();
  EXPECT_EQ(handles, std::vector<std::uint32_t>{17});
}

TEST(Schedule, a_record_that_was_not_asked_for_is_written_only_on_error) {
  auto device = make(one_queue(), deterministic());
  Completions completions(2);
  dsa::Descriptor good = completions.noop(0);
  good.flags = dsa::flag::record_address_valid;
  dsa::Descriptor bad = completions.noop(1);
  bad.flags = dsa::flag::record_address_valid;
  bad.opcode = 0x3f;
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(good));
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(bad));
  device->client().run_until_idle();
  EXPECT_EQ(completions.status(0), 0);
  EXPECT_EQ(completions.status(1), 0x10);
}

TEST(Schedule, pace_delays_and_shares_the_bandwidth) {
  DeviceOptions options;
  options.pace = {.latency_ns = 1'000'000, .bytes_per_second = 100'000'000};
  auto device = make(one_queue({.engines = 4}), std::move(options));
  Completions completions(4);
  std::vector<std::byte> source(500'000);
  std::vector<std::byte> targets(source.size() * 4);
  const auto begun = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < 4; ++i) {
    const auto target = std::span(targets).subspan(i * source.size(), source.size());
    ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.move(i, target, source)));
  }
  for (std::size_t i = 0; i < 4; ++i) ASSERT_EQ(completions.await(i), 1);
  // 2 MB at 100 MB/s, whatever the number of engines.
  EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(21));
}

TEST(Schedule, latencies_overlap) {
  constexpr auto kLatency = std::chrono::seconds(1);
  DeviceOptions options;
  options.pace.latency_ns = std::chrono::nanoseconds(kLatency).count();
  Completions completions(32);
  auto device = make(one_queue({.size = 32, .engines = 1}), std::move(options));
  alignas(64) std::array<dsa::Descriptor, 16> list;
  for (std::size_t i = 0; i < 16; ++i) list[i] = completions.noop(i);
  const auto begun = std::chrono::steady_clock::now();
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.batch(16, list)));
  for (std::size_t i = 17; i < 31; ++i) {
    ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(i)));
  }
  for (std::size_t i = 0; i < 31; ++i) ASSERT_EQ(completions.await(i), 1) << i;
  const auto taken = std::chrono::steady_clock::now() - begun;
  EXPECT_GE(taken, kLatency);
  EXPECT_LT(taken, 10 * kLatency) << "one after another they take three times as long";
  // A drain completes after the descriptors that it waits for.
  ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.drain(31)));
  ASSERT_EQ(completions.await(31), 1);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, 2 * kLatency);
  EXPECT_EQ(device->control().occupancy(kDevice, kQueue), 0U);
}

TEST(Schedule, a_reset_does_not_wait_for_completions_that_are_on_their_way) {
  Atomic<std::uint32_t> started;
  DeviceOptions options;
  options.pace.latency_ns = std::chrono::nanoseconds(std::chrono::hours(1)).count();
  options.trace = [&](const TraceEvent& event) {
    if (event.kind == TraceKind::started) started.fetch_add_relaxed(1);  // a count
  };
  Completions completions(8);
  auto device = make(one_queue({.size = 32, .engines = 1}), std::move(options));
  const auto submit_and_start = [&](std::size_t first) {
    for (std::size_t i = first; i < first + 4; ++i) {
      ASSERT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(i)));
    }
    // There is one engine: when it begins the last one, the others are in flight.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (started.load_relaxed() < first + 4) {
      ASSERT_LT(std::chrono::steady_clock::now(), limit);
      std::this_thread::yield();
    }
    for (std::size_t i = first; i < first + 4; ++i) EXPECT_EQ(completions.status(i), 0) << i;
  };
  submit_and_start(0);
  device->control().reset(kDevice);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(completions.status(i), 0xff) << i;
  submit_and_start(4);
  device.reset();
  for (std::size_t i = 4; i < 8; ++i) EXPECT_EQ(completions.status(i), 0xff) << i;
}

TEST(Faults, each_kind_does_what_it_says) {
  const auto outcome = [](const std::string& text, std::uint32_t flags = 0) {
    DeviceOptions options = deterministic();
    options.faults = script(text);
    // Outlive the device, whose destructor ends outstanding descriptors.
    Completions completions(1);
    std::vector<std::byte> source(20'000, std::byte{1});
    std::vector<std::byte> target(source.size());
    auto device = make(one_queue(), std::move(options));
    dsa::Descriptor descriptor = completions.move(0, target, source);
    descriptor.flags =
        (dsa::flag::record_address_valid | dsa::flag::request_record | flags) & 0xff'ffffU;
    if (!device->portal(kDevice, kQueue).submit(descriptor)) return std::pair(-1, 0U);
    device->client().run_until_idle();
    return std::pair(completions.status(0),
                     static_cast<unsigned>(completions.record(0).bytes_completed));
  };
  EXPECT_EQ(outcome("[[fault]]\nkind = 'queue_full'\n").first, -1);
  EXPECT_EQ(outcome("[[fault]]\nkind = 'page_fault'\nat_byte = 5000\n"), std::pair(0x03, 5000U));
  EXPECT_EQ(outcome("[[fault]]\nkind = 'page_fault'\nwrite = true\nat_byte = 5000\n"),
            std::pair(0x83, 5000U));
  EXPECT_EQ(outcome("[[fault]]\nkind = 'page_fault'\nat_byte = 5000\ndelay_ns = 9000\n",
                    dsa::flag::block_on_fault),
            std::pair(1, 0U));
  EXPECT_EQ(outcome("[[fault]]\nkind = 'status'\nstatus = 0x1e\n"), std::pair(0x1e, 0U));
  EXPECT_EQ(outcome("[[fault]]\nkind = 'slow'\ndelay_ns = 1000\n"), std::pair(1, 0U));
  EXPECT_EQ(outcome("[[fault]]\nkind = 'halt'\n"), std::pair(0, 0U));
  EXPECT_EQ(outcome("[[fault]]\nkind = 'reset'\n").first, 0xff);
  EXPECT_EQ(outcome("[[fault]]\nkind = 'lost_completion'\n"), std::pair(0, 0U));
  EXPECT_EQ(outcome("[[fault]]\nkind = 'status'\nstatus = 3\nnth = 2\n").first, 1);
  EXPECT_EQ(outcome("[[fault]]\nkind = 'status'\nstatus = 3\nopcode = 'fill'\n").first, 1);
  EXPECT_EQ(outcome("[[fault]]\nkind = 'status'\nstatus = 0x1a\nopcode = 'move'\n").first, 0x1a);
}

TEST(Statistics, page_faults_of_every_kind_are_no_errors) {
  const auto counts = [](unsigned status) {
    DeviceOptions options = deterministic();
    options.faults =
        script("[[fault]]\nkind = 'status'\nstatus = " + std::to_string(status) + "\n");
    Completions completions(1);
    auto device = make(one_queue(), std::move(options));
    EXPECT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(0)));
    device->client().run_until_idle();
    EXPECT_EQ(completions.status(0), static_cast<int>(status));
    std::pair<std::uint64_t, std::uint64_t> sums;
    const auto statistics = device->control().statistics();
    for (const auto& engine : statistics.devices[0].engines) {
      sums.first += engine.page_fault_count;
      sums.second += engine.error_count;
    }
    return sums;
  };
  using Sums = std::pair<std::uint64_t, std::uint64_t>;
  for (const unsigned status : {0x03U, 0x83U, 0x04U, 0x84U, 0x06U, 0x1fU}) {
    const auto kind = dsa::status_of(static_cast<std::uint8_t>(status));
    EXPECT_EQ(counts(status), Sums(1, 0)) << dsa::name(kind);
  }
  for (const unsigned status : {0x10U, 0x1aU, 0x94U, 0xffU}) EXPECT_EQ(counts(status), Sums(0, 1));
  // It repeats the status of a descriptor of the batch.
  EXPECT_EQ(counts(0x05), Sums(0, 0));
}

TEST(Faults, a_batch_meets_them_on_its_list) {
  Completions completions(5);
  const auto outcome = [&](const std::string& text) {
    DeviceOptions options = deterministic();
    options.faults = script("[[fault]]\nopcode = 'batch'\n" + text);
    alignas(64) std::array<dsa::Descriptor, 4> list;
    for (std::size_t i = 0; i < list.size(); ++i) {
      completions.clear(i);
      list[i] = completions.noop(i);
    }
    completions.clear(4);
    auto device = make(one_queue(), std::move(options));
    EXPECT_TRUE(device->portal(kDevice, kQueue).submit(completions.batch(4, list)));
    device->client().run_until_idle();
    return completions.status(4);
  };
  EXPECT_EQ(outcome("kind = 'status'\nstatus = 0x1e\n"), 0x1e);
  EXPECT_EQ(completions.status(0), 0) << "none of it is run";
  EXPECT_EQ(outcome("kind = 'page_fault'\nat_byte = 128\n"),
            static_cast<int>(dsa::Status::batch_page_fault));
  EXPECT_EQ(completions.record(4).bytes_completed, 2U);
  EXPECT_EQ(completions.status(1), 1);
  EXPECT_EQ(completions.status(2), 0);
  EXPECT_EQ(outcome("kind = 'page_fault'\nat_byte = 4096\n"), 1);
}

TEST(Faults, a_rate_is_the_same_each_time) {
  const auto failures = [](std::uint64_t seed) {
    DeviceOptions options = deterministic(seed);
    options.faults = script("[[fault]]\nkind = 'status'\nstatus = 0x1a\nprobability = 0.3\n");
    auto device = make(one_queue(), std::move(options));
    std::vector<int> found;
    for (int i = 0; i < 300; ++i) {
      Completions completions(1);
      EXPECT_TRUE(device->portal(kDevice, kQueue).submit(completions.noop(0)));
      device->client().run_until_idle();
      found.push_back(completions.status(0));
    }
    return found;
  };
  const std::vector<int> first = failures(3);
  EXPECT_EQ(first, failures(3));
  EXPECT_NE(first, failures(4));
  const auto failed = std::count(first.begin(), first.end(), 0x1a);
  EXPECT_GT(failed, 50);
  EXPECT_LT(failed, 130);
}

TEST(Faults, a_wrong_script_is_told_where_and_what_is_allowed) {
  const auto message = [](const std::string& text) {
    auto parsed = parse_fault_script(text, "f.toml");
    return parsed ? std::string("accepted") : parsed.error().message();
  };
  const std::string kind = message("[[fault]]\nkind = 'flood'\n");
  EXPECT_NE(kind.find("f.toml, line 2: field 'fault[0].kind' is 'flood', not one of"),
            std::string::npos)
      << kind;
  EXPECT_NE(kind.find("queue_full, page_fault"), std::string::npos) << kind;
  EXPECT_NE(message("[[fault]]\nkind = 'halt'\nqueue = 8\n").find("more than the 7 allowed"),
            std::string::npos);
  EXPECT_NE(message("[[fault]]\nkind = 'halt'\nqeue = 1\n")
                .find("line 3: field 'fault[0].qeue' is not known"),
            std::string::npos);
  EXPECT_NE(message("fault = 3\n").find("field 'fault'"), std::string::npos);
  EXPECT_NE(message("[[fault\n").find("line 1"), std::string::npos);
  EXPECT_EQ(message(""), "accepted");
}

TEST(Faults, a_rule_has_what_its_kind_needs_and_nothing_else) {
  const auto expect = [](const std::string& fields, const std::string& part) {
    auto parsed = parse_fault_script("[[fault]]\n" + fields, "f.toml");
    const std::string said = parsed ? "accepted" : parsed.error().message();
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  expect("nth = 1\n", "line 1: field 'fault[0].kind' is missing");
  expect("kind = 'slow'\n", "line 1: field 'fault[0].delay_ns' is missing");
  expect("kind = 'slow'\ndelay_ns = 0\n", "delay_ns' is missing");
  expect("kind = 'status'\n", "line 1: field 'fault[0].status' is missing");
  expect("kind = 'halt'\nevery = 2\nnth = 3\n",
         "line 4: field 'fault[0].nth' is set together with 'every'");
  expect("kind = 'slow'\ndelay_ns = 5\nat_byte = 3\n",
         "line 4: field 'fault[0].at_byte' does not apply to a fault of kind 'slow'; leave it out; "
         "kind "
         "'page_fault' has it");
  expect("kind = 'halt'\ndelay_ns = 5\n", "kind 'page_fault' or 'slow' has it");
  expect("write = true\nkind = 'reset'\n", "line 2: field 'fault[0].write' does not apply");
  expect("kind = 'page_fault'\nstatus = 3\n", "line 3: field 'fault[0].status' does not apply");
  expect("kind = 'status'\nstatus = 3.5\n", "status' is not a whole number");
  expect("kind = 'page_fault'\nat_byte = 0\nwrite = true\ndelay_ns = 1\nnth = 1\n", "accepted");
}

TEST(Driver, refuses_with_its_own_status_codes) {
  std::vector<std::byte> room(registers_bytes() + 64);
  auto* begin =
      reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(room.data()) + 63) / 64 * 64);
  EmulatorConfig config;
  config.devices = {one_queue()};
  QueueConfig& second = config.devices[0].queues[1];
  second = config.devices[0].queues[0];
  second.name.clear();
  auto control = Control::create({begin, registers_bytes()}, config);
  ASSERT_TRUE(control);
  EXPECT_FALSE(control->enable_queue(kDevice, kQueue));
  EXPECT_EQ(control->command_status(kDevice), 0x80000020U);  // Device not enabled.
  ASSERT_TRUE(control->enable_device(kDevice));
  EXPECT_EQ(control->command_status(kDevice), 0U);
  EXPECT_FALSE(control->enable_device(kDevice));
  EXPECT_EQ(control->command_status(kDevice), 0x80000010U);
  EXPECT_FALSE(control->enable_queue(kDevice, kOther));
  EXPECT_EQ(control->command_status(kDevice), 0x80040000U);  // No name.
  ASSERT_TRUE(control->enable_queue(kDevice, kQueue));
  DeviceConfig changed = control->config(kDevice);
  changed.queues[0].priority = 3;
  EXPECT_FALSE(control->configure(kDevice, changed));
  changed = control->config(kDevice);
  changed.queues[1].name = "second";
  EXPECT_TRUE(control->configure(kDevice, changed));
  ASSERT_TRUE(control->enable_queue(kDevice, kOther));
  ASSERT_TRUE(control->disable_device(kDevice));
  EXPECT_EQ(control->config(kDevice).queues[0].size, 0U);
  EXPECT_EQ(control->phase(kDevice, kQueue), QueuePhase::disabled);
}

}  // namespace
}  // namespace headrace::emu
