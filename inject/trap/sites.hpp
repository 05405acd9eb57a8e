// SPDX-License-Identifier: Apache-2.0
// Sites: the instructions of the program that submit again and again. A hypervisor mostly takes the
// exception of an unknown instruction for itself and hands it back, which makes it the dearest way
// into the kernel: several times a general protection fault, which goes there directly. So in a
// virtual machine the first byte of such an instruction becomes that of HLT, which no program may
// execute. One byte: other threads execute the former instruction or the new one, never a mixture,
// and both come to our handler.
//
// Written through /proc/self/mem, so no page is ever writable and executable. Only in code that
// came from a file and that the program itself cannot write to: elsewhere the program may be about
// to put other code there. Where it cannot be done, the instruction goes on trapping as it did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/base/atomic.hpp"

namespace headrace::emu {

/// Lock-free: each slot is one word, so that no thread or signal handler ever finds it half done. A
/// child made by fork keeps it, as it keeps the code. Starts as all zero.
///
/// Threading: shared.
class SiteTable {
 public:
  constexpr SiteTable() = default;
  /// The instruction at `address`, whose bytes begin with `first_byte`, has trapped as unknown once
  /// more and was a submission.
  void count(std::uint64_t address, std::uint8_t first_byte) noexcept;
  /// Puts the program's own byte back into a copy of the code at `address`. True if it was ours.
  bool restore(std::uint64_t address, std::span<std::uint8_t> code) const noexcept;

 private:
  static constexpr std::size_t kSlotMax = 64;
  /// Address << 16 | traps counted << 8 | the program's byte once there is ours, or 0.
  Atomic<std::uint64_t> slots_[kSlotMax];
};

[[nodiscard]] SiteTable& sites() noexcept;
/// Changes no more of the program's code from now on.
void keep_code() noexcept;

}  // namespace headrace::emu
