// SPDX-License-Identifier: Apache-2.0
// Whether a descriptor may run: checks opcode, flags, reserved fields, record, sizes, alignment,
// overlap, in this order; the first error gives the status.
#include "emu/operation/operation.hpp"
#include "emu/operation/rules.hpp"

namespace headrace::emu {
namespace {

using dsa::Descriptor;
using dsa::Opcode;
using dsa::Status;

bool is_dif(Opcode opcode) {
  return opcode >= Opcode::dif_check && opcode <= Opcode::dif_update;
}

bool is_allowed(Opcode opcode, const Limits& limits, Origin origin) {
  if (!rules::is_known(opcode) || !rules::permits(limits, opcode)) return false;
  // No nested batches; the kernel's write path accepts no batch. [T] [S]
  if (origin == Origin::batch) return opcode != Opcode::batch && opcode != Opcode::drain;
  return origin != Origin::kernel_write || opcode != Opcode::batch;
}

std::uint32_t bad_flags(const Descriptor& descriptor, const Limits& limits) {
  const std::uint32_t flags = descriptor.flags;
  std::uint32_t bad = flags & ~rules::allowed_flags(static_cast<Opcode>(descriptor.opcode), limits);
  // Requesting a record requires an address. [I]
  if ((flags & dsa::flag::request_record) != 0 && (flags & dsa::flag::record_address_valid) == 0) {
    bad |= dsa::flag::request_record;
  }
  return bad;
}

bool any(const std::uint8_t* bytes, std::size_t byte_count) {
  std::uint8_t all = 0;
  for (std::size_t index = 0; index < byte_count; ++index) all |= bytes[index];
  return all != 0;
}

// Named fields without a meaning. [S] <linux/idxd.h>
bool has_reserved_bits(const Descriptor& descriptor) {
  if (descriptor.rsvd != 0 || descriptor.rsvd1 != 0) return true;
  switch (static_cast<Opcode>(descriptor.opcode)) {
    case Opcode::create_delta:
      return descriptor.delt_rsvd != 0;
    case Opcode::crc:
    case Opcode::copy_crc:
      return descriptor.crc_rsvd != 0;
    case Opcode::dif_check:
    case Opcode::dif_strip:
      return descriptor.dif_chk_res != 0 ||
             (descriptor.dif_chk_flags & rules::kDifFlagsReserved) != 0 ||
             any(descriptor.dif_chk_res2, sizeof descriptor.dif_chk_res2);
    case Opcode::dif_insert:
      return descriptor.dif_ins_res != 0 ||
             (descriptor.dest_dif_flag & rules::kDifTargetReserved) != 0 ||
             (descriptor.dif_ins_flags & rules::kDifFlagsReserved) != 0 ||
             any(descriptor.dif_ins_res2, sizeof descriptor.dif_ins_res2);
    case Opcode::dif_update:
      return (descriptor.upd_dest_flags & rules::kDifTargetReserved) != 0 ||
             (descriptor.dif_upd_flags & rules::kDifFlagsReserved) != 0 ||
             any(descriptor.dif_upd_res, sizeof descriptor.dif_upd_res);
    default:
      return false;
  }
}

Status check_batch(const Descriptor& descriptor, const Limits& limits) {
  if (descriptor.desc_count < rules::kBatchMin || descriptor.desc_count > limits.batch_max) {
    return Status::bad_descriptor_count;
  }
  return descriptor.desc_list_addr % rules::kListAlignment != 0 ? Status::descriptor_list_misaligned
                                                                : Status::success;
}

Status check_transfer(const Descriptor& descriptor, const Limits& limits) {
  const auto opcode = static_cast<Opcode>(descriptor.opcode);
  const std::uint32_t byte_count = descriptor.xfer_size;
  bool good = byte_count > 0 && byte_count <= limits.transfer_bytes_max;
  if (opcode == Opcode::create_delta || opcode == Opcode::apply_delta) {
    good =
        good && byte_count <= rules::kDeltaTransferMax && byte_count % rules::kDeltaUnitBytes == 0;
  }
  if (is_dif(opcode)) {
    const std::uint32_t field = opcode == Opcode::dif_insert ? 0 : rules::kDifBytes;
    good = good && byte_count % (rules::dif_block_bytes(descriptor) + field) == 0;
  }
  return good ? Status::success : Status::bad_transfer_size;
}

bool is_misaligned(Address address, Address alignment) {
  return address % alignment != 0;
}

Status refused_if(bool overlap) {
  return overlap ? Status::buffers_overlap : Status::success;
}

Status check_delta(const Descriptor& descriptor) {
  const std::uint32_t bytes = descriptor.xfer_size;
  const Address source = descriptor.src_addr;
  const Address target = descriptor.dst_addr;  // Or the second source.
  constexpr Address kAlignment = rules::kDeltaAlignment;
  if (static_cast<Opcode>(descriptor.opcode) == Opcode::apply_delta) {
    if (!rules::is_delta_size(descriptor.delta_rec_size)) return Status::bad_delta_size;
    if (is_misaligned(source, kAlignment) || is_misaligned(target, kAlignment)) {
      return Status::address_misaligned;
    }
    return refused_if(rules::overlap(source, descriptor.delta_rec_size, target, bytes));
  }
  const Address record = descriptor.delta_addr;
  const std::uint32_t record_bytes = descriptor.max_delta_size;
  if (record_bytes < rules::kDeltaRecordMin) return Status::bad_delta_size;
  if (is_misaligned(source, kAlignment) || is_misaligned(target, kAlignment) ||
      is_misaligned(record, kAlignment)) {
    return Status::address_misaligned;
  }
  return refused_if(rules::overlap(record, record_bytes, source, bytes) ||
                    rules::overlap(record, record_bytes, target, bytes));
}

Status check_dualcast(const Descriptor& descriptor) {
  const std::uint32_t bytes = descriptor.xfer_size;
  if (!rules::are_aligned_alike(descriptor.dst_addr, descriptor.dest2)) {
    return Status::dualcast_misaligned;
  }
  return refused_if(rules::overlap(descriptor.src_addr, bytes, descriptor.dst_addr, bytes) ||
                    rules::overlap(descriptor.src_addr, bytes, descriptor.dest2, bytes) ||
                    rules::overlap(descriptor.dst_addr, bytes, descriptor.dest2, bytes));
}

Status check_apart(const Descriptor& descriptor, std::uint64_t target_bytes) {
  return refused_if(
      rules::overlap(descriptor.src_addr, descriptor.xfer_size, descriptor.dst_addr, target_bytes));
}

Status check_operands(const Descriptor& descriptor) {
  const std::uint64_t bytes = descriptor.xfer_size;
  const std::uint64_t block = rules::dif_block_bytes(descriptor);
  switch (static_cast<Opcode>(descriptor.opcode)) {
    case Opcode::create_delta:
    case Opcode::apply_delta:
      return check_delta(descriptor);
    case Opcode::dualcast:
      return check_dualcast(descriptor);
    case Opcode::crc:
    case Opcode::copy_crc:
      if ((descriptor.flags & rules::kFlagReadSeed) != 0 &&
          is_misaligned(descriptor.seed_addr, rules::kSeedAlignment)) {
        return Status::address_misaligned;
      }
      return static_cast<Opcode>(descriptor.opcode) == Opcode::crc ? Status::success
                                                                   : check_apart(descriptor, bytes);
    case Opcode::dif_insert:
      return check_apart(descriptor, bytes / block * (block + rules::kDifBytes));
    case Opcode::dif_strip:
      return check_apart(descriptor, bytes / (block + rules::kDifBytes) * block);
    case Opcode::dif_update:
      return check_apart(descriptor, bytes);
    default:
      return Status::success;
  }
}

Status check(const Descriptor& descriptor, const Limits& limits, Origin origin) {
  const auto opcode = static_cast<Opcode>(descriptor.opcode);
  if (!is_allowed(opcode, limits, origin)) return Status::bad_opcode;
  if (bad_flags(descriptor, limits) != 0) return Status::bad_flags;
  if (has_reserved_bits(descriptor)) return Status::reserved_not_zero;
  if ((descriptor.flags & dsa::flag::record_address_valid) != 0 &&
      is_misaligned(descriptor.completion_addr, rules::kRecordAlignment)) {
    return Status::record_misaligned;
  }
  if (opcode == Opcode::noop || opcode == Opcode::drain) return Status::success;
  if (opcode == Opcode::batch) return check_batch(descriptor, limits);
  const Status transfer = check_transfer(descriptor, limits);
  return transfer != Status::success ? transfer : check_operands(descriptor);
}

}  // namespace

std::optional<dsa::CompletionRecord> refuse(const dsa::Descriptor& descriptor, const Limits& limits,
                                            Origin origin) {
  const Status status = check(descriptor, limits, origin);
  if (status == Status::success) return std::nullopt;
  dsa::CompletionRecord record{};
  record.status = static_cast<std::uint8_t>(status);
  if (status == Status::bad_flags) {
    record.invalid_flags = bad_flags(descriptor, limits) & 0xffffffU;
  }
  return record;
}

}  // namespace headrace::emu
