// SPDX-License-Identifier: Apache-2.0
// Memory of headrace-bench-movement: on a node, prefaulted and locked.
#pragma once

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "headrace/base/units.hpp"
#include "headrace/platform/memory.hpp"
#include "point.hpp"

namespace headrace::bench {

inline constexpr std::byte kContent{0x5a};

/// Explains a failed mlock().
inline std::string why_not_locked(int os_errno) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      os_errno == EAGAIN) {
    return fmt::format("mlock failed: {}", std::strerror(os_errno));
  }
  return fmt::format("this process may lock {} of memory (RLIMIT_MEMLOCK)",
                     to_text(Bytes(limit.rlim_cur)));
}

/// Memory of one node, prefaulted, and locked if permitted. Grows, and is reused by later points.
class Pool {
 public:
  /// `locked`: false for memory that will be dropped, as the kernel does not drop locked pages.
  Pool(std::optional<NodeId> node, bool huge, bool locked)
      : node_(node), huge_(huge), locked_(locked) {}
  Pool& operator=(Pool&&) = delete;
  ~Pool() { give_back(); }

  std::span<std::byte> get(std::size_t byte_count) {
    if (pages_.size() < byte_count) {
      give_back();
      const auto pages = huge_ ? platform::Pages::huge : platform::Pages::plain;
      pages_ = value_of(platform::allocate_pages(byte_count, node_, pages));
      // Reports missing memory as an error here instead of by a signal later.
      if (Result<void> written = platform::prefault_pages(pages_); !written) {
        give_back();
        throw Unmeasurable{written.error().message()};
      }
      std::memset(pages_.data(), static_cast<int>(kContent), pages_.size());
      not_locked_.clear();
      if (locked_ && ::mlock(pages_.data(), pages_.size()) != 0)
        not_locked_ = why_not_locked(errno);
    }
    return pages_.first(byte_count);
  }
  /// Why the memory is not locked though it should be; empty if it is.
  [[nodiscard]] const std::string& not_locked() const noexcept { return not_locked_; }
  /// Returns the pages to the system: the next access to each is a page fault.
  void drop() const noexcept { ::madvise(pages_.data(), pages_.size(), MADV_DONTNEED); }

 private:
  void give_back() noexcept { platform::free_pages(std::exchange(pages_, {})); }

  std::optional<NodeId> node_;
  bool huge_;
  bool locked_;
  std::string not_locked_;
  std::span<std::byte> pages_;
};

}  // namespace headrace::bench
