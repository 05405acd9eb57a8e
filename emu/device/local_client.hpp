// SPDX-License-Identifier: Apache-2.0
// LocalClient: the implementation of Client. Accepts submissions; its thread pools run them.
#pragma once

#include <memory>
#include <vector>

#include "emu/device/device.hpp"
#include "emu/device/registers.hpp"
#include "emu/device/runner.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/base/random.hpp"

namespace headrace::emu {

class ThreadPool;

/// Threading: shared.
class LocalClient final : public Client {
 public:
  LocalClient(const OpenRegisters& opened, Owner owner, Memory& memory, ClientOptions options);
  ~LocalClient() override;

  Result<void> start() override;
  bool enqueue(DeviceId device, QueueId queue,
               const dsa::Descriptor& descriptor) noexcept override {
    return submit(device, queue, descriptor, dsa::QueueMode::shared);
  }
  void store(DeviceId device, QueueId queue, const dsa::Descriptor& descriptor) noexcept override {
    submit(device, queue, descriptor, dsa::QueueMode::dedicated);
  }
  void run_until_idle() override { run_steps(false); }
  bool step() override;
  void tell(const TraceEvent& event) override { context_.tell(event); }

  // For the thread pools.
  /// Takes the submission that the controller posted for `device`, if any.
  void serve_mailbox(std::uint32_t device) noexcept;
  /// Deterministic: runs what is left when no submitter does, after a write() or a reset. Takes no
  /// step without work, which would draw from the seed at a time that the seed does not determine.
  void run_left() { run_steps(true); }
  [[nodiscard]] const RunOptions& run_options() const { return context_.run_options; }
  [[nodiscard]] ClientRegisters& place() { return registers_.clients[client_index_of(owner_)]; }
  [[nodiscard]] Registers& registers() { return registers_; }
  [[nodiscard]] Context& context() { return context_; }
  [[nodiscard]] Owner owner() const { return owner_; }

 private:
  enum class Taken : std::uint8_t { accepted, full, refused };
  bool submit(DeviceId device, QueueId queue, const dsa::Descriptor& descriptor,
              dsa::QueueMode mode) noexcept;
  Taken take(std::uint32_t device, std::uint32_t queue, const dsa::Descriptor& descriptor,
             dsa::QueueMode mode, Origin origin) noexcept;
  /// Counts and traces a submission that a WQ did not accept.
  void refuse(std::uint32_t device, std::uint32_t queue, const dsa::Descriptor& descriptor,
              dsa::QueueMode mode, bool full) noexcept;
  /// As idxd_cdev_write(): retries a full shared WQ a few times.
  Taken write(std::uint32_t device, std::uint32_t queue,
              const dsa::Descriptor& descriptor) noexcept;
  void run_steps(bool only_if_ready);
  /// Sets `blocked` to a thread pool whose work lacks only an engine.
  bool step(ThreadPool*& blocked) HEADRACE_REQUIRES(step_mutex_);
  void trace(TraceKind kind, std::uint32_t device, std::uint32_t queue, std::uint64_t sequence,
             const dsa::Descriptor& descriptor) noexcept;

  Registers& registers_;
  const Owner owner_;
  Context context_;
  std::vector<std::unique_ptr<ThreadPool>> thread_pools_;  // One per device.
  Atomic<std::uint32_t> counted_;  ///< 1: among the clients of the statistics.
  Mutex step_mutex_;
  Random chance_ HEADRACE_GUARDED_BY(step_mutex_);
};

}  // namespace headrace::emu
