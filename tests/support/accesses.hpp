// SPDX-License-Identifier: Apache-2.0
// Records every memory access of a call, and counts its system calls and allocations, by single
// steps (trap flag TF): the instruction is decoded and the addresses of its memory operands are
// computed before it runs. Takes some microseconds per instruction. Not for: accesses of the
// kernel, and programs under a debugger.
#pragma once

#include <Zydis/Zydis.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#include <array>
#include <cstdint>
#include <vector>

#include "headrace/base/check.hpp"

namespace headrace::test {

struct Access {
  std::uintptr_t address;
  std::uint32_t byte_count;
  bool write;
  std::uintptr_t code;  ///< Of the instruction.
};

/// Threading: owned; one per thread at a time.
class AccessRecorder {
 public:
  AccessRecorder() {
    accesses_.reserve(kCountMax);
    HEADRACE_CHECK(
        ZYAN_SUCCESS(ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)),
        "Zydis decodes 64-bit code");
    struct sigaction action{};
    action.sa_sigaction = &step;
    action.sa_flags = SA_SIGINFO;
    HEADRACE_CHECK(::sigaction(SIGTRAP, &action, nullptr) == 0, "SIGTRAP can be handled");
  }
  AccessRecorder(const AccessRecorder&) = delete;
  AccessRecorder& operator=(const AccessRecorder&) = delete;

  /// The accesses of `call()`.
  template <typename Call>
  [[nodiscard]] const std::vector<Access>& record(const Call& call) {
    accesses_.clear();
    system_call_count_ = 0;
    allocation_count_ = 0;
    locked_count_ = 0;
    ends_ = false;
    current_ = this;
    // Skips the red zone, which the compiler may be using.
    asm volatile(
        "lea -128(%%rsp), %%rsp\n\t"
        "pushfq\n\t"
        "orq $0x100, (%%rsp)\n\t"
        "popfq\n\t"
        "lea 128(%%rsp), %%rsp" ::
            : "memory", "cc");
    call();
    *const_cast<volatile bool*>(&ends_) = true;
    asm volatile("nop" ::: "memory");
    HEADRACE_CHECK(accesses_.size() < kCountMax, "a call is short");
    return accesses_;
  }
  /// Of the last call.
  [[nodiscard]] std::size_t system_call_count() const { return system_call_count_; }
  [[nodiscard]] std::size_t allocation_count() const { return allocation_count_; }
  /// Instructions with a LOCK prefix; XCHG with memory, which locks without one, among them.
  [[nodiscard]] std::size_t locked_count() const { return locked_count_; }

 private:
  static constexpr std::size_t kCountMax = 1U << 19U;

  static void step(int, siginfo_t*, void* context) {
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    AccessRecorder& mine = *current_;
    if (mine.ends_) {
      registers[REG_EFL] &= ~greg_t{0x100};
      return;
    }
    mine.note(registers);
  }
  static std::uint64_t value_of(ZydisRegister reg, const gregset_t& registers,
                                std::uint64_t next_code) {
    constexpr std::array kOrder{REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                REG_R12, REG_R13, REG_R14, REG_R15};
    if (reg == ZYDIS_REGISTER_NONE) return 0;
    if (reg == ZYDIS_REGISTER_RIP) return next_code;
    const ZyanI8 number =
        ZydisRegisterGetId(ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg));
    return static_cast<std::uint64_t>(registers[kOrder[static_cast<std::size_t>(number)]]);
  }
  void note(const gregset_t& registers) {
    const auto code = static_cast<std::uintptr_t>(registers[REG_RIP]);
    ZydisDecodedInstruction instruction;
    std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder_, reinterpret_cast<const void*>(code),
                                             ZYDIS_MAX_INSTRUCTION_LENGTH, &instruction,
                                             operands.data()))) {
      return;
    }
    if (instruction.mnemonic == ZYDIS_MNEMONIC_SYSCALL) ++system_call_count_;
    if (code == malloc_) ++allocation_count_;
    const bool exchanges = instruction.mnemonic == ZYDIS_MNEMONIC_XCHG &&
                           (operands[0].type == ZYDIS_OPERAND_TYPE_MEMORY ||
                            operands[1].type == ZYDIS_OPERAND_TYPE_MEMORY);
    if (exchanges || (instruction.attributes & ZYDIS_ATTRIB_HAS_LOCK) != 0) ++locked_count_;
    for (std::size_t i = 0; i < instruction.operand_count; ++i) {
      const ZydisDecodedOperand& operand = operands[i];
      if (operand.type != ZYDIS_OPERAND_TYPE_MEMORY) continue;
      if (operand.mem.type != ZYDIS_MEMOP_TYPE_MEM) continue;
      std::uint64_t address = value_of(operand.mem.base, registers, code + instruction.length) +
                              value_of(operand.mem.index, registers, 0) * operand.mem.scale +
                              static_cast<std::uint64_t>(operand.mem.disp.value);
      // glibc: the thread's descriptor begins at the base of FS.
      if (operand.mem.segment == ZYDIS_REGISTER_FS) address += ::pthread_self();
      if (accesses_.size() == kCountMax) return;
      accesses_.push_back({address, operand.size / 8U,
                           (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0, code});
    }
  }

  static inline constinit thread_local AccessRecorder* current_ = nullptr;

  ZydisDecoder decoder_;
  std::vector<Access> accesses_;
  std::size_t system_call_count_ = 0;
  std::size_t allocation_count_ = 0;
  std::size_t locked_count_ = 0;
  const std::uintptr_t malloc_ = reinterpret_cast<std::uintptr_t>(::dlsym(RTLD_DEFAULT, "malloc"));
  bool ends_ = false;
};

}  // namespace headrace::test
