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

struct CacheOptions {
  PlacementPolicy placement;  ///< Empty: placement::fastest.
  engine::MoverPolicy mover;  ///< Empty: that of the engine.
  /// Bytes of copies kept per node. When full, unused entries are dropped, oldest first; if that is
  /// not enough, the access is refused and its entry points at the source.
  Bytes capacity_per_node = Bytes(std::uint64_t{1} << 62U);
};

/// Totals since the cache was made. Each is exact; together they are not one instant.
struct CacheStatistics {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;      ///< Accesses that started a move.
  std::uint64_t not_placed = 0;  ///< Accesses that the placement policy left at the source.
  std::uint64_t refused = 0;  ///< Accesses left at the source for want of room, memory or a mover.
  std::uint64_t moves_failed =
      0;  ///< Moves that ended otherwise than done; their entries point at the source.
  std::uint64_t policy_errors =
      0;                        ///< Policies that threw or named a node the machine does not have.
  std::uint64_t evictions = 0;  ///< Entries dropped to make room.
  std::uint64_t bytes_moved = 0;
  std::uint64_t bytes_cached = 0;  ///< Now, all nodes together, entries in use included.
};

namespace detail {
struct EntryState;
}

/// A handle on one cached region, shared by all who asked for it. Copying it is cheap; the memory
/// of the copy is freed with the last handle, the cache's own included.
///
/// Ownership: the source must stay alive and unchanged until the entry is ready; after that, as
/// long as data()
///            may be the source.
/// Threading: distinct handles: shared. One handle: confined.
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
  /// refused. Never null for a region that was not empty.
  [[nodiscard]] std::span<const std::byte> data() const;
  /// True if data() is a copy.
  [[nodiscard]] bool cached() const;
  /// Node of the copy, if data() is one.
  [[nodiscard]] std::optional<NodeId> node() const;

 private:
  friend class Cache;
  explicit Entry(detail::EntryState* state);
  detail::EntryState* state_;
};

/// Threading: shared, except for construction and destruction.
/// Ownership: borrows the engine, which must outlive the cache and every entry that is not yet
/// ready. Entries
///            stay valid after the cache is gone.
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
  [[nodiscard]] Entry access(std::span<const std::byte> source);
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
