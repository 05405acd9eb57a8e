// SPDX-License-Identifier: Apache-2.0
// Cache: keeps copies of memory regions on the nodes where they will be wanted, moved there
// asynchronously. It is not coherent: who changes a source tells the cache by invalidate().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "headrace/base/export.hpp"
#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/topo/machine.hpp"

namespace headrace::cache {

/// What a placement policy may look at.
struct PlacementContext {
  const topo::Machine& machine;
  /// Node of the calling thread; unknown on odd machines.
  std::optional<NodeId> caller_node;
  std::span<const std::byte> source;
};

/// Chooses the node for a copy; nothing: leave the data where it is. Called on the accessing thread
/// with no lock held, possibly by several threads at once. What it throws is counted, and the
/// source is used.
using PlacementPolicy = std::function<std::optional<NodeId>(const PlacementContext&)>;

/// Policies by name.
namespace placement {
/// The best of Machine::faster_nodes for the caller; nothing where there is no faster memory.
HEADRACE_API std::optional<NodeId> fastest(const PlacementContext& context);
/// The caller's own node.
HEADRACE_API std::optional<NodeId> local(const PlacementContext& context);
/// Never moves anything.
HEADRACE_API std::optional<NodeId> none(const PlacementContext& context);
/// Always `node`.
[[nodiscard]] HEADRACE_API PlacementPolicy on(NodeId node);
}  // namespace placement

/// Gives copies their memory. What it throws, and any error, refuses the access.
///
/// Threading: shared.
class HEADRACE_API MemorySource {
 public:
  MemorySource() = default;
  MemorySource(const MemorySource&) = delete;
  MemorySource& operator=(const MemorySource&) = delete;
  virtual ~MemorySource() = default;
  /// Returns at least `byte_count` bytes on `node`, ready to be written: that the node is full must
  /// show here and not at the first touch. `byte_count` is a whole number of pages.
  [[nodiscard]] virtual Result<std::span<std::byte>> allocate(std::size_t byte_count,
                                                              NodeId node) = 0;
  /// Takes back what allocate() gave, on any thread, perhaps after the cache is gone.
  virtual void free(std::span<std::byte> memory) noexcept = 0;
};
/// Pages of the operating system on the node asked for, made present. A node without room for them
/// is an error; if others fill it in the same moment, some pages lie elsewhere.
[[nodiscard]] HEADRACE_API std::shared_ptr<MemorySource> operating_system_pages();
/// As `upstream`, but what is freed is kept for the next copy of the same length on the same node,
/// which then costs neither system calls nor the zeroing of pages. Kept memory goes back to
/// `upstream` in favour of other lengths, so a cache never holds more than its capacity, and with
/// the source itself: flush() and clear() do not empty the node then.
[[nodiscard]] HEADRACE_API std::shared_ptr<MemorySource> recycled(
    std::shared_ptr<MemorySource> upstream = operating_system_pages());

struct CacheOptions {
  PlacementPolicy placement;  ///< Empty: placement::fastest.
  /// Empty: that of the engine. What it throws is counted, and the move fails.
  engine::MoverPolicy mover;
  /// Bytes of copies kept per node, counted in whole pages because that is what they take. When
  /// full, unused entries are dropped, oldest first; if that is not enough, nothing is dropped, the
  /// access is refused and its entry points at the source. An entry is unused if its move has ended
  /// and nobody holds a handle on it.
  Bytes capacity_per_node = Bytes(std::uint64_t{1} << 62U);
  /// Null: operating_system_pages(). Shared by the cache and all its entries.
  std::shared_ptr<MemorySource> memory;
};

/// Totals since the cache was made. Each is exact; together they are not one instant.
/// Every access is one of four: accesses = hits + misses + not_placed + refused.
struct CacheStatistics {
  std::uint64_t hits = 0;    ///< Accesses that found an entry, ready or on its way.
  std::uint64_t misses = 0;  ///< Accesses that started a move.
  /// Accesses left at the source by the placement policy or its failure, or empty.
  std::uint64_t not_placed = 0;
  /// Accesses left at the source for want of room, of memory or of a mover's queue.
  std::uint64_t refused = 0;
  /// Hits that found the entry only when they came to insert their own: another thread was faster.
  std::uint64_t duplicates = 0;
  /// Moves that ended otherwise than done; their entries point at the source.
  std::uint64_t moves_failed = 0;
  /// Policies that threw, or named a node the machine does not have.
  std::uint64_t policy_errors = 0;
  std::uint64_t evictions = 0;    ///< Entries dropped to make room.
  std::uint64_t bytes_moved = 0;  ///< By moves that were done.
  /// Now, all nodes together, in whole pages, entries in use included.
  std::uint64_t bytes_cached = 0;
};

namespace detail {
struct EntryState;
class Shelf;
}  // namespace detail

/// A handle on one cached region, shared by all who asked for it. Copying it is cheap; the memory
/// of the copy is freed with the last handle, the cache's own included.
///
/// Ownership: the source must stay alive and unchanged until the entry is ready; after that, as
/// long as data() may be the source. The last handle stops a move that still runs and waits for it,
/// which takes as long as one piece of the mover; so no handle may be dropped in a job's callback.
/// Threading: distinct handles: shared. One handle: confined. One that was moved from can only be
/// assigned to and destroyed.
class HEADRACE_API Entry {
 public:
  Entry(const Entry& other);
  Entry(Entry&& other) noexcept;
  Entry& operator=(const Entry& other);
  Entry& operator=(Entry&& other) noexcept;
  ~Entry();

  /// Blocks until the move has ended, whoever started it.
  void wait() const;
  /// True if the move has ended. Never blocks.
  [[nodiscard]] bool try_wait() const;
  /// The region: its copy once the move is done; the source while it runs, and if it failed or was
  /// refused. Never null for a region that was not empty. Longer than what was asked for if the
  /// access found a longer entry.
  [[nodiscard]] std::span<const std::byte> data() const;
  /// True if data() is a copy.
  [[nodiscard]] bool cached() const;
  /// Node of the copy, if data() is one.
  [[nodiscard]] std::optional<NodeId> node() const;

 private:
  friend class Cache;
  friend class detail::Shelf;
  explicit Entry(detail::EntryState* state);
  detail::EntryState* state_;
};

/// Threading: shared, except for construction and destruction.
/// Ownership: borrows the engine, which must outlive the cache and every entry that is not yet
/// ready; copies the machine. Entries stay valid after the cache is gone.
class HEADRACE_API Cache {
 public:
  /// Fails: invalid_argument for a capacity of 0.
  [[nodiscard]] static Result<std::unique_ptr<Cache>> make(const topo::Machine& machine,
                                                           engine::Engine& engine,
                                                           CacheOptions options = {});
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;
  ~Cache();

  /// Returns the entry of `source`, starting its move if there is none with this address and at
  /// least this length on the node that the placement policy chose. Never blocks on a move.
  ///
  /// An entry with this address that is too short, or whose move failed, makes way for a new one;
  /// its holders keep theirs. A mover whose queue is full refuses the access at once; the entry
  /// then points at the source, and who wants the copy slows down and asks again.
  [[nodiscard]] Entry access(std::span<const std::byte> source);

  // These stop the moves of the entries that nobody holds and wait until they have stopped.

  /// Drops entries that nobody holds, of one node or of all. Returns how many.
  std::size_t flush(std::optional<NodeId> node = std::nullopt);
  /// Drops every entry that overlaps `source` on every node; holders keep theirs. Returns how many.
  std::size_t invalidate(std::span<const std::byte> source);
  /// Drops every entry; holders keep theirs. Returns how many.
  std::size_t clear();

  [[nodiscard]] CacheStatistics statistics() const;

 private:
  class State;
  explicit Cache(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace headrace::cache
