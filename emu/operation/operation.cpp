// SPDX-License-Identifier: Apache-2.0
// Common to all operations: dispatch, completion, record.
#include "emu/operation/operation.hpp"

#include <algorithm>
#include <cstddef>

#include "emu/operation/rules.hpp"

namespace headrace::emu {

using dsa::Opcode;

static_assert(offsetof(dsa::Descriptor, src_ref_tag_seed) ==
                  offsetof(dsa::Descriptor, chk_ref_tag_seed) &&
              offsetof(dsa::Descriptor, dest_ref_tag_seed) ==
                  offsetof(dsa::Descriptor, ins_ref_tag_seed));
static_assert(offsetof(dsa::CompletionRecord, dif_upd_src_ref_tag) ==
                  offsetof(dsa::CompletionRecord, dif_chk_ref_tag) &&
              offsetof(dsa::CompletionRecord, dif_upd_dest_ref_tag) ==
                  offsetof(dsa::CompletionRecord, dif_ins_ref_tag));

// Scratch is left uninitialised: clearing 8 KiB would cost more than many operations.
// NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init)
Operation::Operation(const dsa::Descriptor& descriptor, const Limits& limits)
    : descriptor_(descriptor), block_on_fault_(rules::blocks_on_fault(descriptor, limits)) {
  downwards_ = opcode() == Opcode::move && rules::moves_downwards(descriptor);
  // At the same offsets for all four; other operations do not use them.
  source_tags_ = {descriptor.src_ref_tag_seed, descriptor.src_app_tag_seed,
                  descriptor.src_app_tag_mask};
  target_tags_ = {descriptor.dest_ref_tag_seed, descriptor.dest_app_tag_seed,
                  descriptor.dest_app_tag_mask};
}

Opcode Operation::opcode() const {
  return static_cast<Opcode>(descriptor_.opcode);
}

PageFaults Operation::faults() const {
  return block_on_fault_ ? PageFaults::resolve : PageFaults::report;
}

PageFaults Operation::faults(Memory& memory, Address first, std::size_t byte_count) {
  if (block_on_fault_) return PageFaults::resolve;
  for (const Window& window : windows_) {
    const bool begins = first >= window.begin && first < window.end;
    if (begins && byte_count <= window.end - first) return PageFaults::resolve;
  }
  // Roughly up to the end of the transfer: beyond it there may be no memory.
  const std::size_t ahead = std::max(byte_count, std::min(left(), kWindowBytes));
  const std::size_t known = memory.present(first, ahead);
  if (known < byte_count) return PageFaults::report;
  windows_[next_window_++ % windows_.size()] = {first, first + known};
  return PageFaults::resolve;
}

std::uint64_t Operation::bytes_total() const {
  if (opcode() == Opcode::noop) return 0;
  // Applying a delta reads the whole record, whatever the size of the target.
  return opcode() == Opcode::apply_delta ? descriptor_.delta_rec_size : descriptor_.xfer_size;
}

std::size_t Operation::left() const {
  return bytes_total() - done_;
}

bool Operation::advance(Memory& memory, std::size_t byte_count_max) {
  if (opcode() == Opcode::noop) return succeed();
  const std::uint64_t end = done_ + std::max<std::uint64_t>(byte_count_max, 1);
  while (done_ < end) {
    if (piece(memory, end - done_)) return true;
  }
  return false;
}

bool Operation::piece(Memory& memory, std::size_t byte_count_max) {
  switch (opcode()) {
    case Opcode::move:
      return move_piece(memory, byte_count_max);
    case Opcode::fill:
      return fill_piece(memory, byte_count_max);
    case Opcode::compare:
      return compare_piece(memory, byte_count_max);
    case Opcode::compare_pattern:
      return compare_pattern_piece(memory, byte_count_max);
    case Opcode::create_delta:
      return create_delta_piece(memory, byte_count_max);
    case Opcode::apply_delta:
      return apply_delta_piece(memory, byte_count_max);
    case Opcode::dualcast:
      return dualcast_piece(memory, byte_count_max);
    case Opcode::crc:
    case Opcode::copy_crc:
      return crc_piece(memory, byte_count_max);
    case Opcode::dif_check:
    case Opcode::dif_insert:
    case Opcode::dif_strip:
    case Opcode::dif_update:
      return dif_piece(memory);
    case Opcode::cache_flush:
      return flush_piece(memory, byte_count_max);
    case Opcode::noop:
    case Opcode::batch:
    case Opcode::drain:
      break;
  }
  return fail(dsa::Status::bad_opcode);
}

Reach Operation::read(Memory& memory, std::span<std::byte> into, Address source) {
  const Reach reach = memory.read(into, source, faults(memory, source, into.size()));
  bytes_read_ += reach.byte_count;
  return reach;
}

Reach Operation::write(Memory& memory, Address target, std::span<const std::byte> from) {
  const Reach reach = memory.write(target, from, faults(memory, target, from.size()));
  bytes_written_ += reach.byte_count;
  return reach;
}

bool Operation::end_piece(std::initializer_list<std::optional<Fault>> faults, std::uint8_t result) {
  for (const std::optional<Fault>& fault : faults) {
    if (fault) return fail(*fault);
  }
  return left() == 0 && succeed(result);
}

bool Operation::succeed(std::uint8_t result) {
  const bool expected = rules::is_expected(descriptor_, result);
  record_.status =
      static_cast<std::uint8_t>(expected ? dsa::Status::success : dsa::Status::success_unexpected);
  record_.result = result;
  // Zero stands for everything; a comparison reports how far it had to read. [T]
  record_.bytes_completed = left() == 0 ? 0 : static_cast<std::uint32_t>(done_);
  write_values();
  return true;
}

bool Operation::fail(const Fault& fault) {
  end_with_fault(fault);
  return true;
}

bool Operation::fail(dsa::Status status) {
  end_with_status(static_cast<std::uint8_t>(status));
  return true;
}

void Operation::end_with_fault(const Fault& fault) {
  record_.fault_addr = rules::reported_address(fault.address);
  end_with_status(rules::fault_status(block_on_fault_, fault.write));
}

void Operation::end_with_status(std::uint8_t raw_status) {
  record_.status = raw_status;
  write_progress();
  write_values();
}

void Operation::write_progress() {
  if (rules::begins_again(opcode())) {
    delta_bytes_ = 0;
    return;
  }
  switch (opcode()) {
    case Opcode::move:
      record_.result = downwards_ ? rules::kResultDownwards : 0;
      record_.bytes_completed = static_cast<std::uint32_t>(done_);
      break;
    case Opcode::fill: {
      const bool wide = (descriptor_.flags & rules::kFlagLongPattern) != 0;
      record_.bytes_completed = rules::resumable(done_, wide ? 16 : 8);
      break;
    }
    case Opcode::compare_pattern:
      record_.bytes_completed = rules::resumable(done_, 8);
      break;
    default:
      record_.bytes_completed = static_cast<std::uint32_t>(done_);
      break;
  }
}

void Operation::write_values() {
  switch (opcode()) {
    case Opcode::create_delta:
      record_.delta_rec_size = delta_bytes_;
      break;
    case Opcode::crc:
    case Opcode::copy_crc:
      record_.crc_val = crc_value();
      break;
    case Opcode::dif_check:
    case Opcode::dif_insert:
    case Opcode::dif_strip:
    case Opcode::dif_update:
      // At the same offsets for all four.
      if (opcode() != Opcode::dif_insert) {
        record_.dif_upd_src_ref_tag = source_tags_.reference;
        record_.dif_upd_src_app_tag_mask = source_tags_.application_mask;
        record_.dif_upd_src_app_tag = source_tags_.application;
      }
      if (opcode() == Opcode::dif_insert || opcode() == Opcode::dif_update) {
        record_.dif_upd_dest_ref_tag = target_tags_.reference;
        record_.dif_upd_dest_app_tag_mask = target_tags_.application_mask;
        record_.dif_upd_dest_app_tag = target_tags_.application;
      }
      break;
    default:
      break;
  }
}

}  // namespace headrace::emu
