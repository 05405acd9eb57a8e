// SPDX-License-Identifier: Apache-2.0
// A file that several processes write through mappings and that grows in steps. What they have
// stored is in the file even if they are killed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "headrace/base/result.hpp"

namespace headrace::platform {

/// Threading: immutable.
/// Ownership: never unmapped, because threads may store into it as long as the process lives.
class GrowingFile {
 public:
  /// Opens or makes the file at `path` and maps `byte_count_max` bytes of it, most of them beyond
  /// its end. If no living process has it open, it is emptied and begins with `head`; else it is
  /// joined as it is.
  ///
  /// Fails: invalid_argument if the file exists and does not begin as `head` does, in the first
  ///        `same_bytes`, or is no file; not_found, permission_denied, capacity_exceeded,
  ///        io_failed.
  [[nodiscard]] static Result<GrowingFile> open(const std::string& path, std::string_view head,
                                                std::size_t same_bytes,
                                                std::uint64_t byte_count_max);

  /// Writes `bytes` at `begin`, past the mapping. Returns false if the disk is full.
  [[nodiscard]] bool write(std::uint64_t begin, std::span<const std::byte> bytes) const noexcept;
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  GrowingFile(int descriptor, std::span<std::byte> bytes)
      : descriptor_(descriptor), bytes_(bytes) {}
  int descriptor_;
  std::span<std::byte> bytes_;
};

}  // namespace headrace::platform
