// SPDX-License-Identifier: Apache-2.0
// Memory: how the device accesses the bytes that a descriptor names. The addresses come from a
// client and may be wrong: accesses never crash and report how far they came.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "emu/platform/guarded.hpp"

namespace headrace::emu {

/// An address of the client; accessed only through Memory.
using guarded::Address;
using guarded::Fault;
/// How far an access came; `byte_count` is its full length unless there is a fault.
using guarded::Reach;

/// How to handle a page that is mapped but not present.
enum class PageFaults : std::uint8_t {
  resolve,  ///< Block on fault: wait for the operating system to load it.
  report,   ///< Stop before it.
};

/// Threading: shared.
class Memory {
 public:
  Memory() = default;
  Memory& operator=(Memory&&) = delete;
  virtual ~Memory() = default;

  /// Client to device.
  virtual Reach read(std::span<std::byte> into, Address source, PageFaults faults) noexcept = 0;
  /// Device to client.
  virtual Reach write(Address target, std::span<const std::byte> from,
                      PageFaults faults) noexcept = 0;
  /// Client to client, upwards or, for a target that overlaps the end of its source, `downwards`;
  /// byte_count then counts from the end.
  virtual Reach copy(Address target, Address source, std::size_t byte_count, bool downwards,
                     PageFaults faults) noexcept = 0;
  /// How many bytes from `first` on are in present pages, so that an access need not check again; 0
  /// if unknown.
  virtual std::size_t present(Address first, std::size_t byte_count) noexcept {
    static_cast<void>(first);
    static_cast<void>(byte_count);
    return 0;
  }
  /// Writes a completion record: the status byte last, with release, so that a client that sees it
  /// sees everything that the device wrote before.
  virtual Reach write_record(Address record, std::span<const std::byte, 32> bytes) noexcept = 0;
  /// Writes back and invalidates the cache lines of a range.
  virtual Reach flush_lines(Address target, std::size_t byte_count, PageFaults faults) noexcept = 0;
};

/// The memory of this process. A handler of SIGSEGV and SIGBUS catches faults of the few
/// instructions that may fault (emu/platform/guarded.hpp).
[[nodiscard]] Memory& process_memory();

}  // namespace headrace::emu
