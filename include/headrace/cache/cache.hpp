// SPDX-License-Identifier: Apache-2.0
// Cache: keeps copies of memory regions on the NUMA nodes that will read them. The engine moves the
// bytes asynchronously. It is not coherent: after writing to a source, call invalidate(), or write
// through the cache with change().
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "headrace/base/export.hpp"
#include "headrace/base/names.hpp"
#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/topo/machine.hpp"

namespace headrace::telemetry {
class Source;
}

namespace headrace::cache {

using headrace::name;

/// The input of a placement policy.
struct PlacementContext {
  const topo::Machine& machine;
  std::optional<NodeId> caller_node;  ///< Node of the calling thread, if known.
  std::span<const std::byte> source;
};

/// Candidate nodes for a copy, best first; if empty, the data stays at the source. A copy goes to
/// the first node with room; if none has room, to the first where evicting unused entries makes
/// room.
///
/// Threading: confined.
class HEADRACE_API Placement {
 public:
  static constexpr std::size_t kNodeMax = 8;  ///< Further nodes are ignored.

  Placement() = default;
  // Not explicit, so that a policy can return a node.
  Placement(std::nullopt_t /*nowhere*/) {}
  Placement(NodeId node) { add(node); }
  Placement(std::optional<NodeId> node) {
    if (node.has_value()) add(*node);
  }
  Placement(std::initializer_list<NodeId> nodes) : Placement(std::span(nodes)) {}
  Placement(std::span<const NodeId> nodes) {
    for (const NodeId node : nodes) add(node);
  }
  [[nodiscard]] std::span<const NodeId> nodes() const { return {nodes_.data(), count_}; }
  friend bool operator==(const Placement& a, const Placement& b) {
    return std::ranges::equal(a.nodes(), b.nodes());
  }

 private:
  void add(NodeId node) {
    if (count_ < kNodeMax) nodes_[count_++] = node;
  }
  std::array<NodeId, kNodeMax> nodes_{};
  std::size_t count_ = 0;
};

/// Chooses the nodes for a copy. Called on the accessing thread with no lock held, possibly by
/// several threads at once. If it throws, policy_errors is incremented and the source is used.
using PlacementPolicy = std::function<Placement(const PlacementContext&)>;

/// Policies by name.
namespace placement {
/// Machine::faster_nodes for the caller; no node if there is no faster memory.
HEADRACE_API Placement fastest(const PlacementContext& context);
/// The caller's own node.
HEADRACE_API Placement local(const PlacementContext& context);
/// Never moves anything.
HEADRACE_API Placement none(const PlacementContext& context);
/// Always `node`.
[[nodiscard]] HEADRACE_API PlacementPolicy on(NodeId node);
/// By the node of the caller: map({{NodeId(0), NodeId(8)}, {NodeId(1), NodeId(9)}}). No node for
/// callers elsewhere. Cache::make refuses nodes that the machine does not have.
[[nodiscard]] HEADRACE_API PlacementPolicy map(std::vector<std::pair<NodeId, Placement>> places);
}  // namespace placement

/// Allocates the memory of copies. If it throws or returns an error, the access is refused.
///
/// Threading: shared.
class HEADRACE_API MemorySource {
 public:
  static constexpr std::size_t kAlignment = alignof(std::max_align_t);

  MemorySource() = default;
  MemorySource& operator=(MemorySource&&) = delete;
  virtual ~MemorySource() = default;
  /// Returns at least `byte_count` bytes on `node` with their pages present, so that a full node
  /// fails here and not at the first write. `byte_count` is a whole number of pages. If the memory
  /// is null, too short or not aligned to kAlignment, it is freed, the access is refused and
  /// policy_errors is incremented.
  [[nodiscard]] virtual Result<std::span<std::byte>> allocate(std::size_t byte_count,
                                                              NodeId node) = 0;
  /// Frees memory: the address that allocate() returned and the length that it was asked for.
  /// Called once per allocation, with no lock held, on the thread that ends the last use (destroys
  /// a handle, evicts, flushes, invalidates or clears), possibly after the cache is gone. Not
  /// called for a copy that an abandoned device may still write to (CacheStatistics::bytes_kept);
  /// the destructor must not release that memory either.
  virtual void free(std::span<std::byte> memory) noexcept = 0;
};
/// Pages of the operating system on the requested node, made present; a mapping for each copy.
/// Fails if the node has no room for all of them.
[[nodiscard]] HEADRACE_API std::shared_ptr<MemorySource> operating_system_pages();
/// As operating_system_pages(), but copies of at least a huge page (2 MiB on x86-64) are aligned to
/// it and madvised for huge pages: fewer TLB misses in large copies. Falls back to normal pages.
[[nodiscard]] HEADRACE_API std::shared_ptr<MemorySource> huge_pages();
/// Memory of `upstream` in slabs of 2 MiB for copies of about one length, and longer copies as they
/// are: a copy on a node where one of its length was freed needs no system call and no zeroing of
/// pages. Slabs without copies are returned to `upstream` when another length needs the room, and
/// when the MemorySource is destroyed; flush() and clear() do not return them.
[[nodiscard]] HEADRACE_API std::shared_ptr<MemorySource> recycled(
    std::shared_ptr<MemorySource> upstream = operating_system_pages());

/// Which unused entry is evicted first when a node is full. docs/concepts/cache.md compares them.
enum class Eviction : std::uint8_t {
  /// Approximate LRU: of the eight oldest entries, the one whose last hit is oldest.
  lru,
  /// S3-FIFO (SOSP 2023): new entries start in a small queue and leave the cache unless they get
  /// two hits there.
  s3_fifo,
};

enum class EventKind : std::uint8_t {
  hit,           ///< An access found an entry.
  miss,          ///< An access started a move.
  not_placed,    ///< The placement policy left an access at the source.
  refused,       ///< No room, memory or mover: an access was left at the source.
  weak_hit,      ///< A weak access found an entry.
  weak_miss,     ///< A weak access found none.
  moved,         ///< A move is done.
  move_failed,   ///< A move failed or was stopped.
  evicted,       ///< An entry was dropped to make room.
  dropped,       ///< An entry was dropped for another reason.
  written_back,  ///< Changed bytes were copied to the source.
};

/// Something that happened to a region.
struct Event {
  EventKind kind{};
  /// For an access the requested region, otherwise the region of the entry or the bytes written
  /// back. The memory may have been freed since.
  std::span<const std::byte> region;
  std::optional<NodeId> node;  ///< Node of the entry, if there is one.
  /// For move_failed: why. `none` if it was stopped, or if only late_write_possible made it fail.
  engine::Cause cause = engine::Cause::none;
  /// For move_failed: an abandoned device may still write to the copy, so it is not used.
  bool late_write_possible = false;
};

/// Receives every event on the thread where it happens, with no lock held; events of a miss when
/// its move is submitted, those of access_many() when all are. Several threads may call it at once.
/// It may call the cache, except change() and Entry::wait(), which may wait for the calling thread.
/// `moved` and `move_failed` are reported from the job's callback, where it may call only
/// statistics(). It may be called until the last entry and change are gone. If it throws, or an
/// event cannot be allocated, policy_errors is incremented.
using Observer = std::function<void(const Event&)>;

/// Policies and the memory source must not call functions of the cache that wait (change(),
/// Entry::wait(), flush(), invalidate(), clear()): another thread may wait for the access that
/// calls them.
struct CacheOptions {
  PlacementPolicy placement;  ///< Empty: placement::fastest.
  /// Empty: the policy that the engine was made with, or movers::by_size if it has none. If it
  /// throws, policy_errors is incremented and the move fails.
  engine::MoverPolicy mover;
  /// Bytes of copies per node, the same for each node, counted in whole pages. When a node is full,
  /// unused entries are evicted in the order of `eviction`; if they are not enough, none is
  /// evicted, the access is refused and its entry points at the source. An entry is unused if its
  /// move has ended and it has no handle and no pin.
  Bytes capacity_per_node = Bytes(std::uint64_t{1} << 62U);
  Eviction eviction = Eviction::s3_fifo;
  /// Null: recycled(), but it keeps at most 64 MiB of a node. Shared by the cache and its entries.
  std::shared_ptr<MemorySource> memory;
  Observer observer;  ///< Empty: no events.
  /// Before a move, check with the kernel that all of the source is mapped. If not, the access is
  /// refused (bad_sources) instead of raising a signal in a mover's thread. Freed memory that the
  /// allocator keeps mapped is not detected. One system call per miss; turn it off if no source can
  /// be unmapped while the cache is used.
  bool check_sources = true;
  /// Devices write copies into the last-level cache instead of memory (Operation::into_cache), for
  /// copies that fit and are read at once. A hint: CPU movers ignore it.
  bool into_cache = false;
};

/// Totals since the cache was made. Each is exact; together they are not one snapshot.
/// accesses = hits + misses + not_placed + refused; weak accesses = weak_hits + weak_misses.
struct CacheStatistics {
  std::uint64_t hits = 0;    ///< Accesses that found an entry, ready or moving.
  std::uint64_t misses = 0;  ///< Accesses that started a move.
  /// Accesses left at the source because the policy named no node or failed, or the region is
  /// empty.
  std::uint64_t not_placed = 0;
  /// Accesses that could not be placed: no room, no memory, no mover took the copy, the source is
  /// not mapped, or a live change overlaps it.
  std::uint64_t refused = 0;
  std::uint64_t weak_hits = 0;    ///< Weak accesses that found an entry.
  std::uint64_t weak_misses = 0;  ///< Weak accesses that were left at the source.
  std::uint64_t duplicates = 0;   ///< Hits on an entry that another thread inserted first.
  /// Moves that failed or were stopped; their entries point at the source.
  std::uint64_t moves_failed = 0;
  /// Moves and write-backs whose target an abandoned device may still write to.
  std::uint64_t late_writes = 0;
  /// Memory of dropped copies that is never freed because of late_writes, in whole pages.
  std::uint64_t bytes_kept = 0;
  /// Accesses that were refused because not all of the source was mapped.
  std::uint64_t bad_sources = 0;
  /// Policies and observers that threw, policies that named a node the machine does not have, and
  /// unusable memory from a MemorySource.
  std::uint64_t policy_errors = 0;
  std::uint64_t evictions = 0;    ///< Entries dropped to make room.
  std::uint64_t bytes_moved = 0;  ///< By completed moves.
  std::uint64_t write_backs = 0;  ///< Dirty ranges that were written back, and their bytes.
  std::uint64_t bytes_written_back = 0;
  std::uint64_t waits = 0;  ///< Waits that blocked, and for how long, summed over all threads.
  std::uint64_t waited_ns = 0;
  /// At present, on all nodes, in whole pages; includes entries in use and bytes_kept.
  std::uint64_t bytes_cached = 0;
};

/// What the caller knows about future reads of a region.
///
/// Threading: immutable.
class Hint {
 public:
  enum class Kind : std::uint32_t { unknown, once, many, later };

  constexpr Hint() = default;  ///< Unknown: the eviction policy decides.
  /// The region is read through the handle of this access, and not again soon. Its entry is evicted
  /// first once it has no handle.
  [[nodiscard]] static constexpr Hint once() { return {Kind::once, 0}; }
  /// The region is read many times: its entry is kept like one with several hits.
  [[nodiscard]] static constexpr Hint many() { return {Kind::many, 0}; }
  /// The region is read next after about `region_count` more regions have been inserted on its
  /// node: for a prefetcher that runs that many chunks ahead, or a loop of that length. Until then
  /// its entry is evicted only if nothing else can be; of several such entries, the one needed last
  /// goes first, and an access that would itself be needed last is refused.
  [[nodiscard]] static constexpr Hint after(std::uint32_t region_count) {
    return {Kind::later, region_count};
  }

  [[nodiscard]] constexpr Kind kind() const { return kind_; }
  [[nodiscard]] constexpr std::uint32_t region_count() const { return region_count_; }

 private:
  constexpr Hint(Kind kind, std::uint32_t region_count)
      : kind_(kind), region_count_(region_count) {}

  Kind kind_ = Kind::unknown;
  std::uint32_t region_count_ = 0;
};

class CacheState;
namespace detail {
struct Core;
struct Slot;
}  // namespace detail

/// A handle on an accessed region. Handles on regions of one entry share its copy. Copying
/// a handle is cheap; the memory of the copy is freed when the cache has dropped the entry and the
/// last handle is gone.
///
/// Ownership: the source must stay alive and unchanged until the entry is ready, and alive as long
///            as data() may return it. If the entry has been dropped, destroying the last handle
///            stops a running move and waits for it (one piece of the mover), so do not destroy
///            handles in a job's callback.
/// Threading: distinct handles: shared. One handle: confined. A moved-from handle can only be
///            assigned to and destroyed.
class HEADRACE_API Entry {
 public:
  /// If the access already has 2^31 handles, the copy points at the source.
  Entry(const Entry& other);
  Entry(Entry&& other) noexcept;
  Entry& operator=(const Entry& other);
  Entry& operator=(Entry&& other) noexcept;
  ~Entry();

  void wait() const;  ///< Blocks until the move has ended.
  /// As wait(), with a timeout; a century or more: none. Returns whether the move has ended. While
  /// another thread submits the move there is no timeout.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds time_max) const;
  [[nodiscard]] bool try_wait() const;  ///< True if the move has ended. Never blocks.
  /// Polls the move and returns data(), without waiting for the move. A later call may return the
  /// copy instead of the source.
  [[nodiscard]] std::span<const std::byte> wait_weak() const;
  /// The accessed region: its copy once the move is done; the source while it runs, and if it
  /// failed or was refused. Includes every change that ended before the access; this call may write
  /// dirty bytes back for that. Not null unless the region is empty.
  [[nodiscard]] std::span<const std::byte> data() const;
  [[nodiscard]] bool cached() const;  ///< True if data() is a copy.
  /// True if the entry is dirty: bytes were changed in the copy and not yet written back.
  [[nodiscard]] bool changed() const;
  [[nodiscard]] std::optional<NodeId> node() const;  ///< Node of the copy, if data() is one.

 private:
  friend class Cache;
  friend class CacheState;
  Entry(std::span<const std::byte> source, detail::Slot* slot, detail::Core* core)
      : source_(source), slot_(slot), core_(core) {}
  void swap(Entry& other) noexcept;

  std::span<const std::byte> source_;
  detail::Slot* slot_;  ///< Null if there is no entry: then data() is always the source.
  detail::Core* core_;
};

/// The exclusive right to write the bytes of a region, until it is destroyed.
///
/// Ownership: the source must stay alive until its bytes have been written back: see
///            Cache::change().
/// Threading: confined. A moved-from change can only be assigned to and destroyed.
class HEADRACE_API Change {
 public:
  Change(Change&& other) noexcept;
  Change& operator=(Change&& other) noexcept;
  ~Change();

  /// The bytes to write: the copy, or the source if there is no copy.
  [[nodiscard]] std::span<std::byte> data() const { return data_; }
  /// A handle on the same region.
  [[nodiscard]] const Entry& entry() const { return entry_; }

 private:
  friend class CacheState;
  Change(std::span<std::byte> data, Entry entry) : data_(data), entry_(std::move(entry)) {}
  void end() noexcept;

  std::span<std::byte> data_;
  Entry entry_;
  detail::Core* core_ = nullptr;  ///< Null: no change was begun, or this one was moved from.
  std::uint64_t ticket_ = 0;
  std::uintptr_t range_address_ = 0;
  std::uint64_t range_byte_count_ = 0;
  std::uint32_t number_ = 0;
};

/// Threading: shared, except for construction and destruction.
/// Ownership: borrows the engine, which must outlive the cache and every entry that is not yet
///            ready; copies the machine. Entries stay valid after the cache is gone. A child of
///            fork() must not use or destroy caches, entries and changes of its parent.
/// Fails:     access(), access_weak(), pin(), unpin(), change(), write_back() and flush() may throw
///            std::bad_alloc and then change nothing. invalidate(), clear() and the destructors of
///            caches, entries and changes allocate nothing.
class HEADRACE_API Cache {
 public:
  /// Fails: invalid_argument for a capacity of 0, and for a placement::map that names a caller's
  ///        node twice; not_found for one that names a node that the machine does not have.
  [[nodiscard]] static Result<std::unique_ptr<Cache>> make(const topo::Machine& machine,
                                                           engine::Engine& engine,
                                                           CacheOptions options = {});
  Cache& operator=(Cache&&) = delete;
  ~Cache();

  /// Returns a handle on `source`. It is a hit if one of the nodes that the placement policy chose
  /// has an entry that contains all of `source` (if several do, one of the shortest, by power of
  /// two); else the move of a new entry is started. Never blocks on a move.
  ///
  /// An entry with the same address that is shorter, or whose move failed, is replaced; its handles
  /// keep their copy. Other entries that overlap `source` stay, with copies of their own. If the
  /// mover's queue is full, the access is refused at once and the entry points at the source: slow
  /// down and access it again.
  [[nodiscard]] Entry access(std::span<const std::byte> source, Hint hint = {});
  /// As access() of each of `sources`, in order, but short copies to one node are submitted as one
  /// batch of the engine: one submission to a device covers many of them. The moves begin when all
  /// entries exist. A batch goes to one mover; copies above 64 KiB are submitted alone, so that
  /// they can be split among movers. The move of a single entry of a batch cannot be stopped:
  /// dropping or changing the entry waits for the batch.
  ///
  /// Fails: as access(); the moves of the sources before the one that failed are started.
  [[nodiscard]] std::vector<Entry> access_many(std::span<const std::span<const std::byte>> sources,
                                               Hint hint = {});
  /// As access() on a hit, whether the entry is ready or moving. On a miss starts no move; the
  /// returned entry points at the source. Takes no lock unless bytes are dirty. May miss an entry
  /// while other threads insert or drop entries.
  [[nodiscard]] Entry access_weak(std::span<const std::byte> source, Hint hint = {});

  /// Keeps the entries that contain `source` from being evicted or flushed, with or without
  /// handles, until unpin(), invalidate() or clear(). Pins are not counted: one unpin() undoes any
  /// number. A longer entry that replaces a pinned one is pinned. Returns the number of entries; if
  /// it is 0, access `source` first.
  std::size_t pin(std::span<const std::byte> source);
  /// Undoes pin(). Returns the number of entries.
  std::size_t unpin(std::span<const std::byte> source);

  /// Returns the exclusive right to write `source` through its copy. Accesses it, waits for its
  /// move, drops every other entry that overlaps it, and stops every other move that reads some of
  /// it, including moves of entries that have been dropped. While the change is alive, overlapping
  /// accesses that the copy does not contain, or that are placed on another node, are refused.
  /// Afterwards the bytes are *dirty*: they are written back by write_back() and flush(), before
  /// their entry is evicted, by an overlapping access that the copy does not contain, and by
  /// clear() and the destructor of the cache. invalidate() discards the dirty bytes of its region.
  /// Every access that begins after the end of a change sees it.
  ///
  /// Ownership: `source` must stay alive until the bytes are written back or invalidated. A change
  ///            that is alive when its entry is cleared, or the cache destroyed, writes back when
  ///            it ends.
  /// Fails: invalid_argument for a length that no region can have; capacity_exceeded while another
  ///        change overlaps `source`.
  [[nodiscard]] Result<Change> change(std::span<std::byte> source, Hint hint = {});
  /// Copies the dirty bytes of the entry's region, or of all entries, to the source, and waits
  /// until they are there. Returns their number.
  ///
  /// Fails: capacity_exceeded if some bytes belong to a live change; hardware_absent if a device
  /// did not answer: until it is reset it may write old bytes to the source. All other bytes are
  /// written.
  Result<Bytes> write_back(const Entry& entry);
  Result<Bytes> write_back();

  // These stop the moves of dropped entries that have no handles, and wait until they have stopped.

  /// Writes dirty bytes back, then drops the entries of one node, or of all, that have no handle,
  /// no pin and no live change. Returns how many.
  std::size_t flush(std::optional<NodeId> node = std::nullopt);
  /// Drops every entry that overlaps `source`, on every node; handles keep their copies. Dirty
  /// bytes inside `source` are lost; dirty bytes outside it are written back. A live change inside
  /// `source` is discarded; one that is only partly inside goes on, and writes back when it ends.
  /// Returns how many. `source` may be freed at once. Frees copies some time later, many at once:
  /// at most 1 MiB on a node and in each of its up to 33 shards waits; see statistics().
  std::size_t invalidate(std::span<const std::byte> source);
  /// Writes dirty bytes back and drops every entry; handles keep their copies. Returns how many.
  /// The move of an entry with handles goes on, as after invalidate(); change() stops it.
  std::size_t clear();

  /// Also frees the copies without handles that invalidate() has left to be freed.
  [[nodiscard]] CacheStatistics statistics() const;

 private:
  explicit Cache(std::unique_ptr<CacheState> state);
  std::unique_ptr<CacheState> state_;
  std::unique_ptr<telemetry::Source> telemetry_;  ///< Destroyed before state_, which it reads.
};

}  // namespace headrace::cache
