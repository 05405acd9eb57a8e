// SPDX-License-Identifier: Apache-2.0
// Files that several processes map: created atomically, locked by ranges, and mapped so that a
// vanished page sets a flag instead of killing the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "headrace/base/atomic.hpp"
#include "headrace/base/result.hpp"
#include "headrace/platform/descriptor.hpp"
#include "headrace/platform/memory.hpp"

struct pmem2_map;  // Of libpmem2.

namespace headrace::platform {

/// Makes a file of `byte_count` bytes that begins with `head`; the rest is zero and allocated on
/// the disk. The file gets its name only when it is complete and synced. The umask applies to
/// `permissions`.
///
/// Fails: invalid_argument if `path` exists; capacity_exceeded if the disk is full; not_found,
///        permission_denied, io_failed. Leaves no file behind.
[[nodiscard]] Result<void> make_file(const std::string& path, std::uint64_t byte_count,
                                     std::span<const std::byte> head,
                                     std::uint32_t permissions = 0666);

/// Whether `path` is a character device. Opens nothing.
[[nodiscard]] bool is_character_device(const std::string& path);

class SharedMap;

/// An open file or device.
///
/// Threading: immutable, except for the locks.
/// Ownership: the destructor releases its locks; so does the kernel when the process ends.
class SharedFile {
 public:
  /// Fails: not_found, permission_denied, io_failed; invalid_argument for a folder or a pipe.
  [[nodiscard]] static Result<SharedFile> open(const std::string& path, bool writable);
  /// Opens the file of `descriptor` again, with separate locks.
  ///
  /// Fails: as open(); also where /proc is not mounted.
  [[nodiscard]] static Result<SharedFile> open_again(int descriptor);
  /// Takes a descriptor received from another process.
  [[nodiscard]] static SharedFile adopt(Descriptor descriptor) {
    return {descriptor.release(), false, "shared memory"};
  }
  /// Anonymous shared memory that begins with `head`; the rest is zero. Sealed: its length cannot
  /// change. Only this user may open it again. With `only`, that is the one mapping that can write
  /// to it, now and later.
  ///
  /// Fails: out_of_memory, capacity_exceeded, io_failed.
  [[nodiscard]] static Result<SharedFile> make_sealed(std::uint64_t byte_count,
                                                      std::span<const std::byte> head,
                                                      std::optional<SharedMap>* only = nullptr);

  /// Locks byte `index` of the lock range of the file, which is far beyond its contents, against
  /// every other SharedFile, also of this process.
  ///
  /// Returns: false if another SharedFile holds the lock.
  /// Fails: io_failed if the file system has no locks.
  [[nodiscard]] Result<bool> try_lock(std::uint64_t index) const;
  /// As try_lock(), but waits for the lock.
  [[nodiscard]] Result<void> lock(std::uint64_t index) const;
  void unlock(std::uint64_t index) const;
  /// True if another SharedFile holds the lock at this moment.
  [[nodiscard]] bool is_locked_by_another(std::uint64_t index) const;

  /// Length of a file; nothing for a device.
  [[nodiscard]] std::optional<std::uint64_t> byte_count() const;
  /// Reads bytes from `offset` on; fewer if the file is shorter.
  ///
  /// Fails: io_failed.
  [[nodiscard]] Result<std::size_t> read_at(std::uint64_t offset,
                                            std::span<std::byte> target) const;
  /// Allocates disk space for every hole of the file, so that stores to its mapping cannot fail
  /// later.
  ///
  /// Fails: capacity_exceeded if the disk is full. Succeeds if the file system does not support it.
  [[nodiscard]] Result<void> reserve() const;

  /// Identity and owner of a file.
  struct Identity {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::uint32_t owner = 0;

    friend bool operator==(const Identity&, const Identity&) = default;
  };
  [[nodiscard]] Identity identity() const;
  /// Identity of the file at `path`; nothing if there is none.
  [[nodiscard]] static std::optional<Identity> identity_at(const std::string& path);

  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  /// Drops the descriptor, which ForkGuard has closed already.
  void forget() { static_cast<void>(descriptor_.release()); }
  [[nodiscard]] bool is_device() const { return is_device_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  SharedFile(int descriptor, bool is_device, std::string path)
      : descriptor_(descriptor), is_device_(is_device), path_(std::move(path)) {}
  Descriptor descriptor_;
  bool is_device_;
  std::string path_;
};

/// Shared mapping of a file. No guarantee of persistence: see PersistentMap.
///
/// Threading: shared.
/// Ownership: the destructor unmaps; the SharedFile may be closed before.
class SharedMap {
 public:
  /// Fails: out_of_memory, io_failed.
  [[nodiscard]] static Result<SharedMap> map(const SharedFile& file, std::uint64_t byte_count,
                                             bool writable = true);

  [[nodiscard]] std::span<std::byte> bytes() const { return pages_.get(); }

 private:
  explicit SharedMap(std::span<std::byte> pages) : pages_(pages) {}
  OwnedPages pages_;
};

/// The effective user of this process.
[[nodiscard]] std::uint32_t effective_user();

/// Unit in which stores must be flushed to survive a power failure (libpmem2's store granularity).
enum class StoreGranularity : std::uint8_t { byte, line, page };

/// Shared mapping of a whole file or device.
///
/// Threading: shared.
/// Ownership: the destructor unmaps; the SharedFile may be closed before.
class PersistentMap {
 public:
  /// Maps with libpmem2, which knows the platform's guarantees.
  ///
  /// Fails: invalid_argument for an empty file; io_failed, out_of_memory, unsupported.
  [[nodiscard]] static Result<PersistentMap> map(const SharedFile& file, bool writable);

  [[nodiscard]] std::span<std::byte> bytes() const;
  [[nodiscard]] StoreGranularity granularity() const;

 private:
  struct Unmap {
    void operator()(pmem2_map* map) const;
  };
  explicit PersistentMap(pmem2_map* map) : map_(map) {}
  std::unique_ptr<pmem2_map, Unmap> map_;
};

/// During its lifetime, SIGBUS for a page of its range replaces the page by zeros in this process
/// and sets `fault` to `value` if it was 0. The first guard installs the handler; it passes other
/// faults to the handler installed before.
///
/// Fails:     throws std::bad_alloc.
/// Threading: immutable; `fault` must outlive it.
class FaultGuard {
 public:
  FaultGuard(std::span<std::byte> range, Atomic<std::uint32_t>& fault, std::uint32_t value);
  FaultGuard& operator=(FaultGuard&&) = delete;
  ~FaultGuard();

  struct Slot;

 private:
  Slot* slot_;
};

}  // namespace headrace::platform
