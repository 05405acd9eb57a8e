// SPDX-License-Identifier: Apache-2.0
// The rules of the device, each in one place with its source: [T] seen with real clients, [S]
// published (the architecture, the kernel's driver, clients' sources), [I] inferred from what
// clients check. Constants and predicates; the order in which a descriptor is checked is
// refuse()'s.
#pragma once

#include <cstdint>

#include "emu/operation/memory.hpp"
#include "emu/operation/operation.hpp"
#include "headrace/dsa/descriptor.hpp"

namespace headrace::emu::rules {

/// The flag counts only if the WQ allows it. [I] Hardware refuses it then; here it is ignored,
/// because clients set it without having asked (the trial's did).
[[nodiscard]] constexpr bool blocks_on_fault(const dsa::Descriptor& descriptor,
                                             const Limits& limits) {
  return limits.block_on_fault && (descriptor.flags & dsa::flag::block_on_fault) != 0;
}

/// A page fault without block on fault, or one that blocking could not resolve; | 0x80 on a
/// write. [T]
[[nodiscard]] constexpr std::uint8_t fault_status(bool blocks, bool write) {
  return static_cast<std::uint8_t>((blocks ? DSA_COMP_PAGE_FAULT_IR : DSA_COMP_PAGE_FAULT_NOBOF) |
                                   (write ? DSA_COMP_STATUS_WRITE : 0));
}

/// The record names the page. [T]
[[nodiscard]] constexpr Address reported_address(Address address) {
  return address & ~Address{0xfff};
}

/// A move onto the end of its own source goes from the last byte to the first. [T]
[[nodiscard]] constexpr bool moves_downwards(const dsa::Descriptor& descriptor) {
  return descriptor.dst_addr > descriptor.src_addr &&
         descriptor.dst_addr - descriptor.src_addr < descriptor.xfer_size;
}
/// A stopped one says so in its result byte: bytes_completed then counts from the end, and a client
/// resumes with a smaller transfer at the same addresses. [S] accel-config, test/prep.c
inline constexpr std::uint8_t kResultDownwards = 1;

}  // namespace headrace::emu::rules
