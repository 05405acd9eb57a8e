// SPDX-License-Identifier: Apache-2.0
// Queues of messages between threads or processes: shared memory, no system call on the way. Not
// for: messages that survive the machine (pmem/ring.hpp), or another machine.
//
// What is promised
//   Order      Messages of one producer come in the order of their commits. Between producers there
//              is no order, also not if one of them acted upon the other's message.
//   commit     When it returns `done`, the message is in the queue: the consumer, or the next one,
//              receives it, also if the producer is killed. A message whose commit has not returned
//              is there as a whole or not at all.
//   release    What was peeked does not come again once release() has returned. What a consumer had
//              peeked and not released when it ended comes again to the next one.
//   Death      An end that is killed at any instruction keeps no other end from going on. Its role
//              is free at once. The peer gets `peer_lost` once, after it has received everything.
//   Damage     The shared part is not trusted. Whatever another process writes there, an end
//              returns `damaged`, or messages whose bytes are wrong; it never reads or writes
//              outside the queue. Bytes that are peeked lie in the shared part and can still change
//              while they are looked at; receive() copies them first.
// A queue has no lock. An end that is stopped keeps its own messages back and nothing else.
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
#include "headrace/base/prefetch_write.hpp"
#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"
#include "headrace/message/cursor.hpp"

namespace headrace::message {

inline constexpr std::uint32_t kProducersMax = 64;

/// fixed: every message has the same length and nothing is stored beside it. variable: each has
/// its own, up to a limit, and 8 bytes beside it.
enum class Framing : std::uint32_t { fixed = 1, variable = 2 };

/// What became of a call.
enum class Outcome : std::uint8_t {
  done,
  empty,      ///< No message at the moment.
  full,       ///< Back-pressure: the consumer has to release first. Nothing was written.
  too_large,  ///< Longer than message_bytes_max(), or not the fixed length. Nothing was written.
  timed_out,  ///< Nothing came within the time limit.
  closed,     ///< The queue was closed, and everything in it was received.
  peer_lost,  ///< The peer ended without detaching. Reported once for each peer; another may come.
  replaced,   ///< No peer is there, and the name no longer leads to this queue: open it again.
  damaged,    ///< The shared part is not what an honest peer would have written, or is gone.
  forked,     ///< This is a child of the process that attached: attach here.
};
[[nodiscard]] HEADRACE_API std::string_view name(Outcome outcome);

/// What a thread does while it waits.
enum class Waiting : std::uint8_t {
  adaptive,  ///< Looks for up to 50 microseconds, then sleeps: an idle queue costs no processor.
  poll,      ///< Looks again and again: soonest to see, and takes a whole processor.
  sleep,     ///< Sleeps at once.
};

struct Wait {
  Waiting how = Waiting::adaptive;
  /// Without one the wait ends only with a message, room, or a peer's end.
  std::optional<std::chrono::nanoseconds> time_max = std::nullopt;
};

struct QueueOptions {
  Framing framing = Framing::variable;
  /// The length of each message, or the longest; 0 with variable framing is the longest that fits.
  std::uint64_t message_bytes = 0;
  /// For the messages of one producer; rounded up to a power of two of messages or of bytes.
  Bytes capacity = kib(64);
  /// How many producers may be attached at the same time, up to kProducersMax. Each has the
  /// capacity to itself.
  std::uint32_t producers_max = 1;
  /// Of the file of a named queue, as chmod takes them; the umask takes some away.
  std::uint32_t permissions = 0600;
};

struct QueueState {
  Framing framing = Framing::variable;
  std::uint64_t message_bytes_max = 0;
  Bytes capacity;  ///< For each producer.
  std::uint32_t producers_max = 0;
  std::uint32_t producer_count = 0;  ///< Attached at this moment.
  bool has_consumer = false;
  bool closed = false;
};

/// A message, lent.
struct Message {
  /// In the queue itself, until release().
  std::span<const std::byte> bytes;
  /// Which producer's it is, from 0. A place is given to another producer when one has ended.
  std::uint32_t producer = 0;
};

namespace detail {

inline constexpr std::uint64_t kVariableUnitBytes = 8;
inline constexpr std::uint64_t kVariableBytesMax = 0xFFFF'FFF0U;
/// In the place of a length: the rest of the ring is skipped.
inline constexpr std::uint64_t kSkip = ~std::uint64_t{0};
/// How far before its stores a producer asks for lines of short messages.
inline constexpr std::uint64_t kAheadBytes = 256;
/// After so many looks in a row that each found few messages, a consumer lets some gather.
inline constexpr std::uint32_t kBusyLooks = 4;
inline constexpr std::size_t kPrefetchBytesMax = 4096;

/// A private copy of what a ring looks like; nothing of it is read from shared memory again.
struct Geometry {
  std::byte* data = nullptr;
  std::uint64_t unit_bytes = 0;
  std::uint64_t mask = 0;  ///< Units, less 1.
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

/// What both ends have of the segment: mapping, role, how it ended. Defined in src/message.
class End;
struct EndDeleter {
  HEADRACE_API void operator()(End* end) const noexcept;
};
using EndPointer = std::unique_ptr<End, EndDeleter>;

}  // namespace detail

class Producer;
class Consumer;

/// A segment that holds a queue, and the two roles at it.
///
/// Threading: shared.
/// Ownership: a named queue stays until its file is removed; one without a name lives as long as a
///            Queue, an end or a descriptor of it.
class HEADRACE_API Queue {
 public:
  /// Makes a queue without a name. Its length is sealed: no process can truncate it.
  ///
  /// Fails: invalid_argument; capacity_exceeded, out_of_memory.
  [[nodiscard]] static Result<Queue> make(const QueueOptions& options = {});
  /// Makes a queue in a new file, best in /dev/shm; whole or not at all.
  ///
  /// Fails: as make(); invalid_argument if something is there; permission_denied, io_failed.
  [[nodiscard]] static Result<Queue> make_named(const std::string& path,
                                                const QueueOptions& options = {});
  /// Opens what make_named() made. Only a file of the user `owner` is believed, which is the
  /// effective user if nothing is given.
  ///
  /// Fails: not_found; permission_denied, also for another owner; corrupt_data for what is no
  ///        queue, damaged, or of another size; version_mismatch.
  [[nodiscard]] static Result<Queue> open(const std::string& path,
                                          std::optional<std::uint32_t> owner = std::nullopt);
  /// Opens the queue that `descriptor` leads to: inherited, or received by SCM_RIGHTS. The
  /// descriptor stays the caller's.
  ///
  /// Fails: as open(); invalid_argument if it is not open.
  [[nodiscard]] static Result<Queue> from_descriptor(
      int descriptor, std::optional<std::uint32_t> owner = std::nullopt);

  Queue(Queue&& other) noexcept;
  Queue& operator=(Queue&& other) noexcept;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue();

  /// To be passed on; closed with this object, and in programs that exec() starts.
  [[nodiscard]] int descriptor() const;
  [[nodiscard]] QueueState state() const;

  /// Takes a producer's place.
  ///
  /// Fails: capacity_exceeded if all are taken; corrupt_data if the lane is damaged.
  [[nodiscard]] Result<Producer> producer() const;
  /// Takes the consumer's place.
  ///
  /// Fails: capacity_exceeded if it is taken; corrupt_data.
  [[nodiscard]] Result<Consumer> consumer() const;

  /// No more messages: producers get `closed`; the consumer does when it has received all.
  /// Idempotent. A commit at the same moment may come too late and be lost.
  void close() const;

 private:
  struct State;
  explicit Queue(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Where the payload of send() is to lie. Lines end up where the processor's stores put them: never
/// in the private cache of the receiver. See docs/concepts/message.md.
enum class Placement : std::uint8_t {
  cache,   ///< Ordinary stores: in the sender's cache, or in the shared one.
  demote,  ///< As cache, then CLDEMOTE: from the sender's cache to the shared one.
  memory,  ///< Stores past the caches.
  header,  ///< The first line of each message as cache, the rest as memory.
};
[[nodiscard]] HEADRACE_API std::string_view name(Placement placement);
/// Fails: invalid_argument, naming the placements there are.
[[nodiscard]] HEADRACE_API Result<Placement> parse_placement(std::string_view text);
/// False where the processor lacks the instruction; send() then stores as with `cache`.
[[nodiscard]] HEADRACE_API bool has_placement(Placement placement);

/// Moves a message into the queue instead of send(): it may look at it, change it, or have an
/// engine move it. When it returns, the bytes are in `target`.
using Carry = std::function<void(std::span<std::byte> target, std::span<const std::byte> source)>;

/// The end that fills.
///
/// Threading: confined.
class HEADRACE_API Producer {
 public:
  Producer(Producer&&) noexcept = default;
  Producer& operator=(Producer&&) noexcept = default;
  Producer(const Producer&) = delete;
  Producer& operator=(const Producer&) = delete;
  /// Detaches. What was committed stays; what was only staged is gone.
  ~Producer() = default;

  /// Room for one message of `byte_count` bytes in the queue itself; with fixed framing that is the
  /// length of all. A second reserve() without stage() or commit() gives the same room.
  [[nodiscard]] Outcome reserve(std::size_t byte_count, std::span<std::byte>& room) noexcept;
  /// With fixed framing: room for `count` messages side by side, each rounded up to 8 bytes; for
  /// fewer at the end of the ring. `full` if that is more than there is room for.
  [[nodiscard]] Outcome reserve_many(std::size_t count, std::span<std::byte>& room) noexcept;
  /// Finishes the message in the room that was reserved, or the first `count` of reserve_many();
  /// not visible yet. `byte_count` may be less than was reserved, with variable framing.
  void stage(std::size_t byte_count) noexcept;
  void stage_many(std::size_t count) noexcept;
  /// Makes all that is staged visible at once, and wakes a consumer that sleeps.
  Outcome publish() noexcept {
    if (fault_->load_relaxed() != 0) return fault_outcome();  // This end's own word.
    return publish_and(0);
  }
  /// stage() and publish().
  Outcome commit(std::size_t byte_count) noexcept;

  /// Copies a message into the queue if there is room; without waiting.
  [[nodiscard]] Outcome try_send(std::span<const std::byte> message);
  /// The same, and waits for room.
  [[nodiscard]] Outcome send(std::span<const std::byte> message, const Wait& wait = {});
  /// Sends as many as there is room for, which become visible at once. `sent` is how many.
  [[nodiscard]] Outcome try_send_all(std::span<const std::span<const std::byte>> messages,
                                     std::size_t& sent);
  /// Waits until a message of `byte_count` bytes fits.
  [[nodiscard]] Outcome wait_for_room(std::size_t byte_count, const Wait& wait = {}) noexcept;

  /// How send() moves messages from now on.
  void place(Placement placement);
  /// The same, by a function of the user's.
  void place(Carry carry);

  [[nodiscard]] std::size_t message_bytes_max() const { return geometry_.message_bytes_max; }
  /// Messages (fixed framing) or units of 8 bytes (variable) that were ever committed at this
  /// place, by this producer and those before it.
  [[nodiscard]] std::uint64_t position() const { return cursor_.published(); }
  /// Number of this producer's place.
  [[nodiscard]] std::uint32_t number() const { return number_; }

 private:
  friend class Queue;
  explicit Producer(detail::EndPointer end);
  Outcome room(std::uint64_t unit_count) noexcept;
  Outcome publish_and(std::uint64_t unit_count) noexcept;
  Outcome reserve_variable(std::size_t byte_count, std::span<std::byte>& room) noexcept;
  void skip_to_start() noexcept;
  Outcome put(std::span<const std::byte> message);
  [[nodiscard]] Outcome fault_outcome() const noexcept;
  [[nodiscard]] Outcome refuse_damaged() noexcept;
  void wake_consumer() noexcept;

  detail::ProducerCursor cursor_;
  detail::Geometry geometry_;
  Atomic<std::uint32_t>* fault_ = nullptr;
  Atomic<std::uint32_t>* cons_sleeps_ = nullptr;
  Atomic<std::uint32_t>* any_closed_ = nullptr;
  std::uint64_t reserved_ = 0;  ///< Variable framing: units that stage() may take.
  std::uint64_t skip_ = 0;      ///< Units at the end of the ring that stage() skips first.
  std::uint64_t ahead_ = 1;     ///< How many units before its store a line is asked for.
  std::uint32_t number_ = 0;
  Placement placement_ = Placement::cache;
  Carry carry_;
  detail::EndPointer end_;
};

/// The end that empties.
///
/// Threading: confined; bytes that were lent may be read from any thread until release().
class HEADRACE_API Consumer {
 public:
  Consumer(Consumer&&) noexcept;
  Consumer& operator=(Consumer&&) noexcept;
  Consumer(const Consumer&) = delete;
  Consumer& operator=(const Consumer&) = delete;
  ~Consumer();

  /// Lends the next message, if there is one. Several may be lent. In a dense stream of messages
  /// it waits up to 400 ns for more, which lets the producer go on.
  [[nodiscard]] Outcome peek(Message& message) noexcept;
  /// With fixed framing: lends up to `count` messages of one producer that lie side by side, each
  /// rounded up to 8 bytes.
  [[nodiscard]] Outcome peek_many(std::size_t count, Message& messages) noexcept;
  /// Gives back everything that was lent, and wakes producers that sleep. `damaged` if pages of the
  /// queue were gone meanwhile: what was lent may not be what was sent.
  Outcome release() noexcept;

  /// Copies the next message to `target` and releases it (and what was lent before).
  /// `received` is its length; if that is more than the target has, `too_large`, and the message
  /// stays.
  [[nodiscard]] Outcome try_receive(std::span<std::byte> target, std::size_t& received) noexcept;
  /// The same, and waits for a message.
  [[nodiscard]] Outcome receive(std::span<std::byte> target, std::size_t& received,
                                const Wait& wait = {}) noexcept;
  /// Waits until there is a message that was not lent.
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
  [[nodiscard]] Outcome find_lane() noexcept;
  static void let_messages_gather() noexcept;
  [[nodiscard]] Outcome look_further() noexcept;
  [[nodiscard]] Outcome when_empty() noexcept;
  [[nodiscard]] Outcome lend_next(Message& message) noexcept;
  [[nodiscard]] Outcome lend_variable(Message& message) noexcept;
  [[nodiscard]] Outcome fault_outcome() const noexcept;
  [[nodiscard]] Outcome refuse_damaged() noexcept;
  void wake_producer(Lane& lane) noexcept;
  void release_all() noexcept;

  static constexpr std::uint32_t kTurnMax = 64;

  Lane* lane_ = nullptr;  ///< The one that is emptied now.
  std::uint32_t turn_ = 0;
  std::uint32_t busy_looks_ = 0;  ///< In a row, up to kBusyLooks.
  std::uint32_t lane_count_ = 0;
  Atomic<std::uint32_t>* fault_ = nullptr;
  std::uint64_t message_bytes_max_ = 0;
  std::unique_ptr<Lane[]> lanes_;
  detail::EndPointer end_;
};

// The way of every message, inline.

inline Outcome Producer::room(std::uint64_t unit_count) noexcept {
  if (fault_->load_relaxed() != 0) return fault_outcome();       // This end's own word.
  if (any_closed_->load_relaxed() != 0) return Outcome::closed;  // Publishes nothing.
  switch (cursor_.room_for(unit_count)) {
    case detail::Look::ready:
      return Outcome::done;
    case detail::Look::not_yet:
      return Outcome::full;
    case detail::Look::damaged:
      break;
  }
  return refuse_damaged();
}

inline Outcome Producer::reserve(std::size_t byte_count, std::span<std::byte>& room_span) noexcept {
  if (!geometry_.fixed) {
    // Apart, so that the caller's can stay in registers.
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
  // Of a later batch: the way of a line from a core far away takes as long as many short messages.
  // Only what the consumer gave back long ago: asked for when it has just been read, or right
  // before their stores, lines are slower than left to the stores.
  const std::uint64_t ahead = std::max(4 * ahead_, some);  // 1 KiB of short messages.
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

inline Outcome Producer::publish_and(std::uint64_t unit_count) noexcept {
  cursor_.publish(unit_count);
  if (detail::must_wake(*cons_sleeps_)) wake_consumer();
  return Outcome::done;
}

inline Outcome Producer::commit(std::size_t byte_count) noexcept {
  if (!geometry_.fixed) {
    stage(byte_count);
    return publish();
  }
  HEADRACE_CHECK(cursor_.has_room(1), "no more is staged than there is room for", byte_count);
  if (fault_->load_relaxed() != 0) return fault_outcome();  // This end's own word.
  // Only what the consumer has given back: a line that it still reads would have to come again.
  if (cursor_.has_room(1 + ahead_)) {
    prefetch_for_write(geometry_.at(cursor_.position() + 1 + ahead_));
  }
  return publish_and(1);
}

inline Outcome Consumer::find_lane() noexcept {
  if (fault_->load_relaxed() != 0) return fault_outcome();  // This end's own word.
  if (lane_count_ > 1) return look_further();
  detail::ConsumerCursor& cursor = lane_->cursor;
  if (cursor.count() != 0) return Outcome::done;
  // Messages come faster than looks. Each look takes the line of the published position from the
  // producer, which then waits for it; fewer looks find more.
  if (busy_looks_ == detail::kBusyLooks) let_messages_gather();
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
  return refuse_damaged();
}

inline Outcome Consumer::peek(Message& message) noexcept {
  const Outcome outcome = find_lane();
  return outcome == Outcome::done ? lend_next(message) : outcome;
}

inline Outcome Consumer::lend_next(Message& message) noexcept {
  Lane& lane = *lane_;
  if (!lane.geometry.fixed) {
    // Apart, so that the caller's can stay in registers.
    Message found;
    const Outcome outcome = lend_variable(found);
    if (outcome == Outcome::done) message = found;
    return outcome;
  }
  message.bytes = {lane.geometry.at(lane.cursor.position()), lane.geometry.message_bytes_max};
  message.producer = lane.number;
  lane.cursor.lend(1);
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
  lane.cursor.lend(some);
  return Outcome::done;
}

inline Outcome Consumer::release() noexcept {
  if (fault_->load_relaxed() != 0) return fault_outcome();  // This end's own word.
  if (lane_count_ > 1) {
    release_all();
  } else if (lane_->cursor.has_lent()) {
    lane_->cursor.retire();
    if (detail::must_wake(*lane_->prod_sleeps)) wake_producer(*lane_);
  }
  return Outcome::done;
}

}  // namespace headrace::message
