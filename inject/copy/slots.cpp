// SPDX-License-Identifier: Apache-2.0
#include "inject/copy/slots.hpp"

// Tests that link the functions give them other names (tests/preload/inside.hpp).
#ifndef HEADRACE_SLOT_PREFIX
#define HEADRACE_SLOT_PREFIX ""
#endif

// One unwind rule for all: generated code never moves the stack pointer.
asm(R"(
  .macro slot name, bytes
  .globl )" HEADRACE_SLOT_PREFIX R"(\name
  .type )" HEADRACE_SLOT_PREFIX R"(\name, @function
)" HEADRACE_SLOT_PREFIX R"(\name:
  .hidden headrace_slot_\name
  .globl headrace_slot_\name
headrace_slot_\name:
  jmp headrace_initial_\name
  .balign \bytes, 0xcc
  .size )" HEADRACE_SLOT_PREFIX R"(\name, \bytes
  .endm

  .pushsection .text.headrace_slots,"ax",@progbits
  .hidden headrace_slots
  .hidden headrace_initial_memcpy
  .hidden headrace_initial_memmove
  .hidden headrace_initial_memset
  .hidden headrace_initial_memcmp
  .globl headrace_slots
  .balign 4096
headrace_slots:
  .cfi_startproc
  slot memcpy, 8192
  slot memmove, 8192
  slot memset, 2048
  slot memcmp, 2048
  .cfi_endproc
  .globl )" HEADRACE_SLOT_PREFIX R"(bcmp
  .type )" HEADRACE_SLOT_PREFIX R"(bcmp, @function
  .set )" HEADRACE_SLOT_PREFIX R"(bcmp, )" HEADRACE_SLOT_PREFIX R"(memcmp
  .popsection
)");

namespace headrace::preload {

static_assert(kMoveSlotBytes == 8192 && kOtherSlotBytes == 2048 && kSlotsBytes % 4096 == 0);

}  // namespace headrace::preload
