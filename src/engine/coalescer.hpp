// SPDX-License-Identifier: Apache-2.0
// Gathers small jobs for one device queue, so that many share one descriptor: each waits until
// there are enough of them, or until it has waited long enough. Not for batches that callers make.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "headrace/base/atomic.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/engine/engine.hpp"

namespace headrace::engine {

/// A mover in front of a device's. It has no thread: whoever polls sends what has waited long
/// enough, as whoever polls ends what the device has done.
///
/// A group of requests is free, open (at most one: it takes more), ready (it waits for room in the
/// queue) or sent. It is itself a request, of a batch; a single request goes as if it had not been
/// here.
///
/// Threading: shared.
class Coalescer final : public Mover {
 public:
  /// `mover` outlives this.
  Coalescer(Mover& mover, const CoalescingOptions& options);

  /// Whether `operation` is small enough to gain by it, and may share a descriptor.
  [[nodiscard]] bool takes(const Operation& operation) const noexcept {
    if (operation.byte_count() > bytes_max_ || operation.is_fenced()) return false;
    // A drain is about what was submitted before; a device has no patterns of 16 bytes.
    return operation.kind() != OperationKind::drain &&
           (operation.kind() != OperationKind::fill || operation.pattern_bytes() == 8);
  }

  [[nodiscard]] const MoverInfo& info() const override { return mover_.info(); }
  [[nodiscard]] Submit post(Request& request) noexcept override;
  void reap() noexcept override;
  void reap(const Request& request) noexcept override;
  void stop() noexcept override;

 private:
  static constexpr std::size_t kOperationsMax = CoalescingOptions::kOperationsMax;
  /// More than a queue has slots (DsaQueue), so that it is the queue that is full first.
  static constexpr std::size_t kGroupCount = 80;

  /// Between its lists a group belongs to the thread that took it out.
  struct Group : Request {
    Coalescer* owner = nullptr;
    Group* next_group = nullptr;
    std::size_t count = 0;
    std::array<Request*, kOperationsMax> requests{};
    std::array<Operation, kOperationsMax> operations;
    std::array<Completion, kOperationsMax> completions;
  };
  /// First in, first out.
  struct List {
    Group* first = nullptr;
    Group* last = nullptr;
    void push_back(Group& group) noexcept;
    void push_front(Group& group) noexcept;
    [[nodiscard]] Group* pop() noexcept;
  };

  void note_due() noexcept HEADRACE_REQUIRES(mutex_);
  void make_ready() noexcept HEADRACE_REQUIRES(mutex_);
  void send_ready() noexcept;
  [[nodiscard]] Submit hand_over(Group& group) noexcept;
  void free_group(Group& group) noexcept;
  static void drop_stopped(Group& group) noexcept;
  void finish_stopped(Group& group) noexcept;
  void distribute(Group& group) noexcept;

  Mover& mover_;
  const std::size_t bytes_max_;
  const std::size_t operations_max_;
  const std::uint64_t wait_ticks_;
  const std::unique_ptr<Group[]> groups_;
  /// When somebody has to do something: kNever, or when the open group has waited long enough, or 0
  /// while a group is ready. Written under the mutex; a hint for those who look without it.
  Atomic<std::uint64_t> due_ticks_{kNever};
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  Mutex mutex_;
  bool closed_ HEADRACE_GUARDED_BY(mutex_) = false;
  Group* open_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
  std::uint64_t open_due_ticks_ HEADRACE_GUARDED_BY(mutex_) = 0;
  List ready_ HEADRACE_GUARDED_BY(mutex_);
  List free_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::engine
