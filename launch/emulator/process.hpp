// SPDX-License-Identifier: Apache-2.0
// Processes and file descriptors, as far as the launcher needs them.
#pragma once

#include <cstdint>

namespace headrace::emu {

/// Owns a file descriptor and closes it.
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

/// The process of a thread; 0 if it is not visible from here.
[[nodiscard]] std::int32_t process_of_thread(std::int32_t thread_id);
/// Whether a thread that waits for us is about to be killed: by SIGKILL, or by another signal that
/// it neither handles, ignores nor blocks. True if there is no such thread.
[[nodiscard]] bool is_ending(std::int32_t thread_id);
}  // namespace headrace::emu
