// SPDX-License-Identifier: Apache-2.0
// Processes and file descriptors, as little as the launcher needs of them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/result.hpp"

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

struct SocketPair {
  OwnedFile ours;
  OwnedFile theirs;
};
/// Two ends of a stream socket, closed on exec.
[[nodiscard]] Result<SocketPair> make_socket_pair();

/// Sends `bytes`, one at least, and `files` with them. False if the other end is gone.
[[nodiscard]] bool send_message(int socket, std::span<const std::byte> bytes,
                                std::span<const int> files);
/// Waits for as many bytes, and takes what files come with them. False if the other end is gone.
[[nodiscard]] bool receive_message(int socket, std::span<std::byte> bytes,
                                   std::vector<OwnedFile>& files);
/// Sends `files` with one byte. False if the other end is gone.
[[nodiscard]] bool send_files(int socket, std::span<const int> files);
/// Waits up to `wait_max_ms` for `count` files. Empty if they did not come.
[[nodiscard]] std::vector<OwnedFile> receive_files(int socket, std::size_t count, int wait_max_ms);

/// The process that a thread belongs to; 0 if it is not seen from here.
[[nodiscard]] std::int32_t process_of_thread(std::int32_t thread_id);
/// Whether a thread is about to end by a signal that it cannot take while it waits for us: SIGKILL,
/// or another one that it neither handles, ignores nor blocks. True if there is no such thread.
[[nodiscard]] bool is_ending(std::int32_t thread_id);
/// When a process was started, in the kernel's ticks; 0 if there is none.
[[nodiscard]] std::uint64_t start_time_of(std::int32_t process_id);

/// Runs a program found in PATH with its output thrown away; its wait status, or -1.
int run_quietly(std::span<const std::string> words);
/// Starts a program found in PATH. It inherits what is not closed on exec; `standard_error` becomes
/// its stderr, stdin and stdout are /dev/null.
[[nodiscard]] Result<pid_t> start_program(std::span<const std::string> words, int standard_error);

/// What tells one mount namespace from every other for as long as somebody holds it: the kernel
/// gives its inode number to the next one otherwise.
struct NamespaceIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
};
[[nodiscard]] NamespaceIdentity identity_of(const OwnedFile& mount_namespace);
/// Sends a signal (0: none) to every process in a mount namespace; how many there were.
std::size_t signal_namespace(const NamespaceIdentity& identity, int number);

}  // namespace headrace::emu
