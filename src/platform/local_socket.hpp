// SPDX-License-Identifier: Apache-2.0
// Connections between processes of a machine that carry packets and descriptors.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/platform/descriptor.hpp"
#include "headrace/platform/shared_file.hpp"

struct pollfd;

namespace headrace::platform {

/// As poll(), but a signal ends it only if `is_interrupted`, which may be null, then says so.
void poll_until(std::span<pollfd> watched, std::chrono::nanoseconds time_max,
                bool (*is_interrupted)() = nullptr);

/// A Unix socket of packets. No call blocks.
///
/// Threading: confined, except for end().
class LocalSocket {
 public:
  /// Replaces a socket without a listener. A listener holds the lock of `path`.lock, and removes
  /// both at its end. Members of `group` may connect, as well as this user.
  ///
  /// Fails: capacity_exceeded if another process listens; invalid_argument for another kind of file
  ///        or a long path; not_found, permission_denied, io_failed.
  [[nodiscard]] static Result<LocalSocket> listen(
      const std::string& path, std::optional<std::uint32_t> group = std::nullopt);
  /// Ends the process that listens there, if there is one, by SIGTERM, and waits for its end.
  ///
  /// Fails: capacity_exceeded if it has not ended in time; unsupported if it is this process, or in
  ///        another PID namespace; permission_denied; as connect().
  [[nodiscard]] static Result<void> end_listener(const std::string& path,
                                                 std::chrono::nanoseconds time_max,
                                                 bool (*is_interrupted)() = nullptr);
  ~LocalSocket();
  LocalSocket(LocalSocket&&) noexcept = default;
  LocalSocket& operator=(LocalSocket&&) noexcept = default;
  LocalSocket(const LocalSocket&) = delete;
  LocalSocket& operator=(const LocalSocket&) = delete;
  /// Of a listener: removes the socket, so that no client comes any more.
  void hide() const noexcept;
  /// Fails: not_found without a listener; invalid_argument, permission_denied, io_failed.
  [[nodiscard]] static Result<LocalSocket> connect(const std::string& path);
  /// Nothing if none waits.
  [[nodiscard]] std::optional<LocalSocket> accept() const;

  /// Both parts make one packet. False if the connection has ended or has no room.
  bool send(std::span<const std::byte> first, std::span<const std::byte> second = {},
            std::span<const int> attached = {}) const;
  /// The length of a packet, cut off at that of `target`; 0 at the end of the connection; nothing
  /// if there is none. Without `attached`, descriptors are refused.
  [[nodiscard]] std::optional<std::size_t> receive(
      std::span<std::byte> target, std::vector<Descriptor>* attached = nullptr) const;
  /// Process ID of the other side when it connected; 0 in another PID namespace.
  [[nodiscard]] std::uint32_t peer() const;
  /// Ends the connection for both sides, also if a child process has the descriptor.
  void end() const noexcept;
  /// Drops the descriptor, which ForkGuard has closed already.
  void forget() { static_cast<void>(descriptor_.release()); }
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  /// That of the lock of a listener.
  [[nodiscard]] int lock() const { return lock_.get(); }

 private:
  explicit LocalSocket(int descriptor) : descriptor_(descriptor) {}
  Descriptor descriptor_;
  Descriptor lock_;  ///< Of a listener.
  std::string path_;
  std::optional<SharedFile::Identity> bound_;
};

}  // namespace headrace::platform
