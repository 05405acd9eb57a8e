// SPDX-License-Identifier: Apache-2.0
// Store: blocks by key, kept in tiers of memory and files. The engine copies them in and out, and
// between the tiers, so that the calling thread does not. For caches of others (key-value stores,
// inference servers, storage targets) that bring their own keys.
// Not for: memory that is addressed by its own address (cache/cache.hpp), or transfers between
// machines.
//
// Sequential specification. The store is a map from keys to blocks. Each operation takes effect at
// one instant:
//   put      when its transfer ends the block: the key then has the new block, in all tiers
//   get      at its submission: it gives the block that the key has then, even if that is replaced
//            or removed before the copy ends
//   remove, clear, pin, unpin, length, keys    during the call
// Besides, a block that is not pinned and not in use may disappear when its tier needs room: from
// a tier other than the last it goes to the next one, from the last tier it is dropped. "In use" is
// a block that a transfer reads or writes.
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
#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/engine/engine.hpp"

namespace headrace::store {

inline constexpr std::size_t kTiersMax = 4;
inline constexpr std::size_t kKeyBytesMax = 192;
inline constexpr Bytes kBlockBytesMax = gib(1);

/// What an acknowledged block in a file survives.
enum class Durability : std::uint8_t {
  power,    ///< The loss of power: acknowledged when it lies in the file's medium.
  process,  ///< The end of the process, however it ends. Nothing is flushed.
};
[[nodiscard]] HEADRACE_API std::string_view name(Durability durability);

/// A tier: memory on a node, or a file that is mapped (plain, on DAX, or a DAX device).
struct TierOptions {
  /// Bytes of blocks, rounded down to whole ones; each takes StoreOptions::block_bytes. 0, only of
  /// a file that is there: as it was made.
  Bytes capacity = {};
  /// Of memory: where its pages lie. Nothing: where the system puts them.
  std::optional<NodeId> node = std::nullopt;
  /// Not empty: the tier is this file. It is made if it is not there, with its room on the disk.
  std::string path = {};
  Durability durability = Durability::power;
  /// Which block goes first when the tier is full.
  cache::Eviction eviction = cache::Eviction::s3_fifo;
};

struct StoreOptions {
  /// Bytes of the longest block; shorter ones take as much room. At most kBlockBytesMax.
  Bytes block_bytes = mib(1);
  /// The fastest first; 1 to kTiersMax.
  std::vector<TierOptions> tiers = {};
  /// Each block is stored with its CRC-32C, made by the engine during the copy, and compared with
  /// it when it is read.
  bool checksums = false;
  /// A block that was read so often from another tier is copied to the first one. 0: never.
  std::uint32_t promote_after = 2;
  /// A transfer between memory of up to so many bytes in all, for which no device is taken, is
  /// copied by the calling thread in its submission. To hand over 64 blocks costs as much processor
  /// time as to copy the default. 0: all of it is handed over.
  Bytes inline_max = kib(256);
};

/// How the transfer of one block ended.
enum class Outcome : std::uint8_t {
  running,
  done,
  unknown_key,
  bad_key,       ///< It is empty or longer than kKeyBytesMax.
  wrong_length,  ///< put: empty, or longer than block_bytes. get: the target is too short.
  no_such_tier,
  full,        ///< All blocks of the tier are pinned.
  corrupt,     ///< The checksum differs. The block has been removed.
  failed,      ///< The engine could not copy: memory that is not mapped, a device error.
  late_write,  ///< As failed, and an abandoned device may still write to the target.
  io_failed,   ///< The file has lost pages, or what was written could not be made durable.
  closed,      ///< The engine was stopped, or belongs to the parent of this process.
};
[[nodiscard]] HEADRACE_API std::string_view name(Outcome outcome);
/// What it means and what to do about it, one sentence for a person.
[[nodiscard]] HEADRACE_API std::string_view explain(Outcome outcome);

struct PutBlock {
  std::string_view key;
  std::span<const std::byte> source;
};
struct GetBlock {
  std::string_view key;
  /// As long as the block, or longer.
  std::span<std::byte> target;
};
struct BlockEnd {
  Outcome outcome = Outcome::running;
  std::uint32_t byte_count = 0;  ///< Of the block, if done.
};

struct TransferOptions {
  /// Called once, when the last block of the batch has ended, with one end for each block in the
  /// order of the batch. The thread is a mover's, the store's own, or the submitting one within its
  /// submission. It holds no lock. It may submit; it may not wait for a transfer or end the store.
  void (*on_done)(void* context, std::span<const BlockEnd> ends) noexcept = nullptr;
  void* context = nullptr;
};

class StoreState;
namespace detail {
struct Flight;
}  // namespace detail

/// A batch that was submitted. Destruction waits for its end.
///
/// Ownership: the buffers of the batch are borrowed until it has ended. The store outlives it, but
///            for transfers that have ended.
/// Threading: shared, except for destruction and assignment.
class HEADRACE_API Transfer {
 public:
  Transfer() = default;  ///< One that has ended, of no blocks.
  Transfer(Transfer&& other) noexcept;
  Transfer& operator=(Transfer&& other) noexcept;
  ~Transfer();

  /// True once every block has ended. Never blocks.
  [[nodiscard]] bool poll() const;
  void wait() const;
  /// As wait(), for at most `time_max`. Returns whether it has ended.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds time_max) const;
  /// One for each block, in the order of the batch. It must have ended (checked).
  [[nodiscard]] std::span<const BlockEnd> ends() const;
  /// True if it has ended and every block is done.
  [[nodiscard]] bool all_done() const;

 private:
  friend class StoreState;
  explicit Transfer(std::shared_ptr<detail::Flight> flight) : flight_(std::move(flight)) {}
  std::shared_ptr<detail::Flight> flight_;
};

struct TierStatistics {
  std::uint64_t capacity_blocks = 0;
  std::uint64_t blocks = 0;        ///< Now in the tier.
  std::uint64_t hits = 0;          ///< Blocks read from it.
  std::uint64_t puts = 0;          ///< Blocks put into it and ended as done.
  std::uint64_t evictions = 0;     ///< Blocks that left it for room.
  std::uint64_t promotions = 0;    ///< Blocks copied into it because they were read.
  std::uint64_t demotions = 0;     ///< Blocks copied into it from the tier before.
  std::uint64_t recovered = 0;     ///< Blocks found in its file when the store was made.
  std::uint64_t dropped_torn = 0;  ///< Entries of its file that were not whole then.
  std::uint64_t blocks_lost = 0;   ///< Room that an abandoned device may write to; not used again.
};

/// Totals since the store was made.
struct StoreStatistics {
  std::uint64_t blocks = 0;     ///< Keys now.
  std::uint64_t misses = 0;     ///< Gets of unknown keys.
  std::uint64_t dropped = 0;    ///< Blocks that left the store for room.
  std::uint64_t corrupt = 0;    ///< Gets whose checksum differed.
  std::uint64_t failed = 0;     ///< Blocks that ended as failed, late_write or io_failed.
  std::uint64_t bytes_in = 0;   ///< By puts that are done.
  std::uint64_t bytes_out = 0;  ///< By gets that are done.
  std::vector<TierStatistics> tiers;
};

/// Threading: shared, except for construction and destruction.
/// Ownership: borrows the engine, which outlives the store. Destruction waits for all transfers.
///            Has a thread of its own, which makes files durable and drives devices. In a child of
///            fork() nothing of it works: transfers end as closed.
class HEADRACE_API Store {
 public:
  /// Makes the store; blocks in its files are there again.
  ///
  /// Fails: invalid_argument for options that make no sense, a path that is named twice, and a file
  ///        made with another block_bytes or capacity; capacity_exceeded for a file that another
  ///        process, or another store of this one, has open, and for a full disk; version_mismatch
  ///        and corrupt_data for a file of another version, one that is foreign or truncated;
  ///        not_found, permission_denied, io_failed; out_of_memory for a node without room;
  ///        unsupported if the thread cannot be made.
  [[nodiscard]] static Result<std::unique_ptr<Store>> make(engine::Engine& engine,
                                                           StoreOptions options);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store();

  /// Starts copying blocks into `tier` and returns. A block in a file is done when it is durable.
  /// Where the tier is full, others leave it first, and the put waits for that, not the caller.
  ///
  /// Cost: what is copied in one submission is one job of the engine for each 4 MiB. The calling
  ///       thread copies only what engine::route gives it: transfers of at most
  ///       StoreOptions::inline_max, and on an engine with devices jobs of at most 64 KiB that
  ///       are too short for them.
  [[nodiscard]] virtual Transfer put(std::span<const PutBlock> blocks, std::size_t tier = 0,
                                     const TransferOptions& options = {}) = 0;
  /// Starts copying blocks out and returns.
  [[nodiscard]] virtual Transfer get(std::span<const GetBlock> blocks,
                                     const TransferOptions& options = {}) = 0;
  /// put() and get() of one block, waited for.
  [[nodiscard]] BlockEnd put(std::string_view key, std::span<const std::byte> source,
                             std::size_t tier = 0);
  [[nodiscard]] BlockEnd get(std::string_view key, std::span<std::byte> target);

  /// Bytes of the block; nothing if there is none.
  [[nodiscard]] virtual std::optional<std::size_t> length(std::string_view key) const = 0;
  /// Keeps the block in its tiers until unpin(). Pins are counted. False if there is none.
  [[nodiscard]] virtual bool pin(std::string_view key) = 0;
  /// False if it was not pinned.
  virtual bool unpin(std::string_view key) = 0;
  /// Removes the block, pinned or not. It does not come back after the end of the process; after a
  /// loss of power it may. False if there is none.
  virtual bool remove(std::string_view key) = 0;
  /// Removes every block. Returns how many.
  virtual std::size_t clear() = 0;
  /// In no order.
  [[nodiscard]] virtual std::vector<std::string> keys() const = 0;
  [[nodiscard]] virtual StoreStatistics statistics() const = 0;

  /// An eventfd to which 1 is added whenever a transfer ends; made by the first call. Read it to
  /// reset it. It belongs to the store.
  ///
  /// Fails: capacity_exceeded if no descriptor is left.
  [[nodiscard]] virtual Result<int> event_descriptor() = 0;

 protected:
  Store() = default;
};

}  // namespace headrace::store
