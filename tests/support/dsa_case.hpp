// SPDX-License-Identifier: Apache-2.0
// A valid descriptor of any opcode with client memory to match, drawn from a seed. All memory that
// the descriptor does not name is inaccessible, so that a stray access shows as a fault.
#pragma once

#include <vector>

#include "headrace/base/random.hpp"
#include "support/client_arena.hpp"
#include "support/dsa_reference.hpp"

namespace headrace::test {

struct DsaCase {
  dsa::Descriptor descriptor{};
  ClientArena arena;
  std::vector<Extent> sources;
  std::vector<Extent> targets;
};

/// Every opcode that an Operation carries out.
[[nodiscard]] std::span<const dsa::Opcode> operation_opcodes();
/// Rounds `byte_count` as the opcode requires; DIF has one to three blocks.
[[nodiscard]] DsaCase make_case(dsa::Opcode opcode, std::uint64_t byte_count, Random& random);
/// The descriptor that resumes `descriptor` after a page fault.
[[nodiscard]] dsa::Descriptor rest_of(const dsa::Descriptor& descriptor,
                                      const dsa::CompletionRecord& record);

}  // namespace headrace::test
