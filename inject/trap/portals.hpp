// SPDX-License-Identifier: Apache-2.0
// Portals: which pages of this process are portals of which WQ. Learned when a portal file is
// mapped, or from /proc/self/maps at the first trap on a page that was mapped behind the preload's
// back (by a raw system call); forgotten when the page goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "headrace/base/atomic.hpp"
#include "headrace/base/units.hpp"

namespace headrace::emu {

inline constexpr std::uint64_t kPageBytes = 4096;

struct PortalName {
  DeviceId device{};
  QueueId queue{};
};

/// What an address is to a submission.
enum class Ground : std::uint8_t {
  portal,
  ordinary,  ///< Mapped, but no portal.
  unmapped,
};

struct Place {
  Ground ground = Ground::unmapped;
  PortalName portal;
};

/// Lock-free: each slot is one word, so that no thread, signal handler or child made by fork ever
/// finds it half done. Starts as all zero.
///
/// Threading: shared.
class PortalTable {
 public:
  constexpr PortalTable() = default;
  void remember(std::uint64_t page, PortalName name) noexcept;
  void forget(std::uint64_t first, std::uint64_t byte_count) noexcept;
  [[nodiscard]] std::optional<PortalName> find(std::uint64_t address) const noexcept;
  /// Grows whenever a page may have become, or ceased to be, a portal.
  [[nodiscard]] std::uint32_t generation() const noexcept {
    return generation_.load_relaxed();  // relaxed: only ever compared with an earlier one.
  }

 private:
  static constexpr std::size_t kSlotMax = 1024;
  /// Page | device << 4 | queue << 1 | 1, or 0.
  Atomic<std::uint64_t> slots_[kSlotMax];
  Atomic<std::uint32_t> used_count_;  // Slots at and above were never used.
  Atomic<std::uint32_t> generation_;
};

/// "wqD.Q" behind the portal directory; nothing if `path` is no portal file.
[[nodiscard]] std::optional<PortalName> parse_portal(std::string_view path);
/// Directory of the portals, with the final slash and "wq". Set once, before any other thread is.
void set_portal_prefix(std::string_view directory);
/// Which portal file an open descriptor is.
[[nodiscard]] std::optional<PortalName> portal_of_file(int file) noexcept;
/// Whether `address` lies in code from a file that this process maps for itself and may not write
/// to. Async-signal-safe.
[[nodiscard]] bool is_fixed_code(std::uint64_t address) noexcept;
/// What lies at `address`: the table first, then the kernel's list. Async-signal-safe.
[[nodiscard]] Place place_of(std::uint64_t address) noexcept;

}  // namespace headrace::emu
