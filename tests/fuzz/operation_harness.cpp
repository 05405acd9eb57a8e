// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "emu/operation/operation.hpp"
#include "harness.hpp"
#include "support/dsa_reference.hpp"

namespace headrace::test {
namespace {

using dsa::Descriptor;
using dsa::Opcode;
using emu::Address;

constexpr Address kBase = 0x7000'0000'0000;
constexpr std::uint64_t kArenaBytes = 16 << 10U;
// More slices than bytes: an operation that makes no progress.
constexpr std::uint64_t kSlicesMax = 2 * kArenaBytes;

/// Places an address by two bits of `choice`: mostly in the arena.
Address placed(Address address, unsigned choice) {
  if (choice == 0) return address;                                  // Anywhere.
  if (choice == 1) return kBase + address % kArenaBytes / 64 * 64;  // Aligned.
  return kBase + address % kArenaBytes;
}

Descriptor any_descriptor(Input& input) {
  auto descriptor = input.take<Descriptor>();
  const auto choice = input.take<std::uint16_t>();
  // Fields overlap: an address in the arena also serves as a pattern.
  descriptor.src_addr = placed(descriptor.src_addr, choice & 3U);
  descriptor.dst_addr = placed(descriptor.dst_addr, choice >> 2U & 3U);
  switch (static_cast<Opcode>(descriptor.opcode)) {
    case Opcode::create_delta:
    case Opcode::dualcast:
      descriptor.dest2 = placed(descriptor.dest2, choice >> 4U & 3U);
      break;
    case Opcode::crc:
    case Opcode::copy_crc:
      descriptor.seed_addr = placed(descriptor.seed_addr, choice >> 4U & 3U);
      break;
    default:
      break;
  }
  if ((choice >> 6U & 3U) != 0) descriptor.xfer_size %= 8192;
  if ((choice >> 8U & 3U) != 0) descriptor.rsvd = 0;
  if ((choice >> 8U & 3U) != 0) descriptor.rsvd1 = 0;
  if ((choice >> 10U & 3U) != 0) descriptor.completion_addr = kBase;
  return descriptor;
}

/// An arena that checks requested accesses, whether or not there is memory, so that a write past
/// the arena's end does not pass for a fault.
///
/// Threading: confined.
class Watched final : public emu::Memory {
 public:
  Watched(emu::Memory& memory, std::vector<Extent> allowed)
      : memory_(memory), allowed_(std::move(allowed)) {}

  /// The first write outside the operands.
  [[nodiscard]] const Broken& broken() const { return broken_; }

  emu::Reach read(std::span<std::byte> into, Address source,
                  emu::PageFaults faults) noexcept override {
    return memory_.read(into, source, faults);
  }
  emu::Reach write(Address target, std::span<const std::byte> from,
                   emu::PageFaults faults) noexcept override {
    check(target, from.size());
    return memory_.write(target, from, faults);
  }
  emu::Reach copy(Address target, Address source, std::size_t byte_count, bool downwards,
                  emu::PageFaults faults) noexcept override {
    check(target, byte_count);
    return memory_.copy(target, source, byte_count, downwards, faults);
  }
  std::size_t present(Address first, std::size_t byte_count) noexcept override {
    return memory_.present(first, byte_count);
  }
  emu::Reach write_record(Address record,
                          std::span<const std::byte, 32> /*bytes*/) noexcept override {
    broken_ = fmt::format("an operation writes a record at {:#x}", record);
    return {};
  }
  emu::Reach flush_lines(Address target, std::size_t byte_count,
                         emu::PageFaults faults) noexcept override {
    return memory_.flush_lines(target, byte_count, faults);
  }

 private:
  void check(Address target, std::size_t byte_count) {
    if (byte_count == 0 || broken_) return;
    const auto holds = [&](const Extent& extent) {
      return extent.holds(target) && byte_count <= extent.byte_count - (target - extent.first);
    };
    if (std::ranges::any_of(allowed_, holds)) return;
    broken_ = fmt::format("writes {} bytes at {:#x}, which are not all named", byte_count, target);
  }

  emu::Memory& memory_;
  std::vector<Extent> allowed_;
  Broken broken_;
};

}  // namespace

Broken throw_at_operation(std::span<const std::uint8_t> bytes) {
  Input input(bytes);
  const auto choice = input.take<std::uint32_t>();
  const auto seed = input.take<std::uint32_t>();
  const emu::Limits limits{.transfer_bytes_max = std::uint64_t{1} << (choice & 31U),
                           .batch_max = choice >> 5U & 1023U,
                           .block_on_fault = (choice >> 15U & 1U) != 0,
                           .fill_16 = (choice >> 16U & 1U) != 0};
  const auto origin = static_cast<emu::Origin>((choice >> 17U) % 3);
  const Descriptor descriptor = any_descriptor(input);

  if (const auto refused = refuse(descriptor, limits, origin)) {
    if (!is_status(refused->status)) return fmt::format("refused with {:#x}", refused->status);
    return std::nullopt;
  }
  const auto opcode = static_cast<Opcode>(descriptor.opcode);
  if (opcode == Opcode::batch || opcode == Opcode::drain) return std::nullopt;
  if (dsa::name(opcode) == "unknown") return fmt::format("accepts opcode {:#x}", descriptor.opcode);

  ClientArena arena(kBase, kArenaBytes);
  for (std::uint64_t i = 0; i < kArenaBytes; ++i) {
    // Runs of equal bytes, so that comparisons reach far.
    arena.bytes()[i] = static_cast<std::byte>((i >> 7U) * seed >> 24U);
  }
  for (unsigned hole = 0; hole < (choice >> 19U & 3U); ++hole) {
    const auto access = static_cast<ClientArena::Access>(input.take<std::uint8_t>() & 3U);
    const std::uint64_t first = input.take<std::uint16_t>() % kArenaBytes;
    const std::uint64_t count = input.take<std::uint8_t>();
    arena.allow(kBase + first, std::min(count, kArenaBytes - first), access);
  }

  Watched memory(arena, written_by(descriptor));
  emu::Operation operation(descriptor, limits);
  const std::size_t slice_bytes = 1 + (choice >> 21U & 2047U);
  std::uint64_t slices = 0;
  while (!operation.advance(memory, slice_bytes)) {
    if (++slices > kSlicesMax) return fmt::format("opcode {:#x} does not end", descriptor.opcode);
  }
  if (memory.broken()) return fmt::format("opcode {:#x} {}", descriptor.opcode, *memory.broken());
  if (!is_status(operation.record().status)) {
    return fmt::format("opcode {:#x} ends with {:#x}", descriptor.opcode,
                       operation.record().status);
  }
  if (operation.record().bytes_completed >
      std::max<std::uint32_t>(descriptor.xfer_size, descriptor.delta_rec_size)) {
    return fmt::format("opcode {:#x} completed more than was asked for", descriptor.opcode);
  }
  return std::nullopt;
}

}  // namespace headrace::test
