// SPDX-License-Identifier: Apache-2.0
// Files that several processes map and that must not break under them: made whole or not at all,
// locked by ranges, and mapped so that a page that goes away is told and not a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "headrace/base/atomic.hpp"
#include "headrace/base/result.hpp"

namespace headrace::platform {

/// Makes a file of `byte_count` bytes that begins with `head`; the rest is zero and has its room on
/// the disk. It gets its name when all of that is on the disk: others see all of it or nothing.
/// `permissions` are those of chmod, less what the umask takes away.
///
/// Fails: invalid_argument if something of the name is there; capacity_exceeded if the disk has no
///        room; not_found, permission_denied, io_failed. Then nothing is left behind.
[[nodiscard]] Result<void> make_file(const std::string& path, std::uint64_t byte_count,
                                     std::span<const std::byte> head,
                                     std::uint32_t permissions = 0666);

/// Whether something of that name is a character device. Nothing is opened.
[[nodiscard]] bool is_character_device(const std::string& path);

/// An open file or device.
///
/// Threading: immutable, but for the locks.
/// Ownership: its locks end with it, or with the process, however that ends.
class SharedFile {
 public:
  /// Fails: not_found, permission_denied, io_failed; invalid_argument for a folder or a pipe.
  [[nodiscard]] static Result<SharedFile> open(const std::string& path, bool writable);
  /// What `descriptor` leads to, opened once more: it has locks of its own.
  ///
  /// Fails: as open(); also where /proc is not mounted.
  [[nodiscard]] static Result<SharedFile> open_again(int descriptor);
  /// Memory without a name that begins with `head`; the rest is zero. Sealed: its length cannot
  /// change. Only this user may open it again.
  ///
  /// Fails: out_of_memory, capacity_exceeded, io_failed.
  [[nodiscard]] static Result<SharedFile> make_sealed(std::uint64_t byte_count,
                                                      std::span<const std::byte> head);

  SharedFile(SharedFile&& other) noexcept;
  SharedFile& operator=(SharedFile&& other) noexcept;
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;
  ~SharedFile();

  /// Locks byte `index` of the lock range of the file, which is far behind its contents, against
  /// every other SharedFile, of this process too.
  ///
  /// Returns: false if another has it.
  /// Fails: io_failed where the file system has no locks.
  [[nodiscard]] Result<bool> try_lock(std::uint64_t index) const;
  /// The same, and waits for it.
  [[nodiscard]] Result<void> lock(std::uint64_t index) const;
  void unlock(std::uint64_t index) const;
  /// True if another has it at this moment.
  [[nodiscard]] bool is_locked_by_another(std::uint64_t index) const;

  /// Bytes of a file; nothing of a device.
  [[nodiscard]] std::optional<std::uint64_t> byte_count() const;
  /// Reads the first bytes; fewer if the file is shorter.
  ///
  /// Fails: io_failed.
  [[nodiscard]] Result<std::size_t> read_first(std::span<std::byte> target) const;
  /// Gives every hole of the file its room on the disk, so that storing to it cannot fail later.
  ///
  /// Fails: capacity_exceeded if there is no room. A file system that cannot do it is no failure.
  [[nodiscard]] Result<void> reserve() const;

  /// Who owns the file, and which file it is.
  struct Identity {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::uint32_t owner = 0;

    friend bool operator==(const Identity&, const Identity&) = default;
  };
  [[nodiscard]] Identity identity() const;
  /// Of what is at `path` now; nothing if there is nothing.
  [[nodiscard]] static std::optional<Identity> identity_at(const std::string& path);

  [[nodiscard]] int descriptor() const { return descriptor_; }
  /// Forgets the descriptor, which is closed already (ForkGuard).
  void forget() { descriptor_ = -1; }
  [[nodiscard]] bool is_device() const { return is_device_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  SharedFile(int descriptor, bool is_device, std::string path)
      : descriptor_(descriptor), is_device_(is_device), path_(std::move(path)) {}
  int descriptor_;
  bool is_device_;
  std::string path_;
};

/// The bytes of a file, mapped to be shared. No promise of persistence: see PersistentMap.
///
/// Threading: shared.
/// Ownership: unmaps; independent of the SharedFile afterwards.
class SharedMap {
 public:
  /// Fails: out_of_memory, io_failed.
  [[nodiscard]] static Result<SharedMap> map(const SharedFile& file, std::uint64_t byte_count);

  SharedMap(SharedMap&& other) noexcept;
  SharedMap& operator=(SharedMap&& other) noexcept;
  SharedMap(const SharedMap&) = delete;
  SharedMap& operator=(const SharedMap&) = delete;
  ~SharedMap();

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit SharedMap(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

/// The effective user of this process.
[[nodiscard]] std::uint32_t effective_user();

/// How finely the platform under a mapping saves what was stored when power fails.
enum class StoreGranularity : std::uint8_t { byte, line, page };

/// All of a file or device, mapped to be shared.
///
/// Threading: shared.
/// Ownership: unmaps; independent of the SharedFile afterwards.
class PersistentMap {
 public:
  /// By libpmem2, which knows what the platform promises; in a build without it by mmap, and then
  /// the granularity is page.
  ///
  /// Fails: invalid_argument for an empty file; io_failed, out_of_memory, unsupported.
  [[nodiscard]] static Result<PersistentMap> map(const SharedFile& file, bool writable);

  PersistentMap(PersistentMap&& other) noexcept;
  PersistentMap& operator=(PersistentMap&& other) noexcept;
  PersistentMap(const PersistentMap&) = delete;
  PersistentMap& operator=(const PersistentMap&) = delete;
  ~PersistentMap();

  [[nodiscard]] std::span<std::byte> bytes() const;
  [[nodiscard]] StoreGranularity granularity() const;
  /// Fails: io_failed.
  [[nodiscard]] Result<void> deep_flush(std::span<const std::byte> range) const;

 private:
  struct State;
  explicit PersistentMap(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};
/// False in a build without libpmem2.
[[nodiscard]] bool has_libpmem2();

/// While one lives, a page of its range that goes away (SIGBUS) is replaced by one of zeros in this
/// process, and `fault` becomes `value` if it was 0. The first guard puts the handler in place;
/// what is not in the range of a guard goes to the handler that was there before.
///
/// Threading: immutable; `fault` has to outlive it.
class FaultGuard {
 public:
  FaultGuard(std::span<std::byte> range, Atomic<std::uint32_t>& fault, std::uint32_t value);
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;
  ~FaultGuard();

 private:
  std::size_t slot_;
};

}  // namespace headrace::platform
