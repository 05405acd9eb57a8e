// SPDX-License-Identifier: Apache-2.0
// Store: blocks by key, in tiers of memory and files. The engine copies them in, out and between
// the tiers, off the calling thread. For programs that bring their own keys: key-value stores,
// inference servers, storage targets. Not for: regions identified by address (cache/cache.hpp), or
// transfers between machines.
//
// Sequential specification. The store is a map from keys to blocks. Each operation takes effect at
// one instant:
//   put      when its transfer completes the block: it replaces the key's block in all tiers. Of
//            two puts of a key in flight together, the block of the one submitted later stays
//   get      at submission: it returns the block that the key has then, even if that is replaced or
//            removed before the copy completes
//   remove, clear, pin, unpin, length, keys    during the call
// Also, a block neither pinned nor in use (read or written by a transfer) may be evicted when its
// tier is full: it moves to the next tier; from the last tier it is dropped.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.hpp"
#include "headrace/base/names.hpp"
#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/engine/engine.hpp"

namespace headrace::store {

using headrace::name;

inline constexpr std::size_t kTiersMax = 4;
inline constexpr std::size_t kKeyBytesMax = 192;
inline constexpr Bytes kBlockBytesMax = gib(1);

/// What a block survives in a file once its put is done.
enum class Durability : std::uint8_t {
  power,  ///< Power loss: a put is done when the block is on the medium.
  /// The end of the process, even by SIGKILL. Nothing is flushed: after a restart of the machine,
  /// and in a copy of the file, only blocks that match their checksum are kept.
  process,
};

/// A tier: memory on a node, persistent memory (a file on DAX or a DAX device, mapped), or any
/// other file, read and written past the page cache.
struct TierOptions {
  /// Rounded down to whole blocks of StoreOptions::block_bytes. 0: the capacity of an existing
  /// file.
  Bytes capacity = {};
  /// Memory only: node of its pages. Default: the system's choice.
  std::optional<NodeId> node = std::nullopt;
  /// If not empty, the tier is this file. If missing it is created, with its disk space allocated.
  std::string path = {};
  Durability durability = Durability::power;
  /// Files that are not mapped only: a transfer that the disk has not carried out after this time
  /// ends as timed_out. The store uses the memory of the disk's request again when the kernel
  /// returns it.
  std::chrono::milliseconds deadline = std::chrono::seconds(30);
  /// Memory above a file only: blocks put here are written to the file in the background, and while
  /// more than this many are not yet written, a put is done when its block is. 0: write-through.
  /// Default: blocks are written when they are evicted, and by Store::flush().
  std::optional<std::uint32_t> unwritten_max = std::nullopt;
};

struct StoreOptions {
  /// Maximum length of a block, up to kBlockBytesMax. Shorter blocks take the same room.
  Bytes block_bytes = mib(1);
  /// 1 to kTiersMax, the fastest first.
  std::vector<TierOptions> tiers = {};
  /// Store a CRC-32C with each block, computed by the engine during the copy. Each get verifies the
  /// block's, whatever this is.
  bool checksums = true;
  /// Copy a block to the first tier after this many reads from other tiers. 0: never.
  std::uint32_t promote_after = 2;
  /// The calling thread copies a transfer in its submission if it has up to this many bytes in
  /// total, all blocks are in memory and no device takes it. Handing over 64 blocks costs as much
  /// processor time as copying the default. 0: hand over every transfer.
  Bytes inline_max = kib(256);
};

/// The outcome of the transfer of one block.
enum class Outcome : std::uint8_t {
  running,
  done,
  unknown_key,
  bad_key,       ///< The key is empty or longer than kKeyBytesMax.
  wrong_length,  ///< put: empty, or longer than block_bytes. get: the target is too short.
  no_such_tier,
  full,        ///< Every block of the tier is pinned.
  corrupt,     ///< No copy matches the checksum. The block has been removed.
  failed,      ///< The engine could not copy: unmapped memory, a device error, a throwing policy.
  late_write,  ///< Failed, and an abandoned device may still write to the target.
  io_failed,   ///< The disk could not read or write the block, or make it durable.
  closed,      ///< The engine was stopped, or belongs to the parent of this process.
  timed_out,   ///< The disk did not answer before the deadline. A put may still take effect.
  disk_full,   ///< The file system had no space for the block.
};
/// One sentence for a person: the meaning, and what to do.
[[nodiscard]] HEADRACE_API std::string_view explain(Outcome outcome);

struct PutBlock {
  std::string_view key;
  std::span<const std::byte> source;
};
struct GetBlock {
  std::string_view key;
  /// At least as long as the block.
  std::span<std::byte> target;
};
struct BlockEnd {
  Outcome outcome = Outcome::running;
  std::uint32_t byte_count = 0;  ///< Length of the block, if done.
};

struct TransferOptions {
  /// Called once, when the last block of the batch has completed, with one end per block in batch
  /// order. Runs on a mover's thread, the store's thread, the submitting one during its submission,
  /// or one that waits for a transfer, with no lock held. It may submit; it must not wait for a
  /// transfer or destroy the store.
  void (*on_done)(void* context, std::span<const BlockEnd> ends) noexcept = nullptr;
  void* context = nullptr;
};

class ClientState;
class StoreState;
namespace detail {
struct TransferBatch;
}  // namespace detail

/// A submitted batch. Destruction waits until it completes.
///
/// Ownership: borrows the buffers of the batch until it completes. The store must outlive a
///            transfer that is not complete.
/// Threading: shared, except for destruction and assignment.
class HEADRACE_API Transfer {
 public:
  Transfer() = default;  ///< A completed transfer of no blocks.
  Transfer(Transfer&& other) noexcept;
  Transfer& operator=(Transfer&& other) noexcept;
  ~Transfer();

  /// True once every block has completed. Never blocks.
  [[nodiscard]] bool poll() const;
  void wait() const;
  /// As wait(), for at most `time_max`. Returns whether it completed.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds time_max) const;
  /// One per block, in batch order. The transfer must be complete (checked).
  [[nodiscard]] std::span<const BlockEnd> ends() const;
  /// True if the transfer is complete and every block is done.
  [[nodiscard]] bool all_done() const;

 private:
  friend class ClientState;
  friend class StoreState;
  explicit Transfer(std::shared_ptr<detail::TransferBatch> batch) : batch_(std::move(batch)) {}
  std::shared_ptr<detail::TransferBatch> batch_;
};

struct TierStatistics {
  std::uint64_t capacity_blocks = 0;
  std::uint64_t blocks = 0;        ///< In the tier now.
  std::uint64_t hits = 0;          ///< Blocks read from it.
  std::uint64_t puts = 0;          ///< Puts into it that are done.
  std::uint64_t evictions = 0;     ///< Blocks evicted from it.
  std::uint64_t promotions = 0;    ///< Blocks copied into it after reads.
  std::uint64_t demotions = 0;     ///< Blocks evicted into it from the tier above.
  std::uint64_t recovered = 0;     ///< Blocks found in its file when the store was made.
  std::uint64_t dropped_torn = 0;  ///< Entries of its file found torn, or without their data, then.
  /// Slots not used again: the disk failed there, or an abandoned device may write to them.
  std::uint64_t blocks_lost = 0;
  /// Whether a put into it could be done now: the file has no fault, the disk answers, and the last
  /// attempt to make blocks durable succeeded.
  bool is_healthy = true;
  /// How its blocks are read and written: "memory", "mapped", or the ways of a file on a disk, such
  /// as "io_uring, O_DIRECT".
  std::string access;
};

/// A client of a shared store, since it connected.
struct ClientStatistics {
  std::uint64_t process = 0;  ///< Its ID; 0 in another PID namespace.
  std::uint64_t requests = 0;
  std::uint64_t reads_in_place = 0;  ///< As it says.
  std::uint64_t leases = 0;          ///< Blocks that it reads in place now.
  std::uint64_t pins = 0;
};

/// Totals since the store was made.
struct StoreStatistics {
  std::uint64_t blocks = 0;     ///< In the store now.
  std::uint64_t misses = 0;     ///< Gets of unknown keys.
  std::uint64_t dropped = 0;    ///< Blocks evicted from the store.
  std::uint64_t corrupt = 0;    ///< Copies read that did not match their checksum.
  std::uint64_t failed = 0;     ///< Blocks with outcome failed, late_write or io_failed.
  std::uint64_t bytes_in = 0;   ///< Of puts that are done.
  std::uint64_t bytes_out = 0;  ///< Of gets that are done.
  std::vector<TierStatistics> tiers;
  std::vector<ClientStatistics> clients;  ///< Of a shared store.
};

/// A block, which stays as it is as long as a copy of this exists.
struct BlockView {
  Outcome outcome = Outcome::closed;
  std::span<const std::byte> bytes = {};
  bool in_place = false;  ///< Not a copy. Its checksum has not been compared.
  std::shared_ptr<const void> keeper = nullptr;
};

/// Threading: shared, except for construction and destruction.
/// Ownership: borrows the engine, which must outlive the store. Destruction waits for all
///            transfers. The store runs one thread, which makes files durable and polls devices. In
///            a child of fork() the store is unusable: transfers complete as closed.
class HEADRACE_API Store {
 public:
  /// Makes the store and recovers the blocks in its files.
  ///
  /// Fails: invalid_argument for invalid options and for a file made with another block_bytes or
  ///        capacity; capacity_exceeded for a file that another process or store has open, a path
  ///        named twice, and a full disk; version_mismatch; corrupt_data for a file that is not a
  ///        store's or is truncated; not_found, permission_denied, io_failed; out_of_memory if a
  ///        node is full; unsupported if the thread cannot be created.
  [[nodiscard]] static Result<std::unique_ptr<Store>> make(engine::Engine& engine,
                                                           StoreOptions options);
  Store& operator=(Store&&) = delete;
  virtual ~Store();

  /// Starts copying blocks into `tier` and returns. A block in a file is done when it is durable.
  /// If the tier is full, the put waits until blocks are evicted; the caller does not wait.
  ///
  /// Cost: one engine job per 8 MiB of a submission. The calling thread copies only what
  ///       engine::route assigns to it: transfers of at most StoreOptions::inline_max and, on an
  ///       engine with devices, jobs of at most 64 KiB that are too short for a device.
  [[nodiscard]] virtual Transfer put(std::span<const PutBlock> blocks, std::size_t tier = 0,
                                     const TransferOptions& options = {}) = 0;
  /// Starts copying blocks out and returns.
  [[nodiscard]] virtual Transfer get(std::span<const GetBlock> blocks,
                                     const TransferOptions& options = {}) = 0;
  /// Starts writing each block that is only in memory to the first file below it, and returns. One
  /// end per block, in no order: full if every block of the file is pinned.
  [[nodiscard]] virtual Transfer flush() = 0;
  /// Put or get one block and wait for it.
  [[nodiscard]] BlockEnd put(std::string_view key, std::span<const std::byte> source,
                             std::size_t tier = 0);
  [[nodiscard]] BlockEnd get(std::string_view key, std::span<std::byte> target);

  /// The block of the key: in place where that is possible (shared.hpp), otherwise a copy.
  [[nodiscard]] virtual BlockView view(std::string_view key);

  /// Length of the block; nullopt for an unknown key.
  [[nodiscard]] virtual std::optional<std::size_t> length(std::string_view key) const = 0;
  /// Keeps the block in its tiers until unpin(). Pins are counted. False for an unknown key.
  [[nodiscard]] virtual bool pin(std::string_view key) = 0;
  /// False if the block was not pinned.
  virtual bool unpin(std::string_view key) = 0;
  /// Removes the block, pinned or not: done, or unknown_key. It may reappear after a power loss,
  /// but not after the end of the process. io_failed: its disk keeps it, and so does the store.
  virtual Outcome remove(std::string_view key) = 0;
  /// Removes every block, or none if a disk keeps one. Returns their number.
  virtual std::size_t clear() = 0;
  /// In no order.
  [[nodiscard]] virtual std::vector<std::string> keys() const = 0;
  [[nodiscard]] virtual StoreStatistics statistics() const = 0;

  /// An eventfd to which 1 is added whenever a transfer completes; created by the first call. Read
  /// it to reset it. Owned by the store.
  ///
  /// Fails: capacity_exceeded if the process has no free descriptor.
  [[nodiscard]] virtual Result<int> event_descriptor() = 0;

 protected:
  Store() = default;
};

}  // namespace headrace::store
