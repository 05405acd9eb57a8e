// SPDX-License-Identifier: Apache-2.0
// Whether a descriptor may run at all, before anything is touched.
#include "emu/operation/operation.hpp"
#include "emu/operation/rules.hpp"

namespace headrace::emu {
namespace {

dsa::CompletionRecord refusal(dsa::Status status) {
  dsa::CompletionRecord record{};
  record.status = static_cast<std::uint8_t>(status);
  return record;
}

}  // namespace

std::optional<dsa::CompletionRecord> refuse(const dsa::Descriptor& descriptor, const Limits& limits,
                                            Origin origin) {
  const auto opcode = static_cast<dsa::Opcode>(descriptor.opcode);
  if (descriptor.opcode >= 64 || (limits.opcodes_low >> descriptor.opcode & 1) == 0) {
    return refusal(dsa::Status::bad_opcode);
  }
  const bool list = opcode == dsa::Opcode::batch || opcode == dsa::Opcode::drain;
  if (list && origin == Origin::batch) return refusal(dsa::Status::bad_opcode);
  if (opcode == dsa::Opcode::move &&
      (descriptor.xfer_size == 0 || descriptor.xfer_size > limits.transfer_bytes_max)) {
    return refusal(dsa::Status::bad_transfer_size);
  }
  return std::nullopt;
}

}  // namespace headrace::emu
