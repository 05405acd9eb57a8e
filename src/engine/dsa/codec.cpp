// SPDX-License-Identifier: Apache-2.0
#include "codec.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "headrace/platform/attribute.hpp"

namespace headrace::engine::detail {
namespace {

using dsa::Opcode;

constexpr std::array<Opcode, kOperationKindCount> kOpcodes{
    Opcode::noop,         Opcode::drain,       Opcode::move,
    Opcode::fill,         Opcode::compare,     Opcode::compare_pattern,
    Opcode::create_delta, Opcode::apply_delta, Opcode::dualcast,
    Opcode::crc,          Opcode::copy_crc,    Opcode::dif_check,
    Opcode::dif_insert,   Opcode::dif_strip,   Opcode::dif_update,
    Opcode::cache_flush};
static_assert(kOpcodes[static_cast<std::size_t>(OperationKind::cache_flush)] ==
              Opcode::cache_flush);

template <typename Byte>
std::uint64_t address(std::span<Byte> bytes) noexcept {
  return reinterpret_cast<std::uintptr_t>(bytes.data());
}

/// Loads tags from an unaligned field of a packed struct: reference, mask, application.
DifTags load_tags(const std::uint8_t* place) noexcept {
  DifTags tags;
  std::memcpy(&tags.reference, place, sizeof tags.reference);
  std::memcpy(&tags.application_mask, place + 4, sizeof tags.application_mask);
  std::memcpy(&tags.application, place + 6, sizeof tags.application);
  return tags;
}

void set_operands(const Operation& operation, dsa::Descriptor& descriptor) noexcept {
  const std::uint32_t options = operation.option_bits();
  const auto byte_of = [&](unsigned index) {
    return static_cast<std::uint8_t>(options >> (8 * index) & 0xffU);
  };
  switch (operation.kind()) {
    case OperationKind::fill: {
      const std::array<std::uint64_t, 2> pattern = operation.pattern();
      descriptor.pattern = pattern[0];
      if (operation.pattern_bytes() == 16) {
        descriptor.flags |= dsa::flag::fill_16;
        std::memcpy(descriptor.op_specific, &pattern[1], sizeof pattern[1]);
      }
      break;
    }
    case OperationKind::compare:
      descriptor.src2_addr = address(operation.second_source());
      break;
    case OperationKind::compare_pattern:
      descriptor.comp_pattern = operation.pattern()[0];
      break;
    case OperationKind::create_delta:
      descriptor.src2_addr = address(operation.second_source());
      descriptor.delta_addr = address(operation.target());
      descriptor.max_delta_size = static_cast<std::uint32_t>(operation.target().size());
      break;
    case OperationKind::apply_delta:
      descriptor.xfer_size = static_cast<std::uint32_t>(operation.target().size());
      descriptor.delta_rec_size = static_cast<std::uint32_t>(operation.source().size());
      break;
    case OperationKind::dualcast:
      descriptor.dest2 = address(operation.second_target());
      break;
    case OperationKind::crc:
    case OperationKind::copy_crc: {
      const CrcOptions crc = operation.crc_options();
      descriptor.crc_seed = crc.seed;
      if (crc.raw) descriptor.flags |= dsa::flag::crc_raw;
      if (!crc.reflect_data) descriptor.flags |= dsa::flag::crc_unreflected;
      break;
    }
    case OperationKind::dif_check:
    case OperationKind::dif_insert:
    case OperationKind::dif_strip:
    case OperationKind::dif_update: {
      // All four have the flags of source, target and format, and the tags of source and target, at
      // the same offsets; unused ones are zero. An insertion must not set the keep flags, which
      // some devices refuse.
      const bool insert = operation.kind() == OperationKind::dif_insert;
      descriptor.src_upd_flags = byte_of(1);
      descriptor.upd_dest_flags = byte_of(2) & (insert ? 0x90U : 0xffU);
      descriptor.dif_upd_flags = byte_of(0);
      const std::array<std::uint64_t, 2> tags = operation.pattern();
      std::memcpy(descriptor.op_specific + 8, tags.data(), sizeof tags);
      break;
    }
    case OperationKind::no_op:
    case OperationKind::drain:
    case OperationKind::copy:
    case OperationKind::cache_flush:
      break;
  }
}

}  // namespace

bool takes(std::optional<std::uint64_t> opcodes, Opcode opcode) noexcept {
  return !opcodes || (*opcodes >> static_cast<unsigned>(opcode) & 1U) != 0;
}

OperationSet dsa_operations(std::optional<std::uint64_t> opcodes) noexcept {
  OperationSet made;
  for (std::size_t kind = 0; kind < kOperationKindCount; ++kind) {
    if (takes(opcodes, kOpcodes[kind])) made = made.with(static_cast<OperationKind>(kind));
  }
  return made;
}

std::optional<std::uint64_t> opcodes_from(std::string_view text) noexcept {
  std::optional<std::uint64_t> low;
  // Shifts all words through; the last two remain.
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const auto bits = platform::parse_number<std::uint32_t>(word, 16);
    if (!bits) return std::nullopt;
    low = low.value_or(0) << 32U | *bits;
  }
  return low;
}

std::optional<std::uint64_t> capabilities_from(std::string_view text) noexcept {
  if (!text.starts_with("0x")) return std::nullopt;
  return platform::parse_number(text.substr(2), 16);
}

std::uint32_t hints(const Operation& operation, const dsa::QueueInfo& queue,
                    FaultPolicy page_faults) noexcept {
  std::uint32_t flags = 0;
  const OperationKind kind = operation.kind();
  if (page_faults == FaultPolicy::block && can_block(queue) && kind != OperationKind::no_op &&
      kind != OperationKind::drain) {
    flags |= dsa::flag::block_on_fault;
  }
  if (operation.is_into_cache() && writes(kind)) {
    flags |= cache_flag(queue, kind == OperationKind::cache_flush);
  }
  return flags;
}

bool can_block(const dsa::QueueInfo& queue) noexcept {
  const std::uint64_t can = queue.capabilities.value_or(dsa::capability::block_on_fault);
  return queue.block_on_fault && (can & dsa::capability::block_on_fault) != 0;
}

std::uint32_t cache_flag(const dsa::QueueInfo& queue, bool flush) noexcept {
  // If unknown: supported for writes, as on all devices since the 4th generation.
  const std::uint64_t can = queue.capabilities.value_or(dsa::capability::cache_control_of_writes);
  const std::uint64_t wanted =
      flush ? dsa::capability::cache_control_of_flushes : dsa::capability::cache_control_of_writes;
  return (can & wanted) != 0 ? dsa::flag::cache_control : 0;
}

bool writes(OperationKind kind) noexcept {
  constexpr OperationSet kReaders{OperationKind::no_op,   OperationKind::drain,
                                  OperationKind::compare, OperationKind::compare_pattern,
                                  OperationKind::crc,     OperationKind::dif_check};
  return !kReaders.has(kind);
}

void to_descriptor(const Operation& operation, std::uint32_t flags,
                   const dsa::CompletionRecord& record, dsa::Descriptor& descriptor) noexcept {
  begin_descriptor(kOpcodes[static_cast<std::size_t>(operation.kind())], flags, record, descriptor);
  write_operands(operation.source().data(), operation.target().data(), operation.byte_count(),
                 descriptor);
  set_operands(operation, descriptor);
}

namespace {

Completion as_recorded(OperationKind kind, std::size_t byte_count,
                       const dsa::CompletionRecord& record) noexcept {
  const std::uint8_t raw = record.status;
  // The default, for a status that says nothing about the data.
  Completion outcome{.cause = Cause::device_error, .device_status = raw};
  if (raw == dsa::kStatusAborted) return outcome;
  OperationResult found;
  if (kind == OperationKind::crc || kind == OperationKind::copy_crc) {
    found.crc = static_cast<std::uint32_t>(record.crc_val);
  }
  if (kind == OperationKind::create_delta) found.delta_bytes = record.delta_rec_size;
  // Running values of integrity operations.
  constexpr OperationSet kChecks{OperationKind::dif_check, OperationKind::dif_strip,
                                 OperationKind::dif_update};
  constexpr OperationSet kMakes{OperationKind::dif_insert, OperationKind::dif_update};
  if (kChecks.has(kind)) found.source_tags = load_tags(record.op_specific);
  if (kMakes.has(kind)) found.target_tags = load_tags(record.op_specific + 8);
  switch (dsa::status_of(raw)) {
    case dsa::Status::success:
    case dsa::Status::success_unexpected: {
      const bool compares =
          kind == OperationKind::compare || kind == OperationKind::compare_pattern;
      const bool delta = kind == OperationKind::create_delta;
      found.different = (compares || delta) && record.result != 0;
      found.record_full = delta && record.result == 2;
      if (compares && found.different) found.difference_offset = record.bytes_completed;
      const bool early = (compares && found.different) || found.record_full;
      return {.bytes_done = early ? record.bytes_completed : byte_count, .result = found};
    }
    case dsa::Status::page_fault:
    case dsa::Status::page_fault_refused:
      outcome.cause = Cause::page_fault;
      outcome.fault_address = record.fault_addr;
      break;
    case dsa::Status::dif_error:
      outcome.cause = Cause::integrity_error;
      found.dif_errors = record.dif_status;
      break;
    case dsa::Status::delta_offset_not_increasing:
    case dsa::Status::delta_offset_out_of_range:
      outcome.cause = Cause::bad_record;
      return outcome;
    default:
      return outcome;
  }
  outcome.bytes_done = record.bytes_completed;
  outcome.result = found;
  return outcome;
}

}  // namespace

Completion to_completion(const Operation& operation, std::size_t byte_count,
                         const dsa::CompletionRecord& record) noexcept {
  // Impossible values mean a faulty device.
  const Completion invalid{.cause = Cause::device_error, .device_status = record.status};
  Completion outcome = as_recorded(operation.kind(), byte_count, record);
  const std::size_t cut = operation.cut_bytes();
  if (outcome.cause == Cause::page_fault) {
    // The rest continues at the last point where the operation can be cut.
    const std::size_t over = cut == 0 ? outcome.bytes_done : outcome.bytes_done % cut;
    outcome.bytes_done -= over;
    if (cut == 0) return outcome;
    // Running values in the middle of a unit cannot be used.
    const bool running = over != 0 && !operation.has_independent_parts();
    return running || outcome.bytes_done >= byte_count ? invalid : outcome;
  }
  const OperationResult& found = outcome.result;
  const bool beyond = found.different && operation.kind() != OperationKind::create_delta &&
                      found.difference_offset >= byte_count;
  const bool too_long = found.delta_bytes > operation.target().size();
  return beyond || too_long || outcome.bytes_done > byte_count ? invalid : outcome;
}

}  // namespace headrace::engine::detail
