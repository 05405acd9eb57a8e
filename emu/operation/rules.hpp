// SPDX-License-Identifier: Apache-2.0
// The rules of the device, each in one place with its source: [T] observed with real clients, [S]
// published (the architecture, the kernel's driver, clients' sources), [I] inferred from what
// clients check. Constants and predicates only; refuse() has the order of the checks.
//
// Where the sources are unclear, the emulator accepts: source, target and size of a noop or a
// drain, the target of an operation without one, bytes after an opcode's last field, a seed address
// without its flag, a fence outside a batch, steering and traffic class flags. Clients leave values
// in those (dsa_test prepares every descriptor with one function).
#pragma once

#include <array>
#include <cstdint>

#include "emu/operation/memory.hpp"
#include "emu/operation/operation.hpp"
#include "headrace/dsa/descriptor.hpp"

namespace headrace::emu::rules {

using dsa::Descriptor;
using dsa::Opcode;

// --- Opcodes -------------------------------------------------------------------------------------

/// Bit n: opcode n is in DSA 1.0, as in the op_cap register; others get 0x10. [S] <linux/idxd.h>
inline constexpr std::uint64_t kOpcodes = 0x1'003f'03ff;

[[nodiscard]] constexpr bool is_known(Opcode opcode) {
  const auto number = static_cast<unsigned>(opcode);
  return number < 64 && (kOpcodes >> number & 1) != 0;
}
/// The WQ's op_config; an excluded opcode gets 0x10. [S] kernel driver
[[nodiscard]] constexpr bool permits(const Limits& limits, Opcode opcode) {
  return (limits.opcodes_low >> static_cast<unsigned>(opcode) & 1) != 0;
}

// --- Page faults ---------------------------------------------------------------------------------

/// The flag counts only if the WQ allows it. [I] Hardware then refuses the descriptor; here the
/// flag is ignored, because clients set it without checking (the trial's did).
[[nodiscard]] constexpr bool blocks_on_fault(const Descriptor& descriptor, const Limits& limits) {
  return limits.block_on_fault && (descriptor.flags & dsa::flag::block_on_fault) != 0;
}

/// A page fault without block on fault, or one that blocking could not resolve; | 0x80 on a
/// write. [T]
[[nodiscard]] constexpr std::uint8_t fault_status(bool blocks, bool write) {
  return static_cast<std::uint8_t>((blocks ? DSA_COMP_PAGE_FAULT_IR : DSA_COMP_PAGE_FAULT_NOBOF) |
                                   (write ? DSA_COMP_STATUS_WRITE : 0));
}

/// The record reports the page. [T]
[[nodiscard]] constexpr Address reported_address(Address address) {
  return address & ~Address{0xfff};
}

// --- Flags ---------------------------------------------------------------------------------------

// Not in <linux/idxd.h>: bits 16..23 belong to the opcode. [S] accel-config test/dsa.h, DML
// specific_flags.hpp
inline constexpr std::uint32_t kFlagReadSeed = 1U << 16;          ///< crc: the seed is in memory.
inline constexpr std::uint32_t kFlagBypassInversion = 1U << 17;   ///< crc: neither inverted nor
                                                                  ///< reflected seed and result.
inline constexpr std::uint32_t kFlagBypassReflection = 1U << 18;  ///< crc: data not reflected.
/// [I] A pattern of 16 bytes, its upper half in the first 8 bytes after the common fields.
inline constexpr std::uint32_t kFlagLongPattern = 1U << 16;

/// Allowed with every opcode: steering and traffic class have no meaning here. [I]
inline constexpr std::uint32_t kFlagsAlways =
    dsa::flag::fence | dsa::flag::record_address_valid | dsa::flag::request_record |
    dsa::flag::request_interrupt | IDXD_OP_FLAG_CRSTS | IDXD_OP_FLAG_ADDR1_TCS |
    IDXD_OP_FLAG_ADDR2_TCS | IDXD_OP_FLAG_ADDR3_TCS | IDXD_OP_FLAG_CR_TCS;

/// Allowed with opcodes that write. [I] Model: cache control and steering have no effect that a
/// client can see; strict ordering always holds, because an engine writes in order; destination
/// readback always holds, because the target is coherent memory, so a second fault on it cannot be
/// told from the first (status 0x1f never occurs).
inline constexpr std::uint32_t kFlagsOfWriters =
    dsa::flag::cache_control | dsa::flag::strict_ordering | dsa::flag::destination_readback |
    IDXD_OP_FLAG_DSTS;

/// The flags that `opcode` accepts; others get 0x11 with the flag in the record. [T] for block on
/// fault with noop, batch and drain; [S] for the others.
[[nodiscard]] constexpr std::uint32_t allowed_flags(Opcode opcode, const Limits& limits) {
  constexpr std::uint32_t kBlock = dsa::flag::block_on_fault;
  constexpr std::uint32_t kCheck = dsa::flag::check_result;
  constexpr std::uint32_t kCrc = kFlagReadSeed | kFlagBypassInversion | kFlagBypassReflection;
  constexpr std::uint32_t kOpcode0 = 1U << 16;
  constexpr std::uint32_t kOpcode1 = 1U << 17;
  switch (opcode) {
    case Opcode::noop:
    case Opcode::batch:
      return kFlagsAlways;
    // The two readback addresses are ignored: every write has completed when the drain ends.
    case Opcode::drain:
      return kFlagsAlways | kOpcode0 | kOpcode1;
    case Opcode::compare:
    case Opcode::compare_pattern:
      return kFlagsAlways | kBlock | kCheck;
    case Opcode::create_delta:
      return kFlagsAlways | kBlock | kCheck | kFlagsOfWriters;
    case Opcode::fill:
      return kFlagsAlways | kBlock | kFlagsOfWriters | (limits.fill_16 ? kFlagLongPattern : 0);
    case Opcode::dualcast:
      return kFlagsAlways | kBlock | kFlagsOfWriters | kOpcode0;
    case Opcode::crc:
      return kFlagsAlways | kBlock | kCrc;
    case Opcode::copy_crc:
      return kFlagsAlways | kBlock | kCrc | kFlagsOfWriters;
    case Opcode::dif_check:
      return kFlagsAlways | kBlock;
    case Opcode::move:
    case Opcode::apply_delta:
    case Opcode::dif_insert:
    case Opcode::dif_strip:
    case Opcode::dif_update:
      return kFlagsAlways | kBlock | kFlagsOfWriters;
    // GENCAP of the 4th generation reports no cache control for flushes (bit 3).
    case Opcode::cache_flush:
      return kFlagsAlways | kBlock | (kFlagsOfWriters & ~dsa::flag::cache_control);
  }
  return 0;
}

// --- Sizes and alignment -------------------------------------------------------------------------

inline constexpr std::uint32_t kBatchMin = 2;                ///< Else 0x14. [T]
inline constexpr Address kListAlignment = 64;                ///< Else 0x18. [T]
inline constexpr Address kRecordAlignment = 32;              ///< Else 0x1b. [T]
inline constexpr Address kDeltaAlignment = 8;                ///< Else 0x1c. [T]
inline constexpr Address kSeedAlignment = 4;                 ///< Else 0x1c. [S] DML, dmldefs.h
inline constexpr std::uint32_t kDeltaTransferMax = 0x80000;  ///< Source of a delta. [T]
inline constexpr std::uint32_t kDeltaRecordMin = 80;         ///< To create one, else 0x15. [T]
inline constexpr std::uint32_t kDeltaUnitBytes = 8;
inline constexpr std::uint32_t kDeltaEntryBytes = 10;  ///< Offset in units, then the unit. [T]
/// The offsets of a record to apply increase from entry to entry, else 0x07: an equal one does not
/// increase. [S] <linux/idxd.h>, DSA_COMP_DR_OFFSET_NOINC. DML's software path checks no offset and
/// applies such a record; its functional test feeds one (a page of zeros) to both.
[[nodiscard]] constexpr bool offset_increases(std::int32_t last, std::int32_t offset) {
  return offset > last;
}
/// The size of a record to apply is a multiple of an entry, else 0x15. That of a record to create
/// need not be: dsa_test asks for twice the transfer. [T]
[[nodiscard]] constexpr bool is_delta_size(std::uint32_t byte_count) {
  return byte_count > 0 && byte_count % kDeltaEntryBytes == 0;
}
/// The targets of a dualcast agree in bits 11:0, else 0x17. [T]
[[nodiscard]] constexpr bool are_aligned_alike(Address one, Address other) {
  return ((one ^ other) & 0xfff) == 0;
}

/// Overlap is refused (0x16) except for a move. [T]
[[nodiscard]] constexpr bool overlap(Address one, std::uint64_t one_bytes, Address other,
                                     std::uint64_t other_bytes) {
  return one < other ? other - one < one_bytes : one - other < other_bytes;
}

/// The range extends beyond the last address. Its first byte is never accessible, so its end, which
/// would wrap to address 0, must not be accessed first.
[[nodiscard]] constexpr bool wraps(Address first, std::uint64_t byte_count) {
  return byte_count > ~first;
}

/// A move onto the end of its source runs from the last byte to the first. [T]
[[nodiscard]] constexpr bool moves_downwards(const Descriptor& descriptor) {
  return descriptor.dst_addr > descriptor.src_addr &&
         descriptor.dst_addr - descriptor.src_addr < descriptor.xfer_size &&
         !wraps(descriptor.dst_addr, descriptor.xfer_size);
}

// --- Results -------------------------------------------------------------------------------------

/// A stopped move reports its direction in the result byte: downwards, bytes_completed counts from
/// the end, and a client resumes with a smaller transfer at the same addresses. [S] accel-config
/// test/prep.c
inline constexpr std::uint8_t kResultDownwards = 1;

inline constexpr std::uint8_t kResultEqual = 0;      ///< [T]
inline constexpr std::uint8_t kResultDifferent = 1;  ///< [T]
inline constexpr std::uint8_t kResultOverflow = 2;   ///< The delta record was full. [S] DML

/// With check_result an unexpected result is 0x02: compare has one expected result, create delta a
/// bit for each. [T] [S] DML, dmldefs.h
[[nodiscard]] constexpr bool is_expected(const Descriptor& descriptor, std::uint8_t result) {
  if ((descriptor.flags & dsa::flag::check_result) == 0) return true;
  return static_cast<Opcode>(descriptor.opcode) == Opcode::create_delta
             ? (descriptor.expected_res_mask >> result & 1) != 0
             : descriptor.expected_res == result;
}

/// Where a stopped operation can be resumed with operands advanced by bytes_completed: at whole
/// patterns. [I] Repeating the bytes beyond is harmless.
[[nodiscard]] constexpr std::uint32_t resumable(std::uint64_t byte_count, std::uint32_t unit) {
  return static_cast<std::uint32_t>(byte_count - byte_count % unit);
}

/// A stopped delta starts over: bytes_completed, result and record size are 0. [I] Its offsets
/// count from the start of the operands, so operands advanced by bytes_completed would not give the
/// rest; dsa_test does advance them. Repetition is harmless: input and output do not overlap.
[[nodiscard]] constexpr bool begins_again(Opcode opcode) {
  return opcode == Opcode::create_delta || opcode == Opcode::apply_delta;
}

// --- Integrity fields (T10 DIF) ------------------------------------------------------------------

inline constexpr std::uint32_t kDifBytes = 8;  ///< Guard 2, application tag 2, reference tag 4. [T]
inline constexpr std::uint32_t kDifBlockBytesMax = 4104;
/// Selected by bits 1:0 of the flags. [T]
[[nodiscard]] constexpr std::uint32_t dif_block_bytes(const Descriptor& descriptor) {
  constexpr std::array<std::uint32_t, 4> kBlockBytes{512, 520, 4096, kDifBlockBytesMax};
  return kBlockBytes[descriptor.dif_chk_flags & 3U];  // Same offset for all four opcodes.
}
// Flags of the operation. [S] accel-config test/dsa.h
inline constexpr unsigned kDifInvertSeed = 1U << 2;
inline constexpr unsigned kDifInvertResult = 1U << 3;
inline constexpr unsigned kDifFlagsReserved = 0xf0;
// Flags of the source. [S] DML dmldefs.h. A field of all ones marks an unwritten block: the check
// skips it, or reports it as an error.
inline constexpr unsigned kDifAllOnesIsError = 1U << 0;
inline constexpr unsigned kDifDetectAllOnes = 1U << 1;
inline constexpr unsigned kDifDetectAppTag = 1U << 2;
inline constexpr unsigned kDifDetectBothTags = 1U << 3;
inline constexpr unsigned kDifIncrementAppTag = 1U << 4;
inline constexpr unsigned kDifSkipGuard = 1U << 5;
inline constexpr unsigned kDifSkipRefTag = 1U << 6;
inline constexpr unsigned kDifFixedRefTag = 1U << 7;
// Flags of the target, the last two as the source's. [S] DML dmldefs.h
inline constexpr unsigned kDifPassAppTag = 1U << 3;
inline constexpr unsigned kDifPassGuard = 1U << 5;
inline constexpr unsigned kDifPassRefTag = 1U << 6;
inline constexpr unsigned kDifTargetReserved = 0x07;
// Results of a check, in dif_status; all that apply to the block. [S] DML dmldefs.h
inline constexpr unsigned kDifBadGuard = 1U << 0;
inline constexpr unsigned kDifBadAppTag = 1U << 1;
inline constexpr unsigned kDifBadRefTag = 1U << 2;
inline constexpr unsigned kDifAllOnes = 1U << 3;
/// Application tag bits set in the mask are not compared, and written as zero. [S] DML, SPDK
[[nodiscard]] constexpr std::uint16_t masked(std::uint16_t app_tag, std::uint16_t mask) {
  return static_cast<std::uint16_t>(app_tag & ~mask);
}

}  // namespace headrace::emu::rules
