// SPDX-License-Identifier: Apache-2.0
// The functions that a preloaded program finds in the place of the C library's. Nothing here
// allocates, locks or calls a function by its name, so nothing comes back here; each may run in a
// signal handler, before relocation, after fork or vfork.
#include <cstddef>
#include <cstdint>

#include "headrace/platform/enqueue.hpp"
#include "preload/plain.hpp"
#include "preload/program.hpp"

namespace headrace::preload {

constinit Program program{};

namespace {

constexpr std::size_t kShortestBytesMax = 32;

Path path_of(Move move) noexcept {
  return move == program.libc_move ? Path::libc : Path::tuned;
}

bool device_serves(const void* target, const void* source, std::size_t byte_count) noexcept {
  if (program.device == nullptr || byte_count < program.device_bytes_min) return false;
  // edge: device-opened (acquire)
  return program.device->usable.load_acquire() && is_disjoint(target, source, byte_count);
}

[[gnu::noinline]] DeviceTotals copy_with_device(void* target, const void* source,
                                                std::size_t byte_count) noexcept {
  Device& device = *program.device;
  const auto enqueue = [&device](std::uint32_t portal, const dsa::Descriptor& descriptor) noexcept {
    // Slots have a door each, so that no two stores wait for each other in one buffer.
    const auto place = reinterpret_cast<std::uintptr_t>(&descriptor) / sizeof(DeviceSlot);
    constexpr std::uintptr_t kDoors = 4096 / sizeof(dsa::Descriptor);
    std::byte* const door = device.portals[portal] + place % kDoors * sizeof(dsa::Descriptor);
    return platform::enqueue_command(door, &descriptor);
  };
  const auto move = [](std::byte* to, const std::byte* from, std::size_t count) noexcept {
    move_for(count)(to, from, count);
  };
  return DeviceCopy(device, enqueue, move)
      .run(static_cast<std::byte*>(target), static_cast<const std::byte*>(source), byte_count);
}

void* move_by_device(Function function, void* target, const void* source,
                     std::size_t byte_count) noexcept {
  if (program.counters == nullptr) {
    static_cast<void>(copy_with_device(target, source, byte_count));
    return target;
  }
  CountedCall counted(*program.counters, function, Path::dsa, byte_count);
  const DeviceTotals totals = copy_with_device(target, source, byte_count);
  program.counters->device.add(totals);
  // No queue took anything: it was the processor's.
  if (totals.descriptors == 0) counted.become(path_of(move_for(byte_count)));
  return target;
}

void* move_counted(Function function, Move move, void* target, const void* source,
                   std::size_t byte_count) noexcept {
  if (program.counters == nullptr) return move(target, source, byte_count);
  const CountedCall counted(*program.counters, function, path_of(move), byte_count);
  return move(target, source, byte_count);
}

[[gnu::noinline]] void* move_exploring(Function function, Move move, void* target,
                                       const void* source, std::size_t byte_count) noexcept {
  const std::size_t class_index = copy::Dispatch::class_of(byte_count);
  const Explorer::Turn turn = program.explorer->turn(class_index);
  if (turn.by_fallback) move = program.libc_move;
  if (!turn.timed) return move_counted(function, move, target, source, byte_count);
  const std::uint64_t begin_ns = now_ns();
  move_counted(function, move, target, source, byte_count);
  if (program.explorer->tell(class_index, turn, byte_count, now_ns() - begin_ns)) {
    give_up_class(class_index);
  }
  return target;
}

[[gnu::noinline]] void* move_long(Function function, void* target, const void* source,
                                  std::size_t byte_count) noexcept {
  // edge: preload-ready (acquire)
  if (!program.ready.load_acquire()) return plain_move(target, source, byte_count);
  if (device_serves(target, source, byte_count)) {
    return move_by_device(function, target, source, byte_count);
  }
  const Move move = move_for(byte_count);
  if (program.explorer != nullptr && byte_count >= Explorer::kBytesMin &&
      move != program.libc_move) {
    return move_exploring(function, move, target, source, byte_count);
  }
  return move_counted(function, move, target, source, byte_count);
}

[[gnu::noinline]] void* fill_long(void* target, int value, std::size_t byte_count) noexcept {
  // edge: preload-ready (acquire)
  if (!program.ready.load_acquire()) return plain_fill(target, value, byte_count);
  const Fill kernel = fill_for(byte_count);
  const Fill fill = kernel != nullptr ? kernel : program.libc_fill;
  if (program.counters == nullptr) return fill(target, value, byte_count);
  const Path path = kernel != nullptr ? Path::tuned : Path::libc;
  const CountedCall counted(*program.counters, Function::memset, path, byte_count);
  return fill(target, value, byte_count);
}

/// As memcmp: which side is less, by the first byte that differs.
int compare_by(copy::FirstDifference kernel, const void* left, const void* right,
               std::size_t byte_count) noexcept {
  if (kernel == nullptr) return program.libc_compare(left, right, byte_count);
  const std::size_t same = kernel(left, right, byte_count);
  if (same == byte_count) return 0;
  return static_cast<const unsigned char*>(left)[same] -
         static_cast<const unsigned char*>(right)[same];
}

[[gnu::noinline]] int compare_long(const void* left, const void* right,
                                   std::size_t byte_count) noexcept {
  // edge: preload-ready (acquire)
  if (!program.ready.load_acquire()) return plain_compare(left, right, byte_count);
  const copy::FirstDifference kernel = comparison_for(byte_count);
  if (program.counters == nullptr) return compare_by(kernel, left, right, byte_count);
  const Path path = kernel != nullptr ? Path::tuned : Path::libc;
  const CountedCall counted(*program.counters, Function::memcmp, path, byte_count);
  return compare_by(kernel, left, right, byte_count);
}

/// The first and the last `Word`, which may overlap; both are loaded before one is stored.
template <typename Word>
[[gnu::always_inline]] inline void move_ends(void* target, const void* source,
                                             std::size_t byte_count) noexcept {
  const std::size_t last = byte_count - sizeof(Word);
  Word head;
  Word tail;
  __builtin_memcpy(&head, source, sizeof head);
  __builtin_memcpy(&tail, static_cast<const std::byte*>(source) + last, sizeof tail);
  __builtin_memcpy(target, &head, sizeof head);
  __builtin_memcpy(static_cast<std::byte*>(target) + last, &tail, sizeof tail);
}

/// As the C library does it. Some programs make more of these calls than anything else, and going
/// on to there would cost as much again.
[[gnu::always_inline]] inline void* move_shortest(void* target, const void* source,
                                                  std::size_t byte_count) noexcept {
  using Vector = char __attribute__((vector_size(16)));
  if (byte_count >= sizeof(Vector)) {
    move_ends<Vector>(target, source, byte_count);
  } else if (byte_count >= sizeof(std::uint64_t)) {
    move_ends<std::uint64_t>(target, source, byte_count);
  } else if (byte_count >= sizeof(std::uint32_t)) {
    move_ends<std::uint32_t>(target, source, byte_count);
  } else if (byte_count >= sizeof(std::uint16_t)) {
    move_ends<std::uint16_t>(target, source, byte_count);
  } else if (byte_count != 0) {
    *static_cast<std::byte*>(target) = *static_cast<const std::byte*>(source);
  }
  return target;
}

[[gnu::always_inline]] inline void* move(Function function, void* target, const void* source,
                                         std::size_t byte_count) noexcept {
  // edge: preload-ready (acquire)
  if (byte_count >= program.move_bytes_min.load_acquire()) [[unlikely]] {
    return move_long(function, target, source, byte_count);
  }
  if (byte_count <= kShortestBytesMax) return move_shortest(target, source, byte_count);
  return program.libc_move(target, source, byte_count);
}

[[gnu::always_inline]] inline void* fill(void* target, int value, std::size_t byte_count) noexcept {
  // edge: preload-ready (acquire)
  if (byte_count >= program.fill_bytes_min.load_acquire()) [[unlikely]] {
    return fill_long(target, value, byte_count);
  }
  return program.libc_fill(target, value, byte_count);
}

}  // namespace
}  // namespace headrace::preload

using headrace::preload::Function;

#pragma GCC visibility push(default)
extern "C" {

/// The C library's: says that a buffer overflowed, and ends the process.
[[noreturn]] void __chk_fail() noexcept;

void* memcpy(void* target, const void* source, std::size_t byte_count) noexcept {
  return headrace::preload::move(Function::memcpy, target, source, byte_count);
}

void* memmove(void* target, const void* source, std::size_t byte_count) noexcept {
  return headrace::preload::move(Function::memmove, target, source, byte_count);
}

void* memset(void* target, int value, std::size_t byte_count) noexcept {
  return headrace::preload::fill(target, value, byte_count);
}

int memcmp(const void* left, const void* right, std::size_t byte_count) noexcept {
  // edge: preload-ready (acquire)
  if (byte_count >= headrace::preload::program.compare_bytes_min.load_acquire()) [[unlikely]] {
    return headrace::preload::compare_long(left, right, byte_count);
  }
  return headrace::preload::program.libc_compare(left, right, byte_count);
}

// What -D_FORTIFY_SOURCE makes of calls: `room` is the length of the target.

void* __memcpy_chk(void* target, const void* source, std::size_t byte_count,
                   std::size_t room) noexcept {
  if (byte_count > room) [[unlikely]] {
    __chk_fail();
  }
  return headrace::preload::move(Function::memcpy, target, source, byte_count);
}

void* __memmove_chk(void* target, const void* source, std::size_t byte_count,
                    std::size_t room) noexcept {
  if (byte_count > room) [[unlikely]] {
    __chk_fail();
  }
  return headrace::preload::move(Function::memmove, target, source, byte_count);
}

void* __memset_chk(void* target, int value, std::size_t byte_count, std::size_t room) noexcept {
  if (byte_count > room) [[unlikely]] {
    __chk_fail();
  }
  return headrace::preload::fill(target, value, byte_count);
}

}  // extern "C"
#pragma GCC visibility pop
