// SPDX-License-Identifier: Apache-2.0
// What 'headrace run --stats' counts: calls, bytes and times, for each function, path and class of
// lengths. The cells lie in a file of the launcher's that every process of the command maps, so
// that they outlive it, however it ends. Not the report: the launcher adds up and writes that
// (launch/run.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "headrace/base/atomic.hpp"
#include "inject/copy/device_copy.hpp"

namespace headrace::preload {

enum class Function : std::uint8_t { memcpy, memmove, memset, memcmp };
/// Who did the work: the C library, a copy of the profile, or a DSA together with one of these.
enum class Path : std::uint8_t { libc, tuned, dsa };

inline constexpr std::size_t kFunctionCount = 4;
inline constexpr std::size_t kPathCount = 3;
inline constexpr std::size_t kLengthClassCount = 64;
/// Threads spread over so many sets of cells; two of one set only slow each other down.
inline constexpr std::size_t kStripeCount = 16;
inline constexpr std::size_t kNoteBytes = 896;
/// "HRCOUNT2", read as a number.
inline constexpr std::uint64_t kCountersMagic = 0x32544E554F435248;

/// Written by every process of the command at once; read when they are done.
///
/// Threading: shared. All words are sums that nothing is concluded from before the end: relaxed.
struct Cell {
  Atomic<std::uint64_t> call_count;
  Atomic<std::uint64_t> byte_count;
  Atomic<std::uint64_t> timed_count;  ///< Calls whose time is in timed_ns.
  Atomic<std::uint64_t> timed_ns;
};

/// What devices did, of all copies.
///
/// Threading: shared. Sums, as Cell.
struct DeviceCells {
  Atomic<std::uint64_t> descriptors;
  Atomic<std::uint64_t> bytes;
  Atomic<std::uint64_t> page_faults;
  Atomic<std::uint64_t> retries;
  Atomic<std::uint64_t> errors;
  Atomic<std::uint64_t> lost;
  Atomic<std::uint64_t> queues_taken;  ///< Dedicated ones that another process had.
  std::uint64_t reserved;

  void add(const DeviceTotals& totals) noexcept;
};

/// Of one function.
using FunctionCells = std::array<std::array<Cell, kLengthClassCount>, kPathCount>;

struct Stripe {
  std::array<FunctionCells, kFunctionCount> cells;
};

struct Counters {
  std::uint64_t magic;  ///< The launcher's, as is all of the layout.
  std::uint64_t byte_count;
  Atomic<std::uint64_t> program_count;  ///< Programs that have started, each exec one.
  Atomic<std::uint64_t> tuned_count;    ///< Those of them that use the profile.
  Atomic<std::uint64_t> note_taken;     ///< 1: a process writes, or has written, the note.
  Atomic<std::uint64_t> device_count;   ///< Programs that use devices.
  std::array<std::uint64_t, 2> reserved;
  DeviceCells device;
  std::array<char, kNoteBytes>
      note;  ///< Of the first program: what came of profile and path. UTF-8.
  std::array<Stripe, kStripeCount> stripes;
};
static_assert(sizeof(Cell) == 32);
static_assert(offsetof(Counters, stripes) == 1024);
static_assert(sizeof(Counters) == 1024 + 16 * 4 * 3 * 64 * 32);

/// Maps the counters behind `path`; null if that is not a launcher's file.
Counters* map_counters(const char* path) noexcept;

/// A call of one of the functions, while it lasts.
///
/// Threading: confined.
class CountedCall {
 public:
  CountedCall(Counters& counters, Function function, Path path, std::size_t byte_count) noexcept;
  ~CountedCall();
  CountedCall(const CountedCall&) = delete;
  CountedCall& operator=(const CountedCall&) = delete;
  /// Another path did the work.
  void become(Path path) noexcept;

 private:
  [[nodiscard]] Cell& cell_of(Path path, std::size_t byte_count) const noexcept;

  FunctionCells* cells_;
  Cell* cell_;
  std::size_t byte_count_;
  std::uint64_t begin_ns_ = 0;  ///< 0: not timed.
  bool sampled_ = false;        ///< One of many is timed.
};

}  // namespace headrace::preload
