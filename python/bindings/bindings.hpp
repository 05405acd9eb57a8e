// SPDX-License-Identifier: Apache-2.0
// Shared by the bindings: converts a Result into a value or a Python exception, and holds Python
// memory. Not for: logic; anything but translation belongs in the library or in Python.
#pragma once

#include <nanobind/nanobind.h>
// All casters, for every source: without one a cast compiles, and fails when it runs.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gil.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/base/names.hpp"
#include "headrace/base/result.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/engine/engine.hpp"
#include "text.hpp"

/// A node is its number in Python.
template <>
struct nanobind::detail::type_caster<headrace::NodeId> {
  NB_TYPE_CASTER(headrace::NodeId, const_name("int"))

  bool from_python(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    make_caster<std::uint32_t> number;
    if (!number.from_python(source, flags, cleanup)) return false;
    value = headrace::NodeId(number.value);
    return true;
  }
  static handle from_cpp(headrace::NodeId node, rv_policy policy, cleanup_list* cleanup) noexcept {
    return make_caster<std::uint32_t>::from_cpp(node.value(), policy, cleanup);
  }
};

/// Also called by headrace_lab._lab, which is a shared object of its own.
#define HEADRACE_FOR_LAB __attribute__((visibility("default")))

namespace headrace::python {

namespace nb = nanobind;
using namespace nb::literals;

/// Carries an Error through C++ frames to the translator, which makes it a headrace.Error. The only
/// exception type of the project, used only at this edge to Python.
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

/// The name of a field as an interned Python string, made once.
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
/// A field of a Python dataclass.
template <typename T, Name name>
T field(nb::handle structure) {
  return nb::cast<T>(nb::getattr(structure, interned<name>()));
}

/// Fields by name, from which Python makes a dataclass.
using Fields = nb::typed<nb::dict, nb::str, nb::any>;

/// A value for Python: an enumerator as its name, a number of bytes or nanoseconds as an int.
template <typename T>
nb::object to_python(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return nb::cast(headrace::name(value));
  } else if constexpr (requires { value.count(); }) {
    return nb::cast(value.count());
  } else {
    return nb::cast(value);
  }
}
/// Adds members of `from` under their own names.
template <auto... kMembers, typename T>
void add_members(nb::dict& fields, const T& from) {
  const auto add = [&]<auto kMember>() {
    static PyObject* const kName =
        PyUnicode_InternFromString(headrace::detail::kSpelled<kMember>.data());
    fields[nb::handle(kName)] = to_python(from.*kMember);
  };
  (add.template operator()<kMembers>(), ...);
}
/// Members of `from` under their own names.
template <auto... kMembers, typename T>
Fields members_of(const T& from) {
  Fields fields;
  add_members<kMembers...>(fields, from);
  return fields;
}

/// A held Py_buffer: its exporter can neither free nor resize the bytes while this lives.
///
/// Threading: made and destroyed with the GIL held; the bytes may be used without it.
class Buffer {
 public:
  enum class Use : bool { read, write };
  enum class Length : bool { any, positive };
  /// Fails: Failed (invalid_argument) if the buffer is empty or null, unless any length will do;
  ///        nb::python_error if it cannot be exported for `use`.
  Buffer(nb::handle object, Use use, Length length = Length::positive);
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() { PyBuffer_Release(&view_); }

  [[nodiscard]] std::span<const std::byte> bytes() const { return writable_bytes(); }
  [[nodiscard]] std::span<std::byte> writable_bytes() const {
    return {static_cast<std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

/// Buffers to read, also empty ones.
///
/// Threading: as Buffer.
class Sources {
 public:
  explicit Sources(const nb::list& objects) {
    for (const nb::handle each : objects) {
      held_.emplace_back(each, Buffer::Use::read, Buffer::Length::any);
      bytes_.push_back(held_.back().bytes());
    }
  }
  [[nodiscard]] std::span<const std::span<const std::byte>> bytes() const { return bytes_; }

 private:
  std::deque<Buffer> held_;
  std::vector<std::span<const std::byte>> bytes_;
};

/// An operation converted from a headrace.Operation, with the buffers that must stay alive until it
/// has ended.
///
/// Threading: immutable; made and destroyed with the GIL held.
class Operation {
 public:
  /// Fails: Failed (invalid_argument) if a buffer is unusable or the kind is unknown.
  explicit Operation(nb::handle described);
  [[nodiscard]] const engine::Operation& what() const { return what_; }

 private:
  std::optional<Buffer> target_;
  std::optional<Buffer> source_;
  std::optional<Buffer> second_;
  engine::Operation what_;
};

/// A job with its operations.
///
/// Threading: made and destroyed with the GIL held, which guards the vectors until the submission;
///            the job is shared.
struct Submission {
  std::vector<std::unique_ptr<Operation>> operations;
  // Of a batch.
  std::vector<engine::Operation> batch;
  std::vector<engine::Completion> completions;
  engine::Job job;  // Last: destroyed first, and its destruction waits for the movers.
};

/// Detects a child of fork(), which has no mover threads, so that nothing may wait for them.
///
/// Threading: immutable.
class Origin {
 public:
  [[nodiscard]] bool is_elsewhere() const { return ::getpid() != process_; }

 private:
  pid_t process_ = ::getpid();
};

/// Takes the values for which `is_over` holds out of `all`, and destroys them when they are out:
/// releasing a buffer may run Python code that comes here again.
template <typename T, typename IsOver>
void drop_if(std::vector<T>& all, const IsOver& is_over) {
  const auto first = std::stable_partition(all.begin(), all.end(), std::not_fn(is_over));
  const std::vector<T> gone(std::make_move_iterator(first), std::make_move_iterator(all.end()));
  all.erase(first, all.end());
}

/// Leaks `value`: a forked child must not run destructors that wait for threads.
template <typename T>
void abandon(T value) {
  static_cast<void>(new T(std::move(value)));
}

/// Counts the pending callbacks of an engine's jobs. Separate from the engine, so that the last
/// call may outlive it.
///
/// Threading: shared.
class PendingCalls {
 public:
  void begin() {
    const Lock lock(mutex_);
    ++count_;
  }
  void end() {
    const Lock lock(mutex_);
    if (--count_ == 0) none_left_.notify_all();
  }
  /// Call without the GIL, which the callbacks need.
  void wait_for_all() {
    const Lock lock(mutex_);
    while (count_ != 0) none_left_.wait(mutex_);
  }

 private:
  Mutex mutex_;
  Condition none_left_;
  std::size_t count_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

inline constinit thread_local int calls_in_progress = 0;
/// True on a thread that runs a Python function called by a job or the cache.
[[nodiscard]] inline bool is_in_call() {
  return calls_in_progress != 0;
}
/// Waits without the GIL until `wait_for(time)` returns true, and returns whether it did.
/// `time_ns_max`: nullopt waits without limit.
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
      const GilReleased released;
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
  InCall() { ++calls_in_progress; }
  InCall& operator=(InCall&&) = delete;
  ~InCall() { --calls_in_progress; }
};

/// An engine, and the jobs whose Python handle was dropped while they ran.
///
/// Releasing a buffer may run any Python code, which may call this object again, so jobs are
/// removed from `orphans_` before they are destroyed.
///
/// Threading: shared. `orphans_` is guarded by the GIL.
class EngineHandle {
 public:
  explicit EngineHandle(std::unique_ptr<engine::Engine> engine) : engine_(std::move(engine)) {}
  EngineHandle& operator=(EngineHandle&&) = delete;
  /// Ends running jobs, then releases the buffers.
  ~EngineHandle();

  [[nodiscard]] engine::Engine& engine() const { return *engine_; }
  [[nodiscard]] const std::shared_ptr<PendingCalls>& calls() const { return calls_; }
  /// Keeps a job until it has ended.
  void adopt(std::shared_ptr<Submission> submission) { orphans_.push_back(std::move(submission)); }
  /// Drives the orphans on devices and destroys those that have ended.
  void reap();
  /// Fails: Failed (invalid_argument) in a callback of any engine's job.
  void close();

 private:
  const Origin origin_;
  std::unique_ptr<engine::Engine> engine_;
  std::vector<std::shared_ptr<Submission>> orphans_;
  std::shared_ptr<PendingCalls> calls_ = std::make_shared<PendingCalls>();
};

/// The fields of headrace.Completion.
Fields fields_of(const engine::Completion& completion);
/// Fails: Failed, always: describes why these operations were refused.
[[noreturn]] void refuse_answer(engine::Submit answer,
                                std::span<const std::unique_ptr<Operation>> operations);
/// Fails: Failed (invalid_argument), always.
[[noreturn]] void refuse_operation(std::string cause, std::string remedy);
engine::Path path_of(std::string_view text);
engine::MoverPolicy policy_of(std::string_view text);

/// A cache that can be closed before its last Python handle is gone. Derives from
/// enable_shared_from_this; otherwise each conversion from Python would make a temporary owner, and
/// weak references would expire with it.
///
/// Ownership: holds each source until no move reads it, so that no order of destruction in Python
///            can free memory that a mover uses. headrace.cache drops entries of memory freed
///            later.
/// Threading: shared. The fields are guarded by the GIL; calls that release the GIL hold a separate
///            reference to the cache, so that close() cannot destroy it meanwhile.
class CacheHandle : public std::enable_shared_from_this<CacheHandle> {
 public:
  CacheHandle(std::shared_ptr<EngineHandle> engine, std::unique_ptr<cache::Cache> cache)
      : engine_(std::move(engine)), cache_(std::move(cache)) {}
  CacheHandle& operator=(CacheHandle&&) = delete;
  ~CacheHandle() { close(); }

  /// The mover policy is a Python function. An access then needs the GIL while other threads may
  /// wait for the access, so nothing that waits for accesses may hold the GIL.
  bool has_policy_function = false;

  [[nodiscard]] const std::shared_ptr<EngineHandle>& engine() const { return engine_; }
  /// Fails: Failed (closed).
  HEADRACE_FOR_LAB [[nodiscard]] std::shared_ptr<cache::Cache> cache() const;
  /// After close(), the final ones.
  [[nodiscard]] cache::CacheStatistics statistics() const;
  /// Keeps each source until the move of its entry has ended, if it is running.
  void keep(std::span<const cache::Entry> entries,
            std::span<const std::shared_ptr<Buffer>> sources);
  /// Keeps the owner of memory at `address` until clear(), for moves without entry handles in
  /// Python.
  HEADRACE_FOR_LAB void keep_owner(const void* address, std::shared_ptr<const void> owner);
  /// Ends a loan, after the cache has dropped the entries of that memory.
  void release_owner(const void* address) { const auto released = owners_.extract(address); }
  /// Invalidates the memory at `address`: now or, within a mover policy, before the next call.
  /// Takes an address, because its owner is being destroyed; allowed in callbacks.
  void forget(std::uintptr_t address, std::size_t byte_count);
  /// Does what forget() postponed.
  void forget_postponed();
  /// Releases the sources of ended moves. Called by every call and wait.
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
  Loans owners_;
  std::vector<std::pair<std::uintptr_t, std::size_t>> postponed_;
};

void bind_copy(nb::module_& module);
void bind_errors();
void bind_machine(nb::module_& module);
void bind_engine(nb::module_& module);
/// Binds the class of jobs, and the methods of `engine` that make them.
void bind_job(nb::module_& module, nb::class_<EngineHandle>& engine);
/// Adds Exporter, the base of Python classes whose `view` returns an array: gives them its buffer.
void bind_exporter(nb::module_& module);
void bind_cache(nb::module_& module);
void bind_message(nb::module_& module);
void bind_store(nb::module_& module);
void bind_telemetry(nb::module_& module);
void bind_pmem(nb::module_& module);
void bind_query(nb::module_& module);

}  // namespace headrace::python
