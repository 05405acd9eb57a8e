// SPDX-License-Identifier: Apache-2.0
// Memory: how the device reaches the bytes that a descriptor names. The addresses are a client's,
// so any of them may be wrong: nothing here crashes, everything says how far it came.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "emu/platform/guarded.hpp"

namespace headrace::emu {

/// An address of the client, never dereferenced but through Memory.
using guarded::Address;
using guarded::Fault;
/// How far an access came; `byte_count` is all of it unless there is a fault.
using guarded::Reach;

/// What to do about a page that is mapped but not present.
enum class PageFaults : std::uint8_t {
  resolve,  ///< Block on fault: wait for the operating system to bring it.
  report,   ///< Stop before it.
};

/// Threading: shared.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() = default;

  /// Client to device.
  virtual Reach read(std::span<std::byte> into, Address source, PageFaults faults) noexcept = 0;
  /// Device to client.
  virtual Reach write(Address target, std::span<const std::byte> from,
                      PageFaults faults) noexcept = 0;
  /// Client to client, upwards, or downwards if `downwards` (for a target that overlaps the end of
  /// its source; byte_count then counts from the end).
  virtual Reach copy(Address target, Address source, std::size_t byte_count, bool downwards,
                     PageFaults faults) noexcept = 0;
  /// How many bytes from `first` on lie in pages that are present, so that an access to them need
  /// not ask again; 0 if that is not known.
  virtual std::size_t present(Address first, std::size_t byte_count) noexcept {
    static_cast<void>(first);
    static_cast<void>(byte_count);
    return 0;
  }
  /// Writes the 32 bytes of a completion record: all but the status byte, then the status byte with
  /// release, so that a client that sees it sees everything that the device wrote before.
  virtual Reach write_record(Address record, std::span<const std::byte, 32> bytes) noexcept = 0;
  /// Writes back and drops the cache lines of a range.
  virtual Reach flush_lines(Address target, std::size_t byte_count, PageFaults faults) noexcept = 0;
};

/// The memory of this process. Accesses that fault are caught by a handler of SIGSEGV and SIGBUS
/// that knows the few instructions that may fault (emu/platform/guarded.hpp).
[[nodiscard]] Memory& process_memory();

}  // namespace headrace::emu
