// SPDX-License-Identifier: Apache-2.0
// Refused descriptors and their status: each case violates one rule in an otherwise valid
// descriptor. That a refused descriptor accesses no memory is tested by tests/fuzz.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <optional>
#include <vector>

#include "emu/operation/operation.hpp"
#include "headrace/base/random.hpp"
#include "support/dsa_case.hpp"

namespace headrace::emu::refuse_property_test {
namespace {

using dsa::Descriptor;
using dsa::Opcode;
using dsa::Status;

constexpr Limits kLimits{.transfer_bytes_max = 1U << 21U, .batch_max = 32, .block_on_fault = true};

Descriptor any_of(Opcode opcode) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  Descriptor made =
      test::make_case(opcode, *rc::gen::inRange<std::uint64_t>(1, 4000), random).descriptor;
  made.flags |= dsa::flag::record_address_valid | dsa::flag::request_record;
  made.completion_addr = 0x7100'0000'0000;
  return made;
}

Opcode any_opcode() {
  return *rc::gen::elementOf(
      std::vector<Opcode>(test::operation_opcodes().begin(), test::operation_opcodes().end()));
}
Opcode any_opcode_with_memory() {
  const Opcode opcode = any_opcode();
  RC_PRE(opcode != Opcode::noop);
  return opcode;
}

Descriptor any_batch() {
  Descriptor batch{};
  batch.opcode = DSA_OPCODE_BATCH;
  batch.desc_list_addr = 0x7000'0000'0000 + 64 * *rc::gen::inRange<std::uint64_t>(0, 100);
  batch.desc_count = *rc::gen::inRange<std::uint32_t>(2, kLimits.batch_max + 1);
  batch.flags = dsa::flag::record_address_valid | dsa::flag::request_record;
  batch.completion_addr = 0x7100'0000'0000;
  return batch;
}

void expect_refused(const Descriptor& descriptor, Status status, Origin origin = Origin::portal,
                    const Limits& limits = kLimits) {
  const auto refused = refuse(descriptor, limits, origin);
  if (!refused) {
    RC_FAIL(fmt::format("opcode {:#x} is not refused, should be with {:#x}",
                        unsigned{descriptor.opcode}, static_cast<unsigned>(status)));
  }
  if (refused->status != static_cast<std::uint8_t>(status)) {
    RC_FAIL(fmt::format("opcode {:#x} is refused with {:#x} instead of {:#x}",
                        unsigned{descriptor.opcode}, unsigned{refused->status},
                        static_cast<unsigned>(status)));
  }
  RC_ASSERT(refused->bytes_completed == 0U);
}

void expect_accepted(const Descriptor& descriptor, Origin origin) {
  if (const auto refused = refuse(descriptor, kLimits, origin)) {
    RC_FAIL(fmt::format("opcode {:#x} is refused with {:#x}", unsigned{descriptor.opcode},
                        unsigned{refused->status}));
  }
}

RC_GTEST_PROP(Refuse, NothingThatIsValid, ()) {
  const auto origin = *rc::gen::element(Origin::portal, Origin::batch, Origin::kernel_write);
  expect_accepted(any_of(any_opcode()), origin);
  expect_accepted(any_batch(), Origin::portal);
}

RC_GTEST_PROP(Refuse, AnUnknownOpcode, ()) {
  Descriptor descriptor = any_of(Opcode::noop);
  std::vector<std::uint8_t> codes;
  for (unsigned code = 0; code <= 0xFF; ++code) {
    if (dsa::name(static_cast<Opcode>(code)) == "unknown") {
      codes.push_back(static_cast<std::uint8_t>(code));
    }
  }
  RC_ASSERT(codes.size() == 256U - 17U);
  const auto code = *rc::gen::elementOf(codes);
  descriptor.opcode = code;
  expect_refused(descriptor, Status::bad_opcode);
}

RC_GTEST_PROP(Refuse, AnOpcodeThatTheQueueDoesNotAllow, ()) {
  const Opcode opcode = any_opcode();
  Limits limits = kLimits;
  limits.opcodes_low = ~(std::uint64_t{1} << static_cast<unsigned>(opcode));
  expect_refused(any_of(opcode), Status::bad_opcode, Origin::portal, limits);
}

RC_GTEST_PROP(Refuse, ABatchOrADrainInsideABatch, ()) {
  Descriptor drain = any_of(Opcode::noop);
  drain.opcode = DSA_OPCODE_DRAIN;
  expect_accepted(drain, Origin::portal);
  expect_refused(drain, Status::bad_opcode, Origin::batch);
  expect_refused(any_batch(), Status::bad_opcode, Origin::batch);
}

RC_GTEST_PROP(Refuse, BlockOnFaultWhereNoMemoryIsNamed, ()) {
  Descriptor descriptor = *rc::gen::element(0, 1) == 0 ? any_of(Opcode::noop) : any_batch();
  descriptor.flags |= dsa::flag::block_on_fault;
  expect_refused(descriptor, Status::bad_flags);
  descriptor = any_of(Opcode::noop);
  descriptor.opcode = DSA_OPCODE_DRAIN;
  descriptor.flags |= dsa::flag::block_on_fault;
  expect_refused(descriptor, Status::bad_flags);
}

RC_GTEST_PROP(Refuse, ReservedBitsThatAreSet, ()) {
  Descriptor descriptor = any_of(any_opcode());
  if (*rc::gen::arbitrary<bool>()) {
    descriptor.rsvd = 1U << *rc::gen::inRange(0U, 11U);
  } else {
    descriptor.rsvd1 = static_cast<std::uint16_t>(1U << *rc::gen::inRange(0U, 16U));
  }
  expect_refused(descriptor, Status::reserved_not_zero);
}

RC_GTEST_PROP(Refuse, ATransferOfNothing, ()) {
  Descriptor descriptor = any_of(any_opcode_with_memory());
  descriptor.xfer_size = 0;
  expect_refused(descriptor, Status::bad_transfer_size);
}

RC_GTEST_PROP(Refuse, ATransferAboveTheQueuesLimit, ()) {
  const Descriptor descriptor = any_of(any_opcode_with_memory());
  Limits limits = kLimits;
  limits.transfer_bytes_max = descriptor.xfer_size - 1;
  expect_refused(descriptor, Status::bad_transfer_size, Origin::portal, limits);
  limits.transfer_bytes_max = descriptor.xfer_size;
  RC_ASSERT(!refuse(descriptor, limits, Origin::portal));
}

RC_GTEST_PROP(Refuse, ABatchOfTooFewOrTooMany, ()) {
  Descriptor batch = any_batch();
  batch.desc_count = *rc::gen::element(0U, 1U, kLimits.batch_max + 1, 1U << 20U, ~0U);
  expect_refused(batch, Status::bad_descriptor_count);
}

RC_GTEST_PROP(Refuse, AListThatIsNotAligned, ()) {
  Descriptor batch = any_batch();
  batch.desc_list_addr += *rc::gen::inRange<std::uint64_t>(1, 64);
  expect_refused(batch, Status::descriptor_list_misaligned);
}

RC_GTEST_PROP(Refuse, ARecordThatIsNotAligned, ()) {
  Descriptor descriptor = any_of(any_opcode());
  descriptor.completion_addr += *rc::gen::inRange<std::uint64_t>(1, 32);
  expect_refused(descriptor, Status::record_misaligned);
}

RC_GTEST_PROP(Refuse, DeltaOperandsThatAreNotAligned, ()) {
  Descriptor create = any_of(Opcode::create_delta);
  const auto off = *rc::gen::inRange<std::uint64_t>(1, 8);
  switch (*rc::gen::inRange(0, 3)) {
    case 0:
      create.src_addr += off;
      break;
    case 1:
      create.src2_addr += off;
      break;
    default:
      create.delta_addr += off;
      break;
  }
  expect_refused(create, Status::address_misaligned);
  Descriptor apply = any_of(Opcode::apply_delta);
  if (*rc::gen::arbitrary<bool>()) {
    apply.src_addr += off;
  } else {
    apply.dst_addr += off;
  }
  expect_refused(apply, Status::address_misaligned);
}

RC_GTEST_PROP(Refuse, DeltaRecordsOfNoPossibleLength, ()) {
  Descriptor create = any_of(Opcode::create_delta);
  create.max_delta_size = *rc::gen::inRange(0U, 80U);
  expect_refused(create, Status::bad_delta_size);
  Descriptor apply = any_of(Opcode::apply_delta);
  apply.delta_rec_size += *rc::gen::inRange(1U, 10U);
  expect_refused(apply, Status::bad_delta_size);
}

RC_GTEST_PROP(Refuse, DualcastTargetsThatDifferWithinThePage, ()) {
  Descriptor descriptor = any_of(Opcode::dualcast);
  descriptor.dest2 += *rc::gen::inRange<std::uint64_t>(1, 4096);
  expect_refused(descriptor, Status::dualcast_misaligned);
}

RC_GTEST_PROP(Refuse, BuffersThatOverlapWhereTheyMustNot, ()) {
  const auto opcode = *rc::gen::element(Opcode::copy_crc, Opcode::dualcast, Opcode::dif_insert,
                                        Opcode::dif_strip, Opcode::apply_delta);
  Descriptor descriptor = any_of(opcode);
  // By one byte (one unit of a delta) up to all of it.
  const std::uint64_t bytes =
      opcode == Opcode::apply_delta
          ? std::min<std::uint64_t>(descriptor.delta_rec_size, descriptor.xfer_size)
          : descriptor.xfer_size;
  std::uint64_t distance = *rc::gen::inRange<std::uint64_t>(0, bytes);
  if (opcode == Opcode::apply_delta) distance = distance / 8 * 8;
  descriptor.dst_addr = descriptor.src_addr + distance;
  if (opcode == Opcode::dualcast) {
    descriptor.dest2 = descriptor.dst_addr + (std::uint64_t{1} << 20U);
  }
  expect_refused(descriptor, Status::buffers_overlap);
}

}  // namespace
}  // namespace headrace::emu::refuse_property_test
