// SPDX-License-Identifier: Apache-2.0
#include "inject/trap/portals.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "inject/kernel.hpp"
#include "inject/trap/process.hpp"

namespace headrace::emu {
namespace {

constexpr std::uint64_t kPageMask = ~(kPageBytes - 1);
constexpr std::size_t kPathMax = 256;

// Written once before the program runs.
constinit char portal_prefix[kPathMax] = "/dev/dsa/wq";
constinit std::size_t portal_prefix_length = sizeof("/dev/dsa/wq") - 1;

/// Parses and removes a number at the start of `text`. Calls no function of another library.
template <typename T>
std::optional<T> take_number(std::string_view& text, int base = 10) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// Whether a line of /proc/self/maps, without line end, covers `address`.
bool holds(std::string_view line, std::uint64_t address) {
  const auto first = take_number<std::uint64_t>(line, 16);
  if (!first || line.empty()) return false;
  line.remove_prefix(1);
  const auto end = take_number<std::uint64_t>(line, 16);
  return end && address >= *first && address < *end;
}

/// What is mapped by such a line.
Place place_in_line(std::string_view line) {
  const auto name = parse_portal(line.substr(std::min(line.find('/'), line.size())));
  return name ? Place{.kind = PageKind::portal, .portal = *name}
              : Place{.kind = PageKind::ordinary, .portal = {}};
}

/// Passes the line of /proc/self/maps that covers `address` to `take`. False: no such line, or no
/// /proc.
template <typename Take>
bool look_up_in_maps(std::uint64_t address, bool& is_readable, Take take) noexcept {
  const long file = kernel::call(__NR_openat, AT_FDCWD, kernel::as_argument("/proc/self/maps"),
                                 O_RDONLY | O_CLOEXEC);
  is_readable = file >= 0;
  if (file < 0) return false;
  char buffer[8192];
  std::size_t held = 0;
  bool found = false;
  while (!found) {
    const long got = kernel::call(__NR_read, file, kernel::as_argument(buffer + held),
                                  static_cast<long>(sizeof(buffer) - held));
    if (got <= 0) break;
    held += static_cast<std::size_t>(got);
    std::string_view text(buffer, held);
    for (std::size_t end = text.find('\n'); end != std::string_view::npos && !found;
         end = text.find('\n')) {
      found = holds(text.substr(0, end), address);
      if (found) take(text.substr(0, end));
      text.remove_prefix(end + 1);
    }
    // A line longer than the buffer has a path that is not a portal's.
    held = text.size() == sizeof(buffer) ? 0 : text.size();
    for (std::size_t i = 0; i < held; ++i) buffer[i] = text[i];
  }
  kernel::call(__NR_close, file);
  return found;
}

}  // namespace

bool is_fixed_code(std::uint64_t address) noexcept {
  bool is_fixed = false;
  bool is_readable = false;
  look_up_in_maps(address, is_readable, [&is_fixed](std::string_view line) {
    const std::size_t space = line.find(' ');
    is_fixed = space != std::string_view::npos && line.substr(space + 1).starts_with("r-xp ") &&
               line.find('/') != std::string_view::npos;
  });
  return is_fixed;
}

void set_portal_prefix(std::string_view directory) {
  constexpr std::string_view kEnd = "/wq";
  if (directory.size() + kEnd.size() >= kPathMax) return;
  std::size_t length = 0;
  for (const char c : directory) portal_prefix[length++] = c;
  for (const char c : kEnd) portal_prefix[length++] = c;
  portal_prefix_length = length;
}

std::optional<PortalName> parse_portal(std::string_view path) {
  const std::string_view prefix(portal_prefix, portal_prefix_length);
  if (!path.starts_with(prefix)) return std::nullopt;
  path.remove_prefix(prefix.size());
  const auto device = take_number<std::uint32_t>(path);
  if (!device || *device >= kDeviceMax || path.empty() || path.front() != '.') return std::nullopt;
  path.remove_prefix(1);
  const auto queue = take_number<std::uint32_t>(path);
  if (!queue || *queue >= kQueueMax || !path.empty()) return std::nullopt;
  return PortalName{.device = DeviceId(*device), .queue = QueueId(*queue)};
}

std::optional<PortalName> portal_of_file(int file) noexcept {
  constexpr std::string_view kDirectory = "/proc/self/fd/";
  char link[kDirectory.size() + 12] = "/proc/self/fd/";
  *std::to_chars(link + kDirectory.size(), std::end(link) - 1, file).ptr = '\0';
  char path[kPathMax];
  const long got = kernel::call(__NR_readlink, kernel::as_argument(link), kernel::as_argument(path),
                                sizeof(path));
  if (got <= 0) return std::nullopt;
  return parse_portal(std::string_view(path, static_cast<std::size_t>(got)));
}

Place place_of(std::uint64_t address) noexcept {
  PortalTable& table = process().portals;
  if (const auto name = table.find(address)) return {.kind = PageKind::portal, .portal = *name};
  // A program that uses MOVDIR64B as a wide store looks up ordinary memory repeatedly.
  struct Recent {
    std::uint64_t page = 0;
    std::uint32_t generation = 0;
  };
  static constinit thread_local Recent recent [[gnu::tls_model("initial-exec")]];
  const std::uint64_t page = address & kPageMask;
  const std::uint32_t generation = table.generation();
  if (page != 0 && recent.page == page && recent.generation == generation) {
    return {.kind = PageKind::ordinary, .portal = {}};
  }
  Place place;
  bool is_readable = false;
  look_up_in_maps(address, is_readable,
                  [&place](std::string_view line) { place = place_in_line(line); });
  // Without /proc it is unknown: assume the program's own memory.
  if (!is_readable) place.kind = PageKind::ordinary;
  if (place.kind == PageKind::ordinary) recent = {page, generation};
  if (place.kind == PageKind::portal) {
    // As the driver does: a child of fork does not inherit portals (VM_DONTCOPY).
    kernel::call(__NR_madvise, static_cast<long>(page), kPageBytes, MADV_DONTFORK);
    table.remember(page, place.portal);
  }
  return place;
}

void PortalTable::remember(std::uint64_t page, PortalName name) noexcept {
  forget(page, kPageBytes);
  const std::uint64_t entry = (page & kPageMask) | std::uint64_t{name.device.value()} << 4 |
                              std::uint64_t{name.queue.value()} << 1 | 1;
  for (std::uint32_t i = 0; i < kSlotMax; ++i) {
    std::uint64_t empty = 0;
    // relaxed, here and below: a slot is one word, and nothing else is read through it.
    if (!slots_[i].compare_exchange_relaxed(empty, entry)) continue;
    std::uint32_t used = used_count_.load_relaxed();
    while (used <= i && !used_count_.compare_exchange_relaxed(used, i + 1)) {
    }
    return;
  }
  // Full: each submission asks the kernel, which is slow but correct.
}

void PortalTable::forget(std::uint64_t first, std::uint64_t byte_count) noexcept {
  generation_.fetch_add_relaxed(1);
  const std::uint32_t used = used_count_.load_relaxed();
  for (std::uint32_t i = 0; i < used; ++i) {
    std::uint64_t entry = slots_[i].load_relaxed();
    const std::uint64_t page = entry & kPageMask;
    if (entry != 0 && page + kPageBytes > first && page < first + byte_count) {
      slots_[i].compare_exchange_relaxed(entry, 0);
    }
  }
}

std::optional<PortalName> PortalTable::find(std::uint64_t address) const noexcept {
  const std::uint32_t used = used_count_.load_relaxed();
  for (std::uint32_t i = 0; i < used; ++i) {
    const std::uint64_t entry = slots_[i].load_relaxed();
    if (entry != 0 && ((entry ^ address) & kPageMask) == 0) {
      return PortalName{.device = DeviceId(static_cast<std::uint32_t>(entry >> 4 & 0xff)),
                        .queue = QueueId(static_cast<std::uint32_t>(entry >> 1 & 7))};
    }
  }
  return std::nullopt;
}

}  // namespace headrace::emu
