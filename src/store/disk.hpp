// SPDX-License-Identifier: Apache-2.0
// Disk: the file of a tier on a disk: its table of headers, the buffers between the file and other
// memory, and its requests. Not here: what the requests are for (transfers.cpp, flusher.cpp).
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cached_medium.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/platform/block_io.hpp"
#include "layout.hpp"

namespace headrace::store::detail {

/// A limit of time that can be added to a clock's, and has a quarter.
[[nodiscard]] constexpr std::chrono::nanoseconds bounded(std::chrono::milliseconds time) {
  return std::clamp<std::chrono::milliseconds>(time, std::chrono::milliseconds(1),
                                               std::chrono::years(30));
}

/// Threading: shared; buffers confined, under the mutex of the store.
/// Ownership: requests that the kernel still has when it is destroyed keep their memory for ever.
class Disk {
 public:
  using Medium = CachedMedium<Disk>;

  /// Opens the file, of which `head` has been read, and reads its table.
  ///
  /// Fails: as BlockIo::make; out_of_memory.
  [[nodiscard]] static Result<std::unique_ptr<Disk>> make(const platform::SharedFile& file,
                                                          const Head& head,
                                                          const TierOptions& options);
  Disk& operator=(Disk&&) = delete;
  ~Disk();

  /// Called on another thread, or one that waits for a read, with requests of submit() that have
  /// ended.
  using Ended = std::function<void(std::span<platform::BlockRequest* const>)>;
  void start(Ended ended) { ended_ = std::move(ended); }
  [[nodiscard]] platform::BlockIo& io() const { return *io_; }
  /// Abandons requests that the kernel still has. `ended` is not called any more.
  void stop() { io_.reset(); }

  [[nodiscard]] const Slots& slots() const { return slots_; }
  [[nodiscard]] Medium& medium() { return medium_; }
  [[nodiscard]] std::chrono::nanoseconds deadline() const { return deadline_; }
  [[nodiscard]] const std::string& note() const { return io_->note(); }
  /// Whether a request to the table has not been answered in time, and still is not.
  [[nodiscard]] bool hangs() const {
    // relaxed: set by the thread that writes next; what follows the end of a request is ordered by
    // the mutex of BlockIo.
    return unanswered_->load_relaxed() != 0;
  }
  /// Whether the kernel still has requests, which may still change the file. After stop().
  [[nodiscard]] bool has_late() const;
  /// Compares the data of a slot with a checksum. Waits for the disk.
  [[nodiscard]] bool matches(SlotNumber slot, const SlotHeader& header);

  /// A buffer of stride_bytes; null if all are in use. Puts leave some to gets.
  [[nodiscard]] std::byte* take_buffer(bool is_put);
  void give_buffer(std::byte* buffer) { buffers_.push_back(buffer); }

  // CachedMedium's device. Both wait for the disk, at most until the deadline.
  [[nodiscard]] std::optional<std::vector<std::size_t>> write(std::vector<Page> pages,
                                                              std::vector<std::size_t> offsets);
  [[nodiscard]] bool flush();

 private:
  struct Batch;

  Disk(const Head& head, const TierOptions& options, std::span<std::byte> pages);
  [[nodiscard]] Result<void> read_table(const std::string& tried);
  static void on_ended(void* context, std::span<platform::BlockRequest* const> ended) noexcept;
  /// False if the disk does not answer before the deadline.
  bool run(const std::shared_ptr<Batch>& batch);

  const std::chrono::nanoseconds deadline_;
  const std::span<std::byte> pages_;  ///< The copy of the table, then the buffers.
  const Slots slots_;
  Medium medium_;
  std::vector<std::byte*> buffers_;
  std::size_t kept_for_gets_ = 0;
  std::shared_ptr<Atomic<std::uint32_t>> unanswered_;
  Ended ended_;
  std::unique_ptr<platform::BlockIo> io_;
};

}  // namespace headrace::store::detail
