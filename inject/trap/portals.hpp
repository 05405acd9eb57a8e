// SPDX-License-Identifier: Apache-2.0
// Portals: which pages of this process are portals of which WQ. Entered when a portal file is
// mapped, or from /proc/self/maps at the first trap on a page mapped without the preload's hooks
// (by a raw system call); removed when the page is unmapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "emu/device/config.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/base/units.hpp"

namespace headrace::emu {

inline constexpr std::uint64_t kPageBytes = 4096;

struct PortalName {
  DeviceId device{};
  QueueId queue{};
};

/// What a submission address refers to.
enum class PageKind : std::uint8_t {
  portal,
  ordinary,  ///< Mapped, but no portal.
  unmapped,
};

struct Place {
  PageKind kind = PageKind::unmapped;
  PortalName portal;
};

/// Lock-free: each slot is one word, so it is consistent for every thread, signal handler and child
/// of fork. Zero-initialised.
///
/// Threading: shared.
class PortalTable {
 public:
  constexpr PortalTable() = default;
  void remember(std::uint64_t page, PortalName name) noexcept;
  void forget(std::uint64_t first, std::uint64_t byte_count) noexcept;
  [[nodiscard]] std::optional<PortalName> find(std::uint64_t address) const noexcept;
  /// Incremented whenever a page may have become a portal or ceased to be one.
  [[nodiscard]] std::uint32_t generation() const noexcept {
    return generation_.load_relaxed();  // relaxed: only ever compared with an earlier one.
  }

 private:
  static constexpr std::size_t kSlotMax = 1024;
  /// Page | device << 4 | queue << 1 | 1, or 0.
  Atomic<std::uint64_t> slots_[kSlotMax];
  Atomic<std::uint32_t> used_count_;  // Slots from here on were never used.
  Atomic<std::uint32_t> generation_;
};

/// "wqD.Q" below the portal directory; nothing if `path` is not a portal file.
[[nodiscard]] std::optional<PortalName> parse_portal(std::string_view path);
/// Directory of the portals, with the final slash and "wq". Set once, before there are other
/// threads.
void set_portal_prefix(std::string_view directory);
/// The portal file that an open descriptor refers to.
[[nodiscard]] std::optional<PortalName> portal_of_file(int file) noexcept;
/// Whether a file of the launcher's file system is a portal, by its inode number.
[[nodiscard]] constexpr bool is_portal_inode(std::uint64_t inode) {
  return inode >= kPortalInode && inode - kPortalInode < kDeviceMax * kQueueMax;
}
/// Whether `address` is in file-backed code that is mapped private and not writable.
/// Async-signal-safe.
[[nodiscard]] bool is_fixed_code(std::uint64_t address) noexcept;
/// Looks `address` up in the table, then in the kernel's list. Async-signal-safe.
[[nodiscard]] Place place_of(std::uint64_t address) noexcept;

}  // namespace headrace::emu
