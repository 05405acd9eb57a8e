// SPDX-License-Identifier: Apache-2.0
// Operation: executes one descriptor (not a batch or drain) in slices, between which an engine can
// be stopped, delayed, or made to fault at a given byte. Independent of queues and engines.
// emu/operation/rules.hpp has the rules of each opcode.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>

#include "emu/operation/memory.hpp"
#include "headrace/dsa/descriptor.hpp"

namespace headrace::emu {

/// What the WQ and the device allow; checked first.
struct Limits {
  std::uint64_t transfer_bytes_max = 0;
  std::uint32_t batch_max = 0;
  bool block_on_fault =
      false;            ///< The WQ's own switch: without it the flag is ignored (see rules.hpp).
  bool fill_16 = true;  ///< Fill with patterns of 16 bytes.
  std::uint64_t opcodes_low = ~0ULL;  ///< op_config, bit n: opcode n allowed (opcodes 0..63).
};

/// Where a descriptor came from: some opcodes and flags are allowed in one place only.
enum class Origin : std::uint8_t { portal, batch, kernel_write };

/// The record that refuses `descriptor` before it starts; nothing if it may run. Covers every
/// opcode, batch and drain included.
[[nodiscard]] std::optional<dsa::CompletionRecord> refuse(const dsa::Descriptor& descriptor,
                                                          const Limits& limits, Origin origin);

/// Executes one descriptor. Contains some KiB of scratch so that it needs little stack (a trap may
/// run on a signal stack): keep one per engine.
///
/// Threading: confined to one engine.
class Operation {
 public:
  /// Precondition: refuse() accepted `descriptor`, which is neither batch nor drain.
  Operation(const dsa::Descriptor& descriptor, const Limits& limits);

  /// Processes about `byte_count_max` bytes (rounded to the opcode's units, at least one). Returns
  /// true once the record is complete.
  [[nodiscard]] bool advance(Memory& memory, std::size_t byte_count_max);
  /// Ends the operation as if `fault` had happened at the next byte.
  void end_with_fault(const Fault& fault);
  /// Ends the operation with the caller's status (hardware error, abort), bytes_completed
  /// unchanged.
  void end_with_status(std::uint8_t raw_status);

  [[nodiscard]] const dsa::Descriptor& descriptor() const { return descriptor_; }
  /// Valid once advance() returned true or an end_ function was called.
  [[nodiscard]] const dsa::CompletionRecord& record() const { return record_; }
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }
  [[nodiscard]] std::uint64_t bytes_written() const { return bytes_written_; }
  /// Bytes that the descriptor processes in total, for pacing.
  [[nodiscard]] std::uint64_t bytes_total() const;
  /// Bytes of bytes_total() done; where an injected fault happens.
  [[nodiscard]] std::uint64_t bytes_done() const { return done_; }

 private:
  // One piece of work of each family, at most `byte_count_max` bytes but at least one unit; true
  // once the record is complete.
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
  // How an access to the range handles page faults.
  [[nodiscard]] PageFaults faults() const;
  [[nodiscard]] PageFaults faults(Memory& memory, Address first, std::size_t byte_count);
  [[nodiscard]] std::size_t left() const;
  Reach read(Memory& memory, std::span<std::byte> into, Address source);
  Reach write(Memory& memory, Address target, std::span<const std::byte> from);
  // Fails with the first of the faults; otherwise succeeds if nothing is left.
  bool end_piece(std::initializer_list<std::optional<Fault>> faults, std::uint8_t result = 0);
  // Complete the record. Each returns true.
  bool succeed(std::uint8_t result = 0);
  bool fail(const Fault& fault);
  bool fail(dsa::Status status);
  // Bytes done and running values, from which a client resumes.
  void write_progress();
  void write_values();

  // A block of 4104 bytes with its integrity field, in whole lines.
  static constexpr std::size_t kScratchBytes = 4160;
  // Largest piece of copies and comparisons.
  static constexpr std::size_t kChunkBytes = 4096;

  // A range whose pages were recently present, as in a device's translation cache: one query serves
  // many pieces.
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

  // State of a family between two pieces.
  bool downwards_ = false;         // move
  bool begun_ = false;             // fill, compare_pattern: pattern laid out; crc: seed taken
  std::uint32_t crc_ = 0;          // crc, copy_crc: reflected register
  std::uint32_t delta_bytes_ = 0;  // create_delta: size of the record so far
  std::int32_t last_offset_ = -1;  // apply_delta
  Tags source_tags_;               // dif_check, dif_strip, dif_update: of the next block
  Tags target_tags_;               // dif_insert, dif_update: of the next block

  // Uninitialised: every use writes first.
  std::array<std::byte, kScratchBytes> first_;
  std::array<std::byte, kScratchBytes> second_;
};

}  // namespace headrace::emu
