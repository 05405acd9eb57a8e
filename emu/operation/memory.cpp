// SPDX-License-Identifier: Apache-2.0
// The memory of this process, through guarded access.
#include "emu/operation/memory.hpp"

#include <array>
#include <new>

namespace headrace::emu {
namespace {

Address address_of(const void* place) {
  return reinterpret_cast<Address>(place);
}

// The result, or the fault beyond `present` of `byte_count` bytes.
Reach reach(const Reach& done, std::size_t byte_count, std::size_t present, const Fault& beyond) {
  return done.fault || present == byte_count ? done : Reach{done.byte_count, beyond};
}

class ProcessMemory final : public Memory {
 public:
  Reach read(std::span<std::byte> into, Address source, PageFaults faults) noexcept override {
    const std::size_t present =
        faults == PageFaults::report ? guarded::resident_up(source, into.size()) : into.size();
    return reach(guarded::copy_up(address_of(into.data()), source, present), into.size(), present,
                 {source + present, false});
  }

  Reach write(Address target, std::span<const std::byte> from,
              PageFaults faults) noexcept override {
    const std::size_t present =
        faults == PageFaults::report ? guarded::resident_up(target, from.size()) : from.size();
    return reach(guarded::copy_up(target, address_of(from.data()), present), from.size(), present,
                 {target + present, true});
  }

  Reach copy(Address target, Address source, std::size_t byte_count, bool downwards,
             PageFaults faults) noexcept override {
    if (faults == PageFaults::resolve) {
      return downwards ? guarded::copy_down(target, source, byte_count)
                       : guarded::copy_up(target, source, byte_count);
    }
    const auto resident = downwards ? guarded::resident_down : guarded::resident_up;
    const std::size_t readable = resident(source, byte_count);
    const std::size_t present = resident(target, readable);
    const bool write = present < readable;
    const Address first = write ? target : source;
    if (!downwards) {
      return reach(guarded::copy_up(target, source, present), byte_count, present,
                   {first + present, write});
    }
    const std::size_t skipped = byte_count - present;
    return reach(guarded::copy_down(target + skipped, source + skipped, present), byte_count,
                 present, {first + skipped - 1, write});
  }

  std::size_t present(Address first, std::size_t byte_count) noexcept override {
    return guarded::resident_up(first, byte_count);
  }

  Reach write_record(Address record, std::span<const std::byte, 32> bytes) noexcept override {
    Reach done = guarded::copy_up(record + 1, address_of(bytes.data()) + 1, bytes.size() - 1);
    if (!done.fault) {
      done = guarded::store_status(record, std::to_integer<std::uint8_t>(bytes[0]));
    }
    return {done.fault ? 0 : bytes.size(), done.fault};
  }

  Reach flush_lines(Address target, std::size_t byte_count, PageFaults faults) noexcept override {
    const std::size_t present =
        faults == PageFaults::report ? guarded::resident_up(target, byte_count) : byte_count;
    return reach(guarded::flush_lines(target, present), byte_count, present,
                 {target + present, false});
  }
};

}  // namespace

Memory& process_memory() {
  // Never destroyed: programs submit while they exit.
  alignas(ProcessMemory) static std::array<std::byte, sizeof(ProcessMemory)> place;
  static Memory* const kMemory = ::new (place.data()) ProcessMemory;
  return *kMemory;
}

}  // namespace headrace::emu
