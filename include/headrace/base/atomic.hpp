// SPDX-License-Identifier: Apache-2.0
// Atomics with the memory order in the name. All code uses this type, so that a model checker can
// replace it.
#pragma once

#include <atomic>

namespace headrace {

/// std::atomic without default orders. A comment at each call names the edge of an acquire or
/// release (see docs/internals/memory-order.md), or gives the reason for relaxed.
///
/// Threading: shared.
template <typename T>
class Atomic {
 public:
  constexpr Atomic() noexcept : value_(T{}) {}
  constexpr explicit Atomic(T value) noexcept : value_(value) {}
  Atomic& operator=(Atomic&&) = delete;

  [[nodiscard]] T load_relaxed() const noexcept { return value_.load(std::memory_order_relaxed); }
  [[nodiscard]] T load_acquire() const noexcept { return value_.load(std::memory_order_acquire); }
  void store_relaxed(T value) noexcept { value_.store(value, std::memory_order_relaxed); }
  void store_release(T value) noexcept { value_.store(value, std::memory_order_release); }

  /// For protocols in which each of two threads writes one word and then reads the word that the
  /// other writes: with weaker orders both could read the old value. The caller names the pair.
  [[nodiscard]] T load_seq_cst() const noexcept { return value_.load(std::memory_order_seq_cst); }
  T exchange_seq_cst(T value) noexcept { return value_.exchange(value, std::memory_order_seq_cst); }

  T exchange_acq_rel(T value) noexcept { return value_.exchange(value, std::memory_order_acq_rel); }
  T fetch_add_relaxed(T value) noexcept {
    return value_.fetch_add(value, std::memory_order_relaxed);
  }
  T fetch_add_acq_rel(T value) noexcept {
    return value_.fetch_add(value, std::memory_order_acq_rel);
  }
  T fetch_or_relaxed(T bits) noexcept { return value_.fetch_or(bits, std::memory_order_relaxed); }
  T fetch_and_relaxed(T bits) noexcept { return value_.fetch_and(bits, std::memory_order_relaxed); }
  T fetch_sub_relaxed(T value) noexcept {
    return value_.fetch_sub(value, std::memory_order_relaxed);
  }
  T fetch_sub_acq_rel(T value) noexcept {
    return value_.fetch_sub(value, std::memory_order_acq_rel);
  }
  T fetch_or_acq_rel(T value) noexcept { return value_.fetch_or(value, std::memory_order_acq_rel); }
  T fetch_and_acq_rel(T value) noexcept {
    return value_.fetch_and(value, std::memory_order_acq_rel);
  }
  /// On failure `expected` holds the current value, read with acquire.
  bool compare_exchange_acq_rel(T& expected, T desired) noexcept {
    return value_.compare_exchange_strong(expected, desired, std::memory_order_acq_rel,
                                          std::memory_order_acquire);
  }
  bool compare_exchange_seq_cst(T& expected, T desired) noexcept {
    return value_.compare_exchange_strong(expected, desired, std::memory_order_seq_cst,
                                          std::memory_order_seq_cst);
  }
  bool compare_exchange_relaxed(T& expected, T desired) noexcept {
    return value_.compare_exchange_strong(expected, desired, std::memory_order_relaxed,
                                          std::memory_order_relaxed);
  }

  /// Sleeps while the value equals `old`; a notify alone does not end it.
  void wait_acquire(T old) const noexcept { value_.wait(old, std::memory_order_acquire); }
  void notify_one() noexcept { value_.notify_one(); }
  void notify_all() noexcept { value_.notify_all(); }

 private:
  std::atomic<T> value_;
};

/// Ordered access to plain storage shared with a device or another process, such as a completion
/// record.
template <typename T>
[[nodiscard]] T load_acquire(const T& place) noexcept {
  // The storage is never const: atomic_ref<const T> does not exist in C++20.
  return std::atomic_ref<T>(const_cast<T&>(place)).load(std::memory_order_acquire);
}
template <typename T>
void store_relaxed(T& place, T value) noexcept {
  std::atomic_ref<T>(place).store(value, std::memory_order_relaxed);
}
template <typename T>
void store_release(T& place, T value) noexcept {
  std::atomic_ref<T>(place).store(value, std::memory_order_release);
}

}  // namespace headrace
