// SPDX-License-Identifier: Apache-2.0
// How a driver command waits until nothing of a WQ is outstanding in any process.
#include <algorithm>
#include <array>

#include "emu/device/registers.hpp"
#include "emu/platform/wait.hpp"

namespace headrace::emu {
namespace {

using std::chrono::nanoseconds;
constexpr nanoseconds kLookEvery = std::chrono::milliseconds(1);
/// Of the deterministic schedule; as for delays in emu/device/runner.cpp.
constexpr nanoseconds kStep = std::chrono::microseconds(1);
constexpr std::uint64_t kReapEveryNs = 20'000'000;

/// Whether the engines have finished what they ran when the entries were all released: an entry is
/// released just before its record is written.
class EngineWatch {
 public:
  explicit EngineWatch(const DeviceRegisters& device) : device_(device) {
    for (std::size_t i = 0; i < kEngineMax; ++i) {
      // edge: emu-engine (acquire)
      held_[i] = device.engines[i].holder.load_acquire() != kNobody;
      turns_[i] = device.engines[i].turn.load_relaxed();  // read after the holder
    }
  }
  [[nodiscard]] bool passed() {
    for (std::size_t i = 0; i < kEngineMax; ++i) {
      if (!held_[i]) continue;
      // edge: emu-engine (acquire)
      const bool free = device_.engines[i].holder.load_acquire() == kNobody;
      // edge: emu-turn (acquire)
      if (free || device_.engines[i].turn.load_acquire() != turns_[i]) held_[i] = false;
    }
    return std::none_of(held_.begin(), held_.end(), [](bool held) { return held; });
  }

 private:
  const DeviceRegisters& device_;
  std::array<bool, kEngineMax> held_{};
  std::array<std::uint64_t, kEngineMax> turns_{};
};

/// Whether no client is still delivering a completion that was pending when the entries were all
/// released. Dead clients have no place.
bool none_completing(const Registers& registers) {
  return std::none_of(registers.clients.begin(), registers.clients.end(),
                      [](const ClientRegisters& client) {
                        // edge: emu-client (acquire)
                        if (!PlaceWord{client.place.load_acquire()}.taken()) return false;
                        // edge: emu-completing (acquire)
                        return client.completing.load_acquire() != 0;
                      });
}

}  // namespace

template <typename Idle>
bool Control::await(DeviceRegisters& device, nanoseconds wait_max, Idle idle) const {
  if (deterministic_) {
    // No engine runs concurrently: time passes only in our steps. What is left is aborted by later
    // steps.
    const auto& step = options_.step;
    for (nanoseconds::rep left = wait_max / kStep; left > 0 && step && !idle(); --left) {
      if (!step()) break;
    }
    return idle();
  }
  const std::uint64_t begun = platform::now_ns();
  const std::uint64_t limit =
      begun + static_cast<std::uint64_t>(std::max<std::int64_t>(0, wait_max.count()));
  std::uint64_t reaped = begun;
  while (true) {
    // edge: emu-released (acquire)
    const std::uint32_t released = device.released.load_acquire();
    if (idle()) return true;
    const std::uint64_t now = platform::now_ns();
    if (now >= limit) return false;
    if (now - reaped >= kReapEveryNs) {
      reap_clients(*registers_);
      reaped = now;
    }
    device.waiter_count.fetch_add_relaxed(1);  // the wait is bounded: a lost wake costs 1 ms
    platform::sleep_on(device.released, released,
                       std::min<nanoseconds>(kLookEvery, nanoseconds(limit - now)));
    device.waiter_count.fetch_sub_relaxed(1);  // as above
  }
}

bool Control::await_queues(DeviceRegisters& device, nanoseconds wait_max,
                           std::uint32_t queue_mask) const {
  const std::uint64_t begun = platform::now_ns();
  // A halted device completes nothing before a reset.
  const auto halted = [&device] { return phase_of(device) == DevicePhase::halted; };
  const bool empty = await(device, wait_max, [&] {
    if (halted()) return true;
    for (std::uint32_t q = 0; q < kQueueMax; ++q) {
      if ((queue_mask >> q & 1U) != 0 && device.queues[q].entries.occupancy() != 0) return false;
    }
    return true;
  });
  if (!empty || halted()) return false;
  EngineWatch watch(device);
  const auto spent = nanoseconds(platform::now_ns() - begun);
  return await(device, std::max(wait_max - spent, kLookEvery),
               [&] { return halted() || (watch.passed() && none_completing(*registers_)); });
}

}  // namespace headrace::emu
