// SPDX-License-Identifier: Apache-2.0
// Frame: the registers of a thread that a signal stopped, as the kernel laid them down, and the
// addresses that an instruction's operands come to there.
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
  /// By its number in an instruction: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8..R15.
  [[nodiscard]] std::uint64_t general(std::uint8_t index) const;
  void set_general(std::uint8_t index, std::uint64_t value);
  /// A vector register's first into.size() bytes.
  void read_vector(std::uint8_t index, std::span<std::byte> into) const;
  /// Address of the memory operand.
  [[nodiscard]] std::uint64_t address(const Instruction& instruction) const;
  /// A register that holds an address, in the width and segment that the instruction has.
  [[nodiscard]] std::uint64_t address_in(const Instruction& instruction, std::uint8_t index,
                                         Segment segment) const;
  [[nodiscard]] bool moves_downwards() const;  // DF

  /// Clears OF, SF, ZF, AF, PF and CF and sets those asked for.
  void set_flags(bool zero, bool carry);

  [[nodiscard]] ucontext_t& context() const { return *context_; }

 private:
  ucontext_t* context_;
};

}  // namespace headrace::emu
