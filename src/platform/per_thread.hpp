// SPDX-License-Identifier: Apache-2.0
// PerThread: an object for each thread, so that threads write to lines of their own. Not for:
// objects that end with their thread; the next thread with its number goes on with its object.
#pragma once

#include <span>
#include <type_traits>

#include "headrace/base/atomic.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/platform/thread.hpp"

namespace headrace::platform {
namespace detail {
inline constinit Atomic<std::uint64_t> owner_count{0};
}  // namespace detail

/// A new T must consist of zero bytes. The memory of an object is there once its thread writes to
/// it: nothing is allocated later.
///
/// Threading: shared.
template <typename T>
class PerThread {
 public:
  static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 4096);

  /// Without `use` no thread has one.
  explicit PerThread(bool use) {
    if (!use) return;
    if (auto pages = allocate_pages(sizeof(T) * kThreadNumberMax, {})) pages_ = *pages;
  }
  PerThread& operator=(PerThread&&) = delete;
  ~PerThread() { free_pages(pages_); }

  /// That of the calling thread, which alone writes to it. Null if the thread has no number or
  /// there is no address space: the caller has one for all such threads.
  [[nodiscard]] T* mine() noexcept {
    const detail::LastMine& last = detail::last_mine;
    return last.owner == owner_ ? static_cast<T*>(last.object) : look_up();
  }
  /// Different from that of any other PerThread, also of those that are gone.
  [[nodiscard]] std::uint64_t id() const noexcept { return owner_; }
  /// Calls `visit(object)` for each. One that was written before a heavy barrier of this thread is
  /// among them.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    const std::uint32_t count = pages_.empty() ? 0 : thread_number_end();
    for (std::uint32_t i = 0; i < count; ++i) visit(first()[i]);
  }

 private:
  [[gnu::noinline]] T* look_up() noexcept {
    const std::uint32_t number = thread_number();
    if (number == kThreadNumberMax || pages_.empty()) return nullptr;
    detail::last_mine = {owner_, &first()[number]};
    return &first()[number];
  }
  [[nodiscard]] T* first() const { return reinterpret_cast<T*>(pages_.data()); }

  // Not the address, which another one may get.
  const std::uint64_t owner_ = detail::owner_count.fetch_add_relaxed(1) + 1;  // Only distinct.
  std::span<std::byte> pages_;
};

}  // namespace headrace::platform
