// SPDX-License-Identifier: Apache-2.0
#include "support/dsa_reference.hpp"

#include <array>

namespace headrace::test {
namespace {

using dsa::CompletionRecord;
using dsa::Descriptor;
using dsa::Opcode;
using emu::Address;
using emu::Fault;
using emu::PageFaults;

constexpr std::uint32_t kPolynomialCastagnoli = 0x1EDC6F41;
constexpr std::uint32_t kPolynomialT10 = 0x8BB7;
constexpr std::uint64_t kDeltaEntryBytes = 10;
constexpr std::uint64_t kDeltaUnitBytes = 8;

/// Thrown to end an operation early.
struct Stop {
  std::uint8_t raw_status;
  Address fault_address;
};

/// Tags of a run of blocks.
struct Tags {
  std::uint32_t ref;
  std::uint16_t app;
  std::uint16_t mask;
  std::uint8_t flags;
  void next() {
    if ((flags & kDifRefFixed) == 0) ++ref;
    if ((flags & kDifAppIncrements) != 0) ++app;
  }
  [[nodiscard]] std::uint16_t shown() const { return static_cast<std::uint16_t>(app & ~mask); }
};

struct Field {
  std::uint16_t guard;
  std::uint16_t app;
  std::uint32_t ref;
};

class Run {
 public:
  Run(const Descriptor& descriptor, PageFaults faults, ClientArena& arena)
      : descriptor_(descriptor), faults_(faults), arena_(arena) {}

  CompletionRecord carry_out() {
    record_.status = DSA_COMP_SUCCESS;
    try {
      choose();
    } catch (const Stop& stop) {
      record_.status = stop.raw_status;
      record_.fault_addr = stop.fault_address;
      if (begins_again()) {
        record_.result = 0;
      } else {
        record_.bytes_completed = static_cast<std::uint32_t>(done_ - done_ % resumable_bytes());
        leave_running_values();
      }
    }
    return record_;
  }

 private:
  void choose() {
    switch (static_cast<Opcode>(descriptor_.opcode)) {
      case Opcode::noop:
        return;
      case Opcode::move:
        return move();
      case Opcode::fill:
        return fill();
      case Opcode::compare:
      case Opcode::compare_pattern:
        return compare();
      case Opcode::create_delta:
        return create_delta();
      case Opcode::apply_delta:
        return apply_delta();
      case Opcode::dualcast:
        return dualcast();
      case Opcode::crc:
        return crc(false);
      case Opcode::copy_crc:
        return crc(true);
      case Opcode::dif_check:
        return dif_check(false);
      case Opcode::dif_strip:
        return dif_check(true);
      case Opcode::dif_insert:
        return dif_insert();
      case Opcode::dif_update:
        return dif_update();
      case Opcode::cache_flush:
        return flush();
      case Opcode::batch:
      case Opcode::drain:
        break;
    }
    throw Stop{DSA_COMP_BAD_OPCODE, 0};
  }

  /// Offsets in a delta are relative to the operands' start, so resuming with advanced operands
  /// would give another delta. None of it counts as done.
  [[nodiscard]] bool begins_again() const {
    const auto opcode = static_cast<Opcode>(descriptor_.opcode);
    return opcode == Opcode::create_delta || opcode == Opcode::apply_delta;
  }

  /// A client resumes with the operands advanced by bytes_completed and everything else unchanged:
  /// a pattern restarts at its first byte.
  [[nodiscard]] std::uint64_t resumable_bytes() const {
    switch (static_cast<Opcode>(descriptor_.opcode)) {
      case Opcode::fill:
      case Opcode::compare_pattern:
        return 8;
      default:
        return 1;
    }
  }

  std::byte get(Address address) {
    demand(address, false);
    return arena_.load(address);
  }
  void put(Address address, std::byte value) {
    demand(address, true);
    arena_.store(address, value);
  }
  void demand(Address address, bool write) {
    if (!arena_.probe(address, write, faults_)) return;
    // A fault that block-on-fault could not resolve has a separate status.
    const unsigned status =
        faults_ == PageFaults::resolve ? DSA_COMP_PAGE_FAULT_IR : DSA_COMP_PAGE_FAULT_NOBOF;
    throw Stop{static_cast<std::uint8_t>(status | (write ? DSA_COMP_STATUS_WRITE : 0U)),
               address & ~Address{0xFFF}};  // The record names the page.
  }
  std::vector<std::byte> get_all(Address first, std::uint64_t byte_count) {
    std::vector<std::byte> bytes;
    for (std::uint64_t i = 0; i < byte_count; ++i) bytes.push_back(get(first + i));
    return bytes;
  }
  void put_all(Address first, std::span<const std::byte> bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i) put(first + i, bytes[i]);
  }

  void move() {
    const Address source = descriptor_.src_addr;
    const Address target = descriptor_.dst_addr;
    const std::uint64_t byte_count = descriptor_.xfer_size;
    const bool downwards = target > source && target - source < byte_count;
    // The result is the direction of an overlapping move, which a client needs to resume.
    record_.result = downwards ? 1 : 0;
    for (; done_ < byte_count; ++done_) {
      const std::uint64_t at = downwards ? byte_count - 1 - done_ : done_;
      put(target + at, get(source + at));
    }
    record_.result = 0;
  }

  void fill() {
    for (; done_ < descriptor_.xfer_size; ++done_) {
      put(descriptor_.dst_addr + done_, pattern(descriptor_.pattern, done_));
    }
  }

  static std::byte pattern(std::uint64_t word, std::uint64_t at) {
    return static_cast<std::byte>(word >> (8U * (at % 8U)));
  }

  void compare() {
    const bool with_pattern = static_cast<Opcode>(descriptor_.opcode) == Opcode::compare_pattern;
    for (; done_ < descriptor_.xfer_size; ++done_) {
      const std::byte left = get(descriptor_.src_addr + done_);
      const std::byte right = with_pattern ? pattern(descriptor_.comp_pattern, done_)
                                           : get(descriptor_.src2_addr + done_);
      if (left != right) {
        record_.result = 1;
        record_.bytes_completed = static_cast<std::uint32_t>(done_);
        break;
      }
    }
    const bool expected = descriptor_.expected_res == record_.result;
    if ((descriptor_.flags & dsa::flag::check_result) != 0 && !expected) {
      record_.status = DSA_COMP_SUCCESS_PRED;
    }
  }

  void create_delta() {
    for (; done_ < descriptor_.xfer_size; done_ += kDeltaUnitBytes) {
      const auto left = get_all(descriptor_.src_addr + done_, kDeltaUnitBytes);
      const auto right = get_all(descriptor_.src2_addr + done_, kDeltaUnitBytes);
      if (left == right) continue;
      if (delta_bytes_ + kDeltaEntryBytes > descriptor_.max_delta_size) {
        record_.result = 2;
        record_.bytes_completed = static_cast<std::uint32_t>(done_);
        break;
      }
      const std::uint64_t offset = done_ / kDeltaUnitBytes;
      std::vector<std::byte> entry{static_cast<std::byte>(offset),
                                   static_cast<std::byte>(offset >> 8U)};
      entry.insert(entry.end(), right.begin(), right.end());
      put_all(descriptor_.delta_addr + delta_bytes_, entry);
      delta_bytes_ += kDeltaEntryBytes;
      record_.result = 1;
    }
    record_.delta_rec_size = static_cast<std::uint32_t>(delta_bytes_);
    const bool expected = ((descriptor_.expected_res_mask >> record_.result) & 1U) != 0;
    if ((descriptor_.flags & dsa::flag::check_result) != 0 && !expected) {
      record_.status = DSA_COMP_SUCCESS_PRED;
    }
  }

  void apply_delta() {
    std::int64_t offset_before = -1;
    for (; done_ < descriptor_.delta_rec_size; done_ += kDeltaEntryBytes) {
      const auto entry = get_all(descriptor_.src_addr + done_, kDeltaEntryBytes);
      const auto offset =
          std::to_integer<std::int64_t>(entry[0]) | (std::to_integer<std::int64_t>(entry[1]) << 8U);
      if (offset <= offset_before) throw Stop{DSA_COMP_DR_OFFSET_NOINC, 0};
      if (static_cast<std::uint64_t>(offset) * kDeltaUnitBytes >= descriptor_.xfer_size) {
        throw Stop{DSA_COMP_DR_OFFSET_ERANGE, 0};
      }
      put_all(descriptor_.dst_addr + static_cast<std::uint64_t>(offset) * kDeltaUnitBytes,
              std::span(entry).subspan(2));
      offset_before = offset;
    }
  }

  void dualcast() {
    for (; done_ < descriptor_.xfer_size; ++done_) {
      const std::byte value = get(descriptor_.src_addr + done_);
      put(descriptor_.dst_addr + done_, value);
      put(descriptor_.dest2 + done_, value);
    }
  }

  void crc(bool copy) {
    crc_ = descriptor_.crc_seed;
    if ((descriptor_.flags & kCrcReadSeed) != 0) {
      crc_ = 0;
      for (unsigned i = 0; i < 4; ++i) {
        crc_ |= std::to_integer<std::uint32_t>(get(descriptor_.seed_addr + i)) << (8 * i);
      }
    }
    for (; done_ < descriptor_.xfer_size; ++done_) {
      const std::byte value = get(descriptor_.src_addr + done_);
      if (copy) put(descriptor_.dst_addr + done_, value);
      crc_ = reference_crc32c(crc_, std::span(&value, 1), descriptor_.flags);
    }
    record_.crc_val = crc_;
  }

  void dif_check(bool strip) {
    Tags tags{descriptor_.chk_ref_tag_seed, descriptor_.chk_app_tag_seed,
              descriptor_.chk_app_tag_mask, descriptor_.src_dif_flags};
    const std::uint64_t block_bytes = dif_block_bytes(descriptor_.dif_chk_flags);
    Address target = descriptor_.dst_addr;
    source_tags_ = tags;
    for (; done_ < descriptor_.xfer_size; done_ += block_bytes + kDifBytes) {
      const auto data = get_all(descriptor_.src_addr + done_, block_bytes);
      judge(data, get_field(descriptor_.src_addr + done_ + block_bytes), tags,
            descriptor_.dif_chk_flags);
      if (strip) put_all(target, data);
      target += block_bytes;
      tags.next();
      source_tags_ = tags;
    }
  }

  void dif_insert() {
    Tags tags{descriptor_.ins_ref_tag_seed, descriptor_.ins_app_tag_seed,
              descriptor_.ins_app_tag_mask, descriptor_.dest_dif_flag};
    const std::uint64_t block_bytes = dif_block_bytes(descriptor_.dif_ins_flags);
    Address target = descriptor_.dst_addr;
    target_tags_ = tags;
    for (; done_ < descriptor_.xfer_size; done_ += block_bytes) {
      const auto data = get_all(descriptor_.src_addr + done_, block_bytes);
      put_all(target, data);
      put_field(target + block_bytes,
                {reference_guard(data, descriptor_.dif_ins_flags), tags.shown(), tags.ref});
      target += block_bytes + kDifBytes;
      tags.next();
      target_tags_ = tags;
    }
  }

  void dif_update() {
    Tags from{descriptor_.src_ref_tag_seed, descriptor_.src_app_tag_seed,
              descriptor_.src_app_tag_mask, descriptor_.src_upd_flags};
    Tags to{descriptor_.dest_ref_tag_seed, descriptor_.dest_app_tag_seed,
            descriptor_.dest_app_tag_mask, descriptor_.upd_dest_flags};
    const std::uint64_t block_bytes = dif_block_bytes(descriptor_.dif_upd_flags);
    source_tags_ = from;
    target_tags_ = to;
    for (; done_ < descriptor_.xfer_size; done_ += block_bytes + kDifBytes) {
      const auto data = get_all(descriptor_.src_addr + done_, block_bytes);
      const Field found = get_field(descriptor_.src_addr + done_ + block_bytes);
      judge(data, found, from, descriptor_.dif_upd_flags);
      Field made{reference_guard(data, descriptor_.dif_upd_flags), to.shown(), to.ref};
      if ((to.flags & kDifGuardUnchecked) != 0) made.guard = found.guard;
      if ((to.flags & kDifAppPassed) != 0) made.app = found.app;
      if ((to.flags & kDifRefUnchecked) != 0) made.ref = found.ref;
      put_all(descriptor_.dst_addr + done_, data);
      put_field(descriptor_.dst_addr + done_ + block_bytes, made);
      from.next();
      to.next();
      source_tags_ = from;
      target_tags_ = to;
    }
  }

  void judge(std::span<const std::byte> data, const Field& found, const Tags& tags,
             std::uint8_t dif_flags) {
    const bool app_is_f = found.app == 0xFFFF;
    const bool tags_are_f = app_is_f && found.ref == 0xFFFFFFFF;
    const bool all_is_f = tags_are_f && found.guard == 0xFFFF;
    if ((tags.flags & kDifAllF) != 0 && (tags.flags & kDifAllFError) != 0 && all_is_f) {
      record_.dif_status = 0x08;
      throw Stop{DSA_COMP_DIF_ERR, 0};
    }
    if ((tags.flags & kDifAppF) != 0 && app_is_f) return;
    if ((tags.flags & kDifAppRefF) != 0 && tags_are_f) return;
    unsigned wrong = 0;
    const bool guard_is_wrong = found.guard != reference_guard(data, dif_flags);
    if (guard_is_wrong && (tags.flags & kDifGuardUnchecked) == 0) wrong |= 0x01;
    if ((found.app & ~tags.mask & 0xFFFF) != tags.shown()) wrong |= 0x02;
    if (found.ref != tags.ref && (tags.flags & kDifRefUnchecked) == 0) wrong |= 0x04;
    if (wrong == 0) return;
    record_.dif_status = static_cast<std::uint8_t>(wrong);
    throw Stop{DSA_COMP_DIF_ERR, 0};
  }

  Field get_field(Address first) {
    const auto bytes = get_all(first, kDifBytes);
    const auto at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(bytes[i]); };
    return {static_cast<std::uint16_t>(at(0) << 8U | at(1)),
            static_cast<std::uint16_t>(at(2) << 8U | at(3)),
            at(4) << 24U | at(5) << 16U | at(6) << 8U | at(7)};
  }
  void put_field(Address first, const Field& field) {
    const auto word =
        std::uint64_t{field.guard} << 48U | std::uint64_t{field.app} << 32U | field.ref;
    for (std::size_t i = 0; i < kDifBytes; ++i) {
      put(first + i, static_cast<std::byte>(word >> (56 - 8 * i)));
    }
  }

  void flush() {
    for (; done_ < descriptor_.xfer_size; ++done_) demand(descriptor_.dst_addr + done_, false);
  }

  /// Sets the values that a client needs to resume after a fault. Deliberately duplicates
  /// emu/operation: shared code could not disagree.
  void leave_running_values() {
    switch (static_cast<Opcode>(descriptor_.opcode)) {
      case Opcode::crc:
      case Opcode::copy_crc:
        record_.crc_val = crc_;
        break;
      case Opcode::dif_check:
      case Opcode::dif_strip:
        record_.dif_chk_ref_tag = source_tags_.ref;
        record_.dif_chk_app_tag_mask = source_tags_.mask;
        record_.dif_chk_app_tag = source_tags_.app;
        break;
      case Opcode::dif_insert:
        record_.dif_ins_ref_tag = target_tags_.ref;
        record_.dif_ins_app_tag_mask = target_tags_.mask;
        record_.dif_ins_app_tag = target_tags_.app;
        break;
      case Opcode::dif_update:
        record_.dif_upd_src_ref_tag = source_tags_.ref;
        record_.dif_upd_src_app_tag_mask = source_tags_.mask;
        record_.dif_upd_src_app_tag = source_tags_.app;
        record_.dif_upd_dest_ref_tag = target_tags_.ref;
        record_.dif_upd_dest_app_tag_mask = target_tags_.mask;
        record_.dif_upd_dest_app_tag = target_tags_.app;
        break;
      default:
        break;
    }
  }

  const Descriptor& descriptor_;
  PageFaults faults_;
  ClientArena& arena_;
  CompletionRecord record_{};
  std::uint64_t done_ = 0;
  std::uint64_t delta_bytes_ = 0;
  std::uint32_t crc_ = 0;
  Tags source_tags_{};
  Tags target_tags_{};
};

}  // namespace

std::uint32_t crc_bits(std::uint32_t remainder, std::byte data, unsigned width,
                       std::uint32_t polynomial) {
  const std::uint32_t top = 1U << (width - 1);
  remainder ^= std::to_integer<std::uint32_t>(data) << (width - 8);
  for (int bit = 0; bit < 8; ++bit) {
    const bool carry = (remainder & top) != 0;
    remainder <<= 1U;
    if (carry) remainder ^= polynomial;
  }
  return width == 32 ? remainder : remainder & ((1U << width) - 1);
}

std::uint32_t reflect_bits(std::uint32_t value, unsigned width) {
  std::uint32_t reflected = 0;
  for (unsigned bit = 0; bit < width; ++bit) {
    if ((value >> bit & 1U) != 0) reflected |= 1U << (width - 1 - bit);
  }
  return reflected;
}

std::uint32_t reference_crc32c(std::uint32_t seed, std::span<const std::byte> data,
                               std::uint32_t flags) {
  const bool bypass_inversion = (flags & kCrcBypassInversion) != 0;
  const bool bypass_data = (flags & kCrcBypassDataReflection) != 0;
  std::uint32_t remainder = bypass_inversion ? seed : reflect_bits(~seed, 32);
  for (const std::byte value : data) {
    const auto bits = std::to_integer<std::uint32_t>(value);
    remainder =
        crc_bits(remainder, static_cast<std::byte>(bypass_data ? bits : reflect_bits(bits, 8)), 32,
                 kPolynomialCastagnoli);
  }
  return bypass_inversion ? remainder : ~reflect_bits(remainder, 32);
}

std::uint16_t reference_guard(std::span<const std::byte> data, std::uint8_t dif_flags) {
  std::uint32_t remainder = (dif_flags & kDifInvertSeed) != 0 ? 0xFFFF : 0;
  for (const std::byte value : data) remainder = crc_bits(remainder, value, 16, kPolynomialT10);
  return static_cast<std::uint16_t>((dif_flags & kDifInvertResult) != 0 ? ~remainder : remainder);
}

std::uint64_t dif_block_bytes(std::uint8_t dif_flags) {
  constexpr std::array<std::uint64_t, 4> kBlockBytes{512, 520, 4096, 4104};
  return kBlockBytes[dif_flags & 3U];
}

CompletionRecord carry_out(const Descriptor& descriptor, PageFaults faults, ClientArena& arena) {
  return Run(descriptor, faults, arena).carry_out();
}

std::vector<Extent> written_by(const Descriptor& descriptor) {
  const std::uint64_t byte_count = descriptor.xfer_size;
  switch (static_cast<Opcode>(descriptor.opcode)) {
    case Opcode::move:
    case Opcode::fill:
    case Opcode::copy_crc:
    case Opcode::apply_delta:
    case Opcode::dif_update:
      return {{descriptor.dst_addr, byte_count}};
    case Opcode::dualcast:
      return {{descriptor.dst_addr, byte_count}, {descriptor.dest2, byte_count}};
    case Opcode::create_delta:
      return {{descriptor.delta_addr, descriptor.max_delta_size}};
    case Opcode::dif_insert: {
      const std::uint64_t block_bytes = dif_block_bytes(descriptor.dif_ins_flags);
      return {{descriptor.dst_addr, byte_count / block_bytes * (block_bytes + kDifBytes)}};
    }
    case Opcode::dif_strip: {
      const std::uint64_t block_bytes = dif_block_bytes(descriptor.dif_chk_flags);
      return {{descriptor.dst_addr, byte_count / (block_bytes + kDifBytes) * block_bytes}};
    }
    default:
      return {};
  }
}

}  // namespace headrace::test
