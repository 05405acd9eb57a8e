// SPDX-License-Identifier: Apache-2.0
// Question: what does a descriptor cost in the emulated device, and from which size on are its
// copies as fast as memcpy? Does not measure the trap: 'headrace bench emulator' does.
//
// Method. Each iteration runs a batch of 32 copies by the device and the same copies by memcpy, in
// alternating order. Reports the ratio of the medians (above 1: the device is faster) and the
// quartiles of the ratios of single iterations. Uses wall time: the copies run on another thread
// than the waiting one. No-ops are reported per descriptor, with 8 submissions in flight. Argument
// of copies: bytes per copy; of no-ops: descriptors per batch, 1 is no batch.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "emu/device/device.hpp"
#include "measure.hpp"

namespace {

using namespace headrace;

constexpr std::size_t kBatch = 32;
constexpr std::size_t kWindow = 8;

/// One device with one shared WQ and one engine, and descriptors to submit.
struct Setup {
  Setup() : descriptors(kWindow * kBatch), records(kWindow * kBatch), summaries(kWindow) {
    const std::vector<emu::DeviceConfig> devices{emu::default_device(1, 0, 1, "bench")};
    if (auto made = emu::Device::create(devices, {})) device = std::move(*made);
  }
  [[nodiscard]] dsa::Portal& portal() const { return device->portal(DeviceId{0}, QueueId{0}); }
  static void ask_for(dsa::Descriptor& descriptor, dsa::CompletionRecord& record) {
    record.status = DSA_COMP_NONE;
    descriptor.flags = dsa::flag::record_address_valid | dsa::flag::request_record;
    descriptor.completion_addr = reinterpret_cast<std::uintptr_t>(&record);
  }
  void submit(const dsa::Descriptor& descriptor) const {
    while (!portal().submit(descriptor)) std::this_thread::yield();
  }
  void submit_batch(std::size_t slot, std::size_t count) {
    dsa::Descriptor batch{};
    batch.opcode = DSA_OPCODE_BATCH;
    batch.desc_list_addr = reinterpret_cast<std::uintptr_t>(&descriptors[slot * kBatch]);
    batch.desc_count = static_cast<std::uint32_t>(count);
    ask_for(batch, summaries[slot]);
    submit(batch);
  }
  static void wait_for(const dsa::CompletionRecord& record) {
    for (int spins = 0; dsa::load_status(record) == 0; ++spins) {
      if (spins > 1000) std::this_thread::yield();
    }
  }

  std::unique_ptr<emu::Device> device;
  std::vector<dsa::Descriptor> descriptors;
  std::vector<dsa::CompletionRecord> records;
  std::vector<dsa::CompletionRecord> summaries;
};

void noops(benchmark::State& state) {
  Setup setup;
  if (!setup.device) return state.SkipWithError("no device");
  const auto batch = static_cast<std::size_t>(state.range(0));
  for (std::size_t i = 0; i < setup.descriptors.size(); ++i) {
    Setup::ask_for(setup.descriptors[i], setup.records[i]);
  }
  std::size_t submitted = 0;
  const auto wait_for_slot = [&](std::size_t number) {
    Setup::wait_for(batch == 1 ? setup.records[number % kWindow]
                               : setup.summaries[number % kWindow]);
  };
  for ([[maybe_unused]] auto _ : state) {
    if (submitted >= kWindow) wait_for_slot(submitted);
    if (batch == 1) {
      dsa::Descriptor noop{};
      Setup::ask_for(noop, setup.records[submitted % kWindow]);
      setup.submit(noop);
    } else {
      setup.submit_batch(submitted % kWindow, batch);
    }
    ++submitted;
  }
  for (std::size_t i = 0; i < std::min(submitted, kWindow); ++i) wait_for_slot(i);
  state.SetItemsProcessed(static_cast<std::int64_t>(submitted * batch));
}

void copies(benchmark::State& state) {
  Setup setup;
  if (!setup.device) return state.SkipWithError("no device");
  const auto byte_count = static_cast<std::size_t>(state.range(0));
  std::vector<std::byte> source(kBatch * byte_count, std::byte{1});
  std::vector<std::byte> target(kBatch * byte_count);
  const auto by_memcpy = [&] {
    const double start_ns = bench::now_ns(CLOCK_MONOTONIC);
    for (std::size_t i = 0; i < kBatch; ++i) {
      std::memcpy(&target[i * byte_count], &source[i * byte_count], byte_count);
      benchmark::ClobberMemory();
    }
    return bench::now_ns(CLOCK_MONOTONIC) - start_ns;
  };
  const auto by_device = [&] {
    for (std::size_t i = 0; i < kBatch; ++i) {
      dsa::Descriptor& copy = setup.descriptors[i];
      copy.opcode = DSA_OPCODE_MEMMOVE;
      copy.src_addr = reinterpret_cast<std::uintptr_t>(&source[i * byte_count]);
      copy.dst_addr = reinterpret_cast<std::uintptr_t>(&target[i * byte_count]);
      copy.xfer_size = static_cast<std::uint32_t>(byte_count);
      Setup::ask_for(copy, setup.records[i]);
      copy.flags |= dsa::flag::block_on_fault;
    }
    const double start_ns = bench::now_ns(CLOCK_MONOTONIC);
    setup.submit_batch(0, kBatch);
    Setup::wait_for(setup.summaries[0]);
    return bench::now_ns(CLOCK_MONOTONIC) - start_ns;
  };
  by_memcpy();
  by_device();
  const bench::Turns turns = bench::take_turns(state, by_memcpy, by_device);
  std::fill(target.begin(), target.end(), std::byte{0});
  by_device();
  if (target != source || setup.summaries[0].status != DSA_COMP_SUCCESS) {
    state.SkipWithError("the copies differ from their sources");
  }
  state.counters["GB/s"] = static_cast<double>(kBatch * byte_count) / turns.below_ns;
}

void copy_sizes(benchmark::internal::Benchmark* benchmark) {
  const bool full = bench::is_full();
  for (std::int64_t bytes = 1 << 12; bytes <= (full ? 1 << 21 : 1 << 14); bytes *= 4) {
    benchmark->Arg(bytes);
  }
  if (full) benchmark->Arg(1 << 20);
  benchmark->UseManualTime();
}

BENCHMARK(noops)->Arg(1)->Arg(kBatch)->UseRealTime();
BENCHMARK(copies)->Apply(copy_sizes);

}  // namespace

BENCHMARK_MAIN();
