// SPDX-License-Identifier: Apache-2.0
// Client: accepts submissions of this process; its thread pools run them.
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

struct ClientOptions {
  /// Called by submitters, possibly in a signal handler, and by engine threads; serialised.
  TraceSink trace;
  InterruptHandler interrupt;  ///< Called on an engine thread.
};

/// One process's connection to the devices. Submissions come from signal handlers, so the functions
/// marked so are async-signal-safe. Tracing takes a lock: with ClientOptions::trace set, enqueue()
/// and store() are safe in a signal handler only if it cannot interrupt another submission of its
/// own thread. The trap's handlers block all such signals.
///
/// Threading: shared.
class Client {
 public:
  /// Takes a client place in the registers for this process; start() starts the threads.
  ///
  /// Fails: capacity_exceeded if all places are taken.
  static Result<std::unique_ptr<Client>> attach(std::span<std::byte> memory, Memory& client_memory,
                                                ClientOptions options = {});
  Client& operator=(Client&&) = delete;
  ~Client();  ///< Aborts what is outstanding, joins the threads, frees the place.

  /// Starts the engine threads (when deterministic: at most one, for submissions by write()).
  /// Idempotent; may be retried after a failure. The threads block every signal but SIGSEGV and
  /// SIGBUS, whose handler must support guarded accesses (emu/platform/guarded.hpp). Not
  /// async-signal-safe. Earlier submissions run from now on; submit_for finds the client only from
  /// now on.
  ///
  /// Fails: capacity_exceeded if the system cannot create a thread; nothing runs then.
  Result<void> start();
  /// enqueue() or store(), by the mode.
  bool submit(DeviceId device, QueueId queue, const dsa::Descriptor& descriptor,
              dsa::QueueMode mode) noexcept;
  /// ENQCMD: false means retry. Async-signal-safe without a trace.
  bool enqueue(DeviceId device, QueueId queue, const dsa::Descriptor& descriptor) noexcept {
    return submit(device, queue, descriptor, dsa::QueueMode::shared);
  }
  /// MOVDIR64B. A descriptor that does not fit is dropped, counted and reported in SWERROR.
  /// Async-signal-safe without a trace.
  void store(DeviceId device, QueueId queue, const dsa::Descriptor& descriptor) noexcept {
    submit(device, queue, descriptor, dsa::QueueMode::dedicated);
  }
  /// Deterministic only: runs until nothing is outstanding. With run_in_submission, enqueue and
  /// store call it.
  void run_until_idle() { run_steps(false); }
  /// Deterministic only: one step; false if there was nothing to do.
  bool step();
  /// Adds a controller event to the trace, in order with the client's own.
  void tell(const TraceEvent& event) { context_.tell(event); }
  /// Call at program start: frees what this process held before exec. attach() would too, but the
  /// new program may never call it. Precondition: `memory` was opened before.
  static void begin_program(std::span<std::byte> memory) noexcept;
  /// Handles a submission of a process for which no Client could be made or started, as a WQ that
  /// is not enabled does. ENQCMD (shared): retry, counted. MOVDIR64B (dedicated): dropped, counted,
  /// reported in SWERROR. Precondition: `memory` was opened before. Async-signal-safe.
  static void refuse(std::span<std::byte> memory, DeviceId device, QueueId queue,
                     const dsa::Descriptor& descriptor, dsa::QueueMode mode) noexcept;

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
  Client(const OpenRegisters& opened, Owner owner, Memory& memory, ClientOptions options);
  enum class Taken : std::uint8_t { accepted, full, refused };
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
