// SPDX-License-Identifier: Apache-2.0
// Decoding of the submission instructions: the assembler encodes the forms, so that our reading of
// the manual is not compared with itself; random bytes are compared with Zydis.
#include "inject/trap/instruction.hpp"

#include <Zydis/Zydis.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "support/seed.hpp"

namespace headrace::emu {
namespace {

constexpr std::uint8_t kNone = kNoRegister;
constexpr std::uint8_t kRip = kInstructionPointer;

struct Form {
  const char* text;
  std::span<const std::uint8_t> code;
  Instruction expected;  // Except for its length.
};

std::string show(const Instruction& i) {
  std::string out = "kind " + std::to_string(static_cast<int>(i.kind));
  for (const int part :
       {int{i.length}, int{i.register_index}, int{i.byte_count}, int{i.address_32}, int{i.repeated},
        int{i.high_byte}, int{i.memory.base}, int{i.memory.index}, int{i.memory.scale},
        static_cast<int>(i.memory.segment), int{i.memory.displacement}}) {
    out += " " + std::to_string(part);
  }
  return out;
}

void expect_decoded(const Form& form) {
  const auto decoded = decode(form.code);
  ASSERT_TRUE(decoded.has_value()) << form.text;
  Instruction expected = form.expected;
  expected.length = static_cast<std::uint8_t>(form.code.size());
  EXPECT_EQ(show(*decoded), show(expected)) << form.text;
  for (std::size_t length = 0; length < form.code.size(); ++length) {
    EXPECT_FALSE(decode(form.code.first(length)).has_value()) << form.text << " cut to " << length;
  }
}

#define ASSEMBLED(text)                               \
  ([]() -> std::span<const std::uint8_t> {            \
    const std::uint8_t* begin = nullptr;              \
    const std::uint8_t* end = nullptr;                \
    asm(".pushsection .text.forms,\"ax\"\n771: " text \
        "\n772: .popsection\n"                        \
        "leaq 771b(%%rip), %0\nleaq 772b(%%rip), %1"  \
        : "=r"(begin), "=r"(end));                    \
    return {begin, end};                              \
  }())
#define FORM(text, ...)                            \
  Form {                                           \
    text, ASSEMBLED(text), Instruction __VA_ARGS__ \
  }

using Kind = InstructionKind;

Instruction submission(Kind kind, std::uint8_t reg, MemoryOperand memory, bool address_32 = false) {
  Instruction out;
  out.kind = kind;
  out.register_index = reg;
  out.byte_count = 64;
  out.address_32 = address_32;
  out.memory = memory;
  return out;
}

MemoryOperand at(std::uint8_t base, std::int32_t displacement = 0, std::uint8_t index = kNone,
                 std::uint8_t scale = 1, Segment segment = Segment::flat) {
  return {.base = base,
          .index = index,
          .scale = scale,
          .segment = segment,
          .displacement = displacement};
}

#define SUBMISSION(text, ...)                      \
  Form {                                           \
    text, ASSEMBLED(text), submission(__VA_ARGS__) \
  }

TEST(Instruction, submissions_are_decoded_in_every_form_of_addressing) {
  const Form forms[] = {
      SUBMISSION("enqcmd (%%rsi), %%rdi", Kind::enqcmd, 7, at(6)),
      SUBMISSION("enqcmd (%%rax), %%rcx", Kind::enqcmd, 1, at(0)),
      SUBMISSION("enqcmds (%%rsi), %%rdi", Kind::enqcmds, 7, at(6)),
      SUBMISSION("movdir64b (%%rsi), %%rdi", Kind::movdir64b, 7, at(6)),
      SUBMISSION("enqcmd (%%r9), %%r15", Kind::enqcmd, 15, at(9)),
      SUBMISSION("enqcmd (%%rsp), %%rbp", Kind::enqcmd, 5, at(4)),
      SUBMISSION("enqcmd (%%r12), %%r8", Kind::enqcmd, 8, at(12)),
      SUBMISSION("enqcmd (%%rbp), %%rax", Kind::enqcmd, 0, at(5)),
      SUBMISSION("enqcmd (%%r13), %%rax", Kind::enqcmd, 0, at(13)),
      SUBMISSION("enqcmd 64(%%rbx), %%rax", Kind::enqcmd, 0, at(3, 64)),
      SUBMISSION("enqcmd -64(%%rbx), %%rax", Kind::enqcmd, 0, at(3, -64)),
      SUBMISSION("enqcmd 0x12345678(%%rbx), %%rax", Kind::enqcmd, 0, at(3, 0x12345678)),
      SUBMISSION("enqcmd -0x12345678(%%r14), %%r11", Kind::enqcmd, 11, at(14, -0x12345678)),
      SUBMISSION("enqcmd (%%rbx,%%rcx), %%rax", Kind::enqcmd, 0, at(3, 0, 1)),
      SUBMISSION("enqcmd (%%rbx,%%rcx,8), %%rax", Kind::enqcmd, 0, at(3, 0, 1, 8)),
      SUBMISSION("enqcmd (%%rbx,%%r12,4), %%rax", Kind::enqcmd, 0, at(3, 0, 12, 4)),
      SUBMISSION("enqcmd 8(%%r13,%%r15,2), %%r10", Kind::enqcmd, 10, at(13, 8, 15, 2)),
      SUBMISSION("enqcmd 0x1000(,%%rdx,8), %%rax", Kind::enqcmd, 0, at(kNone, 0x1000, 2, 8)),
      SUBMISSION("enqcmd 0x1000, %%rax", Kind::enqcmd, 0, at(kNone, 0x1000)),
      SUBMISSION("enqcmd 0x40(%%rip), %%rax", Kind::enqcmd, 0, at(kRip, 0x40)),
      SUBMISSION("movdir64b -0x40(%%rip), %%r9", Kind::movdir64b, 9, at(kRip, -0x40)),
      SUBMISSION("enqcmd (%%esi), %%edi", Kind::enqcmd, 7, at(6), true),
      SUBMISSION("movdir64b 4(%%r9d,%%r10d,2), %%r11d", Kind::movdir64b, 11, at(9, 4, 10, 2), true),
      SUBMISSION("enqcmd 0x40(%%eip), %%eax", Kind::enqcmd, 0, at(kRip, 0x40), true),
      SUBMISSION("enqcmd %%fs:(%%rsi), %%rdi", Kind::enqcmd, 7, at(6, 0, kNone, 1, Segment::fs)),
      SUBMISSION("movdir64b %%gs:16(%%r8,%%rax), %%rdi", Kind::movdir64b, 7,
                 at(8, 16, 0, 1, Segment::gs)),
      SUBMISSION("enqcmds %%fs:0x28, %%rdi", Kind::enqcmds, 7,
                 at(kNone, 0x28, kNone, 1, Segment::fs)),
      SUBMISSION(".byte 0x3e, 0x66; enqcmd (%%rsi), %%rdi", Kind::enqcmd, 7, at(6)),
      SUBMISSION(".byte 0xf2, 0x48, 0x0f, 0x38, 0xf8, 0x3e", Kind::enqcmd, 7, at(6)),
  };
  for (const Form& form : forms) expect_decoded(form);
}

Instruction waiting(Kind kind, std::uint8_t reg, bool address_32 = false,
                    Segment segment = Segment::flat) {
  Instruction out;
  out.kind = kind;
  out.register_index = reg;
  out.address_32 = address_32;
  out.memory.segment = segment;
  return out;
}
#define WAITING(text, ...)                      \
  Form {                                        \
    text, ASSEMBLED(text), waiting(__VA_ARGS__) \
  }

TEST(Instruction, waits_are_decoded_with_their_register) {
  const Form forms[] = {
      WAITING("umonitor %%rax", Kind::umonitor, 0),
      WAITING("umonitor %%r13", Kind::umonitor, 13),
      WAITING("umonitor %%ecx", Kind::umonitor, 1, true),
      WAITING(".byte 0x64; umonitor %%rdx", Kind::umonitor, 2, false, Segment::fs),
      WAITING("umwait %%ecx", Kind::umwait, 1),
      WAITING("umwait %%r12d", Kind::umwait, 12),
      WAITING("tpause %%edi", Kind::tpause, 7),
      WAITING("tpause %%r8d", Kind::tpause, 8),
  };
  for (const Form& form : forms) expect_decoded(form);
}

Instruction stored(Kind kind, std::uint8_t reg, std::uint8_t byte_count, MemoryOperand memory,
                   bool high_byte = false) {
  Instruction out;
  out.kind = kind;
  out.register_index = reg;
  out.byte_count = byte_count;
  out.memory = memory;
  out.high_byte = high_byte;
  return out;
}
#define STORED(text, ...)                      \
  Form {                                       \
    text, ASSEMBLED(text), stored(__VA_ARGS__) \
  }

TEST(Instruction, stores_of_vectors_are_decoded_with_their_width) {
  constexpr Kind kVector = Kind::vector_store;
  const Form forms[] = {
      STORED("vmovdqu64 %%zmm0, (%%rdi)", kVector, 0, 64, at(7)),
      STORED("vmovdqu64 %%zmm31, (%%r15)", kVector, 31, 64, at(15)),
      STORED("vmovdqu32 %%zmm17, 64(%%rax)", kVector, 17, 64, at(0, 64)),
      STORED("vmovdqu8 %%zmm9, -128(%%rax)", kVector, 9, 64, at(0, -128)),
      STORED("vmovdqu16 %%zmm9, 65(%%rax)", kVector, 9, 64, at(0, 65)),
      STORED("vmovdqa64 %%zmm5, (%%rbx,%%rcx,8)", kVector, 5, 64, at(3, 0, 1, 8)),
      STORED("vmovdqa32 %%zmm24, 0x1000(%%r12)", kVector, 24, 64, at(12, 0x1000)),
      STORED("vmovntdq %%zmm1, 64(%%rip)", kVector, 1, 64, at(kRip, 64)),
      STORED("vmovntps %%zmm2, (%%r13)", kVector, 2, 64, at(13)),
      STORED("vmovntpd %%zmm2, %%fs:(%%rdi)", kVector, 2, 64, at(7, 0, kNone, 1, Segment::fs)),
      STORED("vmovups %%zmm3, (%%rdi)", kVector, 3, 64, at(7)),
      STORED("vmovapd %%zmm3, (%%rdi)", kVector, 3, 64, at(7)),
      STORED("vmovdqu64 %%ymm20, 32(%%rdi)", kVector, 20, 32, at(7, 32)),
      STORED("vmovdqu %%ymm4, 32(%%rdi)", kVector, 4, 32, at(7, 32)),
      STORED("vmovdqa %%ymm14, (%%r9)", kVector, 14, 32, at(9)),
      STORED("vmovntdq %%ymm1, (%%rdi,%%r10,2)", kVector, 1, 32, at(7, 0, 10, 2)),
      STORED("vmovups %%ymm1, (%%rdi)", kVector, 1, 32, at(7)),
      STORED("vmovdqu %%xmm8, 16(%%rdi)", kVector, 8, 16, at(7, 16)),
      STORED("movdqu %%xmm0, 16(%%rdi)", kVector, 0, 16, at(7, 16)),
      STORED("movdqa %%xmm15, (%%r8)", kVector, 15, 16, at(8)),
      STORED("movups %%xmm1, (%%rdi)", kVector, 1, 16, at(7)),
      STORED("movapd %%xmm1, (%%rdi)", kVector, 1, 16, at(7)),
      STORED("movntdq %%xmm9, (%%rdi)", kVector, 9, 16, at(7)),
      STORED("movntps %%xmm9, (%%rdi)", kVector, 9, 16, at(7)),
  };
  for (const Form& form : forms) expect_decoded(form);
}

TEST(Instruction, stores_of_general_registers_are_decoded_with_their_width) {
  const Form forms[] = {
      STORED("movq %%rax, 8(%%rdi)", Kind::store, 0, 8, at(7, 8)),
      STORED("movq %%r10, (%%r11)", Kind::store, 10, 8, at(11)),
      STORED("movl %%ecx, (%%rdi)", Kind::store, 1, 4, at(7)),
      STORED("movw %%dx, (%%rdi)", Kind::store, 2, 2, at(7)),
      STORED("movb %%bl, (%%rdi)", Kind::store, 3, 1, at(7)),
      STORED("movb %%bh, (%%rdi)", Kind::store, 3, 1, at(7), true),
      STORED("movb %%dil, (%%rdi)", Kind::store, 7, 1, at(7)),
      STORED("movnti %%rax, (%%rdi)", Kind::store, 0, 8, at(7)),
      STORED("movnti %%r9d, (%%rdi)", Kind::store, 9, 4, at(7)),
      STORED("movdiri %%rsi, 8(%%rdi)", Kind::store, 6, 8, at(7, 8)),
      STORED("movdiri %%esi, 8(%%rdi)", Kind::store, 6, 4, at(7, 8)),
  };
  for (const Form& form : forms) expect_decoded(form);
}

Instruction moved(std::uint8_t byte_count, bool repeated, bool address_32 = false,
                  Segment segment = Segment::flat) {
  Instruction out;
  out.kind = Kind::string_move;
  out.byte_count = byte_count;
  out.repeated = repeated;
  out.address_32 = address_32;
  out.memory.segment = segment;
  return out;
}
#define MOVED(text, ...)                      \
  Form {                                      \
    text, ASSEMBLED(text), moved(__VA_ARGS__) \
  }

TEST(Instruction, string_moves_are_decoded_with_their_prefix) {
  const Form forms[] = {
      MOVED("rep movsb", 1, true),
      MOVED("rep movsq", 8, true),
      MOVED("rep movsl", 4, true),
      MOVED("movsw", 2, false),
      MOVED("movsq", 8, false),
      MOVED("addr32 rep movsb", 1, true, true),
      MOVED("rep movsb %%gs:(%%rsi), %%es:(%%rdi)", 1, true, false, Segment::gs),
  };
  for (const Form& form : forms) expect_decoded(form);
}

TEST(Instruction, what_stores_no_whole_register_is_none_of_ours) {
  const std::span<const std::uint8_t> others[] = {
      ASSEMBLED("ud2"),
      ASSEMBLED("nop"),
      ASSEMBLED("vmovdqu64 %%zmm0, (%%rdi)%{%%k1%}"),
      ASSEMBLED("vmovdqu64 (%%rdi), %%zmm0"),
      ASSEMBLED("vmovdqu64 %%zmm0, %%zmm1"),
      ASSEMBLED("movss %%xmm0, (%%rdi)"),
      ASSEMBLED("movsd %%xmm0, (%%rdi)"),
      ASSEMBLED("movq %%rax, %%rbx"),
      ASSEMBLED("xsaveopt (%%rdi)"),
      ASSEMBLED("clwb (%%rdi)"),
      ASSEMBLED("lock; orl $0, (%%rsp)"),
      ASSEMBLED("mfence"),
      ASSEMBLED("clflush (%%rdi)"),
      ASSEMBLED("popcnt %%rax, %%rbx"),
      ASSEMBLED("crc32b %%al, %%ebx"),
      ASSEMBLED("invpcid (%%rax), %%rbx"),
      ASSEMBLED("stosb"),
      ASSEMBLED("movbe %%eax, (%%rdi)"),
  };
  for (const auto code : others) {
    EXPECT_FALSE(decode(code).has_value()) << int{code[0]} << " " << int{code[1]};
  }
}

/// Zydis' decoding of the same bytes, reduced to the fields that ours has.
std::optional<Instruction> by_zydis(const ZydisDecoder& decoder,
                                    std::span<const std::uint8_t> code) {
  ZydisDecodedInstruction instruction;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  if (!ZYAN_SUCCESS(
          ZydisDecoderDecodeFull(&decoder, code.data(), code.size(), &instruction, operands))) {
    return std::nullopt;
  }
  Instruction out;
  out.length = instruction.length;
  out.address_32 = instruction.address_width == 32;
  const auto number = [](ZydisRegister reg) {
    return reg == ZYDIS_REGISTER_NONE ? kNone
           : reg == ZYDIS_REGISTER_RIP || reg == ZYDIS_REGISTER_EIP
               ? kRip
               : static_cast<std::uint8_t>(ZydisRegisterGetId(reg));
  };
  const auto memory = [&](const ZydisDecodedOperand& operand) {
    const auto& mem = operand.mem;
    const Segment segment = mem.segment == ZYDIS_REGISTER_FS   ? Segment::fs
                            : mem.segment == ZYDIS_REGISTER_GS ? Segment::gs
                                                               : Segment::flat;
    return MemoryOperand{.base = number(mem.base),
                         .index = number(mem.index),
                         .scale = mem.scale == 0 ? std::uint8_t{1} : mem.scale,
                         .segment = segment,
                         .displacement = static_cast<std::int32_t>(mem.disp.value)};
  };
  switch (instruction.mnemonic) {
    case ZYDIS_MNEMONIC_ENQCMD:
      out.kind = Kind::enqcmd;
      break;
    case ZYDIS_MNEMONIC_ENQCMDS:
      out.kind = Kind::enqcmds;
      break;
    case ZYDIS_MNEMONIC_MOVDIR64B:
      out.kind = Kind::movdir64b;
      break;
    case ZYDIS_MNEMONIC_UMONITOR:
      out.kind = Kind::umonitor;
      break;
    case ZYDIS_MNEMONIC_UMWAIT:
      out.kind = Kind::umwait;
      break;
    case ZYDIS_MNEMONIC_TPAUSE:
      out.kind = Kind::tpause;
      break;
    default: {
      // A store: memory first, a register that is read second, no mask.
      if (operands[0].type != ZYDIS_OPERAND_TYPE_MEMORY) return std::nullopt;
      out.kind = Kind::vector_store;
      out.byte_count = static_cast<std::uint8_t>(operands[0].size / 8);
      out.memory = memory(operands[0]);
      out.register_index = number(operands[instruction.operand_count_visible - 1].reg.value);
      return out;
    }
  }
  out.register_index = number(operands[0].reg.value);
  if (out.kind <= Kind::movdir64b) {
    out.byte_count = 64;
    out.memory = memory(operands[1]);
  } else {
    out.address_32 = false;  // Ours sets it only for UMONITOR's register; not compared.
  }
  return out;
}

TEST(Instruction, random_forms_are_decoded_as_zydis_does) {
  ZydisDecoder decoder;
  ASSERT_TRUE(
      ZYAN_SUCCESS(ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)));
  std::mt19937_64 random(test::seed());
  const auto byte = [&] { return static_cast<std::uint8_t>(random()); };
  constexpr std::array<std::uint8_t, 9> kPrefixes = {0x66, 0x67, 0xf2, 0xf3, 0x64,
                                                     0x65, 0x2e, 0x3e, 0x26};
  constexpr std::array<std::uint8_t, 4> kAddressPrefixes = {0x67, 0x64, 0x65, 0x2e};
  constexpr std::array<std::uint8_t, 5> kVectorOpcodes = {0x11, 0x29, 0x2b, 0x7f, 0xe7};
  std::size_t agreed = 0;
  for (int round = 0; round < 300'000; ++round) {
    std::vector<std::uint8_t> code;
    const auto shape = random() % 4;
    for (auto count = random() % 4; count != 0; --count) {
      code.push_back(shape < 2 ? kPrefixes[random() % kPrefixes.size()]
                               : kAddressPrefixes[random() % kAddressPrefixes.size()]);
    }
    if (shape < 2) {
      if (random() % 2 != 0) code.push_back(0x40 | (byte() & 15));
      code.push_back(0x0f);
      if (shape == 0) {
        code.insert(code.end(), {0x38, 0xf8});
      } else if (random() % 2 != 0) {
        code.push_back(0xae);
      } else {
        code.push_back(kVectorOpcodes[random() % kVectorOpcodes.size()]);
      }
    } else if (shape == 2) {
      code.insert(code.end(), {0xc4, static_cast<std::uint8_t>((byte() & 0xe0) | 1), byte()});
      code.push_back(kVectorOpcodes[random() % kVectorOpcodes.size()]);
    } else {
      code.insert(code.end(), {0x62, static_cast<std::uint8_t>((byte() & 0xf0) | 1),
                               static_cast<std::uint8_t>(byte() | 0x7c),
                               static_cast<std::uint8_t>((byte() & 0x60) | 8)});
      code.push_back(kVectorOpcodes[random() % kVectorOpcodes.size()]);
    }
    for (int i = 0; i < 7; ++i) code.push_back(byte());
    code.resize(std::min(code.size(), kInstructionBytesMax));

    auto ours = decode(code);
    if (!ours) continue;
    const auto theirs = by_zydis(decoder, code);
    std::string bytes;
    for (const std::uint8_t one : code) bytes += std::to_string(one) + " ";
    ASSERT_TRUE(theirs.has_value()) << bytes;
    if (ours->kind >= Kind::umonitor && ours->kind <= Kind::tpause) {
      ours->address_32 = false;
      ours->memory = {};
    }
    // Zydis 4.0 decodes R13 for REX.B with a SIB byte without base; the CPU (tested with LEA) does
    // not.
    if (ours->memory.base == kNone && theirs->memory.base == 13) continue;
    ASSERT_EQ(show(*ours), show(*theirs)) << bytes;
    ++agreed;
  }
  EXPECT_GT(agreed, 50'000U);
}

}  // namespace
}  // namespace headrace::emu
