// SPDX-License-Identifier: Apache-2.0
// Reads accel-config files ('accel-config save-config' writes them, 'load-config' reads them) into
// device configurations. Stricter than load-config: rejects what it would attempt and fail at.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "emu/device/config.hpp"
#include "headrace/base/result.hpp"
#include "launch/emulator/driver.hpp"

namespace headrace::emu {

struct AccelConfig {
  std::vector<DeviceConfig> devices;  ///< dsa0, dsa1, ...; one that is not named has no WQs.
  std::vector<DeviceExtras> extras;   ///< For each device.
  /// One sentence for each part of the file that the emulator does not support: devices other than
  /// DSA, WQs that are not for programs.
  std::vector<std::string> left_out;
};

/// Parses the text of a file. As json-c, accepts a comma before a closing bracket.
///
/// Fails: corrupt_data naming the file, the field and what is allowed there.
[[nodiscard]] Result<AccelConfig> parse_accel_config(std::string_view json,
                                                     const std::string& file_name);

}  // namespace headrace::emu
