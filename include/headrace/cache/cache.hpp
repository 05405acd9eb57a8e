// SPDX-License-Identifier: Apache-2.0
// Cache: keeps copies of memory regions on the nodes where they will be wanted, moved there
// asynchronously. It is not coherent: who changes a source tells the cache by invalidate(), or
// changes it through the cache by change().
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

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

/// Where a copy may go: nodes, best first, or none: leave the data where it is. A copy goes to the
/// first of them that has room; where none has, to the first where unused entries make room.
///
/// Threading: confined.
class HEADRACE_API Placement {
 public:
  /// Of more than these the others are not tried.
  static constexpr std::size_t kNodeMax = 8;

  Placement() = default;
  // Not explicit, so that policies return what they mean.
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
/// several threads at once. What it throws is counted, and the source is used.
using PlacementPolicy = std::function<Placement(const PlacementContext&)>;

/// Policies by name.
namespace placement {
/// Machine::faster_nodes for the caller; nowhere where there is no faster memory.
HEADRACE_API Placement fastest(const PlacementContext& context);
/// The caller's own node.
HEADRACE_API Placement local(const PlacementContext& context);
/// Never moves anything.
HEADRACE_API Placement none(const PlacementContext& context);
/// Always `node`.
[[nodiscard]] HEADRACE_API PlacementPolicy on(NodeId node);
/// By the node of the caller: map({{NodeId(0), NodeId(8)}, {NodeId(1), NodeId(9)}}). For a caller
/// on another node: nowhere. Cache::make refuses nodes that the machine does not have.
[[nodiscard]] HEADRACE_API PlacementPolicy map(std::vector<std::pair<NodeId, Placement>> places);
}  // namespace placement

/// Gives copies their memory. What it throws, and any error, refuses the access.
///
/// Threading: shared.
class HEADRACE_API MemorySource {
 public:
  static constexpr std::size_t kAlignment = alignof(std::max_align_t);

  MemorySource() = default;
  MemorySource(const MemorySource&) = delete;
  MemorySource& operator=(const MemorySource&) = delete;
  virtual ~MemorySource() = default;
  /// Returns at least `byte_count` bytes on `node`, ready to be written: that the node is full must
  /// show here and not at the first touch. `byte_count` is a whole number of pages. Memory that is
  /// null, shorter or not a multiple of kAlignment refuses the access, is given back, and counts as
  /// an error of a policy.
  [[nodiscard]] virtual Result<std::span<std::byte>> allocate(std::size_t byte_count,
                                                              NodeId node) = 0;
  /// Takes memory back: the address that allocate() returned with the length that was asked of it,
  /// which may be less than it gave. Called exactly once for each, with no lock held, on whatever
  /// thread lets go last: one that drops a handle, evicts, flushes, invalidates or clears - perhaps
  /// after the cache is gone. Not called for a copy that a device may still write to which was
  /// given up (CacheStatistics::bytes_kept): that memory must not be used again either when the
  /// source ends.
  virtual void free(std::span<std::byte> memory) noexcept = 0;
};
/// Pages of the operating system on the node asked for, made present. A node without room for all
/// of them is an error.
[[nodiscard]] HEADRACE_API std::shared_ptr<MemorySource> operating_system_pages();
/// As operating_system_pages(), but copies that are at least as long as a huge page (2 MiB on
/// x86-64) are aligned to it, and the kernel is asked for huge pages: fewer misses of the address
/// translation in large copies. Where it has none free, or none at all, pages are as always.
[[nodiscard]] HEADRACE_API std::shared_ptr<MemorySource> huge_pages();
/// As `upstream`, but what is freed is kept for the next copy of the same length on the same node,
/// which then costs neither system calls nor the zeroing of pages. Kept memory goes back to
/// `upstream` in favour of other lengths, so a cache never holds more than its capacity, and with
/// the source itself: flush() and clear() do not empty the node then.
[[nodiscard]] HEADRACE_API std::shared_ptr<MemorySource> recycled(
    std::shared_ptr<MemorySource> upstream = operating_system_pages());

/// Which unused entry is given up first when a node is full.
enum class Eviction : std::uint8_t {
  /// The one that came first.
  fifo,
  /// The one that came first, but one that was found since it came, or was passed over, gets
  /// another round.
  clock,
  /// Of the eight that came first or were passed over, the one that was found longest ago.
  lru,
  /// As S3-FIFO (SOSP 2023): new entries are on probation in a small queue, and those that were not
  /// found twice there do not displace the others.
  s3_fifo,
};
[[nodiscard]] HEADRACE_API std::string_view name(Eviction eviction);

/// What happened to a region.
enum class EventKind : std::uint8_t {
  hit,           ///< An access found an entry.
  miss,          ///< An access started a move.
  not_placed,    ///< An access was left at the source by the placement policy.
  refused,       ///< An access was left at the source for want of something.
  weak_hit,      ///< A weak access found an entry.
  weak_miss,     ///< A weak access did not.
  moved,         ///< A move is done.
  move_failed,   ///< A move has failed or was stopped.
  evicted,       ///< An entry was dropped to make room.
  dropped,       ///< An entry was dropped otherwise.
  written_back,  ///< Changed bytes are in the source.
};
[[nodiscard]] HEADRACE_API std::string_view name(EventKind kind);

struct Event {
  EventKind kind{};
  /// What was asked for, of accesses; else of the entry, or the changed bytes. The memory may be
  /// gone.
  std::span<const std::byte> region;
  /// Node of the entry; nothing if there is none.
  std::optional<NodeId> node;
  /// Of move_failed: why; none if it was stopped, or if it came to its end but for a late write.
  engine::Cause cause = engine::Cause::none;
  /// Of move_failed: a device was given up that may still write to the copy, which therefore is not
  /// used.
  bool late_write_possible = false;
};

/// Is told of every event, on the thread where it happens, with no lock held; several at once, so
/// that the order of two threads' events is theirs to find out. It may call the cache, but for
/// change() and Entry::wait(), which may wait for what its own thread is about to do. `moved`,
/// `move_failed`: in the job's callback, where what must not be done there must not be done; of the
/// cache only statistics() is to be called then. It may be called until the last entry and change
/// are gone. What it throws, and an event that there is no memory for, is counted as an error of a
/// policy.
using Observer = std::function<void(const Event&)>;

struct CacheOptions {
  PlacementPolicy placement;  ///< Empty: placement::fastest.
  /// Empty: that of the engine. What it throws is counted, and the move fails.
  engine::MoverPolicy mover;
  /// Bytes of copies kept per node, the same for each, counted in whole pages because that is what
  /// they take. When full, unused entries are dropped, in the order of `eviction`; if that is not
  /// enough, nothing is dropped, the access is refused and its entry points at the source. An entry
  /// is unused if its move has ended, nobody holds a handle on it, and it is not pinned.
  Bytes capacity_per_node = Bytes(std::uint64_t{1} << 62U);
  Eviction eviction = Eviction::s3_fifo;
  /// Null: operating_system_pages(). Shared by the cache and all its entries.
  std::shared_ptr<MemorySource> memory;
  /// Empty: nobody is told.
  Observer observer;
  /// Ask the kernel, before a move is started, if all of the source is mapped: if not, the access
  /// is refused and counted (bad_sources) instead of ending in a signal in some mover's thread.
  /// Memory that was freed to an allocator which kept it is still mapped, and nobody can tell.
  /// Costs a system call for each miss, which is little beside the pages of a copy. For who knows
  /// that no source is unmapped under the cache it may be off.
  bool check_sources = true;
};

/// Totals since the cache was made. Each is exact; together they are not one instant.
/// Every access is one of four: accesses = hits + misses + not_placed + refused. A weak one is one
/// of two: weak_hits + weak_misses.
struct CacheStatistics {
  std::uint64_t hits = 0;    ///< Accesses that found an entry, ready or on its way.
  std::uint64_t misses = 0;  ///< Accesses that started a move.
  /// Accesses left at the source by the placement policy or its failure, or empty.
  std::uint64_t not_placed = 0;
  /// Accesses left at the source for want of room, of memory or of a mover's queue.
  std::uint64_t refused = 0;
  std::uint64_t weak_hits = 0;    ///< Weak accesses that found an entry.
  std::uint64_t weak_misses = 0;  ///< Weak accesses that were left at the source.
  /// Hits that found the entry only when they came to insert their own: another thread was faster.
  std::uint64_t duplicates = 0;
  /// Moves that ended otherwise than done; their entries point at the source.
  std::uint64_t moves_failed = 0;
  /// Moves and write-backs after which a device that was given up may still write to their target.
  std::uint64_t late_writes = 0;
  /// Memory of dropped copies that is never freed because of that, in whole pages.
  std::uint64_t bytes_kept = 0;
  /// Accesses that were refused because not all of the source was mapped.
  std::uint64_t bad_sources = 0;
  /// Policies and observers that threw, or named a node the machine does not have, and sources of
  /// memory that gave what cannot be used.
  std::uint64_t policy_errors = 0;
  std::uint64_t evictions = 0;    ///< Entries dropped to make room.
  std::uint64_t bytes_moved = 0;  ///< By moves that were done.
  /// Ranges of bytes that were changed in a copy and written back, and their bytes.
  std::uint64_t write_backs = 0;
  std::uint64_t bytes_written_back = 0;
  /// Waits that had to block, and for how long, all threads together.
  std::uint64_t waits = 0;
  std::uint64_t waited_ns = 0;
  /// Now, all nodes together, in whole pages, entries in use and bytes_kept included.
  std::uint64_t bytes_cached = 0;
};

/// What the caller knows of the reads to come of the region that it asks for.
///
/// Threading: immutable.
class Hint {
 public:
  enum class Kind : std::uint32_t { unknown, once, many, later };

  /// Nothing: the eviction policy is on its own.
  constexpr Hint() = default;
  /// The region is read through the handle that this access gives, and not again soon. Its entry is
  /// the first to go once nobody holds it.
  [[nodiscard]] static constexpr Hint once() { return {Kind::once, 0}; }
  /// The region is read again and again: its entry is passed over like one that was found several
  /// times.
  [[nodiscard]] static constexpr Hint many() { return {Kind::many, 0}; }
  /// The region is read next when about `region_count` more regions have come to its node, as who
  /// prefetches that many chunks ahead knows, or whose loop is that long. Until then its entry goes
  /// only if nothing else can; of several such, what is needed last goes first, and an access that
  /// would itself be needed last is refused.
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

/// A handle on a region that was asked for. Handles on regions of one entry share its copy. Copying
/// a handle is cheap; the memory of the copy is freed when the cache has dropped the entry and the
/// last handle is gone.
///
/// Ownership: the source must stay alive and unchanged until the entry is ready; after that, as
/// long as data() may be the source. The last handle stops a move that still runs and waits for it,
/// which takes as long as one piece of the mover; so no handle may be dropped in a job's callback.
/// Threading: distinct handles: shared. One handle: confined. One that was moved from can only be
/// assigned to and destroyed.
class HEADRACE_API Entry {
 public:
  /// A copy beyond the 2^31 that one access may have points at the source.
  Entry(const Entry& other);
  Entry(Entry&& other) noexcept;
  Entry& operator=(const Entry& other);
  Entry& operator=(Entry&& other) noexcept;
  ~Entry();

  /// Blocks until the move has ended, whoever started it.
  void wait() const;
  /// True if the move has ended. Never blocks.
  [[nodiscard]] bool try_wait() const;
  /// Takes what is there now: the copy if the move has ended, else the source. Never blocks. (That
  /// is a weak wait: data() itself may be the source now and the copy a moment later.)
  [[nodiscard]] std::span<const std::byte> wait_weak() const;
  /// The region that was asked for: its copy once the move is done; the source while it runs, and
  /// if it failed or was refused. Never null for a region that was not empty.
  [[nodiscard]] std::span<const std::byte> data() const;
  /// True if data() is a copy.
  [[nodiscard]] bool cached() const;
  /// True if some of the entry's bytes were changed in the copy and are not in the source yet.
  [[nodiscard]] bool changed() const;
  /// Node of the copy, if data() is one.
  [[nodiscard]] std::optional<NodeId> node() const;

 private:
  friend class Cache;
  friend class CacheState;
  Entry(std::span<const std::byte> source, detail::Slot* slot, detail::Core* core)
      : source_(source), slot_(slot), core_(core) {}
  void swap(Entry& other) noexcept;

  std::span<const std::byte> source_;
  /// Null if there is no entry: then data() is the source for ever.
  detail::Slot* slot_;
  detail::Core* core_;
};

/// The right to write the bytes of a region, until it is destroyed. Nobody else has it meanwhile.
///
/// Ownership: the source must stay alive until its bytes have been written back: see
///            Cache::change().
/// Threading: confined. One that was moved from can only be assigned to and destroyed.
class HEADRACE_API Change {
 public:
  Change(Change&& other) noexcept;
  Change& operator=(Change&& other) noexcept;
  ~Change();

  /// The bytes to write: the copy, or the source itself where there is none.
  [[nodiscard]] std::span<std::byte> data() const { return data_; }
  /// A handle on the same region.
  [[nodiscard]] const Entry& entry() const { return entry_; }

 private:
  friend class CacheState;
  Change(std::span<std::byte> data, Entry entry) : data_(data), entry_(std::move(entry)) {}
  void end() noexcept;

  std::span<std::byte> data_;
  Entry entry_;
  /// Null: nothing was begun, or it has been moved from.
  detail::Core* core_ = nullptr;
  std::uint64_t ticket_ = 0;
  std::uintptr_t range_address_ = 0;
  std::uint64_t range_byte_count_ = 0;
  std::uint32_t number_ = 0;
};

/// Threading: shared, except for construction and destruction.
/// Ownership: borrows the engine, which must outlive the cache and every entry that is not yet
/// ready; copies the machine. Entries stay valid after the cache is gone. A child of fork() must
/// not use or destroy what its parent has.
/// Fails:     for want of memory access(), access_weak(), pin(), unpin(), change(), write_back()
///            and flush() may throw std::bad_alloc, and then everything is as it was. invalidate(),
///            clear(), and the end of the cache, of an entry and of a change need none.
class HEADRACE_API Cache {
 public:
  /// Fails: invalid_argument for a capacity of 0, and for a placement::map that names a caller's
  ///        node twice; not_found for one that names a node that the machine does not have.
  [[nodiscard]] static Result<std::unique_ptr<Cache>> make(const topo::Machine& machine,
                                                           engine::Engine& engine,
                                                           CacheOptions options = {});
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;
  ~Cache();

  /// Returns a handle on `source`. It is a hit if one of the nodes that the placement policy chose
  /// has an entry that contains all of `source`, of several on that node one of the shortest class
  /// (a power of two); else the move of a new entry is started. Never blocks on a move.
  ///
  /// An entry with the same address that is shorter, or whose move failed, makes way for a new one;
  /// its holders keep theirs. Entries that overlap `source` otherwise stay, and have copies of
  /// their own. A mover whose queue is full refuses the access at once; the entry then points at
  /// the source, and who wants the copy slows down and asks again.
  [[nodiscard]] Entry access(std::span<const std::byte> source, Hint hint = {});
  /// As access() of each of `sources`, in their order, except that the moves of short copies to one
  /// node are submitted together, as one batch of the engine: a device then takes many of them by
  /// one submission. The moves begin when all entries have been made. A batch goes to one mover;
  /// copies above 64 KiB are submitted alone, so that they are split among movers. The move of one
  /// entry of a batch cannot be stopped: who drops or changes it waits for the batch.
  ///
  /// Fails: as access(); the moves of the sources before the one that failed are started.
  [[nodiscard]] std::vector<Entry> access_many(std::span<const std::span<const std::byte>> sources,
                                               Hint hint = {});
  /// As access() if it is a hit, on an entry that is ready or on its way. Else starts nothing, and
  /// the entry points at the source. Takes no lock; while other threads insert or drop entries it
  /// may overlook one.
  [[nodiscard]] Entry access_weak(std::span<const std::byte> source, Hint hint = {});

  /// Keeps the entries that contain `source` from being evicted or flushed, held or not, until
  /// unpin(), invalidate() or clear(). Their room is taken as long. Pins are not counted: one
  /// unpin() undoes any number. A longer entry that takes the place of a pinned one is pinned.
  /// Returns how many entries there are: 0 if `source` is to be asked for first.
  std::size_t pin(std::span<const std::byte> source);
  /// As pin(), the other way around.
  std::size_t unpin(std::span<const std::byte> source);

  /// Gives the right to write `source` through its copy. Accesses it, waits for its move, drops
  /// every other entry that overlaps it, and stops every other move that reads some of it, held or
  /// not, also of entries that were dropped before. While the
  /// change is alive, accesses that reach over the end of the copy, or are placed on another node,
  /// are refused. After that the bytes are *changed*: they are written back when write_back() or
  /// flush() says so, when their entry is to be evicted, when an access that the copy does not
  /// contain needs them, and by clear() and the end of the cache. invalidate() gives the changed
  /// bytes of its region up: the source is what counts then. Every access that begins after the end
  /// of a change sees it.
  ///
  /// Ownership: `source` must stay alive until the bytes are written back, or invalidated. A change
  ///            that is alive when its entry is cleared, or the cache ends, writes back when it
  ///            ends.
  /// Fails: invalid_argument for a length that no region can have; capacity_exceeded while another
  ///        change overlaps `source`.
  [[nodiscard]] Result<Change> change(std::span<std::byte> source, Hint hint = {});
  /// Copies the changed bytes of the entry's region, or of all entries, to the source, and returns
  /// when they are there: who is told so afterwards sees them in the source. Returns how many they
  /// were.
  ///
  /// Fails: capacity_exceeded if some are being changed at this moment; hardware_absent if a device
  ///        did not answer, which may write old bytes to the source as long as it is not reset.
  ///        All others are written.
  Result<Bytes> write_back(const Entry& entry);
  Result<Bytes> write_back();

  // These stop the moves of the entries that nobody holds and wait until they have stopped.

  /// Writes changed bytes back, then drops entries that nobody holds, has pinned or is changing, of
  /// one node or of all. Returns how many.
  std::size_t flush(std::optional<NodeId> node = std::nullopt);
  /// Drops every entry that overlaps `source` on every node; holders keep theirs. Bytes of `source`
  /// that were changed and are not written back are lost; changed bytes outside of it are written
  /// back. A live change that lies in `source` is given up; one that lies in it only in part goes
  /// on, and writes back when it ends. Returns how many.
  std::size_t invalidate(std::span<const std::byte> source);
  /// Writes changed bytes back and drops every entry; holders keep theirs. Returns how many. A move
  /// that somebody holds goes on, as after invalidate(); change() stops it.
  std::size_t clear();

  [[nodiscard]] CacheStatistics statistics() const;

 private:
  explicit Cache(std::unique_ptr<CacheState> state);
  std::unique_ptr<CacheState> state_;
};

}  // namespace headrace::cache
