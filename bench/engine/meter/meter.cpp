// SPDX-License-Identifier: Apache-2.0
// What does the engine cost per operation on a device?
//
// By a channel, which one thread owns, and by jobs, which any thread may submit to any mover. The
// device is a portal that notes the address of the completion record; the loop then writes the
// record, as a device would: a few instructions, which the mode `device` runs alone so that they
// can be subtracted. The thread single-steps, and counts instructions, locked ones (a LOCK prefix,
// or XCHG with memory; the device has none) and calls that lock a mutex. Prints one JSON object
// with these and the number of allocations.
//
//   headrace-bench-engine MODE COUNT
//   headrace-bench-engine curve LIST ROUNDS MILLISECONDS
//
// `curve`: the threads share one engine, with one job each; the device completes at once
// (curve.hpp).
//
// MODE: channel_copy, channel_batch32, job_copy, job_batch32, run_copy (of 64 B, on a processor),
// device, device_batch32.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <new>
#include <string_view>
#include <vector>

#include "curve.hpp"
#include "engine/dsa/queue.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/engine/engine.hpp"
#include "measure.hpp"
#include "stepper.hpp"

namespace {

headrace::Atomic<std::uint64_t> allocation_count{0};

}  // namespace

// Inlined, GCC warns of delete for what malloc() returned.
[[gnu::noinline]] void* operator new(std::size_t byte_count) {
  allocation_count.fetch_add_relaxed(1);  // Relaxed: an independent counter.
  if (void* const made = std::malloc(byte_count)) return made;
  throw std::bad_alloc();
}

namespace {

using headrace::bench::die;
using headrace::bench::must;
using headrace::engine::Batch;
using headrace::engine::Channel;
using headrace::engine::Completion;
using headrace::engine::DsaQueue;
using headrace::engine::Engine;
using headrace::engine::Job;
using headrace::engine::Mover;
using headrace::engine::Operation;
using headrace::engine::Path;
using headrace::engine::Submit;
using headrace::engine::Ticket;
namespace dsa = headrace::dsa;

constexpr std::size_t kBytes = 4096;
constexpr std::size_t kBatch = 32;
constexpr std::size_t kTurn = 4 * kBatch;  ///< Operations of a turn of a curve.

/// Writes the completion records of a descriptor, as a device would.
void complete(const dsa::Descriptor& descriptor) noexcept {
  const auto write = [](std::uint64_t record) {
    auto* const status = reinterpret_cast<std::uint8_t*>(record);
    // Relaxed: the submitting thread is the one that polls.
    headrace::store_relaxed(*status, std::uint8_t{DSA_COMP_SUCCESS});
  };
  if (descriptor.opcode == static_cast<std::uint8_t>(dsa::Opcode::batch)) {
    const auto* const list = reinterpret_cast<const dsa::Descriptor*>(descriptor.desc_list_addr);
    for (std::uint32_t i = 0; i < descriptor.desc_count; ++i) write(list[i].completion_addr);
  }
  write(descriptor.completion_addr);
}

/// Accepts everything, does nothing.
class IdleDevice final : public dsa::Portal {
 public:
  [[nodiscard]] const dsa::QueueInfo& info() const override { return info_; }
  [[nodiscard]] bool submit(const dsa::Descriptor& descriptor) noexcept override {
    last_ = descriptor;
    return true;
  }
  /// Completes the last submission.
  void complete() noexcept { ::complete(last_); }

 private:
  dsa::QueueInfo info_{.name = "idle",
                       .entry_count = 32,
                       .batch_max = kBatch,
                       .transfer_bytes_max = 2U << 20U,
                       .block_on_fault = true};
  dsa::Descriptor last_{};
};

/// Buffers and operations of a run.
struct Memory {
  std::vector<std::byte> source = std::vector<std::byte>(kBatch * kBytes);
  std::vector<std::byte> target = std::vector<std::byte>(kBatch * kBytes);
  std::array<Operation, kBatch> operations;

  Memory() {
    for (std::size_t i = 0; i < kBatch; ++i) {
      operations[i] = Operation::copy(std::span(target).subspan(i * kBytes, kBytes),
                                      std::span(source).subspan(i * kBytes, kBytes));
    }
  }
  [[nodiscard]] Batch batch() const { return {.operations = operations, .completions = {}}; }
};

void channel_copy(Channel& channel, IdleDevice& device, Memory& memory, std::uint64_t count) {
  const headrace::engine::CopyPlan plan{.target = std::span(memory.target).first(kBytes),
                                        .source = std::span(memory.source).first(kBytes)};
  Ticket ticket{};
  Completion end;
  for (std::uint64_t i = 0; i < count; ++i) {
    const bool taken = channel.submit_copy(plan, ticket) == Submit::accepted;
    device.complete();
    if (!taken || !channel.poll(ticket, end)) die("a copy did not end");
  }
}

void channel_batch32(Channel& channel, IdleDevice& device, Memory& memory, std::uint64_t count) {
  Ticket ticket{};
  Completion end;
  for (std::uint64_t i = 0; i < count; i += kBatch) {
    const bool taken = channel.submit_batch(memory.batch(), ticket) == Submit::accepted;
    device.complete();
    if (!taken || !channel.poll(ticket, end)) die("a batch did not end");
  }
}

void job_copy(Engine& engine, IdleDevice& device, Memory& memory, std::uint64_t count) {
  const headrace::engine::CopyPlan plan{.target = std::span(memory.target).first(kBytes),
                                        .source = std::span(memory.source).first(kBytes)};
  Job job;
  for (std::uint64_t i = 0; i < count; ++i) {
    const bool taken = engine.submit_copy(job, plan) == Submit::accepted;
    device.complete();
    if (!taken || !job.poll()) die("a copy did not end");
  }
}

void job_batch32(Engine& engine, IdleDevice& device, Memory& memory, std::uint64_t count) {
  Job job;
  for (std::uint64_t i = 0; i < count; i += kBatch) {
    const bool taken = engine.submit_batch(job, memory.batch()) == Submit::accepted;
    device.complete();
    if (!taken || !job.poll()) die("a batch did not end");
  }
}

/// On the calling thread, of 64 bytes: nearly all the time is overhead.
void run_copy(Engine& engine, Memory& memory, std::uint64_t count) {
  const Operation copy =
      Operation::copy(std::span(memory.target).first(64), std::span(memory.source).first(64));
  Completion end;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (engine.run(copy, end, {.path = Path::cpu}) != Submit::accepted) {
      die("a copy was refused");
    }
  }
}

void device_alone(IdleDevice& device, std::uint64_t count, bool batch) {
  std::array<dsa::CompletionRecord, kBatch + 1> records{};
  std::array<dsa::Descriptor, kBatch> list{};
  for (std::size_t i = 0; i < kBatch; ++i) {
    list[i].completion_addr = reinterpret_cast<std::uintptr_t>(&records[i]);
  }
  dsa::Descriptor descriptor{};
  descriptor.completion_addr = reinterpret_cast<std::uintptr_t>(&records[kBatch]);
  if (batch) {
    descriptor.opcode = static_cast<std::uint8_t>(dsa::Opcode::batch);
    descriptor.desc_list_addr = reinterpret_cast<std::uintptr_t>(list.data());
    descriptor.desc_count = kBatch;
  }
  dsa::Portal& portal = device;
  for (std::uint64_t i = 0; i < count; i += batch ? kBatch : 1) {
    if (!portal.submit(descriptor)) die("the device refused");
    device.complete();
  }
}

/// Runs a mode `count` times.
void carry_out(std::string_view mode, Engine& engine, Channel& channel, IdleDevice& device,
               Memory& memory, std::uint64_t count) {
  if (mode == "channel_copy") return channel_copy(channel, device, memory, count);
  if (mode == "channel_batch32") return channel_batch32(channel, device, memory, count);
  if (mode == "job_copy") return job_copy(engine, device, memory, count);
  if (mode == "job_batch32") return job_batch32(engine, device, memory, count);
  if (mode == "run_copy") return run_copy(engine, memory, count);
  if (mode == "device") return device_alone(device, count, false);
  if (mode == "device_batch32") return device_alone(device, count, true);
  die("the mode is channel_copy, channel_batch32, job_copy, job_batch32, run_copy, device or "
      "device_batch32");
}

int measure(std::string_view mode, std::uint64_t count) {
  auto portal = std::make_unique<IdleDevice>();
  IdleDevice& device = *portal;
  std::vector<std::unique_ptr<Mover>> movers;
  movers.push_back(must(DsaQueue::make(std::move(portal), {})));
  const auto engine = must(Engine::make(std::move(movers)));
  auto channel = must(engine->open_channel());
  Memory memory;
  // Warm-up: allocations of the first use.
  carry_out(mode, *engine, *channel, device, memory, kBatch);
  const std::uint64_t before = allocation_count.load_relaxed();  // One thread.
  headrace::bench::begin_stepping();
  carry_out(mode, *engine, *channel, device, memory, count);
  const headrace::bench::Steps seen = headrace::bench::end_stepping();
  const std::uint64_t made = allocation_count.load_relaxed() - before;  // Relaxed: single-threaded.
  headrace::bench::print({{"operations", count},
                          {"allocations", made},
                          {"instructions", seen.instructions},
                          {"locked_instructions", seen.locked},
                          {"mutexes_locked", seen.mutexes}});
  return 0;
}

/// Completes every descriptor in submit().
///
/// Threading: shared.
class InstantDevice final : public dsa::Portal {
 public:
  [[nodiscard]] const dsa::QueueInfo& info() const override { return info_; }
  [[nodiscard]] bool submit(const dsa::Descriptor& descriptor) noexcept override {
    complete(descriptor);
    return true;
  }

 private:
  dsa::QueueInfo info_{.name = "instant",
                       .entry_count = 64,
                       .batch_max = kBatch,
                       .transfer_bytes_max = 2U << 20U,
                       .block_on_fault = true};
};

void copies_by_job(Engine& engine, Memory& memory, std::uint64_t count) {
  Job job;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (engine.submit(job, memory.operations[i % kBatch]) != Submit::accepted) {
      die("a copy was refused");
    }
    job.wait();
  }
}

void batches_by_job(Engine& engine, Memory& memory, std::uint64_t count) {
  Job job;
  for (std::uint64_t i = 0; i < count; i += kBatch) {
    if (engine.submit_batch(job, memory.batch()) != Submit::accepted) {
      die("a batch was refused");
    }
    job.wait();
  }
}

/// One engine of all threads; the buffers of each are its own.
int print_curves(const headrace::bench::CurveSettings& settings) {
  using Work = void (*)(Engine& engine, Memory& memory, std::uint64_t count);
  const auto curve = [](const char* name, Work work) {
    const auto make = [work](std::size_t threads) -> headrace::bench::Curve::Turn {
      std::vector<std::unique_ptr<Mover>> movers;
      movers.push_back(must(DsaQueue::make(std::make_unique<InstantDevice>(), {})));
      const std::shared_ptr<Engine> engine = must(Engine::make(std::move(movers), {}));
      const auto memory = std::make_shared<std::vector<Memory>>(threads);
      return [=](std::size_t thread) {
        work(*engine, (*memory)[thread], kTurn);
        return kTurn;
      };
    };
    return headrace::bench::Curve{name, make};
  };
  const std::array curves{curve("job_copy", copies_by_job), curve("job_batch32", batches_by_job),
                          curve("run_copy", run_copy)};
  return headrace::bench::print_curves(settings, curves);
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto settings = headrace::bench::curve_in(argc, argv)) return print_curves(*settings);
  if (argc != 3) {
    die("usage: headrace-bench-engine MODE COUNT\n"
        "       headrace-bench-engine curve LIST ROUNDS MILLISECONDS");
  }
  return measure(argv[1], headrace::bench::parse_number(argv[2]));
}
