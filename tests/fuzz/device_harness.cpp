// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "emu/device/device.hpp"
#include "harness.hpp"
#include "support/dsa_reference.hpp"

namespace headrace::test {
namespace {

using dsa::Descriptor;
using dsa::Opcode;
using emu::Address;

// Real memory at places that do not move, so that an input means the same in every run. A device
// reaches this process's own memory, so every address of a descriptor is brought either into the
// arena or to where nothing can be mapped; the lists of batches are read-only for the same reason:
// an operation must not make descriptors of its own.
constexpr Address kArena = 0x0000'5EED'0000'0000;
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kHolePage = 5;  // A page in the middle of it is not mapped.
constexpr std::uint64_t kArenaPages = 12;
constexpr std::uint64_t kArenaBytes = kArenaPages * kPageBytes;
constexpr Address kRecords = kArena + 0x100'0000;  // Records of descriptors, a page.
constexpr Address kLists = kArena + 0x200'0000;    // Lists of batches, two pages.
constexpr std::uint64_t kListEntries = 2 * kPageBytes / 64;
constexpr std::size_t kSubmissionsMax = 24;
// Far more than any input of 2 KiB can need.
constexpr std::uint64_t kStepsMax = 1'000'000;

std::byte* at(Address address) {
  return reinterpret_cast<std::byte*>(address);
}

void* map_at(Address address, std::uint64_t byte_count) {
  return ::mmap(at(address), byte_count, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

bool map_once() {
  static const bool kMapped = [] {
    return map_at(kArena, kArenaBytes) != MAP_FAILED &&
           ::munmap(at(kArena + kHolePage * kPageBytes), kPageBytes) == 0 &&
           map_at(kRecords, kPageBytes) != MAP_FAILED &&
           map_at(kLists, 2 * kPageBytes) != MAP_FAILED;
  }();
  return kMapped;
}

bool is_hole(std::uint64_t offset) {
  return offset / kPageBytes == kHolePage;
}

/// Into the arena, or to where nothing is: the first page, the kernel's half, no canonical address.
Address placed(Address address, unsigned choice) {
  constexpr std::array<Address, 4> kNowhere{0, 0xFFFF'8000'0000'0000, 0x8000'0000'0000'0000,
                                            kArena + kHolePage * kPageBytes};
  if (choice == 0) return kNowhere[address & 3U] + (address >> 2U) % kPageBytes;
  if (choice == 1) return kArena + address % kArenaBytes / 64 * 64;
  return kArena + address % kArenaBytes;
}

/// A descriptor that may be anything but cannot reach this process's own memory.
Descriptor any_descriptor(Input& input) {
  auto descriptor = input.take<Descriptor>();
  const auto choice = input.take<std::uint16_t>();
  const auto opcode = static_cast<Opcode>(descriptor.opcode);
  descriptor.src_addr = placed(descriptor.src_addr, choice & 3U);
  descriptor.dst_addr = placed(descriptor.dst_addr, choice >> 2U & 3U);
  if (opcode == Opcode::create_delta || opcode == Opcode::dualcast) {
    descriptor.dest2 = placed(descriptor.dest2, choice >> 4U & 3U);
  }
  if (opcode == Opcode::crc || opcode == Opcode::copy_crc) {
    descriptor.seed_addr = placed(descriptor.seed_addr, choice >> 4U & 3U);
  }
  if (opcode == Opcode::batch) {
    descriptor.desc_list_addr = kLists + (choice >> 4U) % kListEntries * 64;
    if ((choice & 3U) != 0) descriptor.desc_count = 2 + descriptor.desc_count % 40;
  } else {
    // What a descriptor names stays within the arena, or runs into the nothing behind it.
    descriptor.xfer_size %= 4 * kPageBytes;
  }
  if (opcode == Opcode::create_delta) descriptor.max_delta_size %= 4 * kPageBytes;
  if (opcode == Opcode::apply_delta) descriptor.delta_rec_size %= 4 * kPageBytes;
  if ((choice >> 8U & 3U) != 0) {
    descriptor.rsvd = 0;
    descriptor.rsvd1 = 0;
    descriptor.priv = 0;
  }
  const bool misaligned = (choice >> 10U & 7U) == 7;
  descriptor.completion_addr = (choice >> 13U) == 7
                                   ? placed(descriptor.completion_addr, 0)
                                   : kRecords + descriptor.completion_addr % 127 * 32 +
                                         (misaligned ? descriptor.completion_addr % 32 : 0);
  return descriptor;
}

std::unique_ptr<emu::Device> make_device(std::uint64_t seed, emu::FaultRule rule) {
  const std::vector<emu::DeviceConfig> devices{emu::default_device(1, 1, 3, "fuzz")};
  emu::DeviceOptions options;
  options.schedule = emu::Schedule::deterministic;
  options.seed = seed;
  if (rule.every != 0) {
    options.faults.rules[0] = rule;
    options.faults.rule_count = 1;
  }
  auto made = emu::Device::create(devices, options);
  return made ? std::move(*made) : nullptr;
}

emu::FaultRule any_rule(Input& input) {
  emu::FaultRule rule;
  // Not: halt (nothing would end) and what needs a clock.
  constexpr std::array kKinds{emu::FaultKind::queue_full, emu::FaultKind::page_fault,
                              emu::FaultKind::status, emu::FaultKind::reset,
                              emu::FaultKind::lost_completion};
  const auto choice = input.take<std::uint8_t>();
  rule.kind = kKinds[choice % kKinds.size()];
  rule.every = choice >> 5U;
  rule.at_byte = input.take<std::uint16_t>();
  rule.raw_status = DSA_COMP_HW_ERR1;
  rule.write = (choice & 16U) != 0;
  return rule;
}

/// What may be written while `descriptors` run, in and around the arena.
class Allowed {
 public:
  void add(const Descriptor& descriptor) {
    for (const Extent& extent : written_by(descriptor)) extents_.push_back(extent);
  }
  [[nodiscard]] bool holds(Address address) const {
    return std::ranges::any_of(extents_,
                               [&](const Extent& extent) { return extent.holds(address); });
  }

 private:
  std::vector<Extent> extents_;
};

void set_up(std::uint32_t seed) {
  for (std::uint64_t i = 0; i < kArenaBytes; ++i) {
    // Runs of equal bytes, so that comparisons come far.
    if (!is_hole(i)) *at(kArena + i) = static_cast<std::byte>((i >> 7U) * seed >> 24U);
  }
  std::fill_n(at(kRecords), kPageBytes, std::byte{0});
}

Broken check_records() {
  for (std::uint64_t i = 0; i < kPageBytes; i += 32) {
    const auto raw = std::to_integer<std::uint8_t>(*at(kRecords + i));
    const bool untouched = std::all_of(at(kRecords + i), at(kRecords + i + 32),
                                       [](std::byte value) { return value == std::byte{0}; });
    if (!untouched && !is_status(raw)) {
      std::array<std::uint64_t, 4> words{};
      std::memcpy(words.data(), at(kRecords + i), sizeof words);
      return fmt::format("the record at +{:#x} says {:#x}: {:#x} {:#x} {:#x} {:#x}", i, raw,
                         words[0], words[1], words[2], words[3]);
    }
  }
  return std::nullopt;
}

}  // namespace

Broken throw_at_device(std::span<const std::uint8_t> bytes) {
  if (!map_once()) return "the arena cannot be mapped";
  Input input(bytes);
  const auto seed = input.take<std::uint32_t>();
  const auto device = make_device(seed, any_rule(input));
  if (!device) return "no device";
  set_up(seed);
  Allowed allowed;

  if (::mprotect(at(kLists), 2 * kPageBytes, PROT_READ | PROT_WRITE) != 0) return "mprotect";
  const std::size_t listed = input.take<std::uint8_t>() % 16;
  for (std::size_t i = 0; i < kListEntries; ++i) {
    Descriptor descriptor{};
    if (i < listed) descriptor = any_descriptor(input);
    // Inside a batch such a thing is refused; its addresses are still nobody's.
    std::memcpy(at(kLists + i * 64), &descriptor, sizeof descriptor);
    allowed.add(descriptor);
  }
  if (::mprotect(at(kLists), 2 * kPageBytes, PROT_READ) != 0) return "mprotect";

  std::vector<std::byte> before(kArenaBytes);
  for (std::uint64_t i = 0; i < kArenaBytes; ++i) {
    if (!is_hole(i)) before[i] = *at(kArena + i);
  }
  for (std::size_t i = 0; i < kSubmissionsMax && !input.empty(); ++i) {
    const auto choice = input.take<std::uint8_t>();
    const Descriptor descriptor = any_descriptor(input);
    allowed.add(descriptor);
    static_cast<void>(device->portal(DeviceId{0}, QueueId{choice & 1U}).submit(descriptor));
    // Between submissions a few steps, so that queues fill now and then.
    for (unsigned step = 0; step < (choice >> 1U & 7U) && device->client().step(); ++step) {
    }
  }
  std::uint64_t steps = 0;
  while (device->client().step()) {
    if (++steps > kStepsMax) return "the device does not come to rest";
  }
  for (std::uint32_t queue = 0; queue < 2; ++queue) {
    const auto occupancy = device->control().occupancy(DeviceId{0}, QueueId{queue});
    if (occupancy != 0) return fmt::format("{} entries of wq0.{} are lost", occupancy, queue);
  }
  for (std::uint64_t i = 0; i < kArenaBytes; ++i) {
    if (!is_hole(i) && *at(kArena + i) != before[i] && !allowed.holds(kArena + i)) {
      return fmt::format("the byte at +{:#x} was written, which nobody named", i);
    }
  }
  return check_records();
}

}  // namespace headrace::test
