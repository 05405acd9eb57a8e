// SPDX-License-Identifier: Apache-2.0
// The wire format after <linux/idxd.h>, field by field, written independently of the engine's
// conversion: the two must agree.
#include <cstring>

#include "support/operation_case.hpp"

namespace headrace::test {
namespace {

using dsa::Descriptor;
using dsa::Opcode;
using engine::Cause;
using engine::CrcOptions;
using engine::DifBlock;
using engine::DifFormat;
using engine::DifSource;
using engine::DifTags;
using engine::DifTarget;
using engine::Operation;
using engine::OperationKind;

constexpr std::uint32_t kCrcSeedInMemory = 1U << 16U;
constexpr std::uint32_t kCrcRaw = 1U << 17U;
constexpr std::uint32_t kCrcUnreflected = 1U << 18U;
constexpr std::uint32_t kFillLong = 1U << 16U;

Opcode opcode_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::no_op:
      return Opcode::noop;
    case OperationKind::drain:
      return Opcode::drain;
    case OperationKind::copy:
      return Opcode::move;
    case OperationKind::fill:
      return Opcode::fill;
    case OperationKind::compare:
      return Opcode::compare;
    case OperationKind::compare_pattern:
      return Opcode::compare_pattern;
    case OperationKind::create_delta:
      return Opcode::create_delta;
    case OperationKind::apply_delta:
      return Opcode::apply_delta;
    case OperationKind::dualcast:
      return Opcode::dualcast;
    case OperationKind::crc:
      return Opcode::crc;
    case OperationKind::copy_crc:
      return Opcode::copy_crc;
    case OperationKind::dif_check:
      return Opcode::dif_check;
    case OperationKind::dif_insert:
      return Opcode::dif_insert;
    case OperationKind::dif_strip:
      return Opcode::dif_strip;
    case OperationKind::dif_update:
      return Opcode::dif_update;
    case OperationKind::cache_flush:
      return Opcode::cache_flush;
  }
  return Opcode::noop;
}

std::uint64_t address_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<std::uintptr_t>(bytes.data());
}

std::uint8_t format_byte(const DifFormat& format) {
  return static_cast<std::uint8_t>(static_cast<unsigned>(format.block) |
                                   (format.invert_seed ? 4U : 0U) |
                                   (format.invert_guard ? 8U : 0U));
}

std::uint8_t source_byte(const DifSource& check) {
  return static_cast<std::uint8_t>(
      (check.ones_in_field_are_an_error ? 0x01U : 0U) | (check.skip_ones_in_field ? 0x02U : 0U) |
      (check.skip_ones_in_application ? 0x04U : 0U) | (check.skip_ones_in_tags ? 0x08U : 0U) |
      (check.increment_application ? 0x10U : 0U) | (check.check_guard ? 0U : 0x20U) |
      (check.check_reference ? 0U : 0x40U) | (check.fixed_reference ? 0x80U : 0U));
}

/// `updates`: an insertion has no source fields to keep.
std::uint8_t target_byte(const DifTarget& make, bool updates) {
  const unsigned keep = (make.keep_application ? 0x08U : 0U) | (make.keep_guard ? 0x20U : 0U) |
                        (make.keep_reference ? 0x40U : 0U);
  return static_cast<std::uint8_t>((updates ? keep : 0U) |
                                   (make.increment_application ? 0x10U : 0U) |
                                   (make.fixed_reference ? 0x80U : 0U));
}

DifFormat format_of(std::uint8_t byte) {
  return {static_cast<DifBlock>(byte & 3U), (byte & 4U) != 0, (byte & 8U) != 0};
}

DifSource source_of(std::uint8_t byte, const DifTags& tags) {
  return {.tags = tags,
          .check_guard = (byte & 0x20U) == 0,
          .check_reference = (byte & 0x40U) == 0,
          .fixed_reference = (byte & 0x80U) != 0,
          .increment_application = (byte & 0x10U) != 0,
          .skip_ones_in_application = (byte & 0x04U) != 0,
          .skip_ones_in_tags = (byte & 0x08U) != 0,
          .skip_ones_in_field = (byte & 0x02U) != 0,
          .ones_in_field_are_an_error = (byte & 0x01U) != 0};
}

DifTarget target_of(std::uint8_t byte, const DifTags& tags) {
  return {.tags = tags,
          .fixed_reference = (byte & 0x80U) != 0,
          .increment_application = (byte & 0x10U) != 0,
          .keep_guard = (byte & 0x20U) != 0,
          .keep_application = (byte & 0x08U) != 0,
          .keep_reference = (byte & 0x40U) != 0};
}

}  // namespace

Descriptor descriptor_of(const Operation& operation) {
  Descriptor d{};
  d.opcode = static_cast<std::uint8_t>(opcode_of(operation.kind()));
  const auto source_bytes = static_cast<std::uint32_t>(operation.source().size());
  const auto target_bytes = static_cast<std::uint32_t>(operation.target().size());
  const auto source = address_of(operation.source());
  const auto target = address_of(operation.target());
  const auto second = address_of(operation.second_source());
  switch (operation.kind()) {
    case OperationKind::no_op:
    case OperationKind::drain:
      return d;
    case OperationKind::fill:
      d.pattern = operation.pattern()[0];
      d.dst_addr = target;
      d.xfer_size = target_bytes;
      if (operation.pattern_bytes() == 16) {
        d.flags = kFillLong;
        std::memcpy(d.op_specific, &operation.pattern()[1], 8);
      }
      return d;
    case OperationKind::cache_flush:
      d.dst_addr = target;
      d.xfer_size = target_bytes;
      return d;
    case OperationKind::apply_delta:
      d.src_addr = source;
      d.dst_addr = target;
      d.xfer_size = target_bytes;
      d.delta_rec_size = source_bytes;
      return d;
    default:
      break;
  }
  d.src_addr = source;
  d.xfer_size = source_bytes;
  switch (operation.kind()) {
    case OperationKind::compare:
      d.src2_addr = second;
      break;
    case OperationKind::compare_pattern:
      d.comp_pattern = operation.pattern()[0];
      break;
    case OperationKind::create_delta:
      d.src2_addr = second;
      d.delta_addr = target;
      d.max_delta_size = target_bytes;
      break;
    case OperationKind::dualcast:
      d.dst_addr = target;
      d.dest2 = second;
      break;
    case OperationKind::crc:
    case OperationKind::copy_crc: {
      const CrcOptions options = operation.crc_options();
      d.dst_addr = target;
      d.crc_seed = options.seed;
      d.flags = ((options.raw ? kCrcRaw : 0U) | (options.reflect_data ? 0U : kCrcUnreflected)) &
                0xff'ffffU;
      break;
    }
    case OperationKind::dif_check:
    case OperationKind::dif_strip: {
      const DifSource check = operation.dif_source();
      d.dst_addr = target;
      d.src_dif_flags = source_byte(check);
      d.dif_chk_flags = format_byte(operation.dif_format());
      d.chk_ref_tag_seed = check.tags.reference;
      d.chk_app_tag_seed = check.tags.application;
      d.chk_app_tag_mask = check.tags.application_mask;
      break;
    }
    case OperationKind::dif_insert: {
      const DifTarget make = operation.dif_target();
      d.dst_addr = target;
      d.dest_dif_flag = target_byte(make, false);
      d.dif_ins_flags = format_byte(operation.dif_format());
      d.ins_ref_tag_seed = make.tags.reference;
      d.ins_app_tag_seed = make.tags.application;
      d.ins_app_tag_mask = make.tags.application_mask;
      break;
    }
    case OperationKind::dif_update: {
      const DifSource check = operation.dif_source();
      const DifTarget make = operation.dif_target();
      d.dst_addr = target;
      d.src_upd_flags = source_byte(check);
      d.upd_dest_flags = target_byte(make, true);
      d.dif_upd_flags = format_byte(operation.dif_format());
      d.src_ref_tag_seed = check.tags.reference;
      d.src_app_tag_seed = check.tags.application;
      d.src_app_tag_mask = check.tags.application_mask;
      d.dest_ref_tag_seed = make.tags.reference;
      d.dest_app_tag_seed = make.tags.application;
      d.dest_app_tag_mask = make.tags.application_mask;
      break;
    }
    default:
      d.dst_addr = target;
      break;
  }
  return d;
}

Operation operation_of(const Descriptor& d, const std::function<std::byte*(std::uint64_t)>& at) {
  const std::size_t byte_count = d.xfer_size;
  const auto bytes = [&](std::uint64_t address, std::size_t count) {
    return std::span<std::byte>(at(address), count);
  };
  const auto crc_options = [&] {
    CrcOptions options{d.crc_seed, (d.flags & kCrcRaw) != 0, (d.flags & kCrcUnreflected) == 0};
    if ((d.flags & kCrcSeedInMemory) != 0) {
      std::memcpy(&options.seed, at(d.seed_addr), sizeof options.seed);
    }
    return options;
  };
  switch (static_cast<Opcode>(d.opcode)) {
    case Opcode::noop:
    case Opcode::batch:
      break;
    case Opcode::drain:
      return Operation::drain();
    case Opcode::move:
      return Operation::copy(bytes(d.dst_addr, byte_count), bytes(d.src_addr, byte_count));
    case Opcode::fill: {
      if ((d.flags & kFillLong) == 0) {
        return Operation::fill(bytes(d.dst_addr, byte_count), d.pattern);
      }
      std::uint64_t high = 0;
      std::memcpy(&high, d.op_specific, sizeof high);
      return Operation::fill(bytes(d.dst_addr, byte_count), d.pattern, high);
    }
    case Opcode::compare:
      return Operation::compare(bytes(d.src_addr, byte_count), bytes(d.src2_addr, byte_count));
    case Opcode::compare_pattern:
      return Operation::compare_pattern(bytes(d.src_addr, byte_count), d.comp_pattern);
    case Opcode::create_delta:
      return Operation::create_delta(bytes(d.delta_addr, d.max_delta_size),
                                     bytes(d.src_addr, byte_count), bytes(d.src2_addr, byte_count));
    case Opcode::apply_delta:
      return Operation::apply_delta(bytes(d.dst_addr, byte_count),
                                    bytes(d.src_addr, d.delta_rec_size));
    case Opcode::dualcast:
      return Operation::dualcast(bytes(d.dst_addr, byte_count), bytes(d.dest2, byte_count),
                                 bytes(d.src_addr, byte_count));
    case Opcode::crc:
      return Operation::crc(bytes(d.src_addr, byte_count), crc_options());
    case Opcode::copy_crc:
      return Operation::copy_crc(bytes(d.dst_addr, byte_count), bytes(d.src_addr, byte_count),
                                 crc_options());
    case Opcode::dif_check:
    case Opcode::dif_strip: {
      const DifFormat format = format_of(d.dif_chk_flags);
      const DifSource check =
          source_of(d.src_dif_flags, {d.chk_ref_tag_seed, d.chk_app_tag_seed, d.chk_app_tag_mask});
      const std::span<std::byte> source = bytes(d.src_addr, byte_count);
      if (static_cast<Opcode>(d.opcode) == Opcode::dif_check) {
        return Operation::dif_check(source, format, check);
      }
      const std::size_t block = engine::block_bytes(format.block);
      return Operation::dif_strip(bytes(d.dst_addr, byte_count / (block + 8) * block), source,
                                  format, check);
    }
    case Opcode::dif_insert: {
      const DifFormat format = format_of(d.dif_ins_flags);
      const std::size_t block = engine::block_bytes(format.block);
      return Operation::dif_insert(
          bytes(d.dst_addr, byte_count / block * (block + 8)), bytes(d.src_addr, byte_count),
          format,
          target_of(d.dest_dif_flag, {d.ins_ref_tag_seed, d.ins_app_tag_seed, d.ins_app_tag_mask}));
    }
    case Opcode::dif_update:
      return Operation::dif_update(
          bytes(d.dst_addr, byte_count), bytes(d.src_addr, byte_count), format_of(d.dif_upd_flags),
          source_of(d.src_upd_flags, {d.src_ref_tag_seed, d.src_app_tag_seed, d.src_app_tag_mask}),
          target_of(d.upd_dest_flags,
                    {d.dest_ref_tag_seed, d.dest_app_tag_seed, d.dest_app_tag_mask}));
    case Opcode::cache_flush:
      return Operation::cache_flush(bytes(d.dst_addr, byte_count));
  }
  return Operation::no_op();
}

Finding finding_of(OperationKind kind, std::size_t byte_count,
                   const dsa::CompletionRecord& record) {
  Finding finding;
  engine::OperationResult& result = finding.result;
  const dsa::Status status = dsa::status_of(record.status);
  const bool success = status == dsa::Status::success || status == dsa::Status::success_unexpected;
  switch (kind) {
    case OperationKind::compare:
    case OperationKind::compare_pattern:
      result.different = record.result == 1;
      if (result.different) result.difference_offset = record.bytes_completed;
      break;
    case OperationKind::create_delta:
      result.different = record.result != 0;
      result.record_full = record.result == 2;
      result.delta_bytes = record.delta_rec_size;
      break;
    case OperationKind::crc:
    case OperationKind::copy_crc:
      result.crc = static_cast<std::uint32_t>(record.crc_val);
      break;
    case OperationKind::dif_check:
    case OperationKind::dif_strip:
      result.source_tags = {record.dif_chk_ref_tag, record.dif_chk_app_tag,
                            record.dif_chk_app_tag_mask};
      break;
    case OperationKind::dif_insert:
      result.target_tags = {record.dif_ins_ref_tag, record.dif_ins_app_tag,
                            record.dif_ins_app_tag_mask};
      break;
    case OperationKind::dif_update:
      result.source_tags = {record.dif_upd_src_ref_tag, record.dif_upd_src_app_tag,
                            record.dif_upd_src_app_tag_mask};
      result.target_tags = {record.dif_upd_dest_ref_tag, record.dif_upd_dest_app_tag,
                            record.dif_upd_dest_app_tag_mask};
      break;
    default:
      break;
  }
  const bool ended_early =
      result.record_full || (result.different && kind != OperationKind::create_delta);
  finding.bytes_done = success && !ended_early ? byte_count : record.bytes_completed;
  if (status == dsa::Status::dif_error) {
    finding.cause = Cause::integrity_error;
    result.dif_errors = record.dif_status;
  } else if (status == dsa::Status::delta_offset_not_increasing ||
             status == dsa::Status::delta_offset_out_of_range) {
    finding.cause = Cause::bad_record;
  } else if (!success) {
    finding.cause = Cause::device_error;
  }
  return finding;
}

}  // namespace headrace::test
