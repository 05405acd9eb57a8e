// SPDX-License-Identifier: Apache-2.0
// The hooks of a trace: what a program does with the library, for `headrace sim replay`. Layers
// call record(); nothing is recorded until telemetry::start_trace() installs a sink.
// Not for: the file, which telemetry writes (docs/reference/trace.md).
#pragma once

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

/// One line of the processor, as it is in the file.
struct Record {
  std::uint64_t begin_ticks = 0;  ///< 0: when it is recorded.
  std::uint64_t end_ticks = 0;    ///< As begin_ticks.
  std::uint64_t id = 0;
  std::uint64_t other = 0;
  std::uint64_t source = 0;  ///< Address; of a batch that of the first operation, as `target`.
  std::uint64_t target = 0;
  std::uint64_t byte_count = 0;  ///< In all.
  std::uint32_t count = 1;       ///< Operations of a batch.
  std::uint8_t source_node = 0;  ///< Set by the sink; kNoNode if it is not known.
  std::uint8_t target_node = 0;
  std::uint8_t operation = 0;  ///< engine::OperationKind, and 16 times engine::Path.
  Kind kind = Kind::none;
};
static_assert(sizeof(Record) == 64);
inline constexpr std::uint8_t kNoNode = 255;

using Sink = void (*)(const Record& record) noexcept;
/// Null: nothing is recorded.
HEADRACE_API extern Atomic<Sink> sink;

/// Cost: a load and a branch.
[[nodiscard]] inline bool is_on() noexcept {
  return sink.load_relaxed() != nullptr;  // A hint; record() loads it again.
}
inline void record(const Record& what) noexcept {
  // edge: trace-sink (acquire)
  if (const Sink now = sink.load_acquire()) now(what);
}
/// The identity of an object for as long as it exists.
[[nodiscard]] inline std::uint64_t id_of(const void* object) noexcept {
  return reinterpret_cast<std::uintptr_t>(object);
}

}  // namespace headrace::trace
