// SPDX-License-Identifier: Apache-2.0
// The hooks of a trace: what a program does with the library, for `headrace sim replay`. Layers
// call record(); nothing is recorded until telemetry::start_trace() installs a sink.
// Not for: the file, which telemetry writes (docs/reference/trace.md).
#pragma once

#include <array>
#include <cstdint>

#include "headrace/base/atomic.hpp"
#include "headrace/base/export.hpp"

namespace headrace::trace {

enum class Kind : std::uint8_t {
  none,     ///< Not written yet.
  thread,   ///< The records that follow are of this thread; `id`: process, `other`: thread.
  job,      ///< Submission of the job `id`; inside a function called at the end of job `other`.
  run,      ///< An operation that the calling thread carried out.
  after,    ///< The job `id`, submitted next, waits for the job `other`.
  wait,     ///< A wait for `id`; `count`: 0 gave up, 1 waited until its end, 2 found it ended.
  cached,   ///< The job `other` moves the entry `id` of a cache.
  put,      ///< The job `other` is part of the put `id` of a store.
  get,      ///< The job `other` is part of the get `id`.
  send,     ///< Messages up to position `other` of the lane `id` are published.
  receive,  ///< Messages up to position `other` are received.
  arrival,  ///< A wait for the message after position `other`.
  room,     ///< A wait for room in the lane `id`.
  ran,      ///< The thread has run for `other` nanoseconds and slept `id` times until now.
};

/// One line of the processor.
struct Record {
  std::uint64_t begin_ticks = 0;  ///< 0: when it is recorded.
  std::uint64_t end_ticks = 0;    ///< Set by the sink.
  std::uint64_t id = 0;
  std::uint64_t other = 0;
  std::uint64_t source = 0;  ///< Address; of a batch that of the first operation, as `target`.
  std::uint64_t target = 0;
  std::uint64_t byte_count = 0;  ///< In all.
  Kind kind = Kind::none;
  std::uint8_t operation = 0;    ///< engine::OperationKind, and 16 times engine::Path.
  std::uint8_t source_node = 0;  ///< Set by the sink; kNoNode if it is not known.
  std::uint8_t target_node = 0;
  std::uint32_t count = 1;  ///< Operations of a batch.
};
using Words = std::array<std::uint64_t, sizeof(Record) / 8>;

/// Of the file (docs/reference/trace.md).
struct Block {
  Atomic<std::uint64_t> state;  ///< The generation, times 2^32, and the length of the records.
  std::uint64_t origin;         ///< Its offset in the file, or that of what it is a copy of.
  const void* file;             ///< Here and below: of the process that writes.
  std::uint64_t process;
  Words last;
  std::array<std::byte, 65536 - 96> records;
};
inline constexpr std::uint8_t kNoNode = 255;

/// `rest`: kind, operation and count. In registers: a store waits for those of a copy before it.
using Sink = void (*)(std::uint64_t begin_ticks, std::uint64_t id, std::uint64_t other,
                      std::uint64_t source, std::uint64_t target, std::uint64_t byte_count,
                      std::uint64_t rest) noexcept;
/// Null: nothing is recorded.
HEADRACE_API extern Atomic<Sink> sink;

/// Cost: a load and a branch.
[[nodiscard]] inline bool is_on() noexcept {
  return sink.load_relaxed() != nullptr;  // A hint; record() loads it again.
}
inline void record(const Record& what) noexcept {
  // edge: trace-sink (acquire)
  if (const Sink now = sink.load_acquire()) {
    now(what.begin_ticks, what.id, what.other, what.source, what.target, what.byte_count,
        static_cast<std::uint64_t>(what.kind) | std::uint64_t{what.operation} << 8U |
            std::uint64_t{what.count} << 32U);
  }
}
/// The identity of an object for as long as it exists.
[[nodiscard]] inline std::uint64_t id_of(const void* object) noexcept {
  return reinterpret_cast<std::uintptr_t>(object);
}

}  // namespace headrace::trace
