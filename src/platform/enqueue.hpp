// SPDX-License-Identifier: Apache-2.0
// ENQCMD and MOVDIR64B, which submit 64 bytes to a device, and the SFENCE before them. Undefined on
// processors without them: the caller has mapped a portal, so the instruction exists or an emulator
// traps it.
//
// They order nothing: their 64 bytes are read like any load and written like a write-combining
// store. So SFENCE comes first, which makes earlier stores (the descriptor's operands, the cleared
// completion record) visible before the device can see the descriptor. The "memory" clobbers keep
// the compiler from moving stores across or reading the record early.
#pragma once

namespace headrace::platform {

/// ENQCMD. True if the queue took the descriptor, false on retry (ZF). Both addresses must be
/// multiples of 64.
[[nodiscard]] inline bool enqueue_command(void* portal, const void* descriptor) noexcept {
  bool retry = false;
  // enqcmd rax, [rdx]; as bytes for assemblers that lack it.
  asm volatile(
      "sfence\n\t"
      ".byte 0xf2, 0x0f, 0x38, 0xf8, 0x02"
      : "=@ccz"(retry)
      : "a"(portal), "d"(descriptor)
      : "memory");
  return !retry;
}

/// MOVDIR64B. Reports no result.
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
