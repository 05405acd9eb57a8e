// SPDX-License-Identifier: Apache-2.0
// Frame: the registers of a thread stopped by a signal, as saved by the kernel, and the addresses
// of an instruction's operands.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "inject/trap/instruction.hpp"

namespace headrace::emu {

/// Threading: owned by the handler.
class Frame {
 public:
  explicit Frame(ucontext_t& context) : context_(&context) {}

  [[nodiscard]] std::uint64_t instruction_pointer() const;
  void skip(const Instruction& instruction);
  /// By register number: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8..R15.
  [[nodiscard]] std::uint64_t general(std::uint8_t index) const;
  void set_general(std::uint8_t index, std::uint64_t value);
  /// The first into.size() bytes of a vector register.
  void read_vector(std::uint8_t index, std::span<std::byte> into) const;
  /// Address of the memory operand.
  [[nodiscard]] std::uint64_t address(const Instruction& instruction) const;
  /// The address in a register, with the instruction's address width and segment.
  [[nodiscard]] std::uint64_t address_in(const Instruction& instruction, std::uint8_t index,
                                         Segment segment) const;
  [[nodiscard]] bool moves_downwards() const;  // DF

  /// Clears OF, SF, ZF, AF, PF and CF, then sets those requested.
  void set_flags(bool zero, bool carry);

  [[nodiscard]] ucontext_t& context() const { return *context_; }

 private:
  ucontext_t* context_;
};

}  // namespace headrace::emu
