// SPDX-License-Identifier: Apache-2.0
// Sites: program instructions that submit repeatedly. Most hypervisors intercept the invalid-opcode
// exception and reflect it, which makes it several times as expensive as a general protection
// fault, which goes to the kernel directly. So in a virtual machine the first byte of such an
// instruction is replaced by HLT, which is privileged. One byte, so that other threads execute
// either the old instruction or the new one; both trap to our handler.
//
// Written through /proc/self/mem, so no page is ever writable and executable. Only in file-backed
// code that the program cannot write to: elsewhere the program may be about to replace it. Where
// patching fails, the instruction goes on trapping as before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/base/atomic.hpp"

namespace headrace::emu {

/// Lock-free: each slot is one word, so it is consistent for every thread and signal handler. A
/// child of fork inherits it together with the code. Zero-initialised.
///
/// Threading: shared.
class SiteTable {
 public:
  constexpr SiteTable() = default;
  /// Counts an invalid-opcode trap of the submission at `address`, whose bytes begin with
  /// `first_byte`.
  void count(std::uint64_t address, std::uint8_t first_byte) noexcept;
  /// Restores the program's byte in a copy of the code at `address`. True if the site was patched.
  bool restore(std::uint64_t address, std::span<std::uint8_t> code) const noexcept;

 private:
  static constexpr std::size_t kSlotMax = 64;
  /// Address << 16 | trap count << 8 | the program's byte once patched, or 0.
  Atomic<std::uint64_t> slots_[kSlotMax];
};

[[nodiscard]] SiteTable& sites() noexcept;
/// Stops patching the program's code.
void keep_code() noexcept;

}  // namespace headrace::emu
