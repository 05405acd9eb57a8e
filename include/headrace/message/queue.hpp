// SPDX-License-Identifier: Apache-2.0
// Message queues between threads or processes, in shared memory; sending and receiving make no
// system call. Not for: durable messages (pmem/ring.hpp), or other machines.
//
// Guarantees
//   Order      Messages of one producer arrive in commit order. Messages of different producers are
//              unordered, even if one producer acted on the other's message.
//   commit     When it returns `done`, the consumer, or its successor, receives the message, even
//              if the producer is killed. A message whose commit has not returned is received whole
//              or not at all.
//   release    Once release() has returned, peeked messages are not delivered again. Messages that
//              a consumer peeked and did not release are delivered to the next consumer.
//   Death      An end killed at any instruction blocks no other end. Its role is free at once. The
//              peer gets `peer_lost` once, after it has received everything.
//   Damage     The shared memory is not trusted. Whatever another process writes there, an end at
//              worst returns `damaged` or wrong message bytes; it never accesses memory outside the
//              queue. Peeked bytes are in shared memory and can change while you read them;
//              receive() copies them first.
// A queue has no lock. A stopped end delays only its own messages.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/atomic.hpp"
#include "headrace/base/check.hpp"
#include "headrace/base/export.hpp"
#include "headrace/base/line.hpp"
#include "headrace/base/names.hpp"
#include "headrace/base/prefetch_write.hpp"
#include "headrace/base/result.hpp"
#include "headrace/base/trace.hpp"
#include "headrace/base/units.hpp"
#include "headrace/message/cursor.hpp"

namespace headrace::message {

using headrace::name;

inline constexpr std::uint32_t kProducersMax = 64;

/// fixed: every message has the same length, with no header. variable: lengths differ, up to a
/// limit; each message has an 8-byte header.
enum class Framing : std::uint32_t { fixed = 1, variable = 2 };

/// The outcome of a call.
enum class Outcome : std::uint8_t {
  done,
  empty,      ///< No message now.
  full,       ///< Back-pressure: the consumer must release first. Nothing was written.
  too_large,  ///< Longer than message_bytes_max(), or not the fixed length. Nothing was written.
  timed_out,  ///< No message or room within the time limit.
  closed,     ///< The queue was closed, and everything in it was received.
  peer_lost,  ///< The peer ended without detaching. Reported once per peer; another may attach.
  replaced,   ///< No peer is attached, and the path names another file or none: reopen it.
  damaged,    ///< The shared memory holds what no correct peer would write, or is gone.
  forked,     ///< This process is a child of the one that attached: attach again.
};

/// How a thread waits.
enum class Waiting : std::uint8_t {
  adaptive,  ///< Polls for up to 50 microseconds, then sleeps: an idle queue uses no processor
             ///< time.
  poll,      ///< Never sleeps: lowest latency, uses a whole processor.
  sleep,     ///< Sleeps at once.
};

struct Wait {
  Waiting how = Waiting::adaptive;
  /// Default: no limit; the wait ends with a message, room, or the end of the peer.
  std::optional<std::chrono::nanoseconds> time_max = std::nullopt;
};

struct QueueOptions {
  Framing framing = Framing::variable;
  /// Length of each message (fixed) or maximum length (variable; 0: the longest that fits).
  std::uint64_t message_bytes = 0;
  /// Per producer; rounded up to a power of two of messages (fixed) or bytes (variable).
  Bytes capacity = kib(64);
  /// Producers that may be attached at the same time, up to kProducersMax. Each has a ring of the
  /// full capacity.
  std::uint32_t producers_max = 1;
  /// Mode of the file of a named queue, as for chmod; the umask applies.
  std::uint32_t permissions = 0600;
};

struct QueueState {
  Framing framing = Framing::variable;
  std::uint64_t message_bytes_max = 0;
  Bytes capacity;  ///< Per producer.
  std::uint32_t producers_max = 0;
  std::uint32_t producer_count = 0;  ///< Attached now.
  bool has_consumer = false;
  bool closed = false;
};

/// A lent message.
struct Message {
  /// Points into the queue. Valid until release().
  std::span<const std::byte> bytes;
  /// Number of its producer's place, from 0. Places are reused when a producer ends.
  std::uint32_t producer = 0;
};

namespace detail {

inline constexpr std::uint64_t kVariableUnitBytes = 8;
inline constexpr std::uint64_t kVariableBytesMax = 0xFFFF'FFF0U;
/// Instead of a length: skip the rest of the ring.
inline constexpr std::uint64_t kSkip = ~std::uint64_t{0};
/// Prefetch distance of a producer of short messages.
inline constexpr std::uint64_t kAheadBytes = 256;
/// After this many consecutive looks that found few messages, a consumer pauses.
inline constexpr std::uint32_t kBusyLooks = 4;
inline constexpr std::size_t kPrefetchBytesMax = 4096;

/// A private copy of a ring's geometry; it is never read from shared memory again.
struct Geometry {
  std::byte* data = nullptr;
  std::uint64_t unit_bytes = 0;
  std::uint64_t mask = 0;  ///< Number of units, minus 1.
  std::uint64_t message_bytes_max = 0;
  bool fixed = true;

  [[nodiscard]] std::byte* at(std::uint64_t position) const noexcept {
    return data + (position & mask) * unit_bytes;
  }
  [[nodiscard]] std::uint64_t before_end(std::uint64_t position) const noexcept {
    return mask + 1 - (position & mask);
  }
};

[[nodiscard]] constexpr std::uint64_t variable_units(std::uint64_t byte_count) noexcept {
  return 1 + (byte_count + kVariableUnitBytes - 1) / kVariableUnitBytes;
}

/// Common state of both ends: mapping, role, fault. Defined in src/message.
class End;
struct EndDeleter {
  HEADRACE_API void operator()(End* end) const noexcept;
};
using EndPointer = std::unique_ptr<End, EndDeleter>;
/// What every call of an end with a fault returns.
[[nodiscard]] HEADRACE_API Outcome fault_outcome(const End& end) noexcept;
/// Makes every later call return `damaged`.
HEADRACE_API Outcome refuse_damaged(End& end) noexcept;
/// After must_wake().
HEADRACE_API void wake(Atomic<std::uint32_t>& word) noexcept;

}  // namespace detail

class Producer;
class Consumer;

/// A shared-memory segment with a queue, and its roles.
///
/// Threading: shared.
/// Ownership: a named queue exists until its file is removed; an unnamed one as long as any Queue,
///            end or descriptor of it.
class HEADRACE_API Queue {
 public:
  /// Makes an unnamed queue. Its size is sealed: no process can truncate it.
  ///
  /// Fails: invalid_argument; capacity_exceeded, out_of_memory.
  [[nodiscard]] static Result<Queue> make(const QueueOptions& options = {});
  /// Makes a queue in a new file, preferably in /dev/shm. It appears complete or not at all.
  ///
  /// Fails: as make(); invalid_argument if the path exists; permission_denied, io_failed.
  [[nodiscard]] static Result<Queue> make_named(const std::string& path,
                                                const QueueOptions& options = {});
  /// Opens a queue made by make_named(). The file must belong to the user `owner` (default: the
  /// effective user).
  ///
  /// Fails: not_found; permission_denied, also for another owner; corrupt_data if it is not a
  ///        queue, damaged, or of another size; version_mismatch.
  [[nodiscard]] static Result<Queue> open(const std::string& path,
                                          std::optional<std::uint32_t> owner = std::nullopt);
  /// Opens the queue of `descriptor`, inherited or received by SCM_RIGHTS. The caller keeps
  /// ownership of the descriptor.
  ///
  /// Fails: as open(); invalid_argument if it is not open.
  [[nodiscard]] static Result<Queue> from_descriptor(
      int descriptor, std::optional<std::uint32_t> owner = std::nullopt);

  Queue(Queue&& other) noexcept;
  Queue& operator=(Queue&& other) noexcept;
  ~Queue();

  /// For passing to another process. Owned by this object; close-on-exec.
  [[nodiscard]] int descriptor() const;
  [[nodiscard]] QueueState state() const;

  /// Attaches a producer.
  ///
  /// Fails: capacity_exceeded if all places are taken; corrupt_data if the lane is damaged.
  [[nodiscard]] Result<Producer> producer() const;
  /// Attaches the consumer.
  ///
  /// Fails: capacity_exceeded if another consumer is attached; corrupt_data.
  [[nodiscard]] Result<Consumer> consumer() const;

  /// Closes the queue: producers get `closed`, and the consumer too once it has received
  /// everything. Idempotent. A concurrent commit may be lost.
  void close() const;

 private:
  struct State;
  explicit Queue(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Where send() places the payload. Lines end up where the processor's stores put them, never in
/// the receiver's private cache. See docs/concepts/message.md.
enum class Placement : std::uint8_t {
  cache,   ///< Ordinary stores: in the sender's or the shared cache.
  memory,  ///< Non-temporal stores.
  header,  ///< The first line of each message as cache, the rest as memory.
};

/// Copies a message into the queue in place of send(): it may read it, change it, or have an engine
/// copy it. When it returns, the bytes must be in `target`.
using CopyFunction =
    std::function<void(std::span<std::byte> target, std::span<const std::byte> source)>;

/// The sending end.
///
/// Threading: confined.
class HEADRACE_API Producer {
 public:
  Producer(Producer&&) noexcept = default;
  Producer& operator=(Producer&&) noexcept = default;
  /// Detaches. Committed messages stay; staged ones are lost.
  ~Producer() = default;

  /// Reserves room in the queue for one message of `byte_count` bytes (with fixed framing, the
  /// fixed length). Another reserve() without stage() or commit() returns the same room.
  [[nodiscard]] Outcome reserve(std::size_t byte_count, std::span<std::byte>& room) noexcept;
  /// Fixed framing only: reserves room for `count` contiguous messages, each rounded up to 8 bytes;
  /// for fewer at the end of the ring. `full` if they do not fit.
  [[nodiscard]] Outcome reserve_many(std::size_t count, std::span<std::byte>& room) noexcept;
  /// Completes the message in the reserved room, or the first `count` of reserve_many(), without
  /// publishing it. With variable framing, `byte_count` may be less than was reserved.
  void stage(std::size_t byte_count) noexcept;
  void stage_many(std::size_t count) noexcept;
  /// Publishes all staged messages with one store, and wakes a sleeping consumer.
  Outcome publish() noexcept {
    if (has_fault()) return detail::fault_outcome(*end_);
    return publish_and(0);
  }
  /// stage(), then publish().
  Outcome commit(std::size_t byte_count) noexcept;

  /// Copies a message into the queue if there is room. Never waits.
  [[nodiscard]] Outcome try_send(std::span<const std::byte> message);
  /// As try_send(), but waits for room.
  [[nodiscard]] Outcome send(std::span<const std::byte> message, const Wait& wait = {});
  /// Sends as many messages as fit, published with one store. `sent` is their number.
  [[nodiscard]] Outcome try_send_all(std::span<const std::span<const std::byte>> messages,
                                     std::size_t& sent);
  /// Waits until a message of `byte_count` bytes fits.
  [[nodiscard]] Outcome wait_for_room(std::size_t byte_count, const Wait& wait = {}) noexcept;

  /// Sets how send() copies messages from now on.
  void place(Placement placement);
  /// The same, with a function of the caller.
  void place(CopyFunction copy);

  [[nodiscard]] std::size_t message_bytes_max() const { return geometry_.message_bytes_max; }
  /// Messages (fixed framing) or 8-byte units (variable) committed at this place so far, including
  /// by earlier producers.
  [[nodiscard]] std::uint64_t position() const { return cursor_.published(); }
  /// Number of this producer's place.
  [[nodiscard]] std::uint32_t number() const { return number_; }

 private:
  friend class Queue;
  explicit Producer(detail::EndPointer end);
  [[nodiscard]] bool has_fault() const noexcept {
    return fault_->load_relaxed() != 0;  // Private; publishes nothing.
  }
  Outcome room(std::uint64_t unit_count) noexcept;
  Outcome publish_and(std::uint64_t unit_count, std::uint64_t begun_ticks = 0) noexcept;
  Outcome reserve_variable(std::size_t byte_count, std::span<std::byte>& room) noexcept;
  void skip_to_start() noexcept;
  Outcome put(std::span<const std::byte> message);
  /// For a trace: what is published next, and when its copy began, if this object copied it.
  void record(std::uint64_t unit_count, std::uint64_t begun_ticks) const noexcept;

  detail::ProducerCursor cursor_;
  detail::Geometry geometry_;
  Atomic<std::uint32_t>* fault_ = nullptr;
  Atomic<std::uint32_t>* cons_sleeps_ = nullptr;
  Atomic<std::uint32_t>* any_closed_ = nullptr;
  std::uint64_t reserved_ = 0;  ///< Variable framing: maximum units for stage().
  std::uint64_t skip_ = 0;      ///< Units at the end of the ring that stage() skips first.
  std::uint64_t ahead_ = 1;     ///< Prefetch distance in units.
  std::uint32_t number_ = 0;
  Placement placement_ = Placement::cache;
  CopyFunction copy_;
  detail::EndPointer end_;
};

/// The receiving end.
///
/// Threading: confined; any thread may read lent bytes until release().
class HEADRACE_API Consumer {
 public:
  Consumer(Consumer&&) noexcept;
  Consumer& operator=(Consumer&&) noexcept;
  ~Consumer();

  /// Lends the next message, if there is one. Several may be lent. In a dense stream of messages it
  /// waits up to 400 ns, so that the producer is not slowed down.
  [[nodiscard]] Outcome peek(Message& message) noexcept;
  /// Fixed framing only: lends up to `count` contiguous messages of one producer, each rounded up
  /// to 8 bytes.
  [[nodiscard]] Outcome peek_many(std::size_t count, Message& messages) noexcept;
  /// Returns all lent room to the producers and wakes sleeping ones. `damaged` if pages of the
  /// queue were lost meanwhile: the lent bytes may be wrong.
  Outcome release() noexcept;

  /// Copies the next message to `target` and releases it, with everything lent before. `received`
  /// is its length. `too_large` if the target is shorter; the message stays.
  [[nodiscard]] Outcome try_receive(std::span<std::byte> target, std::size_t& received) noexcept;
  /// As try_receive(), but waits for a message.
  [[nodiscard]] Outcome receive(std::span<std::byte> target, std::size_t& received,
                                const Wait& wait = {}) noexcept;
  /// Waits until there is a message not yet lent.
  [[nodiscard]] Outcome wait_for_message(const Wait& wait = {}) noexcept;

  [[nodiscard]] std::size_t message_bytes_max() const { return message_bytes_max_; }

 private:
  friend class Queue;
  struct Lane {
    detail::ConsumerCursor cursor;
    detail::Geometry geometry;
    Atomic<std::uint32_t>* prod_sleeps = nullptr;
    std::uint32_t number = 0;
  };
  explicit Consumer(detail::EndPointer end);
  [[nodiscard]] bool has_fault() const noexcept {
    return fault_->load_relaxed() != 0;  // Private; publishes nothing.
  }
  [[nodiscard]] Outcome find_lane() noexcept;
  static void pause_for_batch() noexcept;
  [[nodiscard]] Outcome look_further() noexcept;
  [[nodiscard]] Outcome when_empty() noexcept;
  [[nodiscard]] Outcome read_next(Message& message) noexcept;
  [[nodiscard]] Outcome read_variable(Message& message) noexcept;
  void release_all() noexcept;
  /// For a trace: what is lent last, and when its copy began, if this object copied it.
  void record(std::size_t byte_count, std::uint64_t begun_ticks) const noexcept;

  static constexpr std::uint32_t kTurnMax = 64;

  Lane* lane_ = nullptr;  ///< The current lane.
  std::uint32_t turn_ = 0;
  std::uint32_t busy_looks_ = 0;  ///< Consecutive, up to kBusyLooks.
  std::uint32_t lane_count_ = 0;
  Atomic<std::uint32_t>* fault_ = nullptr;
  std::uint64_t message_bytes_max_ = 0;
  std::unique_ptr<Lane[]> lanes_;
  detail::EndPointer end_;
};

// The hot path, inline.

inline Outcome Producer::room(std::uint64_t unit_count) noexcept {
  if (has_fault()) return detail::fault_outcome(*end_);
  if (any_closed_->load_relaxed() != 0) return Outcome::closed;  // Publishes nothing.
  switch (cursor_.room_for(unit_count)) {
    case detail::Look::ready:
      return Outcome::done;
    case detail::Look::not_yet:
      return Outcome::full;
    case detail::Look::damaged:
      break;
  }
  return detail::refuse_damaged(*end_);
}

inline Outcome Producer::reserve(std::size_t byte_count, std::span<std::byte>& room_span) noexcept {
  if (!geometry_.fixed) {
    // A local, so that the caller's variable can stay in registers.
    std::span<std::byte> found;
    const Outcome outcome = reserve_variable(byte_count, found);
    if (outcome == Outcome::done) room_span = found;
    return outcome;
  }
  if (byte_count != geometry_.message_bytes_max) return Outcome::too_large;
  const Outcome outcome = room(1);
  if (outcome == Outcome::done) room_span = {geometry_.at(cursor_.position()), byte_count};
  return outcome;
}

inline Outcome Producer::reserve_many(std::size_t count, std::span<std::byte>& room_span) noexcept {
  if (!geometry_.fixed || count == 0) return Outcome::too_large;
  const std::uint64_t position = cursor_.position();
  const std::uint64_t some = std::min<std::uint64_t>(count, geometry_.before_end(position));
  const Outcome outcome = room(some);
  if (outcome != Outcome::done) return outcome;
  room_span = {geometry_.at(position), some * geometry_.unit_bytes};
  // Prefetch lines of a later batch: fetching a line from a distant core takes as long as many
  // short messages. Only lines that the consumer released long ago: prefetching lines that it has
  // just read, or right before their stores, is slower than no prefetch.
  const std::uint64_t ahead = std::max(4 * ahead_, some);  // 1 KiB for short messages.
  if (!cursor_.has_room(some + ahead)) return outcome;
  const std::uint64_t later = position + ahead;
  const std::uint64_t bytes = std::min(some, geometry_.before_end(later)) * geometry_.unit_bytes;
  const std::byte* const first = geometry_.at(later);
  for (const std::byte* line = first;
       line < first + std::min<std::uint64_t>(bytes, detail::kPrefetchBytesMax);
       line += kLineBytes) {
    prefetch_for_write(line);
  }
  return outcome;
}

inline void Producer::stage(std::size_t byte_count) noexcept {
  if (geometry_.fixed) return stage_many(1);
  const std::uint64_t length = byte_count;
  const std::uint64_t units = detail::variable_units(byte_count);
  HEADRACE_CHECK(units <= reserved_, "no more is staged than was reserved", units, reserved_);
  reserved_ = 0;
  if (skip_ != 0) skip_to_start();
  std::memcpy(geometry_.at(cursor_.position()), &length, sizeof(length));
  cursor_.stage(units);
}

inline void Producer::stage_many(std::size_t count) noexcept {
  HEADRACE_CHECK(cursor_.has_room(count), "no more is staged than there is room for", count);
  cursor_.stage(count);
}

inline Outcome Producer::publish_and(std::uint64_t unit_count, std::uint64_t begun_ticks) noexcept {
  if (trace::is_on()) [[unlikely]]
    record(unit_count, begun_ticks);
  cursor_.publish(unit_count);
  if (detail::must_wake(*cons_sleeps_)) detail::wake(*cons_sleeps_);
  return Outcome::done;
}

inline Outcome Producer::commit(std::size_t byte_count) noexcept {
  if (!geometry_.fixed) {
    stage(byte_count);
    return publish();
  }
  HEADRACE_CHECK(cursor_.has_room(1), "no more is staged than there is room for", byte_count);
  if (has_fault()) return detail::fault_outcome(*end_);
  // Only lines that the consumer has released: one that it still reads would be fetched twice.
  if (cursor_.has_room(1 + ahead_)) {
    prefetch_for_write(geometry_.at(cursor_.position() + 1 + ahead_));
  }
  return publish_and(1);
}

inline Outcome Consumer::find_lane() noexcept {
  if (has_fault()) return detail::fault_outcome(*end_);
  if (lane_count_ > 1) return look_further();
  detail::ConsumerCursor& cursor = lane_->cursor;
  if (cursor.count() != 0) return Outcome::done;
  // Each look takes the line of the published position from the producer, whose next store then
  // waits for it. Look less often, and find more messages each time.
  if (busy_looks_ == detail::kBusyLooks) pause_for_batch();
  switch (cursor.look()) {
    case detail::Look::ready:
      busy_looks_ = cursor.has_few() ? std::min(busy_looks_ + 1, detail::kBusyLooks) : 0;
      return Outcome::done;
    case detail::Look::not_yet:
      busy_looks_ = 0;
      return when_empty();
    case detail::Look::damaged:
      break;
  }
  return detail::refuse_damaged(*end_);
}

inline Outcome Consumer::peek(Message& message) noexcept {
  Outcome outcome = find_lane();
  if (outcome == Outcome::done) outcome = read_next(message);
  if (trace::is_on() && outcome == Outcome::done) [[unlikely]]
    record(message.bytes.size(), 0);
  return outcome;
}

inline Outcome Consumer::read_next(Message& message) noexcept {
  Lane& lane = *lane_;
  if (!lane.geometry.fixed) {
    // A local, so that the caller's variable can stay in registers.
    Message found;
    const Outcome outcome = read_variable(found);
    if (outcome == Outcome::done) message = found;
    return outcome;
  }
  message.bytes = {lane.geometry.at(lane.cursor.position()), lane.geometry.message_bytes_max};
  message.producer = lane.number;
  lane.cursor.advance(1);
  return Outcome::done;
}

inline Outcome Consumer::peek_many(std::size_t count, Message& messages) noexcept {
  const Outcome outcome = find_lane();
  if (outcome != Outcome::done) return outcome;
  Lane& lane = *lane_;
  if (!lane.geometry.fixed || count == 0) return Outcome::too_large;
  const std::uint64_t position = lane.cursor.position();
  const std::uint64_t some =
      std::min<std::uint64_t>({count, lane.cursor.count(), lane.geometry.before_end(position)});
  messages.bytes = {lane.geometry.at(position), some * lane.geometry.unit_bytes};
  messages.producer = lane.number;
  lane.cursor.advance(some);
  if (trace::is_on()) [[unlikely]]
    record(messages.bytes.size(), 0);
  return Outcome::done;
}

inline Outcome Consumer::release() noexcept {
  if (has_fault()) return detail::fault_outcome(*end_);
  if (lane_count_ > 1) {
    release_all();
  } else if (lane_->cursor.has_lent()) {
    lane_->cursor.retire();
    if (detail::must_wake(*lane_->prod_sleeps)) detail::wake(*lane_->prod_sleeps);
  }
  return Outcome::done;
}

}  // namespace headrace::message
