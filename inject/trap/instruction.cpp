// SPDX-License-Identifier: Apache-2.0
// Encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, chapters 2 and
// the instructions' own pages. [S]
#include "inject/trap/instruction.hpp"

namespace headrace::emu {
namespace {

/// The instruction bytes with a bounded position: reading past the end gives 0 and sets a flag.
class Reader {
 public:
  explicit Reader(std::span<const std::uint8_t> code)
      : code_(code.first(code.size() < kInstructionBytesMax ? code.size() : kInstructionBytesMax)) {
  }
  std::uint8_t next() {
    const std::uint8_t byte = peek();
    ++position_;
    return byte;
  }
  [[nodiscard]] std::uint8_t peek() const {
    return position_ < code_.size() ? code_[position_] : std::uint8_t{0};
  }
  std::int32_t next_int32() {
    std::uint32_t value = 0;
    for (unsigned shift = 0; shift < 32; shift += 8) value |= std::uint32_t{next()} << shift;
    return static_cast<std::int32_t>(value);
  }
  [[nodiscard]] bool overrun() const { return position_ > code_.size(); }
  [[nodiscard]] std::size_t position() const { return position_; }

 private:
  std::span<const std::uint8_t> code_;
  std::size_t position_ = 0;
};

/// State from the bytes before the opcode.
struct Prefixes {
  bool operand_size = false;  // 66
  std::uint8_t repeat = 0;    // As mandatory(): F3 or F2; the last one counts.
  bool wide = false;          // REX.W, VEX.W, EVEX.W
  bool rex = false;
  std::uint8_t reg = 0;    // Bits 3 and 4 of ModRM.reg.
  std::uint8_t index = 0;  // Bit 3 of SIB.index.
  std::uint8_t base = 0;   // Bit 3 of ModRM.rm and SIB.base.
  Segment segment = Segment::flat;
  bool address_32 = false;

  /// The mandatory prefix, numbered as in VEX.pp: none, 66, F3, F2.
  [[nodiscard]] std::uint8_t mandatory() const {
    return repeat != 0 ? repeat : std::uint8_t{operand_size};
  }
};

/// Reads ModRM, SIB and displacement. `unit`: scale of an 8-bit displacement.
struct ModRm {
  std::uint8_t mod = 0;
  std::uint8_t reg = 0;
  std::uint8_t rm = 0;
  MemoryOperand memory;
};

ModRm read_modrm(Reader& in, const Prefixes& prefixes, std::int32_t unit) {
  ModRm out;
  const std::uint8_t byte = in.next();
  out.mod = byte >> 6;
  out.reg = static_cast<std::uint8_t>(((byte >> 3) & 7) | prefixes.reg);
  out.rm = static_cast<std::uint8_t>((byte & 7) | prefixes.base);
  if (out.mod == 3) return out;
  out.memory.segment = prefixes.segment;
  bool has_base = true;
  if ((byte & 7) == 4) {
    const std::uint8_t sib = in.next();
    const auto index = static_cast<std::uint8_t>(((sib >> 3) & 7) | prefixes.index);
    if (index != 4) {
      out.memory.index = index;
      out.memory.scale = static_cast<std::uint8_t>(1U << (sib >> 6));
    }
    out.memory.base = static_cast<std::uint8_t>((sib & 7) | prefixes.base);
    has_base = out.mod != 0 || (sib & 7) != 5;
    if (!has_base) out.memory.base = kNoRegister;
  } else if (out.mod == 0 && (byte & 7) == 5) {
    out.memory.base = kInstructionPointer;
    has_base = false;
  } else {
    out.memory.base = out.rm;
  }
  if (out.mod == 2 || !has_base) {
    out.memory.displacement = in.next_int32();
  } else if (out.mod == 1) {
    out.memory.displacement = static_cast<std::int8_t>(in.next()) * unit;
  }
  return out;
}

/// Legacy and REX prefixes. False: LOCK, which none of the decoded instructions allows.
bool read_prefixes(Reader& in, Prefixes& out) {
  for (;; in.next()) {
    switch (in.peek()) {
      case 0x66:
        out.operand_size = true;
        continue;
      case 0x67:
        out.address_32 = true;
        continue;
      case 0xf2:
        out.repeat = 3;
        continue;
      case 0xf3:
        out.repeat = 2;
        continue;
      case 0x64:
        out.segment = Segment::fs;
        continue;
      case 0x65:
        out.segment = Segment::gs;
        continue;
      // CS, DS, ES, SS are ignored in 64-bit mode, and do not override FS or GS.
      case 0x26:
      case 0x2e:
      case 0x36:
      case 0x3e:
        continue;
      case 0xf0:
        return false;
      default:
        break;
    }
    break;
  }
  if ((in.peek() & 0xf0) == 0x40) {
    const std::uint8_t rex = in.next();
    out.rex = true;
    out.wide = (rex & 8) != 0;
    out.reg = static_cast<std::uint8_t>((rex & 4) << 1);
    out.index = static_cast<std::uint8_t>((rex & 2) << 2);
    out.base = static_cast<std::uint8_t>((rex & 1) << 3);
  }
  return true;
}

std::optional<Instruction> finish(const Reader& in, Instruction out) {
  if (in.overrun()) return std::nullopt;
  out.length = static_cast<std::uint8_t>(in.position());
  return out;
}

/// An instruction on a register and memory. `unit`: scale of an 8-bit displacement.
std::optional<Instruction> finish_with_memory(Reader& in, const Prefixes& prefixes,
                                              InstructionKind kind, std::uint8_t byte_count,
                                              std::uint8_t unit = 1) {
  const ModRm modrm = read_modrm(in, prefixes, unit);
  if (modrm.mod == 3) return std::nullopt;
  // Without REX, byte registers 4..7 are AH, CH, DH and BH.
  const bool high_byte = byte_count == 1 && !prefixes.rex && modrm.reg >= 4;
  return finish(in,
                {.kind = kind,
                 .register_index = high_byte ? static_cast<std::uint8_t>(modrm.reg - 4) : modrm.reg,
                 .byte_count = byte_count,
                 .address_32 = prefixes.address_32,
                 .high_byte = high_byte,
                 .memory = modrm.memory});
}

/// Bytes stored by a whole-register store of map 0F with this opcode and prefix, from a register of
/// `byte_count` bytes; 0 if it is not one.
std::uint8_t stored_bytes(std::uint8_t opcode, std::uint8_t prefix, std::uint8_t byte_count) {
  switch (opcode) {
    case 0x11:  // MOVUPS, MOVUPD
    case 0x29:  // MOVAPS, MOVAPD
    case 0x2b:  // MOVNTPS, MOVNTPD
      return prefix <= 1 ? byte_count : std::uint8_t{0};
    case 0x7f:
      return prefix == 1 || prefix == 2 ? byte_count : std::uint8_t{0};  // MOVDQA, MOVDQU
    case 0xe7:
      return prefix == 1 ? byte_count : std::uint8_t{0};  // MOVNTDQ
    default:
      return 0;
  }
}

std::optional<Instruction> decode_vex(Reader& in, Prefixes prefixes, bool three_bytes) {
  std::uint8_t byte = in.next();
  // The register bits are stored inverted.
  prefixes.reg = (byte & 0x80) != 0 ? 0 : 8;
  unsigned map = 1;
  if (three_bytes) {
    prefixes.index = (byte & 0x40) != 0 ? 0 : 8;
    prefixes.base = (byte & 0x20) != 0 ? 0 : 8;
    map = byte & 0x1f;
    byte = in.next();
  }
  // vvvv must be all ones: no second register.
  if (map != 1 || ((byte >> 3) & 15) != 15) return std::nullopt;
  const std::uint8_t stored = stored_bytes(in.next(), byte & 3, (byte & 4) != 0 ? 32 : 16);
  if (stored == 0) return std::nullopt;
  return finish_with_memory(in, prefixes, InstructionKind::vector_store, stored);
}

std::optional<Instruction> decode_evex(Reader& in, Prefixes prefixes) {
  const std::uint8_t first = in.next();
  const std::uint8_t second = in.next();
  const std::uint8_t third = in.next();
  prefixes.reg =
      static_cast<std::uint8_t>(((first & 0x80) != 0 ? 0 : 8) | ((first & 0x10) != 0 ? 0 : 16));
  prefixes.index = (first & 0x40) != 0 ? 0 : 8;
  prefixes.base = (first & 0x20) != 0 ? 0 : 8;
  const auto prefix = static_cast<std::uint8_t>(second & 3);  // pp: none, 66, F3, F2.
  const bool has_second_register = ((second >> 3) & 15) != 15 || (third & 8) == 0;
  const bool masked = (third & 7) != 0;  // A partial store is not a descriptor.
  const bool broadcast = (third & 0x10) != 0;
  const unsigned width = (third >> 5) & 3;
  if ((first & 15) != 1 || (second & 4) == 0 || has_second_register || masked || broadcast ||
      width == 3) {
    return std::nullopt;
  }
  const auto byte_count = static_cast<std::uint8_t>(16U << width);
  const std::uint8_t opcode = in.next();
  // VMOVDQU8 and VMOVDQU16 have the prefix F2 here, the others as without EVEX.
  const bool either = opcode == 0x7f;
  const std::uint8_t stored =
      either && prefix == 3 ? byte_count : stored_bytes(opcode, prefix, byte_count);
  if (stored == 0) return std::nullopt;
  // W is the element width: 64 bits go with prefix 66, but VMOVDQA and VMOVDQU have both widths.
  const bool wide = (second & 0x80) != 0;
  if (!either && wide != (prefix == 1 && opcode != 0xe7)) return std::nullopt;
  return finish_with_memory(in, prefixes, InstructionKind::vector_store, stored, stored);
}

/// 0F 38 F8: ENQCMD, ENQCMDS, MOVDIR64B. 0F 38 F9: MOVDIRI.
std::optional<Instruction> decode_0f38(Reader& in, const Prefixes& prefixes) {
  const std::uint8_t opcode = in.next();
  if (opcode == 0xf9 && prefixes.mandatory() == 0) {
    return finish_with_memory(in, prefixes, InstructionKind::store, prefixes.wide ? 8 : 4);
  }
  if (opcode != 0xf8 || prefixes.mandatory() == 0) return std::nullopt;
  constexpr InstructionKind kKinds[] = {InstructionKind::movdir64b, InstructionKind::enqcmds,
                                        InstructionKind::enqcmd};
  return finish_with_memory(in, prefixes, kKinds[prefixes.mandatory() - 1], 64);
}

/// 0F AE /6 on a register: UMONITOR, UMWAIT, TPAUSE.
std::optional<Instruction> decode_wait(Reader& in, const Prefixes& prefixes) {
  constexpr InstructionKind kKinds[] = {InstructionKind::tpause, InstructionKind::umonitor,
                                        InstructionKind::umwait};
  const ModRm modrm = read_modrm(in, prefixes, 1);
  if (prefixes.mandatory() == 0 || modrm.mod != 3 || (modrm.reg & 7) != 6) return std::nullopt;
  return finish(in, {.kind = kKinds[prefixes.mandatory() - 1],
                     .register_index = modrm.rm,
                     .address_32 = prefixes.address_32,
                     .memory = {.segment = prefixes.segment}});
}

std::optional<Instruction> decode_0f(Reader& in, const Prefixes& prefixes) {
  const std::uint8_t opcode = in.next();
  if (opcode == 0x38) return decode_0f38(in, prefixes);
  if (opcode == 0xae) return decode_wait(in, prefixes);
  if (opcode == 0xc3 && prefixes.mandatory() == 0) {  // MOVNTI
    return finish_with_memory(in, prefixes, InstructionKind::store, prefixes.wide ? 8 : 4);
  }
  const std::uint8_t stored = stored_bytes(opcode, prefixes.mandatory(), 16);
  if (stored == 0) return std::nullopt;
  return finish_with_memory(in, prefixes, InstructionKind::vector_store, stored);
}

/// Operand size of an opcode that is not the byte form.
std::uint8_t operand_bytes(const Prefixes& prefixes) {
  if (prefixes.wide) return 8;
  return prefixes.operand_size ? 2 : 4;
}

}  // namespace

std::optional<Instruction> decode(std::span<const std::uint8_t> code) {
  Reader in(code);
  Prefixes prefixes;
  if (!read_prefixes(in, prefixes)) return std::nullopt;
  const std::uint8_t opcode = in.next();
  const bool bare = !prefixes.rex && prefixes.mandatory() == 0;
  switch (opcode) {
    case 0x0f:
      return decode_0f(in, prefixes);
    case 0xc4:
      return bare ? decode_vex(in, prefixes, true) : std::nullopt;
    case 0xc5:
      return bare ? decode_vex(in, prefixes, false) : std::nullopt;
    case 0x62:
      return bare ? decode_evex(in, prefixes) : std::nullopt;
    case 0x88:
      return finish_with_memory(in, prefixes, InstructionKind::store, 1);
    case 0x89:
      return finish_with_memory(in, prefixes, InstructionKind::store, operand_bytes(prefixes));
    case 0xa4:
    case 0xa5:
      return finish(in, {.kind = InstructionKind::string_move,
                         .byte_count = opcode == 0xa4 ? std::uint8_t{1} : operand_bytes(prefixes),
                         .address_32 = prefixes.address_32,
                         .repeated = prefixes.repeat != 0,
                         .memory = {.segment = prefixes.segment}});
    default:
      return std::nullopt;
  }
}

}  // namespace headrace::emu
