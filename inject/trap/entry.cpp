// SPDX-License-Identifier: Apache-2.0
#include "inject/trap/entry.hpp"

#include "inject/trap/process.hpp"
#include "inject/trap/signals.hpp"
#include "inject/trap/trap.hpp"

// Registers need no saving: the kernel's frame holds the program's, and a handler's initial
// registers are unspecified. rbx, rbp, r12-r15 survive calls.
asm(R"(
  .pushsection .text
  .balign 16
  .hidden headrace_trap_entry
  .globl headrace_trap_entry
  .type headrace_trap_entry, @function
headrace_trap_entry:
  movq %rsi, %rbp
  movq %rdx, %r12
  movq %rsp, %r13
  subq $8, %rsp
  movq %r13, %rdi
  call headrace_trap_take_stack
  movq %rax, %r14
  testq %rax, %rax
  je 1f
  movq %rax, %rsp
1:
  movq %rbp, %rdi
  movq %r12, %rsi
  call headrace_trap_on_signal
  movq %rax, %r15
  movq %rdx, %rbx
  movq %r13, %rsp
  subq $8, %rsp
  testq %r14, %r14
  je 2f
  movq %r14, %rdi
  call headrace_trap_give_back_stack
2:
  addq $8, %rsp
  testq %r15, %r15
  jne 3f
  ret
3:
  # The program's handler: its mask, then the arguments that the kernel gave.
  pushq %rbx
  movl $14, %eax
  movl $2, %edi
  movq %rsp, %rsi
  xorl %edx, %edx
  movl $8, %r10d
  syscall
  popq %rbx
  movl (%rbp), %edi
  movq %rbp, %rsi
  movq %r12, %rdx
  xorl %eax, %eax
  jmp *%r15
  .size headrace_trap_entry, . - headrace_trap_entry

  .balign 16
  .hidden headrace_trap_restorer
  .globl headrace_trap_restorer
  .type headrace_trap_restorer, @function
  nop
headrace_trap_restorer:
  movq $15, %rax
  syscall
  .size headrace_trap_restorer, . - headrace_trap_restorer
  .popsection
)");

extern "C" {
[[gnu::visibility("hidden"), gnu::used]] std::uint64_t headrace_trap_take_stack(
    std::uint64_t stack_pointer) {
  return headrace::emu::process().stacks.take(stack_pointer);
}
[[gnu::visibility("hidden"), gnu::used]] void headrace_trap_give_back_stack(std::uint64_t top) {
  headrace::emu::process().stacks.give_back(top);
}
}

// Returned in RAX and RDX. Named with an asm label only: C has no such type.
[[gnu::visibility("hidden"), gnu::used]] headrace::emu::Onward on_signal_from_entry(
    siginfo_t* info, ucontext_t* context) asm("headrace_trap_on_signal");
headrace::emu::Onward on_signal_from_entry(siginfo_t* info, ucontext_t* context) {
  return headrace::emu::on_signal(*info, *context);
}
