// SPDX-License-Identifier: Apache-2.0
// Memory between two guard pages: an access outside it ends the test.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>

namespace headrace::test {

/// Whole pages, with an inaccessible page directly before the first byte and after the last one.
///
/// Ownership: owns the pages.
/// Threading: confined.
class GuardedBuffer {
 public:
  /// `byte_count` is rounded up to pages.
  explicit GuardedBuffer(std::size_t byte_count) {
    const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t inner_bytes = (byte_count + page_bytes - 1) / page_bytes * page_bytes;
    mapped_bytes_ = inner_bytes + 2 * page_bytes;
    mapped_ = ::mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped_ == MAP_FAILED) die("mmap");
    std::byte* const first = static_cast<std::byte*>(mapped_) + page_bytes;
    if (::mprotect(first, inner_bytes, PROT_READ | PROT_WRITE) != 0) die("mprotect");
    bytes_ = {first, inner_bytes};
  }
  ~GuardedBuffer() { ::munmap(mapped_, mapped_bytes_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  /// From now on a write ends the test too.
  void forbid_writing() {
    if (::mprotect(bytes_.data(), bytes_.size(), PROT_READ) != 0) die("mprotect");
  }

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
  /// The bytes after the leading guard page.
  [[nodiscard]] std::span<std::byte> front(std::size_t byte_count) const {
    return bytes_.first(byte_count);
  }
  /// The bytes before the trailing guard page.
  [[nodiscard]] std::span<std::byte> back(std::size_t byte_count) const {
    return bytes_.last(byte_count);
  }

 private:
  [[noreturn]] static void die(const char* call) {
    std::perror(call);
    std::abort();
  }

  void* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::span<std::byte> bytes_;
};

}  // namespace headrace::test
