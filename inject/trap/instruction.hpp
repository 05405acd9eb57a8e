// SPDX-License-Identifier: Apache-2.0
// Instruction: decodes the few x86-64 instructions by which a program submits to a portal or waits
// for a record. Not a disassembler: nothing else is decoded. No library is used, because decoding
// runs inside a signal handler, where not even memcpy may be called: another preload may have
// replaced it, and submit from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace headrace::emu {

enum class InstructionKind : std::uint8_t {
  enqcmd,        ///< Register: address of the portal; memory: the descriptor.
  enqcmds,       ///< The same, privileged.
  movdir64b,     ///< As enqcmd, posted.
  umonitor,      ///< Register: address to watch.
  umwait,        ///< Register: depth of sleep; EDX:EAX: deadline.
  tpause,        ///< The same, without an address.
  vector_store,  ///< Register: XMM, YMM or ZMM by byte_count; memory: target.
  store,         ///< Register: a general one; memory: target. MOV, MOVNTI, MOVDIRI.
  string_move,   ///< MOVS: [RSI] to [RDI], byte_count each.
};

enum class Segment : std::uint8_t { flat, fs, gs };

inline constexpr std::uint8_t kNoRegister = 0xff;
/// As base: the address of the next instruction.
inline constexpr std::uint8_t kInstructionPointer = 0xfe;

/// base + index * scale + displacement, truncated to 32 bits if `address_32`, plus the segment's
/// base.
struct MemoryOperand {
  std::uint8_t base = kNoRegister;
  std::uint8_t index = kNoRegister;
  std::uint8_t scale = 1;
  Segment segment = Segment::flat;
  std::int32_t displacement = 0;
};

/// Threading: immutable.
struct Instruction {
  InstructionKind kind = InstructionKind::enqcmd;
  std::uint8_t length = 0;          ///< Bytes, prefixes included.
  std::uint8_t register_index = 0;  ///< 0..15, vectors 0..31.
  std::uint8_t byte_count = 0;      ///< Bytes stored at a time.
  bool address_32 = false;          ///< Address-size prefix: addresses are 32 bits wide.
  bool repeated = false;            ///< REP.
  bool high_byte = false;           ///< store: AH, CH, DH or BH, of register_index.
  MemoryOperand memory;
};

inline constexpr std::size_t kInstructionBytesMax = 15;

/// Decodes the instruction at the start of `code`; nothing if it is none of the above or extends
/// beyond `code`.
[[nodiscard]] std::optional<Instruction> decode(std::span<const std::uint8_t> code);

}  // namespace headrace::emu
