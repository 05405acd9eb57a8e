// SPDX-License-Identifier: Apache-2.0
// A character device that takes commands by a mapped page or by write(), such as the DSA driver's.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "headrace/base/result.hpp"
#include "headrace/platform/descriptor.hpp"
#include "headrace/platform/memory.hpp"

namespace headrace::platform {

/// An open device file. The destructor closes it.
///
/// Threading: shared.
class CharacterDevice {
 public:
  /// Opens `path` for reading and writing.
  ///
  /// Fails: not_found, permission_denied, or unsupported with the errno (EBUSY if another process
  ///        uses the device).
  [[nodiscard]] static Result<CharacterDevice> open(const std::string& path);

  /// Maps the page at offset 0 for writing. The destructor unmaps it. A child of fork() does not
  /// inherit it.
  ///
  /// Fails: permission_denied if only privileged processes may map it; unsupported.
  [[nodiscard]] Result<std::byte*> map_page();
  /// Returns whether the device took all of `bytes`. Blocks as long as the driver does.
  [[nodiscard]] bool write(std::span<const std::byte> bytes) const noexcept;

 private:
  explicit CharacterDevice(int descriptor) : descriptor_(descriptor) {}
  Descriptor descriptor_;
  OwnedPages page_;
};

}  // namespace headrace::platform
