// SPDX-License-Identifier: Apache-2.0
#include "inject/trap/frame.hpp"

#include <asm/prctl.h>
#include <asm/sigcontext.h>
#include <cpuid.h>

#include "headrace/base/atomic.hpp"
#include "inject/kernel.hpp"

namespace headrace::emu {
namespace {

constexpr std::uint64_t kCarry = 1U << 0;
constexpr std::uint64_t kParity = 1U << 2;
constexpr std::uint64_t kAdjust = 1U << 4;
constexpr std::uint64_t kZero = 1U << 6;
constexpr std::uint64_t kSign = 1U << 7;
constexpr std::uint64_t kDirection = 1U << 10;
constexpr std::uint64_t kOverflow = 1U << 11;

/// Where the kernel saves general register n.
constexpr int kSaved[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                            REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

/// Components of the XSAVE area that hold vectors.
constexpr unsigned kSse = 1;
constexpr unsigned kUpperYmm = 2;         // Bytes 16..31 of 0..15.
constexpr unsigned kUpperZmm = 6;         // Bytes 32..63 of 0..15.
constexpr unsigned kHigherRegisters = 7;  // All of 16..31.
constexpr std::size_t kXmmOffset = 160;   // In the FXSAVE area.
constexpr std::size_t kHeaderOffset = 512;

/// Offset of a component in the XSAVE area, in the format of signal frames. Cached, because CPUID
/// exits to the hypervisor in a virtual machine.
std::size_t component_offset(unsigned component) {
  static constinit Atomic<std::uint32_t> known[8];
  // relaxed: every thread finds the same number.
  const std::uint32_t kept = known[component].load_relaxed();
  if (kept != 0) return kept;
  unsigned bytes = 0;
  unsigned offset = 0;
  unsigned flags = 0;
  unsigned unused = 0;
  __cpuid_count(0xd, component, bytes, offset, flags, unused);
  known[component].store_relaxed(offset);  // relaxed: as above.
  return offset;
}

std::uint64_t segment_base(Segment segment) {
  std::uint64_t base = 0;
  if (segment != Segment::flat) {
    // The handler runs with the interrupted code's segment bases.
    kernel::call(__NR_arch_prctl, segment == Segment::fs ? ARCH_GET_FS : ARCH_GET_GS,
                 kernel::as_argument(&base));
  }
  return base;
}

void copy_or_clear(const std::byte* from, bool present, std::span<std::byte> into) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = present ? from[i] : std::byte{0};
}

}  // namespace

std::uint64_t Frame::instruction_pointer() const {
  return static_cast<std::uint64_t>(context_->uc_mcontext.gregs[REG_RIP]);
}

void Frame::skip(const Instruction& instruction) {
  context_->uc_mcontext.gregs[REG_RIP] += instruction.length;
}

std::uint64_t Frame::general(std::uint8_t index) const {
  return static_cast<std::uint64_t>(context_->uc_mcontext.gregs[kSaved[index & 15]]);
}

void Frame::set_general(std::uint8_t index, std::uint64_t value) {
  context_->uc_mcontext.gregs[kSaved[index & 15]] = static_cast<greg_t>(value);
}

void Frame::read_vector(std::uint8_t index, std::span<std::byte> into) const {
  const auto* area = reinterpret_cast<const std::byte*>(context_->uc_mcontext.fpregs);
  const auto& software = *reinterpret_cast<const _fpx_sw_bytes*>(area + 464);
  const bool extended = software.magic1 == FP_XSTATE_MAGIC1;
  // A component whose bit is clear is in its initial state (zero) and was not saved.
  std::uint64_t present = 1U << kSse;
  if (extended) present = *reinterpret_cast<const std::uint64_t*>(area + kHeaderOffset);
  const auto has = [present](unsigned component) { return ((present >> component) & 1) != 0; };

  const auto part = [&into](std::size_t first, std::size_t count) {
    if (into.size() <= first) return std::span<std::byte>();
    return into.subspan(first, into.size() - first < count ? into.size() - first : count);
  };
  if (index >= 16) {
    const std::size_t row = std::size_t{index & 15U} * 64;
    copy_or_clear(area + component_offset(kHigherRegisters) + row, has(kHigherRegisters), into);
    return;
  }
  copy_or_clear(area + kXmmOffset + std::size_t{index} * 16, has(kSse), part(0, 16));
  if (into.size() > 16) {
    copy_or_clear(area + component_offset(kUpperYmm) + std::size_t{index} * 16, has(kUpperYmm),
                  part(16, 16));
  }
  if (into.size() > 32) {
    copy_or_clear(area + component_offset(kUpperZmm) + std::size_t{index} * 32, has(kUpperZmm),
                  part(32, 32));
  }
}

std::uint64_t Frame::address(const Instruction& instruction) const {
  const MemoryOperand& memory = instruction.memory;
  auto address = static_cast<std::uint64_t>(std::int64_t{memory.displacement});
  if (memory.base == kInstructionPointer) {
    address += instruction_pointer() + instruction.length;
  } else if (memory.base != kNoRegister) {
    address += general(memory.base);
  }
  if (memory.index != kNoRegister) address += general(memory.index) * memory.scale;
  if (instruction.address_32) address &= 0xffff'ffffU;
  return address + segment_base(memory.segment);
}

std::uint64_t Frame::address_in(const Instruction& instruction, std::uint8_t index,
                                Segment segment) const {
  std::uint64_t address = general(index);
  if (instruction.address_32) address &= 0xffff'ffffU;
  return address + segment_base(segment);
}

bool Frame::moves_downwards() const {
  return (static_cast<std::uint64_t>(context_->uc_mcontext.gregs[REG_EFL]) & kDirection) != 0;
}

void Frame::set_flags(bool zero, bool carry) {
  auto flags = static_cast<std::uint64_t>(context_->uc_mcontext.gregs[REG_EFL]);
  flags &= ~(kCarry | kParity | kAdjust | kZero | kSign | kOverflow);
  if (zero) flags |= kZero;
  if (carry) flags |= kCarry;
  context_->uc_mcontext.gregs[REG_EFL] = static_cast<greg_t>(flags);
}

}  // namespace headrace::emu
