// SPDX-License-Identifier: Apache-2.0
// What all operations have in common: the dispatch, the ends, the record.
#include "emu/operation/operation.hpp"

#include <algorithm>

#include "emu/operation/rules.hpp"

namespace headrace::emu {

Operation::Operation(const dsa::Descriptor& descriptor, const Limits& limits)
    : descriptor_(descriptor), block_on_fault_(rules::blocks_on_fault(descriptor, limits)) {
  downwards_ = opcode() == dsa::Opcode::move && rules::moves_downwards(descriptor);
}

dsa::Opcode Operation::opcode() const {
  return static_cast<dsa::Opcode>(descriptor_.opcode);
}

PageFaults Operation::faults() const {
  return block_on_fault_ ? PageFaults::resolve : PageFaults::report;
}

std::uint64_t Operation::bytes_total() const {
  return opcode() == dsa::Opcode::noop ? 0 : descriptor_.xfer_size;
}

bool Operation::advance(Memory& memory, std::size_t byte_count_max) {
  switch (opcode()) {
    case dsa::Opcode::noop:
      return succeed();
    case dsa::Opcode::move:
      return advance_move(memory, byte_count_max);
    default:
      break;
  }
  end_with_status(static_cast<std::uint8_t>(dsa::Status::bad_opcode));
  return true;
}

bool Operation::succeed(std::uint8_t result) {
  record_.status = static_cast<std::uint8_t>(dsa::Status::success);
  record_.result = result;
  return true;
}

bool Operation::fail(const Fault& fault) {
  end_with_fault(fault);
  return true;
}

void Operation::end_with_fault(const Fault& fault) {
  record_.status = rules::fault_status(block_on_fault_, fault.write);
  record_.fault_addr = rules::reported_address(fault.address);
  write_progress();
}

void Operation::end_with_status(std::uint8_t raw_status) {
  record_.status = raw_status;
  write_progress();
}

void Operation::write_progress() {
  record_.bytes_completed = static_cast<std::uint32_t>(done_);
  if (opcode() == dsa::Opcode::move) record_.result = downwards_ ? rules::kResultDownwards : 0;
}

}  // namespace headrace::emu
