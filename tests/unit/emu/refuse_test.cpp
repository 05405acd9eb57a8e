// SPDX-License-Identifier: Apache-2.0
// One row for each rule that refuses a descriptor, and one for each nearest valid case.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "emu/operation/operation.hpp"
#include "emu/operation/rules.hpp"
#include "operands.hpp"
#include "support/dsa_opcodes.hpp"

namespace headrace::emu {
namespace {

using dsa::Descriptor;
using dsa::Opcode;
using operands::descriptor_of;

constexpr Limits kSmall{.transfer_bytes_max = 0x100000, .batch_max = 32};

struct Row {
  const char* what;
  Opcode opcode;
  std::function<void(Descriptor&)> change;
  int status;  // 0: may run.
  Origin origin = Origin::portal;
  Limits limits = kSmall;
};

// Valid operands for `opcode`, far apart.
Descriptor good(Opcode opcode) {
  Descriptor descriptor = descriptor_of(opcode, 0x10000000, 0x20000000, 4096);
  descriptor.flags = dsa::flag::record_address_valid | dsa::flag::request_record;
  descriptor.completion_addr = 0x50000000;
  switch (opcode) {
    case Opcode::batch:
      descriptor.desc_count = 2;
      break;
    case Opcode::create_delta:
      descriptor.delta_addr = 0x30000000;
      descriptor.max_delta_size = 8192;
      break;
    case Opcode::apply_delta:
      descriptor.delta_rec_size = 20;
      break;
    case Opcode::dualcast:
      descriptor.dest2 = 0x30000000;
      break;
    case Opcode::dif_check:
    case Opcode::dif_strip:
    case Opcode::dif_update:
      descriptor.xfer_size = 520 * 8;
      break;
    default:
      break;
  }
  return descriptor;
}

TEST(Refuse, every_opcode_of_the_header_may_run) {
  for (const Opcode opcode : headrace::test::kDsaOpcodes) {
    EXPECT_FALSE(refuse(good(opcode), kSmall, Origin::portal).has_value()) << dsa::name(opcode);
    EXPECT_TRUE(rules::is_known(opcode));
  }
}

TEST(Refuse, every_other_opcode_is_bad) {
  for (unsigned number = 0; number < 256; ++number) {
    if (dsa::name(static_cast<Opcode>(number)) != "unknown") continue;
    Descriptor descriptor = good(Opcode::move);
    descriptor.opcode = static_cast<std::uint8_t>(number);
    const auto record = refuse(descriptor, kSmall, Origin::portal);
    EXPECT_EQ(record.value().status, DSA_COMP_BAD_OPCODE) << number;
  }
}

TEST(Refuse, an_opcode_that_op_config_leaves_out_is_bad) {
  for (const Opcode opcode : headrace::test::kDsaOpcodes) {
    Limits limits = kSmall;
    limits.opcodes_low = ~(1ULL << static_cast<unsigned>(opcode));
    EXPECT_EQ(refuse(good(opcode), limits, Origin::portal).value().status, DSA_COMP_BAD_OPCODE);
  }
}

TEST(Refuse, the_record_names_exactly_the_flags_that_are_not_allowed) {
  for (const Opcode opcode : headrace::test::kDsaOpcodes) {
    Descriptor descriptor = good(opcode);
    descriptor.flags = 0xffffff;
    const auto record = refuse(descriptor, kSmall, Origin::portal);
    ASSERT_EQ(record.value().status, DSA_COMP_INVALID_FLAGS);
    descriptor.flags = 0xffffffU & ~record->invalid_flags;
    const auto again = refuse(descriptor, kSmall, Origin::portal);
    EXPECT_TRUE(!again.has_value() || again->status != DSA_COMP_INVALID_FLAGS) << dsa::name(opcode);
    EXPECT_EQ(record->invalid_flags & 0x40U, 0x40U);
  }
}

const Row kRows[] = {
    {"block on fault with noop", Opcode::noop, [](auto& d) { d.flags = dsa::flag::block_on_fault; },
     0x11},
    {"block on fault with drain", Opcode::drain,
     [](auto& d) { d.flags = dsa::flag::block_on_fault; }, 0x11},
    {"block on fault with batch", Opcode::batch,
     [](auto& d) { d.flags = dsa::flag::block_on_fault; }, 0x11},
    {"block on fault with move", Opcode::move, [](auto& d) { d.flags = dsa::flag::block_on_fault; },
     0},
    {"cache control with move", Opcode::move, [](auto& d) { d.flags = dsa::flag::cache_control; },
     0},
    {"cache control with flush", Opcode::cache_flush,
     [](auto& d) { d.flags = dsa::flag::cache_control; }, 0x11},
    {"check result with move", Opcode::move, [](auto& d) { d.flags = dsa::flag::check_result; },
     0x11},
    {"check result with compare", Opcode::compare,
     [](auto& d) { d.flags = dsa::flag::check_result; }, 0},
    {"cache control with compare", Opcode::compare,
     [](auto& d) { d.flags = dsa::flag::cache_control; }, 0x11},
    {"destination readback with move", Opcode::move,
     [](auto& d) { d.flags = dsa::flag::destination_readback; }, 0},
    {"read seed with move", Opcode::move, [](auto& d) { d.flags = rules::kFlagReadSeed; }, 0x11},
    {"record asked for without address", Opcode::move,
     [](auto& d) { d.flags = dsa::flag::request_record; }, 0x11},
    {"long pattern where it is not supported",
     Opcode::fill,
     [](auto& d) { d.flags = rules::kFlagLongPattern; },
     0x11,
     Origin::portal,
     {.transfer_bytes_max = 0x100000, .fill_16 = false}},
    {"batch within a batch", Opcode::batch, [](auto&) {}, 0x10, Origin::batch},
    {"drain within a batch", Opcode::drain, [](auto&) {}, 0x10, Origin::batch},
    {"noop within a batch", Opcode::noop, [](auto&) {}, 0, Origin::batch},
    {"batch by write()", Opcode::batch, [](auto&) {}, 0x10, Origin::kernel_write},
    {"drain by write()", Opcode::drain, [](auto&) {}, 0, Origin::kernel_write},
    {"reserved bits beside the PASID", Opcode::move, [](auto& d) { d.rsvd = 1; }, 0x12},
    {"reserved word", Opcode::move, [](auto& d) { d.rsvd1 = 1; }, 0x12},
    {"reserved bits of DIF flags", Opcode::dif_check, [](auto& d) { d.dif_chk_flags = 0x10; },
     0x12},
    {"reserved bytes of DIF check", Opcode::dif_strip, [](auto& d) { d.dif_chk_res2[4] = 1; },
     0x12},
    {"reserved target flags of DIF insert", Opcode::dif_insert,
     [](auto& d) { d.dest_dif_flag = 1; }, 0x12},
    {"reserved bytes of DIF update", Opcode::dif_update, [](auto& d) { d.upd_dest_flags = 4; },
     0x12},
    {"reserved word of CRC", Opcode::crc, [](auto& d) { d.crc_rsvd = 1; }, 0x12},
    {"reserved word of create delta", Opcode::create_delta, [](auto& d) { d.delt_rsvd = 1; }, 0x12},
    {"operands of a noop", Opcode::noop, [](auto& d) { d.xfer_size = 0; }, 0},
    {"transfer of nothing", Opcode::move, [](auto& d) { d.xfer_size = 0; }, 0x13},
    {"largest transfer", Opcode::move, [](auto& d) { d.xfer_size = 0x100000; }, 0},
    {"transfer beyond the largest", Opcode::move, [](auto& d) { d.xfer_size = 0x100001; }, 0x13},
    {"flush of nothing", Opcode::cache_flush, [](auto& d) { d.xfer_size = 0; }, 0x13},
    {"delta of broken units", Opcode::create_delta, [](auto& d) { d.xfer_size = 4092; }, 0x13},
    {"largest delta", Opcode::apply_delta, [](auto& d) { d.xfer_size = 0x80000; }, 0},
    {"delta beyond the largest", Opcode::apply_delta, [](auto& d) { d.xfer_size = 0x80008; }, 0x13},
    {"DIF of broken blocks", Opcode::dif_insert, [](auto& d) { d.xfer_size = 4097; }, 0x13},
    {"DIF of blocks of 4104", Opcode::dif_check,
     [](auto& d) {
       d.dif_chk_flags = 3;
       d.xfer_size = 4112 * 2;
     },
     0},
    {"batch of one", Opcode::batch, [](auto& d) { d.desc_count = 1; }, 0x14},
    {"largest batch", Opcode::batch, [](auto& d) { d.desc_count = 32; }, 0},
    {"batch beyond the largest", Opcode::batch, [](auto& d) { d.desc_count = 33; }, 0x14},
    {"delta record too small to create", Opcode::create_delta,
     [](auto& d) { d.max_delta_size = 79; }, 0x15},
    {"delta record of broken entries to create", Opcode::create_delta,
     [](auto& d) { d.max_delta_size = 8192; }, 0},
    {"delta record of broken entries to apply", Opcode::apply_delta,
     [](auto& d) { d.delta_rec_size = 21; }, 0x15},
    {"delta record of nothing to apply", Opcode::apply_delta, [](auto& d) { d.delta_rec_size = 0; },
     0x15},
    {"move onto itself", Opcode::move, [](auto& d) { d.dst_addr = d.src_addr + 1; }, 0},
    {"dualcast onto its source", Opcode::dualcast, [](auto& d) { d.dest2 = d.src_addr; }, 0x16},
    {"dualcast twice to one place", Opcode::dualcast, [](auto& d) { d.dest2 = d.dst_addr; }, 0x16},
    {"dualcast beside its source", Opcode::dualcast, [](auto& d) { d.dest2 = d.src_addr + 4096; },
     0},
    {"copy with CRC onto its source", Opcode::copy_crc,
     [](auto& d) { d.dst_addr = d.src_addr + 4095; }, 0x16},
    {"delta record over its source", Opcode::create_delta,
     [](auto& d) { d.delta_addr = d.src_addr - 8; }, 0x16},
    {"delta record over its target", Opcode::apply_delta, [](auto& d) { d.src_addr = d.dst_addr; },
     0x16},
    {"DIF insert that grows over its source", Opcode::dif_insert,
     [](auto& d) { d.src_addr = d.dst_addr + 4096; }, 0x16},
    {"DIF strip onto its source", Opcode::dif_strip, [](auto& d) { d.dst_addr = d.src_addr; },
     0x16},
    {"DIF update onto its source", Opcode::dif_update, [](auto& d) { d.dst_addr = d.src_addr; },
     0x16},
    {"dualcast to unlike offsets", Opcode::dualcast, [](auto& d) { d.dest2 += 8; }, 0x17},
    {"list between lines", Opcode::batch, [](auto& d) { d.desc_list_addr += 32; }, 0x18},
    {"record between its places", Opcode::move, [](auto& d) { d.completion_addr += 16; }, 0x1b},
    {"record that is not valid", Opcode::move,
     [](auto& d) {
       d.flags = 0;
       d.completion_addr += 16;
     },
     0},
    {"delta source between units", Opcode::create_delta, [](auto& d) { d.src_addr += 4; }, 0x1c},
    {"delta record between units", Opcode::create_delta, [](auto& d) { d.delta_addr += 4; }, 0x1c},
    {"delta target between units", Opcode::apply_delta, [](auto& d) { d.dst_addr += 4; }, 0x1c},
    {"seed between words", Opcode::crc,
     [](auto& d) {
       d.flags = rules::kFlagReadSeed;
       d.seed_addr = 0x40000002;
     },
     0x1c},
    {"seed address that is not used", Opcode::crc, [](auto& d) { d.seed_addr = 0x40000002; }, 0},
};

TEST(Refuse, each_rule_gives_its_status) {
  for (const Row& row : kRows) {
    Descriptor descriptor = good(row.opcode);
    row.change(descriptor);
    const auto record = refuse(descriptor, row.limits, row.origin);
    EXPECT_EQ(record.has_value() ? record->status : 0, row.status) << row.what;
  }
}

}  // namespace
}  // namespace headrace::emu
