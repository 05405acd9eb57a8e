// SPDX-License-Identifier: Apache-2.0
// Baselines for the message queue: messages of one length, in memory shared by two processes.
//   CachedIndexQueue   Lamport's ring with a cached copy of the other end's index, as in
//                      MCRingBuffer (Lee et al., 2010) and rigtorp's SPSCQueue.
//   BoostQueue         boost::lockfree::spsc_queue, if Boost is installed.
// Both trust the content of shared memory, and do not detect the death of the other end.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "headrace/base/atomic.hpp"

#if HEADRACE_HAS_BOOST
#include <boost/lockfree/spsc_queue.hpp>
#endif

namespace headrace::message::lab {

template <std::size_t kBytes>
using Payload = std::array<std::byte, kBytes>;

/// Threading: one producer, one consumer.
template <std::size_t kBytes, std::size_t kCount>
class CachedIndexQueue {
 public:
  /// Returns: how many of `count` messages were sent, all or none; they become visible together.
  std::size_t send(const Payload<kBytes>* source, std::size_t count) {
    const std::uint64_t tail = tail_.load_relaxed();  // Relaxed: only this side writes it.
    if (tail + count - head_seen_ > kCount) {
      head_seen_ = head_.load_acquire();
      if (tail + count - head_seen_ > kCount) return 0;
    }
    for (std::size_t i = 0; i < count; ++i) slots_[(tail + i) % kCount] = source[i];
    tail_.store_release(tail + count);
    return count;
  }
  /// Returns: how many were received, up to `count`.
  std::size_t receive(Payload<kBytes>* target, std::size_t count) {
    const std::uint64_t head = head_.load_relaxed();  // Relaxed: only this side writes it.
    if (tail_seen_ == head) {
      tail_seen_ = tail_.load_acquire();
      if (tail_seen_ == head) return 0;
    }
    count = std::min<std::size_t>(count, tail_seen_ - head);
    for (std::size_t i = 0; i < count; ++i) target[i] = slots_[(head + i) % kCount];
    head_.store_release(head + count);
    return count;
  }

 private:
  alignas(128) Atomic<std::uint64_t> tail_;
  alignas(128) std::uint64_t head_seen_ = 0;
  alignas(128) Atomic<std::uint64_t> head_;
  alignas(128) std::uint64_t tail_seen_ = 0;
  alignas(128) std::array<Payload<kBytes>, kCount> slots_;
};

#if HEADRACE_HAS_BOOST
/// Threading: one producer, one consumer.
template <std::size_t kBytes, std::size_t kCount>
class BoostQueue {
 public:
  std::size_t send(const Payload<kBytes>* source, std::size_t count) {
    return queue_.push(source, count);
  }
  std::size_t receive(Payload<kBytes>* target, std::size_t count) {
    return queue_.pop(target, count);
  }

 private:
  boost::lockfree::spsc_queue<Payload<kBytes>, boost::lockfree::capacity<kCount>> queue_;
};
#endif

}  // namespace headrace::message::lab
