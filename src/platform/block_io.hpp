// SPDX-License-Identifier: Apache-2.0
// BlockIo: reads and writes of one file, many at a time, past the page cache: by io_uring, or by a
// pool of threads where the kernel refuses it. A request that the device never answers holds one
// place of the queue and no thread of the caller.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/platform/shared_file.hpp"

namespace headrace::platform {

/// Offset, length and memory of a request are multiples of this.
inline constexpr std::size_t kBlockIoAlignment = 4096;

struct BlockRequest {
  enum class Action : std::uint8_t { read, write, sync };
  Action action = Action::read;
  std::uint64_t offset = 0;
  std::span<std::byte> bytes = {};
  /// Set at the end: 0, or the errno. ENODATA: the file ends before these bytes.
  int os_errno = 0;
  std::size_t bytes_done = 0;
  void* owner = nullptr;  ///< For the caller.
};

/// Threading: shared.
class BlockIo {
 public:
  struct State;
  /// Called on a thread of BlockIo, or in wait_for_reads(), with requests that have ended.
  using Ended = void (*)(void* context, std::span<BlockRequest* const> ended) noexcept;
  struct Options {
    std::size_t depth = 64;  ///< Requests that the kernel has at a time.
    bool ring = true;        ///< False: a pool of threads.
    bool direct = true;      ///< False: through the page cache.
    /// A write or sync fails with ENODATA if the file is shorter, and with ENOENT if it has no
    /// name.
    std::uint64_t byte_count = 0;
    Ended ended = nullptr;
    void* context = nullptr;
  };

  /// Sets O_DIRECT for the file if its file system has that. Requests share the locks of `file`,
  /// which are held, unless they are unlocked, until the kernel has returned the last request, also
  /// after the end of the process.
  ///
  /// Fails: io_failed; capacity_exceeded without descriptors; unsupported without threads.
  [[nodiscard]] static Result<std::unique_ptr<BlockIo>> make(const SharedFile& file,
                                                             const Options& options);
  BlockIo& operator=(BlockIo&&) = delete;
  /// Ends the threads. Requests that the kernel still has are abandoned: they and their memory must
  /// live as long as the process, and `ended` is not called for them.
  ~BlockIo();

  /// Reads go before writes and syncs that wait for a place of the queue. A sync covers the writes
  /// that have ended before. Never blocks.
  void submit(std::span<BlockRequest* const> requests);
  /// As submit() of a read that the calling thread will wait for, without a thread in between.
  /// False if it cannot start without blocking.
  [[nodiscard]] bool try_read(BlockRequest& request);
  /// Waits until a read of try_read() ends, for at most `time_max`. False, at once, if there is
  /// none or another thread waits for them. `state` may outlive its BlockIo.
  static bool wait_for_reads(State& state, std::chrono::nanoseconds time_max);
  [[nodiscard]] const std::shared_ptr<State>& state() const { return state_; }
  /// How requests are carried out, for a person.
  [[nodiscard]] const std::string& note() const;

 private:
  explicit BlockIo(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;
};

}  // namespace headrace::platform
