// SPDX-License-Identifier: Apache-2.0
// Processes and file descriptors, as little as the launcher needs of them.
#pragma once

#include <cstdint>

namespace headrace::emu {

/// A file descriptor that is closed at the end.
///
/// Threading: confined.
class OwnedFile {
 public:
  OwnedFile() = default;
  explicit OwnedFile(int file) : file_(file) {}
  OwnedFile(OwnedFile&& other) noexcept : file_(other.release()) {}
  OwnedFile& operator=(OwnedFile&& other) noexcept;
  ~OwnedFile() { close(); }
  [[nodiscard]] int get() const { return file_; }
  [[nodiscard]] bool valid() const { return file_ >= 0; }
  [[nodiscard]] int release();
  void close();

 private:
  int file_ = -1;
};

/// The process that a thread belongs to; 0 if it is not seen from here.
[[nodiscard]] std::int32_t process_of_thread(std::int32_t thread_id);
/// Whether a thread is about to end by a signal that it cannot take while it waits for us: SIGKILL,
/// or another one that it neither handles, ignores nor blocks. True if there is no such thread.
[[nodiscard]] bool is_ending(std::int32_t thread_id);
}  // namespace headrace::emu
