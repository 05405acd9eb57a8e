// SPDX-License-Identifier: Apache-2.0
// A ring buffer in persistent memory: one producer, one consumer, in one process or two; entries of
// any length up to a limit. It is not a searchable log, and it does not take several producers.
//
// Guarantees
//   enqueue      When it returns Enqueue::done, the entry is durable: every recovery finds it,
//                complete and in order, until it is acknowledged. After a crash during enqueue the
//                entry is either complete or absent. enqueue_all makes its entries durable
//                together; after a crash during it, a prefix of them may be present.
//   next         Lends the oldest entry not yet lent. Returns durable entries only.
//   acknowledge  Removes every entry lent so far. The end of the process never undoes it. Nor does
//                a power failure with Acknowledgement::each; with Acknowledgement::lazy, a power
//                failure may bring back up to a quarter of the ring. An entry lent but not
//                acknowledged is lent again to the next consumer.
// What "durable" means depends on the memory: see Granularity (medium.hpp) and Mapping::note().
//
// Damage (a media error, or another program that wrote to the file)
//   Every entry is verified by a 64-bit checksum before it is lent. A damaged entry is reported, by
//   recovery (corrupt_data) or by next() (Next::damaged), and never returned as data. One case
//   looks like an enqueue interrupted by a crash: damage to the newest entries after a power
//   failure. They are then absent, without an error. If the producer ended in any other way, that
//   damage is reported too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/export.hpp"
#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"
#include "headrace/pmem/mapping.hpp"
#include "headrace/pmem/medium.hpp"

namespace headrace::pmem {

/// The outcome of an enqueue.
enum class Enqueue : std::uint8_t {
  done,
  full,       ///< No room until the consumer acknowledges. Nothing was written.
  too_large,  ///< Longer than entry_bytes_max(). Nothing was written.
  lost,       ///< The memory failed (Fault). The entry may be absent; attach again.
  forked,     ///< The producer belongs to the parent of this process. Nothing was written.
};

/// When an acknowledgement becomes durable.
enum class Acknowledgement : std::uint8_t {
  lazy,  ///< Once per quarter of the ring, and when the consumer is destroyed.
  each,  ///< Before acknowledge() returns.
};

/// A lent entry.
struct Entry {
  /// Points into the ring. Valid and unchanged until the entry is acknowledged.
  std::span<const std::byte> bytes;
  /// Number of the entry in the ring, from 0.
  std::uint64_t ordinal = 0;
};

/// The outcome of Consumer::next().
enum class Next : std::uint8_t {
  entry,
  empty,
  damaged,  ///< The next entry is damaged. Every later call reports it again; see salvage_ring().
  lost,     ///< The memory failed (Fault).
  forked,   ///< The consumer belongs to the parent of this process.
};

struct RingOptions {
  /// Bytes for entries and their headers, rounded up to whole pages. One entry takes at most an
  /// eighth; see entry_bytes_max().
  Bytes capacity = mib(1);
};

struct AttachOptions {
  Acknowledgement acknowledgement = Acknowledgement::each;
  MapOptions map = {};
};

/// The state of a ring as found by recovery.
struct RingState {
  Bytes capacity;
  std::uint64_t generation = 0;       ///< Number of times a producer attached.
  std::uint64_t first_ordinal = 0;    ///< Ordinal of the oldest unacknowledged entry.
  std::uint64_t entry_count = 0;      ///< Unacknowledged entries.
  std::uint64_t entry_bytes_max = 0;  ///< Longest entry accepted.
  bool has_producer = false;          ///< A producer is attached now.
  bool has_consumer = false;
};

namespace detail {
struct AttachedProducer;
struct AttachedConsumer;
}  // namespace detail

/// Makes a ring in a new file, or on a whole device (devdax), ignoring the capacity. On failure no
/// file is left behind.
///
/// Fails: invalid_argument if the file exists, if one of the first 4096 bytes of the device is not
///        zero, for a capacity below 4 KiB, and for any other kind of device; capacity_exceeded if
///        the disk is full (ENOSPC); permission_denied, io_failed.
[[nodiscard]] HEADRACE_API Result<void> make_ring(const std::string& path,
                                                  const RingOptions& options = {});

/// Reads the state of a ring. Takes no role and changes nothing.
///
/// Fails: as Producer::attach, except for roles.
[[nodiscard]] HEADRACE_API Result<RingState> inspect_ring(const std::string& path);

/// What salvage_ring() found.
struct Salvage {
  std::uint64_t entry_count = 0;
  std::uint64_t acknowledged_count = 0;  ///< How many of the first entries were acknowledged.
  std::uint64_t missing_count = 0;       ///< Missing ordinals between the first and the last entry.
};

/// Passes every entry whose checksum verifies to `take`, in order of ordinals, and changes nothing.
/// For a ring that attach refuses as damaged, and for a copy of the file made while the ring was in
/// use: such a copy is inconsistent, and attach may refuse it.
///
/// Acknowledged entries that are not yet overwritten are included. An entry after a missing one may
/// belong to an enqueue that a crash interrupted. `bytes` are valid during the call to `take`.
///
/// Fails: as inspect_ring for the file and its superblock.
[[nodiscard]] HEADRACE_API Result<Salvage> salvage_ring(
    const std::string& path, const std::function<void(const Entry&)>& take);

/// The producing end of a ring. Do not use it in a child of fork(): every call there returns
/// `forked` and changes nothing.
///
/// Threading: confined.
/// Ownership: holds the role by a lock on the file, until this object or its process ends.
class HEADRACE_API Producer {
 public:
  /// Takes the role and runs recovery, which reads every unacknowledged entry.
  ///
  /// Fails: not_found; permission_denied, also for a read-only file; capacity_exceeded if another
  ///        process has the role; corrupt_data if the file is not a ring, too small, not a whole
  ///        number of blocks, or damaged; version_mismatch for another version, layout or byte
  ///        order. On failure the file is unchanged.
  [[nodiscard]] static Result<Producer> attach(const std::string& path,
                                               const AttachOptions& options = {});

  Producer(Producer&& other) noexcept;
  Producer& operator=(Producer&& other) noexcept;
  ~Producer();

  /// Appends an entry, which may be empty. When it returns Enqueue::done, the entry is durable.
  ///
  /// Cost: one fence; see `headrace bench pmem`.
  [[nodiscard]] Enqueue enqueue(std::span<const std::byte> entry);
  /// Appends all entries or none, with one fence. Together they may take at most a quarter of the
  /// ring.
  [[nodiscard]] Enqueue enqueue_all(std::span<const std::span<const std::byte>> entries);

  [[nodiscard]] std::size_t entry_bytes_max() const;
  /// Ordinal of the next entry: the number of entries enqueued so far.
  [[nodiscard]] std::uint64_t next_ordinal() const;
  /// One sentence about the memory: Mapping::note().
  [[nodiscard]] const std::string& note() const;
  [[nodiscard]] bool is_persistent_memory() const;
  /// The state that recovery found when this object attached.
  [[nodiscard]] const RingState& recovered() const;

 private:
  explicit Producer(std::unique_ptr<detail::AttachedProducer> attached);
  std::unique_ptr<detail::AttachedProducer> attached_;
};

/// The consuming end of a ring. As for Producer, calls in a child of fork() change nothing.
///
/// Threading: confined; any thread may read the bytes of an entry until it is acknowledged.
/// Ownership: as Producer.
class HEADRACE_API Consumer {
 public:
  /// Takes the role. Recovers as Producer::attach does if no producer is attached.
  ///
  /// Fails: as Producer::attach.
  [[nodiscard]] static Result<Consumer> attach(const std::string& path,
                                               const AttachOptions& options = {});

  Consumer(Consumer&& other) noexcept;
  Consumer& operator=(Consumer&& other) noexcept;
  ~Consumer();

  /// Stores the next entry in `entry` if it returns Next::entry.
  [[nodiscard]] Next next(Entry& entry);
  /// Acknowledges every entry lent so far. If the memory has failed, next() reports it.
  void acknowledge();

  [[nodiscard]] const std::string& note() const;
  [[nodiscard]] bool is_persistent_memory() const;
  [[nodiscard]] const RingState& recovered() const;

 private:
  explicit Consumer(std::unique_ptr<detail::AttachedConsumer> attached);
  std::unique_ptr<detail::AttachedConsumer> attached_;
};

}  // namespace headrace::pmem
