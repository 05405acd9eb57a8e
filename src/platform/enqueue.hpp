// SPDX-License-Identifier: Apache-2.0
// The two instructions that hand 64 bytes to a device, and the third that must go before them. On a
// processor without them they are undefined: the caller has mapped a portal, and where there is
// a portal there is the instruction, or an emulator that stands in for it.
//
// What they order: nothing. Their 64 bytes are read like any load and written like a
// write-combining store, so SFENCE comes first, which makes earlier stores - the descriptor's
// operands, the cleared completion record - visible before the device can see the descriptor. The
// "memory" clobbers keep the compiler from moving stores across or reading the record early.
#pragma once

#if defined(__x86_64__)

namespace headrace::platform {

/// ENQCMD. True if the queue took the descriptor, false if it says "retry" (ZF). Both addresses are
/// multiples of 64.
[[nodiscard]] inline bool enqueue_command(void* portal, const void* descriptor) noexcept {
  bool retry = false;
  // enqcmd rax, [rdx]; in bytes, for assemblers that do not know it.
  asm volatile(
      "sfence\n\t"
      ".byte 0xf2, 0x0f, 0x38, 0xf8, 0x02"
      : "=@ccz"(retry)
      : "a"(portal), "d"(descriptor)
      : "memory");
  return !retry;
}

/// MOVDIR64B. There is no answer.
inline void move_direct(void* portal, const void* descriptor) noexcept {
  // movdir64b rax, [rdx]
  asm volatile(
      "sfence\n\t"
      ".byte 0x66, 0x0f, 0x38, 0xf8, 0x02"
      :
      : "a"(portal), "d"(descriptor)
      : "memory");
}

}  // namespace headrace::platform

#else

namespace headrace::platform {

// No such device on this architecture, and so no portal.
[[nodiscard]] inline bool enqueue_command(void*, const void*) noexcept {
  return false;
}
inline void move_direct(void*, const void*) noexcept {}

}  // namespace headrace::platform

#endif
