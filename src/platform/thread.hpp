// SPDX-License-Identifier: Apache-2.0
// Threads: start, affinity, current processor, CPU time and names.
#pragma once

#include <csignal>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"

namespace headrace::platform {

/// Blocks all signals that are sent to the calling thread or its process, and leaves those that its
/// own instructions raise (SIGSEGV, SIGBUS, ...), whose handlers a thread of the library may need.
///
/// Threading: owned.
class SignalBlock {
 public:
  SignalBlock() noexcept;
  SignalBlock& operator=(SignalBlock&&) = delete;
  ~SignalBlock();

 private:
  sigset_t before_{};
};

/// Starts a thread of the library, with a SignalBlock: handlers of the program run on its own
/// threads. All threads of the library are started here.
///
/// Fails: unsupported if the system's thread limit is reached; `tried` says what for.
template <typename Thread = std::thread, typename... Arguments>
[[nodiscard]] Result<Thread> start_thread(std::string tried, Arguments&&... arguments) {
  const SignalBlock block;
  try {
    return Thread(std::forward<Arguments>(arguments)...);
  } catch (const std::system_error& error) {
    return fail(Code::unsupported, std::move(tried), "the system's thread limit is reached",
                "use fewer threads, or raise the limit", error.code().value());
  }
}

/// Whether the calling thread has memory to register the destructor of a thread_local object:
/// without it the C library ends the program.
[[nodiscard]] bool can_end_objects() noexcept;

/// Threads beyond this many at a time have no number.
inline constexpr std::uint32_t kThreadNumberMax = 1024;

namespace detail {
/// The number of this thread, plus one; 0: not known yet. initial-exec: otherwise each access is a
/// call.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local std::uint32_t number_plus_one;
[[nodiscard]] std::uint32_t number_this_thread() noexcept;

/// What PerThread::mine() returned last to this thread, and the number of that PerThread; 0: none.
struct LastMine {
  std::uint64_t owner;
  void* object;
};
[[gnu::tls_model("initial-exec")]] extern constinit thread_local LastMine last_mine;
}  // namespace detail

/// The lowest number that no other thread had when this one first asked, for data of each thread;
/// kThreadNumberMax if there is none, and while the thread's last destructors run. A thread comes
/// after all that the earlier owner of its number did.
[[nodiscard]] inline std::uint32_t thread_number() noexcept {
  const std::uint32_t known = detail::number_plus_one;
  return known != 0 ? known - 1 : detail::number_this_thread();
}
/// All numbers given out so far are below it.
[[nodiscard]] std::uint32_t thread_number_end() noexcept;

/// Processors that this thread may run on, ascending; never empty.
[[nodiscard]] std::vector<CpuId> allowed_cpus();
/// Restricts the calling thread, or `thread`, to `cpus`.
///
/// Fails: invalid_argument if this process may use none of them.
[[nodiscard]] Result<void> pin_this_thread(std::span<const CpuId> cpus);
[[nodiscard]] Result<void> pin_thread(std::thread& thread, std::span<const CpuId> cpus);
/// Processor and node that this thread runs on at this moment; nothing if unknown.
[[nodiscard]] std::optional<CpuId> current_cpu();
[[nodiscard]] std::optional<NodeId> current_node();
/// CPU time that the calling thread has used so far.
[[nodiscard]] std::chrono::nanoseconds thread_cpu_time() noexcept;
/// How often the calling thread gave up its processor without being preempted.
[[nodiscard]] std::uint64_t thread_sleep_count() noexcept;
/// Names the calling thread for debuggers and /proc; truncated to 15 characters.
void name_this_thread(const std::string& name);

}  // namespace headrace::platform
