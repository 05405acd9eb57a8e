// SPDX-License-Identifier: Apache-2.0
#include "support/dsa_case.hpp"

#include <algorithm>
#include <vector>

#include "support/dsa_opcodes.hpp"

namespace headrace::test {
namespace {

using dsa::Descriptor;
using dsa::Opcode;
using emu::Address;

// Below program addresses: unused in every process, and one of the few ranges that both
// ThreadSanitizer and AddressSanitizer leave to programs.
constexpr Address kBase = 0x5520'0000'0000;
constexpr std::uint64_t kRoomBytes = 32 << 10U;
constexpr std::uint64_t kPlaceCount = 4;
class Maker {
 public:
  Maker(Opcode opcode, std::uint64_t byte_count, Random& random)
      : random_(random), made_{{}, ClientArena(kBase, kRoomBytes * kPlaceCount), {}, {}} {
    made_.descriptor.opcode = static_cast<std::uint8_t>(opcode);
    made_.descriptor.xfer_size = static_cast<std::uint32_t>(byte_count);
    for (std::byte& value : made_.arena.bytes()) value = any_byte();
  }

  DsaCase make() {
    fill_in();
    // From here on only the operands are accessible.
    made_.arena.allow(kBase, made_.arena.byte_count(), ClientArena::Access::none);
    for (const Extent& extent : made_.sources) {
      made_.arena.allow(extent.first, extent.byte_count, ClientArena::Access::read_only);
    }
    for (const Extent& extent : made_.targets) {
      made_.arena.allow(extent.first, extent.byte_count, ClientArena::Access::all);
    }
    return made_;
  }

 private:
  void fill_in() {
    Descriptor& d = made_.descriptor;
    const std::uint64_t byte_count = d.xfer_size;
    switch (static_cast<Opcode>(d.opcode)) {
      case Opcode::noop:
        d.xfer_size = 0;
        return;
      case Opcode::move:
        return move();
      case Opcode::fill:
        d.pattern = random_();
        d.dst_addr = target(1, byte_count);
        return;
      case Opcode::compare:
        d.src_addr = source(0, byte_count);
        d.src2_addr = source(1, byte_count);
        make_equal(d.src_addr, d.src2_addr, byte_count);
        if (random_.chance(1, 2)) spoil(d.src2_addr, byte_count);
        expect_result();
        return;
      case Opcode::compare_pattern:
        d.comp_pattern = random_();
        d.src_addr = source(0, byte_count);
        for (std::uint64_t i = 0; i < byte_count; ++i) {
          byte_at(d.src_addr + i) = static_cast<std::byte>(d.comp_pattern >> (8U * (i % 8U)));
        }
        if (random_.chance(1, 2)) spoil(d.src_addr, byte_count);
        expect_result();
        return;
      case Opcode::create_delta:
        return create_delta();
      case Opcode::apply_delta:
        return apply_delta();
      case Opcode::dualcast:
        d.src_addr = source(0, byte_count);
        d.dst_addr = target(1, byte_count);
        d.dest2 = kBase + 2 * kRoomBytes + d.dst_addr % 4096;
        made_.targets.push_back({d.dest2, byte_count});
        return;
      case Opcode::crc:
      case Opcode::copy_crc:
        d.src_addr = source(0, byte_count);
        if (static_cast<Opcode>(d.opcode) == Opcode::copy_crc) d.dst_addr = target(1, byte_count);
        d.flags = static_cast<std::uint32_t>(random_.below(8) << 16U) & 0xFFFFFFU;
        if ((d.flags & kCrcReadSeed) != 0) {
          d.seed_addr = source(2, 4, 4);
        } else {
          d.crc_seed = static_cast<std::uint32_t>(random_());
        }
        return;
      case Opcode::dif_insert:
        return dif_insert();
      case Opcode::dif_check:
      case Opcode::dif_strip:
      case Opcode::dif_update:
        return dif_with_source();
      case Opcode::cache_flush:
        d.dst_addr = target(1, byte_count);
        return;
      case Opcode::batch:
      case Opcode::drain:
        return;
    }
  }

  void move() {
    Descriptor& d = made_.descriptor;
    const std::uint64_t byte_count = d.xfer_size;
    if (random_.chance(1, 2)) {
      d.src_addr = source(0, byte_count);
      d.dst_addr = target(1, byte_count);
      return;
    }
    const std::uint64_t distance = random_.below(byte_count + 1);
    const Address low = place(0, byte_count + distance, 1);
    const bool up = random_.chance(1, 2);
    d.src_addr = up ? low : low + distance;
    d.dst_addr = up ? low + distance : low;
    made_.sources.push_back({d.src_addr, byte_count});
    made_.targets.push_back({d.dst_addr, byte_count});
  }

  void create_delta() {
    Descriptor& d = made_.descriptor;
    d.xfer_size = round_up_to_units(d.xfer_size);
    d.src_addr = source(0, d.xfer_size, 8);
    d.src2_addr = source(1, d.xfer_size, 8);
    make_equal(d.src_addr, d.src2_addr, d.xfer_size);
    const std::uint64_t differences = random_.below(40);
    for (std::uint64_t i = 0; i < differences; ++i) spoil(d.src2_addr, d.xfer_size);
    // At least 80; often too few for all differences.
    d.max_delta_size = static_cast<std::uint32_t>(80 + 10 * random_.below(30));
    d.delta_addr = target(2, d.max_delta_size, 8);
    if (random_.chance(1, 2)) {
      d.flags |= dsa::flag::check_result;
      d.expected_res_mask = static_cast<std::uint8_t>(random_.below(8));
    }
  }

  void apply_delta() {
    Descriptor& d = made_.descriptor;
    d.xfer_size = round_up_to_units(d.xfer_size);
    const std::uint64_t unit_count = d.xfer_size / 8;
    std::vector<std::uint64_t> offsets;
    for (std::uint64_t i = 0; i < unit_count; ++i) {
      if (random_.chance(1, 4)) offsets.push_back(i);
    }
    if (offsets.empty()) offsets.push_back(0);
    if (random_.chance(1, 8)) offsets.back() = unit_count + random_.below(3);
    if (random_.chance(1, 8)) offsets.push_back(offsets.front());
    d.delta_rec_size = static_cast<std::uint32_t>(10 * offsets.size());
    d.src_addr = source(0, d.delta_rec_size, 8);
    d.dst_addr = target(1, d.xfer_size, 8);
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      byte_at(d.src_addr + 10 * i) = static_cast<std::byte>(offsets[i]);
      byte_at(d.src_addr + 10 * i + 1) = static_cast<std::byte>(offsets[i] >> 8U);
    }
  }

  void dif_insert() {
    Descriptor& d = made_.descriptor;
    d.dif_ins_flags = static_cast<std::uint8_t>(random_.below(16));
    d.dest_dif_flag = any_of(kDifAppIncrements, kDifRefFixed);
    d.ins_ref_tag_seed = draw_ref();
    d.ins_app_tag_seed = draw_app();
    d.ins_app_tag_mask = draw_mask();
    const std::uint64_t block_bytes = dif_block_bytes(d.dif_ins_flags);
    const std::uint64_t block_count = 1 + random_.below(3);
    d.xfer_size = static_cast<std::uint32_t>(block_count * block_bytes);
    d.src_addr = source(0, d.xfer_size);
    d.dst_addr = target(1, block_count * (block_bytes + kDifBytes));
  }

  /// Blocks made by an insertion, some of them corrupted.
  void dif_with_source() {
    const auto opcode = static_cast<Opcode>(made_.descriptor.opcode);
    DsaCase inserted = Maker(Opcode::dif_insert, 1, random_).make();
    static_cast<void>(carry_out(inserted.descriptor, emu::PageFaults::report, inserted.arena));
    const Descriptor& from = inserted.descriptor;
    Descriptor& d = made_.descriptor;
    const Extent blocks = inserted.targets.front();
    d.xfer_size = static_cast<std::uint32_t>(blocks.byte_count);
    d.src_addr = source(0, blocks.byte_count);
    for (std::uint64_t i = 0; i < blocks.byte_count; ++i) {
      byte_at(d.src_addr + i) = inserted.arena.bytes()[blocks.first + i - inserted.arena.base()];
    }
    const std::uint64_t block_bytes = dif_block_bytes(from.dif_ins_flags);
    spoil_dif(d.src_addr, block_bytes, blocks.byte_count / (block_bytes + kDifBytes));
    // What an update writes for an unchecked block is undocumented: not drawn.
    const unsigned unchecked = opcode == Opcode::dif_update ? 0U : any_of(kDifAppF, kDifAppRefF);
    const auto source_flags =
        static_cast<std::uint8_t>((from.dest_dif_flag & (kDifAppIncrements | kDifRefFixed)) |
                                  unchecked | any_of(kDifGuardUnchecked, kDifRefUnchecked));
    const std::uint64_t block_count = blocks.byte_count / (block_bytes + kDifBytes);
    if (opcode == Opcode::dif_update) {
      d.dif_upd_flags = from.dif_ins_flags;
      d.src_upd_flags = source_flags;
      d.src_ref_tag_seed = from.ins_ref_tag_seed;
      d.src_app_tag_seed = from.ins_app_tag_seed;
      d.src_app_tag_mask = from.ins_app_tag_mask;
      d.upd_dest_flags = static_cast<std::uint8_t>(any_of(kDifAppIncrements, kDifRefFixed) |
                                                   any_of(kDifAppPassed, kDifGuardUnchecked) |
                                                   any_of(kDifRefUnchecked, 0));
      d.dest_ref_tag_seed = draw_ref();
      d.dest_app_tag_seed = draw_app();
      d.dest_app_tag_mask = draw_mask();
      d.dst_addr = target(1, blocks.byte_count);
      return;
    }
    d.dif_chk_flags = from.dif_ins_flags;
    d.src_dif_flags = source_flags;
    d.chk_ref_tag_seed = from.ins_ref_tag_seed;
    d.chk_app_tag_seed = from.ins_app_tag_seed;
    d.chk_app_tag_mask = from.ins_app_tag_mask;
    if (opcode == Opcode::dif_strip) d.dst_addr = target(1, block_count * block_bytes);
  }

  void spoil_dif(Address first, std::uint64_t block_bytes, std::uint64_t block_count) {
    const Address block = first + random_.below(block_count) * (block_bytes + kDifBytes);
    switch (random_.below(6)) {
      case 0:
        spoil(block, block_bytes + kDifBytes);
        return;
      case 1:
        spoil(block + block_bytes, kDifBytes);
        return;
      case 2:
        for (unsigned i = 2; i < 4; ++i) byte_at(block + block_bytes + i) = std::byte{0xFF};
        return;
      case 3:
        for (unsigned i = 2; i < 8; ++i) byte_at(block + block_bytes + i) = std::byte{0xFF};
        return;
      default:
        return;
    }
  }

  void expect_result() {
    if (random_.chance(1, 2)) return;
    made_.descriptor.flags |= dsa::flag::check_result;
    made_.descriptor.expected_res = static_cast<std::uint8_t>(random_.below(2));
  }
  /// The app tag's mask is often empty: masked bits are not checked.
  [[nodiscard]] std::uint16_t draw_mask() {
    return random_.chance(1, 2) ? std::uint16_t{0} : static_cast<std::uint16_t>(random_());
  }
  [[nodiscard]] std::uint32_t draw_ref() {
    // Often near the wrap-around.
    return static_cast<std::uint32_t>(random_.chance(1, 4) ? 0xFFFFFFFE : random_());
  }
  [[nodiscard]] std::uint16_t draw_app() {
    return static_cast<std::uint16_t>(random_.chance(1, 4) ? 0xFFFD : random_());
  }
  [[nodiscard]] std::uint8_t any_of(unsigned first, unsigned second) {
    return static_cast<std::uint8_t>((random_.chance(1, 2) ? first : 0U) |
                                     (random_.chance(1, 2) ? second : 0U));
  }
  static std::uint32_t round_up_to_units(std::uint32_t byte_count) {
    return (byte_count + 7) / 8 * 8;
  }

  [[nodiscard]] std::byte any_byte() { return static_cast<std::byte>(random_()); }
  [[nodiscard]] std::byte& byte_at(Address address) { return made_.arena.bytes()[address - kBase]; }
  void spoil(Address first, std::uint64_t byte_count) {
    byte_at(first + random_.below(byte_count)) ^= std::byte{1} << random_.below(8);
  }
  void make_equal(Address from, Address to, std::uint64_t byte_count) {
    for (std::uint64_t i = 0; i < byte_count; ++i) byte_at(to + i) = byte_at(from + i);
  }
  [[nodiscard]] Address place(std::uint64_t room, std::uint64_t byte_count,
                              std::uint64_t alignment) {
    const std::uint64_t slack = kRoomBytes - byte_count;
    return kBase + room * kRoomBytes +
           random_.below(std::min<std::uint64_t>(slack, 4096)) / alignment * alignment;
  }
  [[nodiscard]] Address source(std::uint64_t room, std::uint64_t byte_count,
                               std::uint64_t alignment = 1) {
    made_.sources.push_back({place(room, byte_count, alignment), byte_count});
    return made_.sources.back().first;
  }
  [[nodiscard]] Address target(std::uint64_t room, std::uint64_t byte_count,
                               std::uint64_t alignment = 1) {
    made_.targets.push_back({place(room, byte_count, alignment), byte_count});
    return made_.targets.back().first;
  }

  Random& random_;
  DsaCase made_;
};

}  // namespace

std::span<const Opcode> operation_opcodes() {
  static const std::vector<Opcode> opcodes = [] {
    std::vector<Opcode> all(kDsaOpcodes.begin(), kDsaOpcodes.end());
    // The device handles these: it expands batches, and waits for drains.
    std::erase_if(all, [](Opcode each) { return each == Opcode::batch || each == Opcode::drain; });
    return all;
  }();
  return opcodes;
}

DsaCase make_case(Opcode opcode, std::uint64_t byte_count, Random& random) {
  return Maker(opcode, byte_count, random).make();
}

Descriptor rest_of(const Descriptor& descriptor, const dsa::CompletionRecord& record) {
  Descriptor rest = descriptor;
  const std::uint32_t done = record.bytes_completed;
  rest.xfer_size -= done;
  switch (static_cast<Opcode>(descriptor.opcode)) {
    case Opcode::move:
      if (record.result == 0) {
        rest.src_addr += done;
        rest.dst_addr += done;
      }
      break;
    case Opcode::fill:
      rest.dst_addr += done;
      break;
    case Opcode::compare_pattern:
      rest.src_addr += done;
      break;
    case Opcode::compare:
      rest.src_addr += done;
      rest.src2_addr += done;
      break;
    case Opcode::dualcast:
      rest.src_addr += done;
      rest.dst_addr += done;
      rest.dest2 += done;
      break;
    case Opcode::crc:
    case Opcode::copy_crc:
      rest.src_addr += done;
      if (static_cast<Opcode>(descriptor.opcode) == Opcode::copy_crc) rest.dst_addr += done;
      rest.flags = rest.flags & ~kCrcReadSeed & 0xFFFFFFU;
      rest.seed_addr = 0;
      rest.crc_seed = static_cast<std::uint32_t>(record.crc_val);
      break;
    case Opcode::cache_flush:
      rest.dst_addr += done;
      break;
    case Opcode::dif_insert: {
      const std::uint64_t block_bytes = dif_block_bytes(descriptor.dif_ins_flags);
      rest.src_addr += done;
      rest.dst_addr += done / block_bytes * (block_bytes + kDifBytes);
      rest.ins_ref_tag_seed = record.dif_ins_ref_tag;
      rest.ins_app_tag_seed = record.dif_ins_app_tag;
      break;
    }
    case Opcode::dif_check:
    case Opcode::dif_strip: {
      const std::uint64_t block_bytes = dif_block_bytes(descriptor.dif_chk_flags);
      rest.src_addr += done;
      if (static_cast<Opcode>(descriptor.opcode) == Opcode::dif_strip) {
        rest.dst_addr += done / (block_bytes + kDifBytes) * block_bytes;
      }
      rest.chk_ref_tag_seed = record.dif_chk_ref_tag;
      rest.chk_app_tag_seed = record.dif_chk_app_tag;
      break;
    }
    case Opcode::dif_update:
      rest.src_addr += done;
      rest.dst_addr += done;
      rest.src_ref_tag_seed = record.dif_upd_src_ref_tag;
      rest.src_app_tag_seed = record.dif_upd_src_app_tag;
      rest.dest_ref_tag_seed = record.dif_upd_dest_ref_tag;
      rest.dest_app_tag_seed = record.dif_upd_dest_app_tag;
      break;
    default:
      break;
  }
  return rest;
}

}  // namespace headrace::test
