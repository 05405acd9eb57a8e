// SPDX-License-Identifier: Apache-2.0
// A character device that takes commands by a mapped page or by write(), as the DSA driver's do.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "headrace/base/result.hpp"

namespace headrace::platform {

/// An open device file. Closed with its handle.
///
/// Threading: shared.
class CharacterDevice {
 public:
  /// Opens `path` for reading and writing.
  ///
  /// Fails: not_found, permission_denied, or unsupported with the errno (a device in use by another
  ///        process says EBUSY).
  [[nodiscard]] static Result<CharacterDevice> open(const std::string& path);

  CharacterDevice(CharacterDevice&& other) noexcept;
  CharacterDevice& operator=(CharacterDevice&& other) noexcept;
  CharacterDevice(const CharacterDevice&) = delete;
  CharacterDevice& operator=(const CharacterDevice&) = delete;
  ~CharacterDevice();

  /// Maps the page at offset 0 for writing. It is unmapped with the handle. A child of fork() does
  /// not have it.
  ///
  /// Fails: permission_denied where the kernel lets only privileged processes map it; unsupported.
  [[nodiscard]] Result<std::byte*> map_page();
  /// Whether the device took all of `bytes`. Blocks as long as the driver does.
  [[nodiscard]] bool write(std::span<const std::byte> bytes) const noexcept;

 private:
  explicit CharacterDevice(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
  void* page_ = nullptr;
};

}  // namespace headrace::platform
