// SPDX-License-Identifier: Apache-2.0
// Descriptors and helpers for the tests of operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "emu/operation/operation.hpp"
#include "headrace/dsa/descriptor.hpp"

namespace headrace::emu::operands {

inline constexpr std::size_t kPageBytes = 4096;
inline constexpr Limits kLimits{
    .transfer_bytes_max = 2U << 20, .batch_max = 32, .block_on_fault = true};

inline Address address_of(const void* place) {
  return reinterpret_cast<Address>(place);
}

inline dsa::Descriptor descriptor_of(dsa::Opcode opcode, Address source, Address target,
                                     std::size_t byte_count) {
  dsa::Descriptor descriptor{};
  descriptor.opcode = static_cast<std::uint8_t>(opcode);
  descriptor.flags = opcode == dsa::Opcode::noop ? 0 : dsa::flag::block_on_fault;
  descriptor.src_addr = source;
  descriptor.dst_addr = target;
  descriptor.xfer_size = static_cast<std::uint32_t>(byte_count);
  return descriptor;
}

inline dsa::CompletionRecord run(const dsa::Descriptor& descriptor, std::size_t slice = 1U << 20,
                                 const Limits& limits = kLimits) {
  Operation operation(descriptor, limits);
  while (!operation.advance(process_memory(), slice)) {
  }
  return operation.record();
}

/// Bytes that look random and are the same in every run.
inline std::vector<std::byte> noise(std::size_t byte_count, std::uint32_t seed = 1) {
  std::vector<std::byte> bytes(byte_count);
  std::uint32_t state = seed * 2654435761U + 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

}  // namespace headrace::emu::operands
