// SPDX-License-Identifier: Apache-2.0
// Compares every opcode with the reference (tests/support/dsa_reference.hpp): random sizes, places,
// flags and overlaps, cut into random slices, with faults at any byte, and resumed after them. All
// memory except the operands is inaccessible, so a stray access faults.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "emu/operation/operation.hpp"
#include "headrace/base/random.hpp"
#include "support/dsa_case.hpp"

namespace headrace::emu {
namespace {

using dsa::CompletionRecord;
using dsa::Descriptor;
using dsa::Opcode;
using test::ClientArena;
using test::DsaCase;
using test::Extent;

constexpr std::uint64_t kBytesMax = 4000;
constexpr Limits kLimits{.transfer_bytes_max = 1U << 21U, .batch_max = 32, .block_on_fault = true};

Opcode any_opcode() {
  return *rc::gen::elementOf(
      std::vector<Opcode>(test::operation_opcodes().begin(), test::operation_opcodes().end()));
}

/// A case whose size shrinks; its contents come from a seed.
DsaCase any_case() {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  return test::make_case(any_opcode(), *rc::gen::inRange<std::uint64_t>(1, kBytesMax), random);
}

CompletionRecord run(const Descriptor& descriptor, ClientArena& arena, std::uint64_t slice_seed) {
  if (const auto refused = refuse(descriptor, kLimits, Origin::portal)) {
    RC_FAIL(fmt::format("a valid descriptor is refused with status {:#x}", refused->status));
  }
  Operation operation(descriptor, kLimits);
  Random random(slice_seed);
  std::uint64_t slices = 0;
  while (!operation.advance(arena, 1 + random.below(std::uint64_t{1} << random.below(14)))) {
    RC_ASSERT(++slices < 100'000);
  }
  return operation.record();
}

std::string shown(const Descriptor& descriptor) {
  return fmt::format("opcode {:#x} flags {:#x} bytes {} source {:#x} target {:#x}",
                     unsigned{descriptor.opcode}, unsigned{descriptor.flags},
                     std::uint32_t{descriptor.xfer_size}, std::uint64_t{descriptor.src_addr},
                     std::uint64_t{descriptor.dst_addr});
}

std::string shown(const CompletionRecord& record) {
  return fmt::format("status {:#x} result {} bytes_completed {} fault_addr {:#x} value {:#x}",
                     unsigned{record.status}, unsigned{record.result},
                     std::uint32_t{record.bytes_completed}, std::uint64_t{record.fault_addr},
                     std::uint64_t{record.crc_val});
}

/// Whether the opcode defines the last sixteen bytes of the record for this outcome.
bool defines_values(const Descriptor& descriptor, const CompletionRecord& record) {
  const auto status = dsa::status_of(record.status);
  const bool ended = status == dsa::Status::success || status == dsa::Status::success_unexpected;
  const bool faulted =
      status == dsa::Status::page_fault || status == dsa::Status::page_fault_refused;
  switch (static_cast<Opcode>(descriptor.opcode)) {
    case Opcode::crc:
    case Opcode::copy_crc:
    case Opcode::create_delta:
      return ended || faulted;
    case Opcode::dif_check:
    case Opcode::dif_insert:
    case Opcode::dif_strip:
    case Opcode::dif_update:
      return faulted;
    default:
      return false;
  }
}

void expect_same(const Descriptor& descriptor, const CompletionRecord& got,
                 const CompletionRecord& expected) {
  bool same = got.status == expected.status && got.fault_addr == expected.fault_addr &&
              got.result == expected.result && got.bytes_completed == expected.bytes_completed;
  if (defines_values(descriptor, expected)) {
    same = same && std::memcmp(got.op_specific, expected.op_specific, sizeof got.op_specific) == 0;
  }
  if (!same) {
    RC_FAIL(fmt::format("{}\n  is        {}\n  should be {}", shown(descriptor), shown(got),
                        shown(expected)));
  }
}

bool named(const DsaCase& made, Address address) {
  return std::ranges::any_of(test::written_by(made.descriptor),
                             [&](const Extent& extent) { return extent.holds(address); });
}

RC_GTEST_PROP(OperationProperty, EveryOpcodeDoesWhatTheReferenceDoes, ()) {
  DsaCase made = any_case();
  ClientArena reference = made.arena;
  const auto expected = test::carry_out(made.descriptor, PageFaults::report, reference);
  const auto got = run(made.descriptor, made.arena, *rc::gen::arbitrary<std::uint64_t>());
  expect_same(made.descriptor, got, expected);
  for (std::size_t i = 0; i < made.arena.byte_count(); ++i) {
    const Address address = made.arena.base() + i;
    if (made.arena.was_written(i) && !named(made, address)) {
      RC_FAIL(
          fmt::format("{}: writes {:#x}, which it does not name", shown(made.descriptor), address));
    }
    // Up to an error all bytes equal the reference; behind it, a target may be partly written.
    if (made.arena.bytes()[i] != reference.bytes()[i] &&
        dsa::status_of(got.status) <= dsa::Status::success_unexpected) {
      RC_FAIL(fmt::format("{}: wrong byte at {:#x}", shown(made.descriptor), address));
    }
  }
}

/// A byte of an operand, where a fault will occur.
Address any_place(const DsaCase& made) {
  std::vector<Extent> all = made.targets;
  // An unreadable seed of a checksum is tested separately.
  const std::size_t source_count = std::min<std::size_t>(
      made.sources.size(),
      (made.descriptor.flags & test::kCrcReadSeed) != 0 ? std::size_t{1} : std::size_t{2});
  all.insert(all.end(), made.sources.begin(),
             made.sources.begin() + static_cast<std::ptrdiff_t>(source_count));
  const Extent extent = *rc::gen::elementOf(all);
  return extent.first + *rc::gen::inRange<std::uint64_t>(0, extent.byte_count);
}

DsaCase any_case_with_memory() {
  DsaCase made = any_case();
  RC_PRE(!made.sources.empty() || !made.targets.empty());
  return made;
}

RC_GTEST_PROP(OperationProperty, AFaultAtAnyByteIsReportedExactly, ()) {
  DsaCase made = any_case_with_memory();
  const Address hole = any_place(made);
  const bool blocks = *rc::gen::arbitrary<bool>();
  if (blocks) made.descriptor.flags |= dsa::flag::block_on_fault;
  const std::uint64_t hole_bytes = std::min<std::uint64_t>(
      *rc::gen::inRange<std::uint64_t>(1, 100), made.arena.base() + made.arena.byte_count() - hole);
  made.arena.allow(hole, hole_bytes, ClientArena::Access::none);
  ClientArena before = made.arena;
  ClientArena stopped = made.arena;
  ClientArena whole = made.arena;
  whole.allow(hole, hole_bytes, ClientArena::Access::all);
  const auto faults = blocks ? PageFaults::resolve : PageFaults::report;
  const auto expected = test::carry_out(made.descriptor, faults, stopped);
  static_cast<void>(test::carry_out(made.descriptor, faults, whole));
  const auto got = run(made.descriptor, made.arena, *rc::gen::arbitrary<std::uint64_t>());
  expect_same(made.descriptor, got, expected);
  for (std::size_t i = 0; i < made.arena.byte_count(); ++i) {
    const std::byte found = made.arena.bytes()[i];
    if (found != before.bytes()[i] && found != whole.bytes()[i]) {
      RC_FAIL(fmt::format("{}: the byte at {:#x} is neither old nor final", shown(made.descriptor),
                          made.arena.base() + i));
    }
    if (made.arena.was_written(i)) RC_ASSERT(named(made, made.arena.base() + i));
  }
}

RC_GTEST_PROP(OperationProperty, AnAbsentPageIsNoFaultWhereTheDeviceWaits, ()) {
  DsaCase made = any_case_with_memory();
  made.descriptor.flags |= dsa::flag::block_on_fault;
  ClientArena reference = made.arena;
  for (const Extent& extent : made.targets) {
    made.arena.allow(extent.first, extent.byte_count, ClientArena::Access::absent);
  }
  const auto expected = test::carry_out(made.descriptor, PageFaults::resolve, reference);
  const auto got = run(made.descriptor, made.arena, *rc::gen::arbitrary<std::uint64_t>());
  expect_same(made.descriptor, got, expected);
}

RC_GTEST_PROP(OperationProperty, WhatAFaultStoppedCanBeGoneOnWith, ()) {
  DsaCase made = any_case_with_memory();
  const auto opcode = static_cast<Opcode>(made.descriptor.opcode);
  const Address hole = any_place(made);
  ClientArena reference = made.arena;
  const auto expected = test::carry_out(made.descriptor, PageFaults::report, reference);
  // An absent page that would be faulted in; the client touches it and submits the rest.
  const ClientArena::Access access =
      std::ranges::any_of(made.targets, [&](const Extent& extent) { return extent.holds(hole); })
          ? ClientArena::Access::all
          : ClientArena::Access::read_only;
  made.arena.allow(hole, 1, ClientArena::Access::absent);
  auto got = run(made.descriptor, made.arena, *rc::gen::arbitrary<std::uint64_t>());
  Descriptor rest = made.descriptor;
  std::uint32_t done = 0;
  if (dsa::status_of(got.status) == dsa::Status::page_fault) {
    RC_ASSERT(got.fault_addr == (hole & ~Address{0xFFF}));
    made.arena.allow(hole, 1, access);
    rest = test::rest_of(rest, got);
    done = got.bytes_completed;
    got = run(rest, made.arena, *rc::gen::arbitrary<std::uint64_t>());
  }
  RC_ASSERT(got.status == expected.status);
  RC_ASSERT(got.result == expected.result);
  if (expected.bytes_completed != 0)
    RC_ASSERT(got.bytes_completed + done == expected.bytes_completed);
  if (opcode == Opcode::crc || opcode == Opcode::copy_crc)
    RC_ASSERT(got.crc_val == expected.crc_val);
  for (std::size_t i = 0; i < made.arena.byte_count(); ++i) {
    if (dsa::status_of(got.status) <= dsa::Status::success_unexpected) {
      RC_ASSERT(made.arena.bytes()[i] == reference.bytes()[i]);
    }
  }
}

RC_GTEST_PROP(OperationProperty, AnOperationEndedFromOutsideSaysHowFarItCame, ()) {
  DsaCase made = any_case_with_memory();
  Operation operation(made.descriptor, kLimits);
  const auto slice = *rc::gen::inRange<std::size_t>(1, 2000);
  if (operation.advance(made.arena, slice)) return;
  operation.end_with_status(dsa::kStatusAborted);
  RC_ASSERT(operation.record().status == dsa::kStatusAborted);
  RC_ASSERT(operation.record().bytes_completed <= made.descriptor.xfer_size);
}

}  // namespace
}  // namespace headrace::emu
