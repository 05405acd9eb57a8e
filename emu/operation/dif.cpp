// SPDX-License-Identifier: Apache-2.0
// Data integrity fields (T10 DIF): check, insert, strip, update, by block. A block is done once it
// is checked and written completely; a bad one is not written.

#include "emu/operation/operation.hpp"
#include "emu/operation/rules.hpp"
#include "emu/platform/bytes.hpp"

namespace headrace::emu {
namespace {

using dsa::Opcode;

std::uint16_t guard_of(std::span<const std::byte> block, unsigned flags) {
  const std::uint16_t seed = (flags & rules::kDifInvertSeed) != 0 ? 0xffff : 0;
  const std::uint16_t guard = bytes::crc16_t10(seed, block);
  return (flags & rules::kDifInvertResult) != 0 ? static_cast<std::uint16_t>(~guard) : guard;
}

}  // namespace

// Errors in a block's field: bits of dif_status.
unsigned Operation::check_dif(const std::byte* block, const std::byte* dif) const {
  const unsigned flags = descriptor_.src_dif_flags;  // Same offset for update.
  const auto guard = bytes::load_big<std::uint16_t>(dif);
  const auto application = bytes::load_big<std::uint16_t>(dif + 2);
  const auto reference = bytes::load_big<std::uint32_t>(dif + 4);
  const bool application_ones = application == 0xffff;
  const bool tags_ones = application_ones && reference == 0xffffffff;
  const bool all_ones = tags_ones && guard == 0xffff;

  if (all_ones && (flags & rules::kDifDetectAllOnes) != 0) {
    return (flags & rules::kDifAllOnesIsError) != 0 ? rules::kDifAllOnes : 0;
  }
  if ((tags_ones && (flags & rules::kDifDetectBothTags) != 0) ||
      (application_ones && (flags & rules::kDifDetectAppTag) != 0)) {
    return 0;
  }
  unsigned wrong = 0;
  if ((flags & rules::kDifSkipGuard) == 0 &&
      guard != guard_of({block, rules::dif_block_bytes(descriptor_)}, descriptor_.dif_chk_flags)) {
    wrong |= rules::kDifBadGuard;
  }
  const std::uint16_t mask = source_tags_.application_mask;
  if (rules::masked(application, mask) != rules::masked(source_tags_.application, mask)) {
    wrong |= rules::kDifBadAppTag;
  }
  if ((flags & rules::kDifSkipRefTag) == 0 && reference != source_tags_.reference) {
    wrong |= rules::kDifBadRefTag;
  }
  return wrong;
}

// Fills in the field; parts that the flags pass keep the source's value, which is already there.
void Operation::make_dif(const std::byte* block, std::byte* dif) const {
  const unsigned pass = opcode() == Opcode::dif_update ? descriptor_.upd_dest_flags : 0U;
  if ((pass & rules::kDifPassGuard) == 0) {
    bytes::store_big(
        dif, guard_of({block, rules::dif_block_bytes(descriptor_)}, descriptor_.dif_chk_flags));
  }
  if ((pass & rules::kDifPassAppTag) == 0) {
    bytes::store_big(dif + 2,
                     rules::masked(target_tags_.application, target_tags_.application_mask));
  }
  if ((pass & rules::kDifPassRefTag) == 0) bytes::store_big(dif + 4, target_tags_.reference);
}

bool Operation::dif_piece(Memory& memory) {
  const bool has_field = opcode() != Opcode::dif_insert;
  const std::size_t block_bytes = rules::dif_block_bytes(descriptor_);
  const std::size_t whole_bytes = block_bytes + rules::kDifBytes;
  const std::size_t source_bytes = has_field ? whole_bytes : block_bytes;
  const std::size_t target_bytes = opcode() == Opcode::dif_strip   ? block_bytes
                                   : opcode() == Opcode::dif_check ? 0
                                                                   : whole_bytes;
  std::byte* const block = first_.data();
  std::byte* const dif = block + block_bytes;

  const Reach source = read(memory, {block, source_bytes}, descriptor_.src_addr + done_);
  if (source.fault) return fail(*source.fault);
  if (has_field) {
    if (const unsigned wrong = check_dif(block, dif); wrong != 0) {
      record_.dif_status = static_cast<std::uint8_t>(wrong);
      return fail(dsa::Status::dif_error);
    }
  }
  if (target_bytes > 0) {
    if (target_bytes == whole_bytes) make_dif(block, dif);
    const Address target = descriptor_.dst_addr + done_ / source_bytes * target_bytes;
    const Reach reach = write(memory, target, {block, target_bytes});
    if (reach.fault) return fail(*reach.fault);
  }

  done_ += source_bytes;
  const auto step = [](Tags& tags, unsigned flags) {
    if ((flags & rules::kDifIncrementAppTag) != 0) ++tags.application;
    if ((flags & rules::kDifFixedRefTag) == 0) ++tags.reference;
  };
  step(source_tags_, descriptor_.src_dif_flags);
  step(target_tags_, descriptor_.dest_dif_flag);  // Same offset for update.
  return left() == 0 && succeed();
}

}  // namespace headrace::emu
