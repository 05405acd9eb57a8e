// SPDX-License-Identifier: Apache-2.0
// PerThread: an object for each thread, so that threads write to lines of their own. Not for:
// objects that end with their thread; the next thread with its number goes on with its object.
#pragma once

#include <span>
#include <type_traits>

#include "headrace/platform/memory.hpp"
#include "headrace/platform/thread.hpp"

namespace headrace::platform {

/// A new T must consist of zero bytes. The memory of an object is there once its thread writes to
/// it: nothing is allocated later.
///
/// Threading: shared.
template <typename T>
class PerThread {
 public:
  static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 4096);

  PerThread() {
    if (auto pages = allocate_pages(sizeof(T) * kThreadNumberMax, {})) pages_ = *pages;
  }
  PerThread(const PerThread&) = delete;
  PerThread& operator=(const PerThread&) = delete;
  ~PerThread() { free_pages(pages_); }

  /// That of the calling thread, which alone writes to it. Null if the thread has no number or
  /// there is no address space: the caller has one for all such threads.
  [[nodiscard]] T* mine() noexcept {
    const std::uint32_t number = thread_number();
    return number == kThreadNumberMax || pages_.empty() ? nullptr : &first()[number];
  }
  /// Calls `visit(object)` for each. One that was written before a heavy barrier of this thread is
  /// among them.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    const std::uint32_t count = pages_.empty() ? 0 : thread_number_end();
    for (std::uint32_t i = 0; i < count; ++i) visit(first()[i]);
  }

 private:
  [[nodiscard]] T* first() const { return reinterpret_cast<T*>(pages_.data()); }

  std::span<std::byte> pages_;
};

}  // namespace headrace::platform
