// SPDX-License-Identifier: Apache-2.0
// What the binding files share: how a Result becomes a value or a Python exception, and how Python
// memory is held. Not for: logic; what is not a translation belongs into the library or into
// Python.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "headrace/base/mutex.hpp"
#include "headrace/base/result.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/engine/engine.hpp"

namespace headrace::python {

namespace nb = nanobind;
using namespace nb::literals;

/// Carries an Error through C++ frames up to the translator, which makes it a headrace.Error.
/// The only exception type of ours, and only here: the edge to a language that has exceptions.
struct Failed {
  Error error;
};

/// The value, or Failed.
template <typename T>
T value_of(Result<T> result) {
  if (!result) {
    throw Failed{std::move(result.error())};
  }
  if constexpr (!std::is_void_v<T>) {
    return std::move(*result);
  }
}

/// The name of a field as an object of Python, which is made once.
template <std::size_t size>
struct Name {
  char text[size];
  consteval Name(const char (&from)[size]) { std::copy_n(from, size, text); }  // NOLINT
};
template <Name name>
nb::handle interned() {
  static PyObject* const made = PyUnicode_InternFromString(name.text);
  return made;
}
/// A field of one of Python's dataclasses.
template <typename T, Name name>
T field(nb::handle structure) {
  return nb::cast<T>(nb::getattr(structure, interned<name>()));
}

/// A held Py_buffer: its exporter can neither free nor resize the bytes while this lives.
///
/// Threading: made and destroyed with the GIL held; the bytes may be used without it.
class Buffer {
 public:
  enum class Use : bool { read, write };
  /// Fails: Failed (invalid_argument) if the buffer is empty, null, or cannot be used so.
  Buffer(nb::handle object, Use use);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { PyBuffer_Release(&view_); }

  [[nodiscard]] std::span<const std::byte> bytes() const;
  [[nodiscard]] std::span<std::byte> writable_bytes() const;

 private:
  Py_buffer view_{};
};

/// An operation, made of a headrace.Operation, whose fields are read by their names, with the
/// buffers that must stay alive until it has ended.
///
/// Threading: made and destroyed with the GIL held; nothing changes.
class Operation {
 public:
  /// Fails: Failed (invalid_argument) if a buffer cannot be used so, or the kind is none.
  explicit Operation(nb::handle described);
  [[nodiscard]] const engine::Operation& what() const { return what_; }

 private:
  std::optional<Buffer> target_;
  std::optional<Buffer> source_;
  std::optional<Buffer> second_;
  engine::Operation what_;
};

/// A job with what it works on.
///
/// Threading: made and destroyed with the GIL held, by which the vectors are guarded until the
///            submission; the job is shared.
struct Flight {
  std::vector<std::unique_ptr<Operation>> operations;
  // Of a batch.
  std::vector<engine::Operation> batch;
  std::vector<engine::Completion> completions;
  engine::Job job;  // Last: destroyed first, and its destruction waits for the movers.
};

/// True in a child of fork(): the threads that movers had are not there, so nothing may wait for
/// them.
///
/// Threading: immutable.
class Origin {
 public:
  [[nodiscard]] bool is_elsewhere() const;

 private:
  long process_ = current();
  static long current();
};

/// Lets go of nothing, for ever: what a forked child does with what waits for threads.
template <typename T>
void abandon(T value) {
  static_cast<void>(new T(std::move(value)));
}

/// How many functions of Python are still to be called by the jobs of an engine. Apart from the
/// engine, so that the last call may outlast it.
///
/// Threading: shared.
class PendingCalls {
 public:
  void begin();
  void end();
  /// Not with the GIL held: what is waited for needs it.
  void wait_for_all();

 private:
  Mutex mutex_;
  Condition none_left_;
  std::size_t count_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

/// True on a thread that is in a function of Python that a job, or the cache, has called.
[[nodiscard]] bool is_in_call();
/// Waits without the GIL until `wait_for(time)` says that the end has come. Returns whether it has.
/// `time_ns_max`: nothing is for ever.
///
/// Fails: nb::python_error if Ctrl-C was pressed.
template <typename WaitFor>
bool wait_interruptibly(std::optional<std::int64_t> time_ns_max, const WaitFor& wait_for) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::nanoseconds kLookForSignals = std::chrono::milliseconds(200);
  const Clock::time_point begin = Clock::now();
  const std::chrono::nanoseconds time_max(time_ns_max.value_or(INT64_MAX));
  for (;;) {
    const std::chrono::nanoseconds left = time_max - (Clock::now() - begin);
    if (left <= std::chrono::nanoseconds(0)) return false;
    {
      const nb::gil_scoped_release released;
      if (wait_for(std::min(left, kLookForSignals))) return true;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}
/// Makes is_in_call() true on this thread.
///
/// Threading: owned.
class InCall {
 public:
  InCall();
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;
  ~InCall();
};

/// An engine, and the jobs whose Python handle was dropped while they ran.
///
/// Letting go of a buffer may run any Python code, which may come back to this object: so what is
/// let go of has left `orphans_` before.
///
/// Threading: shared. `orphans_` is guarded by the GIL.
class EngineHandle {
 public:
  explicit EngineHandle(std::unique_ptr<engine::Engine> engine) : engine_(std::move(engine)) {}
  EngineHandle(const EngineHandle&) = delete;
  EngineHandle& operator=(const EngineHandle&) = delete;
  /// Ends what runs, then lets go of the buffers.
  ~EngineHandle();

  [[nodiscard]] engine::Engine& engine() const { return *engine_; }
  [[nodiscard]] const std::shared_ptr<PendingCalls>& calls() const { return calls_; }
  /// Keeps a job until it has ended.
  void adopt(std::shared_ptr<Flight> flight) { orphans_.push_back(std::move(flight)); }
  /// Drives the orphans that devices do, and lets go of those that have ended.
  void reap();
  /// Fails: Failed (invalid_argument) in a call that a job of some engine makes.
  void close();

 private:
  const Origin origin_;
  std::unique_ptr<engine::Engine> engine_;
  std::vector<std::shared_ptr<Flight>> orphans_;
  std::shared_ptr<PendingCalls> calls_ = std::make_shared<PendingCalls>();
};

/// Fields by their names, of which Python makes one of its dataclasses.
using Fields = nb::typed<nb::dict, nb::str, nb::any>;
/// Of headrace.Completion.
Fields fields_of(const engine::Completion& completion);
/// Fails: Failed, always: what was not accepted, of these operations.
[[noreturn]] void refuse_answer(engine::Submit answer,
                                std::span<const std::unique_ptr<Operation>> operations);
/// Fails: Failed (invalid_argument), always.
[[noreturn]] void refuse_operation(std::string cause, std::string remedy);
engine::Path path_of(std::string_view text);
engine::MoverPolicy policy_of(std::string_view text);
/// 'text'
std::string quoted(std::string_view text);

/// A cache that can be closed before its last Python handle is gone. Knows its owner, because else
/// each conversion from Python would make one that weak references outlive.
///
/// Ownership: holds each source until nothing is moved from it any more, so that no order in which
///            Python lets go of things can take memory from under a mover. That the cache forgets
///            what is freed later is up to headrace.cache.
/// Threading: shared. The fields are guarded by the GIL; calls that release the GIL hold a
///            reference on the cache of their own, so that close() cannot destroy it under them.
class CacheHandle : public std::enable_shared_from_this<CacheHandle> {
 public:
  CacheHandle(std::shared_ptr<EngineHandle> engine, std::unique_ptr<cache::Cache> cache)
      : engine_(std::move(engine)), cache_(std::move(cache)) {}
  CacheHandle(const CacheHandle&) = delete;
  CacheHandle& operator=(const CacheHandle&) = delete;
  ~CacheHandle() { close(); }

  /// The log of its events, if there is one; only cache.cpp knows what it is.
  std::shared_ptr<void> log;
  /// Its mover policy is a function of Python. An access then needs the GIL while others may wait
  /// for it, so nothing that waits for accesses may hold the GIL.
  bool has_mover_function = false;

  [[nodiscard]] const std::shared_ptr<EngineHandle>& engine() const { return engine_; }
  /// Fails: Failed (closed).
  [[nodiscard]] std::shared_ptr<cache::Cache> cache() const;
  /// The last ones after it was closed.
  [[nodiscard]] cache::CacheStatistics statistics() const;
  /// Keeps `source` until the move of `entry` has ended, if it runs.
  void keep(cache::Entry entry, std::shared_ptr<Buffer> source);
  /// As keep(), for several.
  void keep_all(std::span<const cache::Entry> entries,
                std::span<const std::shared_ptr<Buffer>> sources);
  /// Keeps the owner of memory at `address` until clear(), for moves whose entries are not handed
  /// out.
  void lend(const void* address, std::shared_ptr<const void> owner);
  /// Ends a loan, after the cache has dropped the entries of that memory.
  void repay(const void* address) { const auto repaid = loans_.extract(address); }
  /// Forgets the memory at `address`, now or, in the mover policy of an access, before the next
  /// call.
  void forget(std::uintptr_t address, std::size_t byte_count);
  /// What forget() has left.
  void forget_postponed();
  /// Lets go of the sources whose moves have ended. Every call does so, and so does a wait.
  void reap();
  std::size_t clear();
  /// Stops the moves without waiters and destroys the cache; entries stay valid. Idempotent.
  void close();

 private:
  struct Moving {
    std::shared_ptr<Buffer> source;
    std::optional<cache::Entry> entry;
  };
  using Loans = std::map<const void*, std::shared_ptr<const void>>;

  const Origin origin_;
  std::shared_ptr<EngineHandle> engine_;
  std::shared_ptr<cache::Cache> cache_;
  cache::CacheStatistics last_statistics_;
  std::vector<Moving> moving_;
  Loans loans_;
  std::vector<std::pair<std::uintptr_t, std::size_t>> postponed_;
};

void bind_copy(nb::module_& module);
void bind_kernels(nb::module_& module);
void bind_errors();
void bind_machine(nb::module_& module);
void bind_engine(nb::module_& module);
/// The class of jobs, and what `engine` makes of them.
void bind_job(nb::module_& module, nb::class_<EngineHandle>& engine);
void bind_channel(nb::module_& module);
void bind_cache(nb::module_& module);
void bind_message(nb::module_& module);
void bind_store(nb::module_& module);
void bind_telemetry(nb::module_& module);
void bind_pmem(nb::module_& module);
void bind_query(nb::module_& module);

}  // namespace headrace::python
