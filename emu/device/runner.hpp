// SPDX-License-Identifier: Apache-2.0
// Runner: one engine at work. Carries out a task in slices, writes the records, meets the faults
// that the script asks for. Chooses nothing: the scheduler does.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "emu/device/scheduler.hpp"

namespace headrace::emu {

/// What the runners of a client have in common.
struct Context {
  Registers& registers;
  const RunOptions run_options;
  Owner owner;
  Memory& memory;
  TraceSink trace;
  InterruptHandler interrupt;
  Mutex trace_mutex;
  /// Deterministic: the steps that this client took. Delays count them, and not those in the
  /// registers, which others can write to.
  std::uint64_t step_count = 0;

  void tell(TraceEvent event);
};

/// Which faults of the script a descriptor or its submission meets.
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

/// Work that is done and whose completion is on its way (Pace): no engine is needed for that.
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
  /// Does one slice. With `chance` it is a small one, and delays are steps. True once the task has
  /// ended; the runner is free then.
  [[nodiscard]] bool advance(Random* chance);
  /// What the task that has just ended left behind for complete(), if anything.
  [[nodiscard]] std::optional<Pending> take_pending() { return std::exchange(pending_, {}); }
  /// Completes it, whether or not it is due: as aborted, if it has become stale.
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
  Limits limits_;  ///< Of the descriptor at hand: read once, so that all see the same.
  // The descriptor at hand.
  bool started_ = false;
  std::uint32_t index_ = 0;  ///< Of the member.
  std::optional<Operation> operation_;
  std::optional<dsa::CompletionRecord> record_;
  Injection injection_;
  std::uint64_t done_bytes_ = 0;
  std::uint64_t held_until_ = 0;  ///< Nanoseconds, or steps.
  bool paced_ = false;
  std::uint64_t bytes_read_ = 0;  ///< Of the descriptor, once it has a record.
  std::uint64_t bytes_written_ = 0;
  std::optional<Pending> pending_;
  Outcome outcome_;
  std::uint64_t begun_ns_ = 0;
};

}  // namespace headrace::emu
