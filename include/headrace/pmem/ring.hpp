// SPDX-License-Identifier: Apache-2.0
// A ring buffer in persistent memory: one producer, one consumer, in one process or two, entries of
// any length up to a limit. Not a log to search in and not for several producers.
//
// What is promised
//   enqueue      When it returns Enqueue::done, the entry is durable: every recovery finds it,
//                whole and in order, until it is acknowledged. An entry whose enqueue had not
//                returned is there as a whole or not at all. The entries of enqueue_all become
//                durable together when it returns; before, a prefix of them may be there.
//   next         Lends the oldest entry that was not yet lent. Only durable entries are seen.
//   acknowledge  What was lent will not come again after the end of a process, however it ends.
//                After a power failure it will not either with Acknowledgement::each; with
//                Acknowledgement::lazy up to a quarter of the ring may come again. What was lent
//                and not acknowledged comes again to the next consumer.
// "Durable" is as the memory has it: see Granularity (medium.hpp) and Mapping::note().
#pragma once

#include <cstddef>
#include <cstdint>
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

/// How a ring keeps its entries, by what is in its file.
enum class RingLayout : std::uint32_t {
  positions = 1,  ///< Entries, then the position: each durable before the next step.
  checksums = 2,  ///< Whole blocks that carry their own proof; no position on the way.
};

/// The ring at work. The first three share a layout and differ in the flush instruction.
enum class RingVariant : std::uint8_t {
  naive,  ///< By clflush of everything that is touched, as one would write it first.
  clflushopt,
  clwb,
  optimised,  ///< Non-temporal whole blocks with checksums, one fence, positions rarely durable.
};
[[nodiscard]] HEADRACE_API std::string_view name(RingVariant variant);
/// Fails: invalid_argument, naming the variants there are.
[[nodiscard]] HEADRACE_API Result<RingVariant> parse_ring_variant(std::string_view text);
[[nodiscard]] HEADRACE_API RingLayout layout_of(RingVariant variant);

/// What became of an entry.
enum class Enqueue : std::uint8_t {
  done,
  full,       ///< Back-pressure: the consumer has to acknowledge first. Nothing was written.
  too_large,  ///< Longer than entry_bytes_max(). Nothing was written.
  lost,       ///< The memory is gone (Fault): nothing is promised, and the ring has to be attached
              ///< anew.
};
[[nodiscard]] HEADRACE_API std::string_view name(Enqueue outcome);

/// When an acknowledgement survives a power failure.
enum class Acknowledgement : std::uint8_t { lazy, each };

/// An entry, lent.
struct Entry {
  /// In the ring itself; nobody changes them until the entry is acknowledged.
  std::span<const std::byte> bytes;
  /// Counts the entries of the ring, from 0.
  std::uint64_t ordinal = 0;
};

/// What there was for next().
enum class Next : std::uint8_t {
  entry,
  empty,
  damaged,  ///< The entry is not what was enqueued: media error, or somebody wrote into the file.
  lost,     ///< The memory is gone (Fault).
};
[[nodiscard]] HEADRACE_API std::string_view name(Next outcome);

struct RingOptions {
  /// Bytes for entries and what is around them; rounded up to whole pages. Entries may take an
  /// eighth of it, see entry_bytes_max().
  Bytes capacity = mib(1);
  RingLayout layout = RingLayout::checksums;
};

struct AttachOptions {
  /// Null: optimised for a file with checksums, the processor's best of the others for one with
  /// positions.
  std::optional<RingVariant> variant = std::nullopt;
  Acknowledgement acknowledgement = Acknowledgement::each;
  MapOptions map = {};
};

/// What recovery found.
struct RingState {
  RingLayout layout = RingLayout::checksums;
  Bytes capacity;
  std::uint64_t generation = 0;       ///< How often a producer attached.
  std::uint64_t first_ordinal = 0;    ///< Of the oldest entry that is not acknowledged.
  std::uint64_t entry_count = 0;      ///< Entries that are not acknowledged.
  std::uint64_t entry_bytes_max = 0;  ///< Of one entry.
  bool has_producer = false;          ///< Some process has the role at this moment.
  bool has_consumer = false;
};

namespace detail {
struct AttachedProducer;
struct AttachedConsumer;
}  // namespace detail

/// Makes a ring in a new file, or of all of a device (devdax), whatever the capacity asked for;
/// whole or not at all.
///
/// Fails: invalid_argument if something is there already (of a device: a byte that is not zero in
///        the first 4096), for a capacity below 4 KiB, and for a device of another kind;
///        capacity_exceeded if the disk has no room (ENOSPC); permission_denied, io_failed.
[[nodiscard]] HEADRACE_API Result<void> make_ring(const std::string& path,
                                                  const RingOptions& options = {});

/// Looks at a ring without a role and changes nothing.
///
/// Fails: as Producer::attach, but never for roles.
[[nodiscard]] HEADRACE_API Result<RingState> inspect_ring(const std::string& path);

struct VolatileRing;

/// The end that fills.
///
/// Threading: confined.
/// Ownership: has the role, by a lock on the file that ends with this object or its process.
class HEADRACE_API Producer {
 public:
  /// Takes the role and recovers: reads every entry that is not acknowledged.
  ///
  /// Fails: not_found; permission_denied (also for a file that may only be read);
  ///        capacity_exceeded if another process has the role; corrupt_data if the file is no ring,
  ///        too small, not a whole number of blocks, or damaged; version_mismatch for another
  ///        version or byte order;
  ///        invalid_argument for a variant of another layout. Then the file is as it was.
  [[nodiscard]] static Result<Producer> attach(const std::string& path,
                                               const AttachOptions& options = {});

  Producer(Producer&& other) noexcept;
  Producer& operator=(Producer&& other) noexcept;
  Producer(const Producer&) = delete;
  Producer& operator=(const Producer&) = delete;
  ~Producer();

  /// Puts an entry at the end of the ring; see the promise above. An empty one is an entry too.
  ///
  /// Cost: one fence; see `headrace bench pmem`.
  [[nodiscard]] Enqueue enqueue(std::span<const std::byte> entry);
  /// Puts all of them there, or none; with one fence for all. They must fit together.
  [[nodiscard]] Enqueue enqueue_all(std::span<const std::span<const std::byte>> entries);

  [[nodiscard]] std::size_t entry_bytes_max() const;
  /// Number of the next entry: how many were ever enqueued.
  [[nodiscard]] std::uint64_t next_ordinal() const;
  /// One sentence on the memory, as Mapping::note() has it.
  [[nodiscard]] const std::string& note() const;
  [[nodiscard]] bool is_persistent_memory() const;
  /// What recovery found.
  [[nodiscard]] const RingState& recovered() const;

 private:
  friend Result<VolatileRing> make_volatile_ring(Bytes capacity);
  explicit Producer(std::unique_ptr<detail::AttachedProducer> attached);
  std::unique_ptr<detail::AttachedProducer> attached_;
};

/// The end that empties.
///
/// Threading: confined; the bytes of an entry may be read from any thread until it is acknowledged.
/// Ownership: as Producer.
class HEADRACE_API Consumer {
 public:
  /// Takes the role. If no producer is there, recovers as Producer::attach does.
  ///
  /// Fails: as Producer::attach.
  [[nodiscard]] static Result<Consumer> attach(const std::string& path,
                                               const AttachOptions& options = {});

  Consumer(Consumer&& other) noexcept;
  Consumer& operator=(Consumer&& other) noexcept;
  Consumer(const Consumer&) = delete;
  Consumer& operator=(const Consumer&) = delete;
  ~Consumer();

  /// Lends the next entry into `entry` if there is one.
  [[nodiscard]] Next next(Entry& entry);
  /// Takes back everything that was lent. Never fails: where the memory is gone, next() says so.
  void acknowledge();

  [[nodiscard]] const std::string& note() const;
  [[nodiscard]] bool is_persistent_memory() const;
  [[nodiscard]] const RingState& recovered() const;

 private:
  friend Result<VolatileRing> make_volatile_ring(Bytes capacity);
  explicit Consumer(std::unique_ptr<detail::AttachedConsumer> attached);
  std::unique_ptr<detail::AttachedConsumer> attached_;
};

/// Makes a ring in ordinary memory, for two threads of one process: nothing of it is durable, so
/// nothing is flushed and no checksum is made. It lives as long as one of its ends.
///
/// Fails: invalid_argument for a capacity below 4 KiB; out_of_memory.
[[nodiscard]] HEADRACE_API Result<VolatileRing> make_volatile_ring(Bytes capacity);

struct VolatileRing {
  Producer producer;
  Consumer consumer;
};

}  // namespace headrace::pmem
