// SPDX-License-Identifier: Apache-2.0
// Operation: one descriptor (not a batch, not a drain) being carried out, in slices, so that an
// engine can be stopped between two of them, delayed, or made to fault at a given byte. Knows
// nothing of queues and engines. The rules of each opcode lie in emu/operation/rules.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "emu/operation/memory.hpp"
#include "headrace/dsa/descriptor.hpp"

namespace headrace::emu {

/// What the WQ and the device allow; checked before anything is touched.
struct Limits {
  std::uint64_t transfer_bytes_max = 0;
  std::uint32_t batch_max = 0;
  bool block_on_fault =
      false;            ///< The WQ's own switch: without it the flag is ignored (see rules.hpp).
  bool fill_16 = true;  ///< Fill with patterns of 16 bytes.
  std::uint64_t opcodes_low = ~0ULL;  ///< op_config, bit n: opcode n allowed (opcodes 0..63).
};

/// Where the descriptor came from: some opcodes and flags are allowed in one place only.
enum class Origin : std::uint8_t { portal, batch, kernel_write };

/// The status byte that refuses `descriptor` before anything is done, with the record's other
/// fields; nothing if it may run. Covers every opcode, batch and drain as well.
[[nodiscard]] std::optional<dsa::CompletionRecord> refuse(const dsa::Descriptor& descriptor,
                                                          const Limits& limits, Origin origin);

/// Carries one descriptor out. Holds some KiB of scratch, so that it needs little of a stack (a
/// trap may run on a signal's): keep one for each engine.
///
/// Threading: confined to one engine.
class Operation {
 public:
  /// Precondition: refuse() had nothing against `descriptor`, and it is neither batch nor drain.
  Operation(const dsa::Descriptor& descriptor, const Limits& limits);

  /// Goes on for about `byte_count_max` bytes (rounded to what the opcode's units demand, at least
  /// one unit). True once the record is complete.
  [[nodiscard]] bool advance(Memory& memory, std::size_t byte_count_max);
  /// Ends it here as if `fault` had happened at the next byte.
  void end_with_fault(const Fault& fault);
  /// Ends it here with a status of the caller's (hardware error, abort), bytes_completed as they
  /// are.
  void end_with_status(std::uint8_t raw_status);

  [[nodiscard]] const dsa::Descriptor& descriptor() const { return descriptor_; }
  /// Valid once advance() said true or an end_ function was called.
  [[nodiscard]] const dsa::CompletionRecord& record() const { return record_; }
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }
  [[nodiscard]] std::uint64_t bytes_written() const { return bytes_written_; }
  /// Bytes that the descriptor asks for in all, for pacing.
  [[nodiscard]] std::uint64_t bytes_total() const;
  /// Bytes of these that are done; where an injected fault happens.
  [[nodiscard]] std::uint64_t bytes_done() const { return done_; }

 private:
  // Each family in a file of its own; true once it has ended.
  bool advance_move(Memory& memory, std::size_t byte_count_max);  // move_fill.cpp

  [[nodiscard]] dsa::Opcode opcode() const;
  [[nodiscard]] PageFaults faults() const;
  [[nodiscard]] std::size_t left() const { return descriptor_.xfer_size - done_; }
  // The end: everything went well, with a result byte where the opcode has one.
  bool succeed(std::uint8_t result = 0);
  bool fail(const Fault& fault);
  // Bytes done and the running values, without a status: what a resumed descriptor needs.
  void write_progress();

  dsa::Descriptor descriptor_;
  dsa::CompletionRecord record_{};
  bool block_on_fault_;
  std::uint64_t bytes_read_ = 0;
  std::uint64_t bytes_written_ = 0;
  std::uint64_t done_ = 0;  // Bytes of the transfer done, from the end if downwards_.
  bool downwards_ = false;  // move
};

}  // namespace headrace::emu
