// SPDX-License-Identifier: Apache-2.0
// The counters of 'headrace run --stats': calls, bytes and times per function, path and length
// class. They are in a launcher's file that every process of the command maps, so they outlive
// processes however they end. The launcher sums them and writes the report (launch/run.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "headrace/base/atomic.hpp"
#include "inject/copy/device_copy.hpp"

namespace headrace::preload {

enum class Function : std::uint8_t { memcpy, memmove, memset, memcmp };
/// Who did the work: the C library, a copy of the profile, or a DSA together with either.
enum class Path : std::uint8_t { libc, tuned, dsa };

inline constexpr std::size_t kFunctionCount = 4;
inline constexpr std::size_t kPathCount = 3;
inline constexpr std::size_t kLengthClassCount = 64;
/// Threads are spread over this many sets of cells; sharing a set only costs speed.
inline constexpr std::size_t kStripeCount = 16;
inline constexpr std::size_t kNoteBytes = 896;
/// "HRCOUNT2", read as a number.
inline constexpr std::uint64_t kCountersMagic = 0x32544E554F435248;

/// Written concurrently by every process of the command; read after they end.
///
/// Threading: shared. Words are sums, not used to synchronise: relaxed.
struct Cell {
  Atomic<std::uint64_t> call_count;
  Atomic<std::uint64_t> byte_count;
  Atomic<std::uint64_t> timed_count;  ///< Calls whose time is in timed_ns.
  Atomic<std::uint64_t> timed_ns;
};

/// Device counters, over all copies.
///
/// Threading: shared. Sums, as Cell.
struct DeviceCells {
  Atomic<std::uint64_t> descriptors;
  Atomic<std::uint64_t> bytes;
  Atomic<std::uint64_t> page_faults;
  Atomic<std::uint64_t> retries;
  Atomic<std::uint64_t> errors;
  Atomic<std::uint64_t> lost;
  Atomic<std::uint64_t> queues_taken;  ///< Dedicated queues that another process holds.
  std::uint64_t reserved;

  void add(const DeviceTotals& totals) noexcept;
};

/// Cells of one function.
using FunctionCells = std::array<std::array<Cell, kLengthClassCount>, kPathCount>;

struct Stripe {
  std::array<FunctionCells, kFunctionCount> cells;
};

struct Counters {
  std::uint64_t magic;  ///< Set by the launcher.
  std::uint64_t byte_count;
  Atomic<std::uint64_t> program_count;  ///< Programs started; each exec counts.
  Atomic<std::uint64_t> tuned_count;    ///< Those that use the profile.
  Atomic<std::uint64_t> note_taken;     ///< 1: a process is writing or has written the note.
  Atomic<std::uint64_t> device_count;   ///< Programs that use devices.
  std::array<std::uint64_t, 2> reserved;
  DeviceCells device;
  std::array<char, kNoteBytes> note;  ///< Of the first program: outcome of profile and path. UTF-8.
  std::array<Stripe, kStripeCount> stripes;
};
static_assert(sizeof(Cell) == 32);
static_assert(offsetof(Counters, stripes) == 1024);
static_assert(sizeof(Counters) == 1024 + 16 * 4 * 3 * 64 * 32);

/// Maps the counters file `path`; null if it is not a launcher's file.
Counters* map_counters(const char* path) noexcept;

/// Counts one call of a function, from construction to destruction.
///
/// Threading: confined.
class CountedCall {
 public:
  CountedCall(Counters& counters, Function function, Path path, std::size_t byte_count) noexcept;
  ~CountedCall();
  CountedCall& operator=(CountedCall&&) = delete;
  /// Counts the call under another path, which did the work.
  void become(Path path) noexcept;

 private:
  [[nodiscard]] Cell& cell_of(Path path, std::size_t byte_count) const noexcept;

  FunctionCells* cells_;
  Cell* cell_;
  std::size_t byte_count_;
  std::uint64_t begin_ns_ = 0;  ///< 0: not timed.
  bool sampled_ = false;        ///< Only one call in many is timed.
};

}  // namespace headrace::preload
