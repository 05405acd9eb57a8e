// SPDX-License-Identifier: Apache-2.0
// PciFunction: the configuration space of an emulated DSA as lspci and setpci see it. Nothing that
// is written there changes what the device does.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/mutex.hpp"

namespace headrace::emu {

inline constexpr std::size_t kConfigBytes = 4096;

/// Threading: shared.
class PciFunction {
 public:
  /// `index`: number of the device, which places its memory.
  explicit PciFunction(std::uint32_t index);
  /// What a process reads: all of it if it is root, else the standard header of 64 bytes, as Linux.
  [[nodiscard]] std::string read(bool privileged) const;
  /// Writes the bits that are writable, as the device's; others stay.
  void write(std::size_t offset, std::string_view bytes);
  /// The file `resource`: first and last address and flags of each region.
  [[nodiscard]] std::string resources() const;

 private:
  template <typename T>
  void set(std::size_t offset, T value, T writable) HEADRACE_REQUIRES(mutex_);

  std::uint64_t memory_;
  mutable Mutex mutex_;
  std::array<std::uint8_t, kConfigBytes> bytes_ HEADRACE_GUARDED_BY(mutex_){};
  std::array<std::uint8_t, kConfigBytes> writable_{};
};

}  // namespace headrace::emu
