// SPDX-License-Identifier: Apache-2.0
// headrace/base/atomic.hpp for the model checker: the same operations. Each is a scheduling point,
// and each load may return any value that its memory order allows.
#pragma once

#include "headrace/base/relacy.hpp"

#include <cstdint>
#include <type_traits>

namespace headrace {

/// Threading: shared by the threads of a simulation.
template <typename T>
class Atomic {
 public:
  Atomic() : Atomic(T{}) {}
  explicit Atomic(T value) : value_(word(value)) {}
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  [[nodiscard]] T load_relaxed() const { return load(rl::mo_relaxed); }
  [[nodiscard]] T load_acquire() const { return load(rl::mo_acquire); }
  [[nodiscard]] T load_seq_cst() const { return load(rl::mo_seq_cst); }
  void store_relaxed(T value) { value_($).store(word(value), rl::mo_relaxed); }
  void store_release(T value) { value_($).store(word(value), rl::mo_release); }
  T exchange_acq_rel(T value) { return from(value_($).exchange(word(value), rl::mo_acq_rel)); }
  T exchange_seq_cst(T value) { return from(value_($).exchange(word(value), rl::mo_seq_cst)); }
  T fetch_add_relaxed(T value) { return from(value_($).fetch_add(word(value), rl::mo_relaxed)); }
  T fetch_add_acq_rel(T value) { return from(value_($).fetch_add(word(value), rl::mo_acq_rel)); }
  T fetch_sub_relaxed(T value) { return from(value_($).fetch_sub(word(value), rl::mo_relaxed)); }
  T fetch_sub_acq_rel(T value) { return from(value_($).fetch_sub(word(value), rl::mo_acq_rel)); }
  T fetch_or_relaxed(T bits) { return from(value_($).fetch_or(word(bits), rl::mo_relaxed)); }
  T fetch_or_acq_rel(T bits) { return from(value_($).fetch_or(word(bits), rl::mo_acq_rel)); }
  T fetch_and_relaxed(T bits) { return from(value_($).fetch_and(word(bits), rl::mo_relaxed)); }
  T fetch_and_acq_rel(T bits) { return from(value_($).fetch_and(word(bits), rl::mo_acq_rel)); }
  bool compare_exchange_acq_rel(T& expected, T desired) {
    return exchange_if(expected, desired, rl::mo_acq_rel, rl::mo_acquire);
  }
  bool compare_exchange_seq_cst(T& expected, T desired) {
    return exchange_if(expected, desired, rl::mo_seq_cst, rl::mo_seq_cst);
  }
  bool compare_exchange_relaxed(T& expected, T desired) {
    return exchange_if(expected, desired, rl::mo_relaxed, rl::mo_relaxed);
  }

  /// Polls instead of sleeping: checks what the thread sees when it wakes, and that the value
  /// changes for good. Wake-ups are tested by tests/unit/cache/waiting_test.cpp.
  void wait_acquire(T old) const {
    while (load(rl::mo_acquire) == old) rl::yield(1, $);
  }
  void notify_one() {}
  void notify_all() {}

 private:
  using Word = std::uint64_t;

  static Word word(T value) {
    if constexpr (std::is_pointer_v<T>) {
      return reinterpret_cast<std::uintptr_t>(value);
    } else {
      return static_cast<Word>(value);
    }
  }
  static T from(Word value) {
    if constexpr (std::is_pointer_v<T>) {
      return reinterpret_cast<T>(static_cast<std::uintptr_t>(value));
    } else {
      return static_cast<T>(value);
    }
  }
  T load(rl::memory_order order) const { return from(value_($).load(order)); }
  bool exchange_if(T& expected, T desired, rl::memory_order success, rl::memory_order failure) {
    Word found = word(expected);
    const bool done = value_($).compare_exchange_strong(found, word(desired), success, failure);
    expected = from(found);
    return done;
  }

  mutable rl::atomic<Word> value_;
};

}  // namespace headrace
