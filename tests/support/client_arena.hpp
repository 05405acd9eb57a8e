// SPDX-License-Identifier: Apache-2.0
// Simulated client memory at made-up addresses. Each byte can be made to fault, and records whether
// it was read or written, so that a test sees exactly what an operation touched. Real pages and
// faults: GuardedBuffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "emu/operation/memory.hpp"

namespace headrace::test {

/// Threading: confined.
class ClientArena final : public emu::Memory {
 public:
  enum class Access : std::uint8_t {
    all,
    absent,     ///< Mapped but not present: faults only under PageFaults::report.
    read_only,  ///< A write faults.
    none,       ///< Not mapped.
  };

  ClientArena(emu::Address base, std::size_t byte_count)
      : base_(base),
        bytes_(byte_count),
        access_(byte_count, Access::all),
        read_(byte_count),
        written_(byte_count) {}
  ClientArena(const ClientArena& other)
      : base_(other.base_),
        bytes_(other.bytes_),
        access_(other.access_),
        read_(other.read_),
        written_(other.written_) {}
  ClientArena& operator=(const ClientArena&) = delete;
  ~ClientArena() override = default;

  [[nodiscard]] emu::Address base() const { return base_; }
  [[nodiscard]] std::size_t byte_count() const { return bytes_.size(); }
  [[nodiscard]] std::span<std::byte> bytes() { return bytes_; }
  [[nodiscard]] bool was_read(std::size_t index) const { return read_[index]; }
  [[nodiscard]] bool was_written(std::size_t index) const { return written_[index]; }
  void allow(emu::Address first, std::size_t byte_count, Access access) {
    std::fill_n(access_.begin() + static_cast<std::ptrdiff_t>(index(first)), byte_count, access);
  }
  [[nodiscard]] std::optional<emu::Fault> probe(emu::Address address, bool write,
                                                emu::PageFaults faults) const {
    const Access access = holds(address) ? access_[index(address)] : Access::none;
    const bool reaches = access == Access::all || (access == Access::read_only && !write) ||
                         (access == Access::absent && faults == emu::PageFaults::resolve);
    if (reaches) return std::nullopt;
    return emu::Fault{address, write};
  }
  /// Precondition: probe() returns nothing.
  [[nodiscard]] std::byte load(emu::Address address) {
    read_[index(address)] = true;
    return bytes_[index(address)];
  }
  /// Precondition: probe() returns nothing.
  void store(emu::Address address, std::byte value) {
    written_[index(address)] = true;
    bytes_[index(address)] = value;
  }

  emu::Reach read(std::span<std::byte> into, emu::Address source,
                  emu::PageFaults faults) noexcept override {
    for (std::size_t i = 0; i < into.size(); ++i) {
      if (const auto fault = probe(source + i, false, faults)) return {i, fault};
      into[i] = load(source + i);
    }
    return {into.size()};
  }
  emu::Reach write(emu::Address target, std::span<const std::byte> from,
                   emu::PageFaults faults) noexcept override {
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (const auto fault = probe(target + i, true, faults)) return {i, fault};
      store(target + i, from[i]);
    }
    return {from.size()};
  }
  emu::Reach copy(emu::Address target, emu::Address source, std::size_t byte_count, bool downwards,
                  emu::PageFaults faults) noexcept override {
    for (std::size_t i = 0; i < byte_count; ++i) {
      const std::size_t at = downwards ? byte_count - 1 - i : i;
      if (const auto fault = probe(source + at, false, faults)) return {i, fault};
      if (const auto fault = probe(target + at, true, faults)) return {i, fault};
      store(target + at, load(source + at));
    }
    return {byte_count};
  }
  emu::Reach write_record(emu::Address record,
                          std::span<const std::byte, 32> from) noexcept override {
    return write(record, from, emu::PageFaults::resolve);
  }
  emu::Reach flush_lines(emu::Address target, std::size_t byte_count,
                         emu::PageFaults faults) noexcept override {
    for (std::size_t i = 0; i < byte_count; ++i) {
      if (const auto fault = probe(target + i, false, faults)) return {i, fault};
    }
    return {byte_count};
  }

 private:
  [[nodiscard]] bool holds(emu::Address address) const {
    return address >= base_ && address - base_ < bytes_.size();
  }
  [[nodiscard]] std::size_t index(emu::Address address) const { return address - base_; }

  emu::Address base_;
  std::vector<std::byte> bytes_;
  std::vector<Access> access_;
  std::vector<bool> read_;
  std::vector<bool> written_;
};

}  // namespace headrace::test
