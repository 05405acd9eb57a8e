// SPDX-License-Identifier: Apache-2.0
// PciFunction: the configuration space of an emulated DSA for lspci and setpci. Writes do not
// affect the device.
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
  /// `index`: device number, which determines its memory address.
  explicit PciFunction(std::uint32_t index);
  /// What a process reads: everything as root, else the 64-byte standard header, as on Linux.
  [[nodiscard]] std::string read(bool privileged) const;
  /// Writes the writable bits, as on the device; other bits stay unchanged.
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
