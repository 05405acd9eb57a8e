// SPDX-License-Identifier: Apache-2.0
// The files of accel-config: what 'accel-config save-config' writes and 'load-config' reads, turned
// into devices. Stricter than load-config: what it would try and fail at is refused here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "emu/device/config.hpp"
#include "headrace/base/result.hpp"
#include "launch/emulator/driver.hpp"

namespace headrace::emu {

struct AccelConfig {
  std::vector<DeviceConfig> devices;  ///< dsa0, dsa1, ...; one not named has no WQs.
  std::vector<DeviceExtras> extras;   ///< For each device.
  /// What the file has and the emulator has not: devices that are no DSA, WQs that are not for
  /// programs. A sentence each.
  std::vector<std::string> left_out;
};

/// Reads the text of a file. As json-c, it lets a comma stand before a closing bracket.
///
/// Fails: corrupt_data naming the file, the field and what is allowed there.
[[nodiscard]] Result<AccelConfig> parse_accel_config(std::string_view json,
                                                     const std::string& file_name);

}  // namespace headrace::emu
