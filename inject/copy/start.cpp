// SPDX-License-Identifier: Apache-2.0
// The preload's constructor: finds the C library's functions, the profile and the launcher's
// counters. On any failure the C library's functions are used.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "default_kernels.hpp"
#include "generator.hpp"
#include "headrace/base/line.hpp"
#include "headrace/copy/profile.hpp"
#include "headrace/platform/attribute.hpp"
#include "headrace/platform/executable.hpp"
#include "headrace/platform/process.hpp"
#include "inject/arena.hpp"
#include "inject/copy/device.hpp"
#include "inject/copy/program.hpp"
#include "inject/copy/slots.hpp"

namespace headrace::preload {
namespace {

/// The profile's table. Raw storage, constructed once the C library's memmove is known: a
/// constructor at load time could overwrite it while in use.
alignas(copy::Dispatch<copy::Move>) constinit std::byte
    dispatch_storage[sizeof(copy::Dispatch<copy::Move>)]{};

copy::Dispatch<copy::Move>& dispatch() noexcept {
  return *std::launder(reinterpret_cast<copy::Dispatch<copy::Move>*>(dispatch_storage));
}

template <typename Signature>
Signature next(const char* name) noexcept {
  return reinterpret_cast<Signature>(::dlsym(RTLD_NEXT, name));
}

/// The profile's kernels; null: the C library's function.
constinit copy::Dispatch<copy::Fill> fills(nullptr);
constinit copy::Dispatch<copy::FirstDifference> comparisons(nullptr);

/// HEADRACE_MIN_BYTES; zero if not set or not a number.
std::size_t bytes_min_wanted() {
  return platform::parse_number(platform::trusted_variable("HEADRACE_MIN_BYTES").value_or(""))
      .value_or(0);
}

/// The smallest length that the C library does not serve; SIZE_MAX if none.
std::size_t first_tuned_length(const std::vector<copy::Range>& ranges) {
  std::size_t begin = 1;
  for (const copy::Range& each : ranges) {
    if (each.move != nullptr) return begin;
    begin = each.bytes_max + 1;
  }
  return SIZE_MAX;
}

/// The same for kernels.
template <typename Class>
std::size_t first_kernel_length(const std::vector<Class>& classes) {
  const auto first =
      std::ranges::find_if(classes, [](const auto& each) { return each.kernel.has_value(); });
  return first == classes.end() ? SIZE_MAX : first->bytes_max / 2 + 1;
}

/// After a pause, 64-byte registers cost the core some microseconds until it runs at full speed. A
/// program that uses them in occasional short copies pays that nearly every time, which the tuner's
/// batches do not show. Not every processor does that: the tuner measures it, and decides by the
/// same factor (WIDE_COST_MIN in copy_search.py).
constexpr std::uint64_t kWideBytesMin = std::uint64_t{1} << 20U;
constexpr double kWideCostMin = 1.3;

void leave_out_wide_short_copies(copy::Profile& profile) {
  if (profile.wide_cost && *profile.wide_cost < kWideCostMin) return;
  for (copy::SizeClass& each : profile.classes) {
    for (auto* const variant : {&each.variant, &each.cold_variant}) {
      const bool wide = *variant && (*variant)->through == copy::Register::zmm;
      if (wide && each.bytes_max < kWideBytesMin) variant->reset();
    }
  }
  for (auto& each : profile.fills) {
    if (each.kernel >= copy::FillKernel::zmm && each.bytes_max < kWideBytesMin) each.kernel = {};
  }
  for (auto& each : profile.comparisons) {
    if (each.kernel >= copy::CompareKernel::zmm && each.bytes_max < kWideBytesMin) each.kernel = {};
  }
}

/// The cold variants read the time-stamp counter, which kills a program that disables it
/// (PR_SET_TSC, seccomp's strict mode) after our start: only on request.
void leave_out_cold_copies(copy::Profile& profile) {
  if (platform::trusted_variable("HEADRACE_PROBE").value_or("0") == "1") return;
  for (copy::SizeClass& each : profile.classes) each.cold_variant.reset();
}

struct Tuning {
  std::vector<copy::Range> ranges = {};                ///< Of the entry for copies.
  std::size_t bytes_min = SIZE_MAX;                    ///< Shortest copy that uses the table.
  std::size_t fill_bytes_min = SIZE_MAX;               ///< The same for fills ...
  std::size_t compare_bytes_min = SIZE_MAX;            ///< ... and for comparisons.
  std::optional<std::uint64_t> device_bytes_min = {};  ///< The profile's value for devices.
  std::string note = {};

  bool by_profile = false;  ///< Whether the profile has anything better.
};

/// Replaces only the copies in which the C library crawls.
Tuning use_guard(const Error& problem) {
  Tuning tuning{.note = problem.message() + "; copies use the C library"};
  const copy::Profile profile = copy::detail::untuned_profile();
  if (!copy::use_profile(profile, dispatch())) return tuning;
  tuning.ranges = copy::detail::ranges_of(profile, dispatch());
  tuning.bytes_min = std::max(first_tuned_length(tuning.ranges), bytes_min_wanted());
  tuning.note += copy::detail::note_of_guard();
  return tuning;
}

Tuning use_tuned_copies() {
  const std::string path = copy::default_profile_path();
  if (path.empty()) return {.note = "no profile path"};
  auto profile = copy::load_profile(path);
  if (!profile) return use_guard(profile.error());
  leave_out_wide_short_copies(*profile);
  leave_out_cold_copies(*profile);
  if (const auto used = copy::use_profile(*profile, dispatch()); !used) {
    return use_guard(copy::of_profile(path, used.error()));
  }
  if (const auto used = copy::use_kernels(*profile, fills, comparisons); !used) {
    return use_guard(copy::of_profile(path, used.error()));
  }
  const std::size_t wanted = bytes_min_wanted();
  Tuning tuning{.ranges = copy::detail::ranges_of(*profile, dispatch()),
                .fill_bytes_min = std::max(first_kernel_length(profile->fills), wanted),
                .compare_bytes_min = std::max(first_kernel_length(profile->comparisons), wanted),
                .device_bytes_min = profile->dsa_bytes_min,
                .note = "copies are tuned by the profile '" + path + "'"};
  tuning.bytes_min = std::max(first_tuned_length(tuning.ranges), wanted);
  tuning.by_profile = std::min(tuning.fill_bytes_min, tuning.compare_bytes_min) != SIZE_MAX ||
                      std::ranges::any_of(tuning.ranges, [](const copy::Range& each) {
                        return each.move != nullptr && each.move != copy::detail::latest_guard();
                      });
  if (!tuning.by_profile) {
    tuning.note = "the profile '" + path + "' has nothing better than the C library's functions";
    tuning.note += copy::detail::note_of_guard();
  }
  return tuning;
}

/// Default minimum length for a device. A descriptor takes some microseconds, in which a processor
/// copies about this much.
constexpr std::size_t kDeviceBytesDefault = std::size_t{64} << 10U;

/// By HEADRACE_PATH and the lengths. Returns SIZE_MAX if no copy uses a device.
std::size_t use_devices(const std::optional<std::uint64_t>& profiled, std::string& note) {
  const std::string path = platform::trusted_variable("HEADRACE_PATH").value_or("auto");
  if (path != "dsa" && path != "auto" && path != "cpu") {
    note += "; copies use the processor: HEADRACE_PATH is '" + path + "', not auto, cpu or dsa";
    return SIZE_MAX;
  }
  if (path != "dsa" && (path != "auto" || !profiled)) return SIZE_MAX;
  std::string opened;
  program.device = open_devices(path == "dsa", opened);
  if (program.device == nullptr) {
    note += "; copies use the processor: " + opened;
    return SIZE_MAX;
  }
  const std::size_t wanted = bytes_min_wanted();
  const std::size_t named = profiled ? *profiled : kDeviceBytesDefault;
  // With path dsa the requested length decides; otherwise lengths that do not pay are not used.
  const std::size_t bytes_min =
      path == "dsa" && wanted != 0 ? wanted : std::max<std::size_t>(named, wanted);
  note += "; copies from " + std::to_string(std::max(bytes_min, kDeviceBytesMin)) +
          " bytes on are shared with " + opened;
  return std::max(bytes_min, kDeviceBytesMin);
}

Counters* find_counters() {
  const auto path = platform::trusted_variable("HEADRACE_COUNTERS");
  return path ? map_counters(path->c_str()) : nullptr;
}

void report(Counters& counters, const Tuning& tuning) noexcept {
  counters.program_count.fetch_add_relaxed(1);  // relaxed: sums, see Cell.
  if (tuning.by_profile) counters.tuned_count.fetch_add_relaxed(1);
  // Otherwise counted when the first dedicated queue is opened.
  if (program.device != nullptr && program.device->portal_count.load_relaxed() != 0) {
    counters.device_count.fetch_add_relaxed(1);
  }
  std::uint64_t taken = 0;
  if (!counters.note_taken.compare_exchange_relaxed(taken, 1)) return;  // relaxed: as the sums.
  const std::size_t length = std::min(tuning.note.size(), counters.note.size() - 1);
  std::copy_n(tuning.note.data(), length, counters.note.data());
}

/// Splits a range, so that one ends at `bytes_max`.
void cut(std::vector<copy::Range>& ranges, std::size_t bytes_max) {
  const auto at = std::ranges::find_if(
      ranges, [bytes_max](const copy::Range& each) { return each.bytes_max >= bytes_max; });
  copy::Range first = *at;
  first.bytes_max = bytes_max;
  if (at->bytes_max != bytes_max) ranges.insert(at, first);
}

/// Puts code for these ranges and lengths into the slots; from `device_bytes_min` on they lead to
/// where they lead now. Without executable memory nothing changes.
void fill_slots(const Tuning& tuning, std::size_t device_bytes_min) {
  constexpr std::size_t kAll = SIZE_MAX;
  std::vector<copy::Range> ranges = tuning.ranges;
  if (ranges.empty()) ranges.push_back({.bytes_max = kAll});
  if (const std::size_t wanted = bytes_min_wanted(); wanted > 1) {
    cut(ranges, wanted - 1);
    for (copy::Range& each : ranges) {
      if (each.bytes_max < wanted) each.move = nullptr;
    }
  }
  if (device_bytes_min != kAll) {
    cut(ranges, device_bytes_min - 1);
    std::erase_if(ranges,
                  [&](const copy::Range& each) { return each.bytes_max >= device_bytes_min; });
    ranges.push_back({.bytes_max = kAll});
  }
  struct alignas(kLineBytes) Code {
    std::array<std::byte, kSlotsBytes> bytes;
  };
  const auto code = std::make_unique<Code>();
  const auto room = [&](std::size_t slot) { return std::span(code->bytes).subspan(slot); };
  const auto place = [](std::size_t slot) {
    return reinterpret_cast<std::uintptr_t>(headrace_slots) + slot;
  };
  const auto copies = [&](std::size_t slot, Move initial) {
    if (device_bytes_min != kAll) ranges.back().move = initial;
    static_cast<void>(
        copy::detail::generate_entry(ranges, program.libc_move, room(slot), place(slot)));
  };
  copies(0, headrace_initial_memcpy);
  copies(kMemmoveSlot, headrace_initial_memmove);
  copy::detail::generate_fill_entry(reinterpret_cast<const void*>(program.libc_fill),
                                    reinterpret_cast<const void*>(headrace_initial_memset),
                                    std::min(tuning.fill_bytes_min, device_bytes_min),
                                    room(kMemsetSlot), place(kMemsetSlot));
  copy::detail::generate_jumps(reinterpret_cast<const void*>(program.libc_compare),
                               reinterpret_cast<const void*>(headrace_initial_memcmp),
                               std::min(tuning.compare_bytes_min, device_bytes_min),
                               room(kMemcmpSlot), place(kMemcmpSlot));
  static_cast<void>(platform::replace_code({headrace_slots, kSlotsBytes}, code->bytes));
}

std::size_t dispatch_bytes_min = SIZE_MAX;
std::size_t fill_kernel_bytes_min = SIZE_MAX;
std::size_t compare_kernel_bytes_min = SIZE_MAX;

void begin() {
  program.libc_move = next<Move>("memmove");
  program.libc_fill = next<Fill>("memset");
  program.libc_compare = next<Compare>("memcmp");
  // Missing: an unknown C library. The plain functions remain.
  if (program.libc_move == nullptr || program.libc_fill == nullptr ||
      program.libc_compare == nullptr) {
    return;
  }
  new (dispatch_storage) copy::Dispatch(program.libc_move);
  Tuning tuning;
  try {
    tuning = use_tuned_copies();
    program.guard = copy::detail::latest_guard();
    program.device_bytes_min = use_devices(tuning.device_bytes_min, tuning.note);
    program.counters = find_counters();
  } catch (...) {  // No memory, or an unexpected error: the program must still run.
    tuning = {};
    program.device = nullptr;
  }
  dispatch_bytes_min = tuning.bytes_min;
  fill_kernel_bytes_min = tuning.fill_bytes_min;
  compare_kernel_bytes_min = tuning.compare_bytes_min;
  const std::size_t device_bytes_min =
      program.device != nullptr ? program.device_bytes_min : SIZE_MAX;
  if (program.counters != nullptr) {
    report(*program.counters, tuning);
  } else {
    try {
      // Before `ready`: what this copies itself goes to no device.
      fill_slots(tuning, device_bytes_min);
    } catch (...) {  // No memory: the slots stay as they are.
      tuning.ranges.clear();
    }
  }
  // edge: preload-ready (release)
  program.ready.store_release(true);
  if (program.counters != nullptr) return;
  // edge: preload-ready (release)
  program.move_bytes_min.store_release(std::min(tuning.bytes_min, device_bytes_min));
  // edge: preload-ready (release)
  program.fill_bytes_min.store_release(std::min(tuning.fill_bytes_min, device_bytes_min));
  // edge: preload-ready (release)
  program.compare_bytes_min.store_release(std::min(tuning.compare_bytes_min, device_bytes_min));
}

[[gnu::constructor]] void start() noexcept {
  begin();
}

}  // namespace

Move move_for(std::size_t byte_count) noexcept {
  return byte_count >= dispatch_bytes_min ? dispatch().function_for(byte_count) : program.libc_move;
}

Fill fill_for(std::size_t byte_count) noexcept {
  return byte_count >= fill_kernel_bytes_min ? fills.function_for(byte_count) : nullptr;
}

copy::FirstDifference comparison_for(std::size_t byte_count) noexcept {
  return byte_count >= compare_kernel_bytes_min ? comparisons.function_for(byte_count) : nullptr;
}

}  // namespace headrace::preload

headrace::inject::Arena& headrace::inject::own_arena() noexcept {
  static constinit Arena arena;
  return arena;
}
