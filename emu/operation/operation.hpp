// SPDX-License-Identifier: Apache-2.0
// Operation: one descriptor (not a batch, not a drain) being carried out, in slices, so that an
// engine can be stopped between two of them, delayed, or made to fault at a given byte. Knows
// nothing of queues and engines. The rules of each opcode lie in emu/operation/rules.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

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
  // One piece of each family's work, at most `byte_count_max` bytes but at least a unit; true once
  // the record is complete. A file for each family.
  bool move_piece(Memory& memory, std::size_t byte_count_max);             // move_fill.cpp
  bool fill_piece(Memory& memory, std::size_t byte_count_max);             // move_fill.cpp
  bool dualcast_piece(Memory& memory, std::size_t byte_count_max);         // move_fill.cpp
  bool flush_piece(Memory& memory, std::size_t byte_count_max);            // move_fill.cpp
  bool compare_piece(Memory& memory, std::size_t byte_count_max);          // compare.cpp
  bool compare_pattern_piece(Memory& memory, std::size_t byte_count_max);  // compare.cpp
  bool create_delta_piece(Memory& memory, std::size_t byte_count_max);     // delta.cpp
  bool apply_delta_piece(Memory& memory, std::size_t byte_count_max);      // delta.cpp
  bool crc_piece(Memory& memory, std::size_t byte_count_max);              // crc.cpp
  bool dif_piece(Memory& memory);                                          // dif.cpp

  bool piece(Memory& memory, std::size_t byte_count_max);
  std::size_t load_pattern();
  bool take_difference(std::size_t same, std::size_t byte_count);
  [[nodiscard]] std::uint32_t crc_value() const;
  unsigned check_dif(const std::byte* block, const std::byte* dif) const;
  void make_dif(const std::byte* block, std::byte* dif) const;

  [[nodiscard]] dsa::Opcode opcode() const;
  // What an access to the range has to ask of its pages.
  [[nodiscard]] PageFaults faults() const;
  [[nodiscard]] PageFaults faults(Memory& memory, Address first, std::size_t byte_count);
  [[nodiscard]] std::size_t left() const;
  Reach read(Memory& memory, std::span<std::byte> into, Address source);
  Reach write(Memory& memory, Address target, std::span<const std::byte> from);
  // The ends. Each returns true.
  bool succeed(std::uint8_t result = 0);
  bool fail(const Fault& fault);
  bool fail(dsa::Status status);
  // Bytes done and the running values: what a resumed descriptor needs.
  void write_progress();
  void write_values();

  // A block of 4104 bytes with its integrity field, in whole lines.
  static constexpr std::size_t kScratchBytes = 4160;
  // What the families of copies and comparisons take at once.
  static constexpr std::size_t kChunkBytes = 4096;

  // A range whose pages were present a moment ago, as a device's translation cache knows them: one
  // question to the system for many a piece.
  struct Window {
    Address begin = 0;
    Address end = 0;
  };
  static constexpr std::size_t kWindowBytes = 128 * 1024;

  struct Tags {
    std::uint32_t reference = 0;
    std::uint16_t application = 0;
    std::uint16_t application_mask = 0;
  };

  dsa::Descriptor descriptor_;
  dsa::CompletionRecord record_{};
  bool block_on_fault_;
  std::uint64_t bytes_read_ = 0;
  std::uint64_t bytes_written_ = 0;
  std::uint64_t done_ = 0;  // Bytes of bytes_total() done, from the end if downwards_.

  std::array<Window, 3> windows_{};  // One for each operand.
  std::size_t next_window_ = 0;

  // What a family keeps between two pieces.
  bool downwards_ = false;         // move
  bool begun_ = false;             // fill, compare_pattern: pattern laid out; crc: seed taken
  std::uint32_t crc_ = 0;          // crc, copy_crc: reflected register
  std::uint32_t delta_bytes_ = 0;  // create_delta: size of the record so far
  std::int32_t last_offset_ = -1;  // apply_delta
  Tags source_tags_;               // dif_check, dif_strip, dif_update: of the next block
  Tags target_tags_;               // dif_insert, dif_update: of the next block

  // Not set to zero: every use writes first.
  std::array<std::byte, kScratchBytes> first_;
  std::array<std::byte, kScratchBytes> second_;
};

}  // namespace headrace::emu
