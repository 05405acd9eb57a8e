// SPDX-License-Identifier: Apache-2.0
// The functions that replace the C library's in a preloaded program. Nothing here allocates, locks
// or calls a function by name, so nothing recurses (except the end of a program whose memory a
// device may overwrite); each may run in a signal handler, before relocation, after fork or vfork.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "headrace/platform/enqueue.hpp"
#include "inject/copy/device.hpp"
#include "inject/copy/program.hpp"
#include "inject/copy/slots.hpp"
#include "inject/plain.hpp"

namespace headrace::preload {

constinit Program program{};

namespace {

Path path_of(Move move) noexcept {
  return move == program.libc_move || move == program.guard ? Path::libc : Path::tuned;
}

/// Whether a device shares calls of this length.
bool device_serves(std::size_t byte_count) noexcept {
  if (program.device == nullptr || byte_count < program.device_bytes_min) return false;
  // edge: device-opened (acquire)
  return program.device->usable.load_acquire();
}

/// The queues behind the portals of this process.
struct PortalQueues {
  Device& device;

  bool enqueue(std::uint32_t portal, const dsa::Descriptor& descriptor) noexcept {
    // Each slot has its own line of the page, so that stores of different slots do not contend.
    const auto place = reinterpret_cast<std::uintptr_t>(&descriptor) / sizeof(DeviceSlot);
    constexpr std::uintptr_t kLines = 4096 / sizeof(dsa::Descriptor);
    std::byte* const line = device.portals[portal] + place % kLines * sizeof(dsa::Descriptor);
    if (device.entry_counts[portal] == 0) return platform::enqueue_command(line, &descriptor);
    platform::move_direct(line, &descriptor);
    return true;
  }

  [[noreturn]] void end_program() noexcept {
    constexpr std::string_view kWhy =
        "headrace: a DSA answered neither a copy nor the drain after it, so it may still write to "
        "the target at any time: the program is aborted. To find the cause: 'headrace doctor'; to "
        "run without DSA: HEADRACE_PATH=cpu; to wait longer: HEADRACE_ANSWER_SECONDS\n";
    say(kWhy);
    std::abort();
  }
};

template <typename Task>
[[gnu::noinline]] DeviceTotals work_with_device(Task& task, std::size_t byte_count) noexcept {
  if (program.device->unopened.load_relaxed()) [[unlikely]] {  // Checked again by the callee.
    const std::uint32_t taken = open_dedicated(*program.device);
    if (program.counters != nullptr) {
      program.counters->device.queues_taken.fetch_add_relaxed(taken);  // relaxed: a sum.
    }
  }
  PortalQueues queues{*program.device};
  return DeviceWork(*program.device, queues, task).run(byte_count);
}

/// Runs all of a task of a call of `call_bytes` bytes; `alone` is the path to count if no queue
/// accepts anything.
template <typename Task>
void do_by_device(Function function, Path alone, Task& task, std::size_t byte_count,
                  std::size_t call_bytes) noexcept {
  if (program.counters == nullptr) {
    static_cast<void>(work_with_device(task, byte_count));
    return;
  }
  CountedCall counted(*program.counters, function, Path::dsa, call_bytes);
  const DeviceTotals totals = work_with_device(task, byte_count);
  program.counters->device.add(totals);
  if (totals.descriptors == 0) counted.become(alone);
}

void* move_by_device(Function function, void* target, const void* source,
                     std::size_t byte_count) noexcept {
  const auto move = [](std::byte* to, const std::byte* from, std::size_t count) noexcept {
    move_for(count)(to, from, count);
  };
  CopyTask task{static_cast<std::byte*>(target), static_cast<const std::byte*>(source), move};
  do_by_device(function, path_of(move_for(byte_count)), task, byte_count, byte_count);
  return target;
}

/// Calls `call`, and counts it if calls are counted.
template <typename Call>
auto counted(Function function, Path path, std::size_t byte_count, const Call& call) noexcept {
  if (program.counters == nullptr) return call();
  const CountedCall count(*program.counters, function, path, byte_count);
  return call();
}

[[gnu::noinline]] void* move_long(Function function, void* target, const void* source,
                                  std::size_t byte_count) noexcept {
  // edge: preload-ready (acquire)
  if (!program.ready.load_acquire()) return inject::plain_move(target, source, byte_count);
  if (device_serves(byte_count) && is_disjoint(target, source, byte_count)) {
    return move_by_device(function, target, source, byte_count);
  }
  const Move move = move_for(byte_count);
  return counted(function, path_of(move), byte_count,
                 [=] { return move(target, source, byte_count); });
}

Fill fill_or_libc(std::size_t byte_count) noexcept {
  const Fill kernel = fill_for(byte_count);
  return kernel != nullptr ? kernel : program.libc_fill;
}

[[gnu::noinline]] void* fill_long(void* target, int value, std::size_t byte_count) noexcept {
  // edge: preload-ready (acquire)
  if (!program.ready.load_acquire()) return inject::plain_fill(target, value, byte_count);
  const Fill fill = fill_or_libc(byte_count);
  const Path path = fill != program.libc_fill ? Path::tuned : Path::libc;
  if (device_serves(byte_count)) {
    const auto by_thread = [](std::byte* to, unsigned char byte, std::size_t count) noexcept {
      fill_or_libc(count)(to, byte, count);
    };
    FillTask task{static_cast<std::byte*>(target), static_cast<unsigned char>(value), by_thread};
    do_by_device(Function::memset, path, task, byte_count, byte_count);
    return target;
  }
  return counted(Function::memset, path, byte_count,
                 [=] { return fill(target, value, byte_count); });
}

/// As memcmp: the order by the first byte that differs.
int order_at(std::size_t place, const void* left, const void* right) noexcept {
  return static_cast<const unsigned char*>(left)[place] -
         static_cast<const unsigned char*>(right)[place];
}

int compare_by(copy::FirstDifference kernel, const void* left, const void* right,
               std::size_t byte_count) noexcept {
  if (kernel == nullptr) return program.libc_compare(left, right, byte_count);
  const std::size_t same = kernel(left, right, byte_count);
  return same == byte_count ? 0 : order_at(same, left, right);
}

/// Uses the profile's kernel or the C library. The latter gives no position, so it is located in
/// steps, which end at the first difference.
std::size_t find_difference(const std::byte* left, const std::byte* right,
                            std::size_t byte_count) noexcept {
  if (const copy::FirstDifference kernel = comparison_for(byte_count); kernel != nullptr) {
    return kernel(left, right, byte_count);
  }
  if (program.libc_compare(left, right, byte_count) == 0) return byte_count;
  constexpr std::size_t kStep = 256;
  std::size_t at = 0;
  while (byte_count - at > kStep && program.libc_compare(left + at, right + at, kStep) == 0) {
    at += kStep;
  }
  while (at < byte_count && left[at] == right[at]) ++at;
  return at;
}

/// Most differences come early: the device gets only what follows the first page.
constexpr std::size_t kComparedAloneBytes = 4096;

int compare_by_device(Path alone, const void* left, const void* right,
                      std::size_t byte_count) noexcept {
  if (const int order = program.libc_compare(left, right, kComparedAloneBytes); order != 0) {
    return counted(Function::memcmp, alone, byte_count, [order] { return order; });
  }
  CompareTask task{static_cast<const std::byte*>(left) + kComparedAloneBytes,
                   static_cast<const std::byte*>(right) + kComparedAloneBytes, &find_difference};
  do_by_device(Function::memcmp, alone, task, byte_count - kComparedAloneBytes, byte_count);
  if (!task.is_decided()) return 0;
  return order_at(kComparedAloneBytes + task.difference, left, right);
}

[[gnu::noinline]] int compare_long(const void* left, const void* right,
                                   std::size_t byte_count) noexcept {
  // edge: preload-ready (acquire)
  if (!program.ready.load_acquire()) return inject::plain_compare(left, right, byte_count);
  const copy::FirstDifference kernel = comparison_for(byte_count);
  const Path path = kernel != nullptr ? Path::tuned : Path::libc;
  if (device_serves(byte_count) && byte_count >= 2 * kComparedAloneBytes) {
    return compare_by_device(path, left, right, byte_count);
  }
  return counted(Function::memcmp, path, byte_count,
                 [=] { return compare_by(kernel, left, right, byte_count); });
}

[[gnu::always_inline]] inline void* move(Function function, void* target, const void* source,
                                         std::size_t byte_count) noexcept {
  // edge: preload-ready (acquire)
  if (byte_count >= program.move_bytes_min.load_acquire()) [[unlikely]] {
    return move_long(function, target, source, byte_count);
  }
  return program.libc_move(target, source, byte_count);
}

[[gnu::always_inline]] inline void* fill(void* target, int value, std::size_t byte_count) noexcept {
  // edge: preload-ready (acquire)
  if (byte_count >= program.fill_bytes_min.load_acquire()) [[unlikely]] {
    return fill_long(target, value, byte_count);
  }
  return program.libc_fill(target, value, byte_count);
}

[[gnu::always_inline]] inline int compare(const void* left, const void* right,
                                          std::size_t byte_count) noexcept {
  // edge: preload-ready (acquire)
  if (byte_count >= program.compare_bytes_min.load_acquire()) [[unlikely]] {
    return compare_long(left, right, byte_count);
  }
  return program.libc_compare(left, right, byte_count);
}

}  // namespace
}  // namespace headrace::preload

using headrace::preload::Function;

extern "C" {

// Where the slots lead until the constructor fills them (slots.hpp), and for what they leave.

void* headrace_initial_memcpy(void* target, const void* source, std::size_t byte_count) noexcept {
  return headrace::preload::move(Function::memcpy, target, source, byte_count);
}

void* headrace_initial_memmove(void* target, const void* source, std::size_t byte_count) noexcept {
  return headrace::preload::move(Function::memmove, target, source, byte_count);
}

void* headrace_initial_memset(void* target, int value, std::size_t byte_count) noexcept {
  return headrace::preload::fill(target, value, byte_count);
}

int headrace_initial_memcmp(const void* left, const void* right, std::size_t byte_count) noexcept {
  return headrace::preload::compare(left, right, byte_count);
}

}  // extern "C"

#pragma GCC visibility push(default)
extern "C" {

/// The C library's: reports a buffer overflow and ends the process.
[[noreturn]] void __chk_fail() noexcept;

static void check_room(std::size_t byte_count, std::size_t room) noexcept {
  if (byte_count > room) [[unlikely]] {
    __chk_fail();
  }
}

void* mempcpy(void* target, const void* source, std::size_t byte_count) noexcept {
  headrace_slot_memcpy(target, source, byte_count);
  return static_cast<std::byte*>(target) + byte_count;
}

// Emitted for -D_FORTIFY_SOURCE: `room` is the length of the target.

void* __memcpy_chk(void* target, const void* source, std::size_t byte_count,
                   std::size_t room) noexcept {
  check_room(byte_count, room);
  return headrace_slot_memcpy(target, source, byte_count);
}

void* __mempcpy_chk(void* target, const void* source, std::size_t byte_count,
                    std::size_t room) noexcept {
  check_room(byte_count, room);
  headrace_slot_memcpy(target, source, byte_count);
  return static_cast<std::byte*>(target) + byte_count;
}

void* __memmove_chk(void* target, const void* source, std::size_t byte_count,
                    std::size_t room) noexcept {
  check_room(byte_count, room);
  return headrace_slot_memmove(target, source, byte_count);
}

void* __memset_chk(void* target, int value, std::size_t byte_count, std::size_t room) noexcept {
  check_room(byte_count, room);
  return headrace_slot_memset(target, value, byte_count);
}

}  // extern "C"
#pragma GCC visibility pop
