// SPDX-License-Identifier: Apache-2.0
// Runner: runs tasks on one engine. Executes a task in slices, writes the records, injects the
// script's faults. The scheduler chooses the tasks.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "emu/device/scheduler.hpp"

namespace headrace::emu {

/// State that the runners of a client share.
struct Context {
  Registers& registers;
  const RunOptions run_options;
  Owner owner;
  Memory& memory;
  TraceSink trace;
  InterruptHandler interrupt;
  Mutex trace_mutex;
  /// Deterministic: steps of this client. Delays count these and not those in the registers, which
  /// other processes can overwrite.
  std::uint64_t step_count = 0;

  void tell(TraceEvent event);
};

/// Faults of the script that apply to a descriptor or its submission.
struct Injection {
  std::optional<FaultRule> page_fault;
  std::optional<FaultRule> status;
  std::uint64_t delay_ns = 0;
  bool queue_full = false;
  bool halt = false;
  bool reset = false;
  bool lost_completion = false;
};
/// Async-signal-safe.
[[nodiscard]] Injection faults_for(const RunOptions& run_options, Registers& registers,
                                   std::uint32_t device, std::uint32_t queue, std::uint8_t opcode,
                                   bool submission) noexcept;

/// Finished work whose completion is delayed (Pace); needs no engine.
struct Pending {
  Task task;
  dsa::CompletionRecord record;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  bool lost = false;
  std::uint64_t due_ns = 0;
};

/// Threading: confined.
class Runner {
 public:
  Runner(Context& context, Scheduler& scheduler) : context_(&context), scheduler_(&scheduler) {}

  [[nodiscard]] bool busy() const { return task_.kind != TaskKind::none; }
  void begin(const Task& task);
  /// Runs one slice: a small one with `chance`, and delays count steps. Returns true when the task
  /// has ended; the runner is free then.
  [[nodiscard]] bool advance(Random* chance);
  /// Takes what the task that just ended left for complete(), if anything.
  [[nodiscard]] std::optional<Pending> take_pending() { return std::exchange(pending_, {}); }
  /// Completes it, due or not; as aborted if it is stale.
  void complete(const Pending& pending);

 private:
  [[nodiscard]] const dsa::Descriptor& descriptor() const;
  [[nodiscard]] bool advance_descriptor(Random* chance);
  void start_descriptor();
  [[nodiscard]] bool run_slice(Random* chance);
  [[nodiscard]] bool wait(std::uint64_t until, Random* chance);
  [[nodiscard]] bool must_abort() const;
  void fetch_list();
  void end_with(std::uint8_t raw_status);
  void end_descriptor();
  void end_task(Outcome outcome);
  void end_turn();
  void postpone(std::uint64_t latency_ns);
  void end_batch(Batch& batch);
  void release_entry(std::uint32_t queue, std::uint32_t entry) noexcept;
  void write_record(const dsa::Descriptor& descriptor, const dsa::CompletionRecord& record);
  void count(const dsa::CompletionRecord& record);
  void trace(TraceKind kind, std::uint8_t raw_status, std::uint32_t byte_count);
  [[nodiscard]] Limits load_limits() const;
  [[nodiscard]] EngineRegisters* engine_registers() const;

  Context* context_;
  Scheduler* scheduler_;
  Task task_;
  Limits limits_;  ///< Of the current descriptor; read once, so that all uses agree.
  // The current descriptor.
  bool started_ = false;
  std::uint32_t index_ = 0;  ///< Of the batch member.
  std::optional<Operation> operation_;
  std::optional<dsa::CompletionRecord> record_;
  Injection injection_;
  std::uint64_t done_bytes_ = 0;
  std::uint64_t held_until_ = 0;  ///< Nanoseconds, or steps.
  bool paced_ = false;
  std::uint64_t bytes_read_ = 0;  ///< Of the descriptor, once its record is complete.
  std::uint64_t bytes_written_ = 0;
  std::optional<Pending> pending_;
  Outcome outcome_;
  std::uint64_t begun_ns_ = 0;
};

}  // namespace headrace::emu
