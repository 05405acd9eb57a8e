// SPDX-License-Identifier: Apache-2.0
// Compares the whole device with the reference, on real memory: descriptors submitted through a
// portal, single or in a batch, have the reference's results in any order that the seed chooses.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "emu/device/client.hpp"
#include "emu/device/device.hpp"
#include "headrace/base/random.hpp"
#include "support/dsa_case.hpp"

namespace headrace::emu::device_property_test {
namespace {

using dsa::CompletionRecord;
using dsa::Descriptor;
using dsa::Opcode;
using test::ClientArena;
using test::DsaCase;

constexpr std::uint64_t kPageBytes = 4096;

/// Real pages at the addresses of an arena.
///
/// Threading: confined.
class RealPages {
 public:
  explicit RealPages(ClientArena& arena) : arena_(arena) {
    mapped_ = ::mmap(first(), arena.byte_count(), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (mapped_ == first()) std::memcpy(mapped_, arena.bytes().data(), arena.byte_count());
  }
  RealPages(const RealPages&) = delete;
  RealPages& operator=(const RealPages&) = delete;
  ~RealPages() {
    if (mapped_ == first()) ::munmap(mapped_, arena_.byte_count());
  }
  [[nodiscard]] bool are_there() const { return mapped_ == first(); }
  [[nodiscard]] std::byte at(std::size_t index) const {
    return static_cast<const std::byte*>(mapped_)[index];
  }
  void forbid(Address page) {
    ::mprotect(reinterpret_cast<void*>(page), kPageBytes, PROT_NONE);
    arena_.allow(page, kPageBytes, ClientArena::Access::none);
  }

 private:
  [[nodiscard]] void* first() const { return reinterpret_cast<void*>(arena_.base()); }
  ClientArena& arena_;
  void* mapped_ = nullptr;
};

std::unique_ptr<Device> make_device(std::uint64_t seed, TraceSink trace = {},
                                    const FaultScript& faults = {}) {
  const std::vector<DeviceConfig> devices{default_device(1, 1, 3, "proof")};
  DeviceOptions options;
  options.schedule = Schedule::deterministic;
  options.seed = seed;
  options.trace = std::move(trace);
  options.faults = faults;
  auto made = Device::create(devices, options);
  if (!made) RC_FAIL(made.error().message());
  return std::move(*made);
}

void ask_for(Descriptor& descriptor, CompletionRecord& record) {
  record = {};
  descriptor.flags |= dsa::flag::record_address_valid | dsa::flag::request_record;
  descriptor.completion_addr = reinterpret_cast<std::uintptr_t>(&record);
}

Descriptor batch_of(const std::vector<Descriptor>& list, CompletionRecord& record) {
  Descriptor batch{};
  batch.opcode = DSA_OPCODE_BATCH;
  batch.desc_list_addr = reinterpret_cast<std::uintptr_t>(list.data());
  batch.desc_count = static_cast<std::uint32_t>(list.size());
  ask_for(batch, record);
  return batch;
}

/// Submits it alone or among no-ops of a batch, and runs the device until idle.
CompletionRecord run(const Descriptor& wanted) {
  const auto device = make_device(*rc::gen::arbitrary<std::uint64_t>());
  auto& portal = device->portal(DeviceId{0}, QueueId{*rc::gen::inRange(0U, 2U)});
  CompletionRecord record;
  CompletionRecord summary;
  Descriptor descriptor = wanted;
  ask_for(descriptor, record);
  std::vector<Descriptor> list(3);
  list[1] = descriptor;
  const bool batched = *rc::gen::arbitrary<bool>();
  RC_ASSERT(portal.submit(batched ? batch_of(list, summary) : descriptor));
  device->client().run_until_idle();
  RC_ASSERT(dsa::load_status(record) != 0);
  if (batched) {
    const bool well = record.status == DSA_COMP_SUCCESS || record.status == DSA_COMP_SUCCESS_PRED;
    if (record.status == DSA_COMP_SUCCESS || !well) {
      RC_ASSERT(summary.status == (well ? DSA_COMP_SUCCESS : DSA_COMP_BATCH_FAIL));
    }
  }
  RC_ASSERT(device->control().occupancy(DeviceId{0}, QueueId{0}) == 0U);
  RC_ASSERT(device->control().occupancy(DeviceId{0}, QueueId{1}) == 0U);
  return record;
}

DsaCase any_case() {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  const auto opcodes = test::operation_opcodes();
  const auto opcode = *rc::gen::elementOf(std::vector<Opcode>(opcodes.begin(), opcodes.end()));
  return test::make_case(opcode, *rc::gen::inRange<std::uint64_t>(1, 4000), random);
}

void expect_same(const DsaCase& made, const CompletionRecord& got,
                 const CompletionRecord& expected) {
  const auto status = dsa::status_of(expected.status);
  bool same = got.status == expected.status && got.fault_addr == expected.fault_addr;
  if (status <= dsa::Status::success_unexpected) {
    same = same && got.result == expected.result && got.bytes_completed == expected.bytes_completed;
  }
  if (!same) {
    RC_FAIL(fmt::format(
        "opcode {:#x}: status {:#x} at {} page {:#x}, should be {:#x} at {} page {:#x}",
        unsigned{made.descriptor.opcode}, unsigned{got.status}, std::uint32_t{got.bytes_completed},
        std::uint64_t{got.fault_addr}, unsigned{expected.status},
        std::uint32_t{expected.bytes_completed}, std::uint64_t{expected.fault_addr}));
  }
}

RC_GTEST_PROP(DeviceProperty, EveryOpcodeThroughAPortalDoesWhatTheReferenceDoes, ()) {
  DsaCase made = any_case();
  ClientArena reference = made.arena;
  const RealPages pages(made.arena);
  RC_ASSERT(pages.are_there());
  const auto expected = test::carry_out(made.descriptor, PageFaults::report, reference);
  const auto got = run(made.descriptor);
  expect_same(made, got, expected);
  if (dsa::status_of(got.status) > dsa::Status::success_unexpected) return;
  for (std::size_t i = 0; i < reference.byte_count(); ++i) {
    if (pages.at(i) != reference.bytes()[i]) {
      RC_FAIL(
          fmt::format("opcode {:#x}: wrong byte at +{:#x}", unsigned{made.descriptor.opcode}, i));
    }
  }
}

RC_GTEST_PROP(DeviceProperty, APageThatIsNotThereIsReportedAsTheReferenceDoes, ()) {
  DsaCase made = any_case();
  RC_PRE(!made.targets.empty() || !made.sources.empty());
  std::vector<test::Extent> all = made.targets;
  if (!made.sources.empty()) all.push_back(made.sources.front());
  const auto extent = *rc::gen::elementOf(all);
  const Address place = extent.first + *rc::gen::inRange<std::uint64_t>(0, extent.byte_count);
  RealPages pages(made.arena);
  RC_ASSERT(pages.are_there());
  pages.forbid(place & ~(kPageBytes - 1));
  const bool blocks = *rc::gen::arbitrary<bool>();
  if (blocks) made.descriptor.flags |= dsa::flag::block_on_fault;
  ClientArena reference = made.arena;
  const auto expected = test::carry_out(
      made.descriptor, blocks ? PageFaults::resolve : PageFaults::report, reference);
  const auto got = run(made.descriptor);
  expect_same(made, got, expected);
}

/// A random program: moves within private memory, no-ops, batches, on both queues.
std::string trace_of(std::uint64_t program_seed, std::uint64_t device_seed) {
  std::string trace;
  const auto device =
      make_device(device_seed, [&](const TraceEvent& event) { trace += to_json(event) + "\n"; });
  std::array<std::byte, 8192> room{};
  std::array<CompletionRecord, 64> records{};
  std::vector<std::vector<Descriptor>> lists;
  Random random(program_seed);
  for (int i = 0; i < 20; ++i) {
    const auto any_move = [&](bool fenced) {
      Descriptor move{};
      move.opcode = random.chance(1, 3) ? DSA_OPCODE_NOOP : DSA_OPCODE_MEMMOVE;
      if (fenced) move.flags = dsa::flag::fence;
      if (move.opcode == DSA_OPCODE_NOOP) return move;
      move.src_addr = reinterpret_cast<std::uintptr_t>(room.data()) + random.below(4096);
      move.dst_addr = reinterpret_cast<std::uintptr_t>(room.data()) + random.below(4096);
      move.xfer_size = static_cast<std::uint32_t>(1 + random.below(4000));
      return move;
    };
    auto& portal =
        device->portal(DeviceId{0}, QueueId{static_cast<std::uint32_t>(random.below(2))});
    if (random.chance(1, 3)) {
      lists.emplace_back();
      for (std::uint64_t count = 2 + random.below(10); count > 0; --count) {
        lists.back().push_back(any_move(random.chance(1, 4)));
      }
      static_cast<void>(portal.submit(batch_of(lists.back(), records[random.below(64)])));
    } else {
      Descriptor move = any_move(false);
      ask_for(move, records[random.below(64)]);
      static_cast<void>(portal.submit(move));
    }
    for (std::uint64_t steps = random.below(6); steps > 0 && device->client().step(); --steps) {
    }
  }
  device->client().run_until_idle();
  return trace;
}

RC_GTEST_PROP(DeviceProperty, TheSameSeedGivesTheSameTrace, ()) {
  const auto program = *rc::gen::arbitrary<std::uint64_t>();
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const std::string first = trace_of(program, seed);
  RC_ASSERT(!first.empty());
  RC_ASSERT(first == trace_of(program, seed));
}

TEST(DeviceProperty, AnotherSeedGivesAnotherTraceNowAndThen) {
  const std::string first = trace_of(1, 1);
  bool differs = false;
  for (std::uint64_t seed = 2; seed < 20 && !differs; ++seed) differs = trace_of(1, seed) != first;
  EXPECT_TRUE(differs);
}

RC_GTEST_PROP(DeviceProperty, AFenceHoldsUpWhatFollows, ()) {
  // A number goes from cell to cell; without the fences a move could take the old one.
  constexpr std::size_t kCells = 12;
  constexpr std::size_t kCellBytes = 3000;
  const auto device = make_device(*rc::gen::arbitrary<std::uint64_t>());
  std::vector<std::byte> cells(kCells * kCellBytes);
  std::fill_n(cells.begin(), kCellBytes, std::byte{7});
  std::vector<Descriptor> list(kCells - 1);
  for (std::size_t i = 0; i + 1 < kCells; ++i) {
    list[i].opcode = DSA_OPCODE_MEMMOVE;
    list[i].flags = i == 0 ? 0 : dsa::flag::fence;
    list[i].src_addr = reinterpret_cast<std::uintptr_t>(&cells[i * kCellBytes]);
    list[i].dst_addr = list[i].src_addr + kCellBytes;
    list[i].xfer_size = kCellBytes;
  }
  CompletionRecord summary;
  RC_ASSERT(device->portal(DeviceId{0}, QueueId{0}).submit(batch_of(list, summary)));
  device->client().run_until_idle();
  RC_ASSERT(summary.status == DSA_COMP_SUCCESS);
  RC_ASSERT(std::ranges::count(cells, std::byte{7}) == static_cast<std::ptrdiff_t>(cells.size()));
}

RC_GTEST_PROP(DeviceProperty, AFailureBeforeAFenceAbortsWhatFollows, ()) {
  const auto device = make_device(*rc::gen::arbitrary<std::uint64_t>());
  std::array<std::byte, 64> room{};
  std::vector<Descriptor> list(4);
  std::array<CompletionRecord, 4> records{};
  for (std::size_t i = 0; i < list.size(); ++i) ask_for(list[i], records[i]);
  list[1].opcode = 0x3F;  // No such opcode.
  list[2].opcode = DSA_OPCODE_MEMFILL;
  list[2].flags |= dsa::flag::fence;
  list[2].pattern = ~0ULL;
  list[2].dst_addr = reinterpret_cast<std::uintptr_t>(room.data());
  list[2].xfer_size = room.size();
  CompletionRecord summary;
  RC_ASSERT(device->portal(DeviceId{0}, QueueId{0}).submit(batch_of(list, summary)));
  device->client().run_until_idle();
  RC_ASSERT(summary.status == DSA_COMP_BATCH_FAIL);
  RC_ASSERT(records[1].status == DSA_COMP_BAD_OPCODE);
  RC_ASSERT(records[2].status != DSA_COMP_SUCCESS);
  RC_ASSERT(records[3].status != DSA_COMP_SUCCESS);
  RC_ASSERT(std::ranges::count(room, std::byte{0}) == 64);
}

RC_GTEST_PROP(DeviceProperty, ADrainEndsAfterAllThatCameBefore, ()) {
  const auto device = make_device(*rc::gen::arbitrary<std::uint64_t>());
  auto& portal = device->portal(DeviceId{0}, QueueId{0});
  std::vector<std::byte> source(50'000, std::byte{3});
  std::vector<std::byte> target(source.size());
  std::array<CompletionRecord, 6> records{};
  for (std::size_t i = 0; i < 5; ++i) {
    Descriptor move{};
    move.opcode = DSA_OPCODE_MEMMOVE;
    move.src_addr = reinterpret_cast<std::uintptr_t>(source.data()) + i * 10'000;
    move.dst_addr = reinterpret_cast<std::uintptr_t>(target.data()) + i * 10'000;
    move.xfer_size = 10'000;
    ask_for(move, records[i]);
    RC_ASSERT(portal.submit(move));
  }
  Descriptor drain{};
  drain.opcode = DSA_OPCODE_DRAIN;
  ask_for(drain, records[5]);
  RC_ASSERT(portal.submit(drain));
  while (dsa::load_status(records[5]) == 0) RC_ASSERT(device->client().step());
  for (const CompletionRecord& record : records) RC_ASSERT(record.status == DSA_COMP_SUCCESS);
  RC_ASSERT(source == target);
}

RC_GTEST_PROP(DeviceProperty, AResetEndsEverythingAndLosesNothing, ()) {
  FaultScript faults;
  faults.rules[0] = {.kind = FaultKind::reset, .nth = *rc::gen::inRange<std::uint64_t>(1, 9)};
  faults.rule_count = 1;
  const auto device = make_device(*rc::gen::arbitrary<std::uint64_t>(), {}, faults);
  auto& portal = device->portal(DeviceId{0}, QueueId{0});
  std::vector<std::byte> room(40'000);
  std::vector<CompletionRecord> records(8);
  for (CompletionRecord& record : records) {
    Descriptor fill{};
    fill.opcode = DSA_OPCODE_MEMFILL;
    fill.dst_addr = reinterpret_cast<std::uintptr_t>(room.data());
    fill.xfer_size = static_cast<std::uint32_t>(room.size());
    ask_for(fill, record);
    RC_ASSERT(portal.submit(fill));
  }
  device->client().run_until_idle();
  std::size_t aborted_count = 0;
  for (const CompletionRecord& record : records) {
    RC_ASSERT(record.status == DSA_COMP_SUCCESS || record.status == dsa::kStatusAborted);
    if (record.status == dsa::kStatusAborted) ++aborted_count;
  }
  RC_ASSERT(aborted_count > 0U);
  RC_ASSERT(device->control().occupancy(DeviceId{0}, QueueId{0}) == 0U);
}

}  // namespace
}  // namespace headrace::emu::device_property_test
