// SPDX-License-Identifier: Apache-2.0
// Question: what are the throughput and the round-trip time of a queue between two processes?
//
//   headrace-bench-message ROUNDS MILLISECONDS
//   headrace-bench-message curve LIST ROUNDS MILLISECONDS (curve.cpp)
//
// Method. The sender is a child process pinned to one processor, the receiver is this process on
// another. For each message length every queue is measured once per round, in rotated order, on a
// new queue. Throughput: for MILLISECONDS the sender copies messages from private memory into the
// queue, and the receiver copies them to private memory and counts them; the time is from the first
// message to the last. For each length, all queues have the same number of slots and use batches of
// the same size; both ends retry after a PAUSE. The first 8 bytes of a message are its number,
// which the receiver checks. Round trip: one message travels forth and back through two queues;
// every trip is timed separately. memcpy_own copies as many bytes from and to as much memory, all
// in the caches of one processor. memcpy_across is a lower bound for a queue: the slower of a copy
// into slots that the other processor read last and a copy of slots that it wrote last, each alone.
// Prints one JSON document.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <ranges>
#include <string>
#include <vector>

#include "curve.hpp"
#include "headrace/message/queue.hpp"
#include "headrace/platform/ticks.hpp"
#include "pair.hpp"

namespace headrace::bench {
namespace {

using message::Consumer;
using message::Outcome;
using message::Producer;
using message::Queue;

std::chrono::milliseconds measured_time{50};

/// Messages in a queue: 256 KiB, within bounds.
constexpr std::size_t slots_for(std::size_t bytes) {
  return std::clamp<std::size_t>(std::size_t{256} * 1024 / bytes, 4, 4096);
}

/// Signals between the two ends.
struct Control {
  alignas(128) Atomic<std::uint32_t> ready;
  alignas(128) Atomic<std::uint32_t> stop;
};

template <std::size_t kBytes>
using Payload = std::array<std::byte, kBytes>;

/// Lamport's ring with a cached copy of the other end's index, as in MCRingBuffer (Lee et al.,
/// 2010) and rigtorp's SPSCQueue. It trusts the content of shared memory, and does not detect the
/// death of the other end.
///
/// Threading: one producer, one consumer.
template <std::size_t kBytes, std::size_t kCount>
class CachedIndexQueue {
 public:
  /// Returns: how many of `count` messages were sent, all or none; they become visible together.
  std::size_t send(const Payload<kBytes>* source, std::size_t count) {
    const std::uint64_t tail = tail_.load_relaxed();  // Relaxed: only this side writes it.
    if (tail + count - head_seen_ > kCount) {
      head_seen_ = head_.load_acquire();
      if (tail + count - head_seen_ > kCount) return 0;
    }
    for (std::size_t i = 0; i < count; ++i) slots_[(tail + i) % kCount] = source[i];
    tail_.store_release(tail + count);
    return count;
  }
  /// Returns: how many were received, up to `count`.
  std::size_t receive(Payload<kBytes>* target, std::size_t count) {
    const std::uint64_t head = head_.load_relaxed();  // Relaxed: only this side writes it.
    if (tail_seen_ == head) {
      tail_seen_ = tail_.load_acquire();
      if (tail_seen_ == head) return 0;
    }
    count = std::min<std::size_t>(count, tail_seen_ - head);
    for (std::size_t i = 0; i < count; ++i) target[i] = slots_[(head + i) % kCount];
    head_.store_release(head + count);
    return count;
  }

 private:
  alignas(128) Atomic<std::uint64_t> tail_;
  alignas(128) std::uint64_t head_seen_ = 0;
  alignas(128) Atomic<std::uint64_t> head_;
  alignas(128) std::uint64_t tail_seen_ = 0;
  alignas(128) std::array<Payload<kBytes>, kCount> slots_;
};

/// Our queue, with the interface of the reference.
template <std::size_t kBytes, message::Placement kPlacement = message::Placement::cache>
class Ours {
 public:
  Ours()
      : queue_(must(Queue::make({.framing = message::Framing::fixed,
                                 .message_bytes = kBytes,
                                 .capacity = Bytes(kBytes * slots_for(kBytes))}))) {}
  void begin_send() {
    producer_.emplace(must(queue_.producer()));
    producer_->place(kPlacement);
  }
  void begin_receive() { consumer_.emplace(must(queue_.consumer())); }

  std::size_t send(const Payload<kBytes>* source, std::size_t count) {
    std::span<std::byte> room;
    if (kCopies) {
      return producer_->try_send(std::span(*source)) == Outcome::done ? 1 : 0;
    }
    if (count == 1) {
      if (producer_->reserve(kBytes, room) != Outcome::done) return 0;
      std::memcpy(room.data(), source, kBytes);
      static_cast<void>(producer_->commit(kBytes));
      return 1;
    }
    if (producer_->reserve_many(count, room) != Outcome::done) return 0;
    const std::size_t some = room.size() / kBytes;
    auto* const target = reinterpret_cast<Payload<kBytes>*>(room.data());
    for (std::size_t i = 0; i < some; ++i) target[i] = source[i];
    producer_->stage_many(some);
    static_cast<void>(producer_->publish());
    return some;
  }
  std::size_t receive(Payload<kBytes>* target, std::size_t count) {
    message::Message messages;
    if (kCopies) {
      std::size_t received = 0;
      return consumer_->try_receive(std::span(*target), received) == Outcome::done ? 1 : 0;
    }
    if (count == 1) {
      if (consumer_->peek(messages) != Outcome::done) return 0;
      std::memcpy(target, messages.bytes.data(), kBytes);
      consumer_->release();
      return 1;
    }
    if (consumer_->peek_many(count, messages) != Outcome::done) return 0;
    const std::size_t some = messages.bytes.size() / kBytes;
    const auto* const source = reinterpret_cast<const Payload<kBytes>*>(messages.bytes.data());
    for (std::size_t i = 0; i < some; ++i) target[i] = source[i];
    consumer_->release();
    return some;
  }

 private:
  /// Long messages use try_send and try_receive, short ones are copied in place.
  static constexpr bool kCopies = kBytes >= 4096 || kPlacement != message::Placement::cache;
  Queue queue_;
  std::optional<Producer> producer_;
  std::optional<Consumer> consumer_;
};

/// The reference, in shared memory.
template <std::size_t kBytes>
class Reference {
 public:
  Reference& operator=(Reference&&) = delete;
  ~Reference() { ::munmap(static_cast<void*>(&queue_), sizeof(Queue)); }
  void begin_send() {}
  void begin_receive() {}
  std::size_t send(const Payload<kBytes>* source, std::size_t count) {
    return queue_.send(source, count);
  }
  std::size_t receive(Payload<kBytes>* target, std::size_t count) {
    return queue_.receive(target, count);
  }

 private:
  using Queue = CachedIndexQueue<kBytes, slots_for(kBytes)>;
  Queue& queue_ = *new (shared_memory(sizeof(Queue))) Queue;
};

std::uint64_t number_of(const std::byte* message) {
  std::uint64_t number = 0;
  std::memcpy(&number, message, sizeof(number));
  return number;
}

/// ns per message.
template <std::size_t kBytes, typename Link>
double measure_throughput(const Places& places, std::size_t batch) {
  Control& control = *new (shared_memory(sizeof(Control))) Control;
  Link link;
  const pid_t child = run_child(places.sender, [&] {
    link.begin_send();
    const auto source = std::make_unique<Payload<kBytes>[]>(batch);
    control.ready.store_release(1);
    std::uint64_t number = 0;
    while (control.stop.load_relaxed() == 0) {  // May be seen late.
      for (std::size_t i = 0; i < batch; ++i) {
        const std::uint64_t each = number + i;
        std::memcpy(source[i].data(), &each, sizeof(each));
      }
      const std::size_t sent = link.send(source.get(), batch);
      number += sent;
      if (sent == 0) platform::pause();
    }
  });
  link.begin_receive();
  while (control.ready.load_acquire() == 0) platform::pause();
  const auto target = std::make_unique<Payload<kBytes>[]>(batch);
  std::uint64_t received = 0;
  std::uint64_t next = 0;
  const auto receive = [&] {
    const std::size_t some = link.receive(target.get(), batch);
    if (some == 0) {
      platform::pause();
      return;
    }
    for (std::size_t i = 0; i < some; ++i) {
      if (number_of(target[i].data()) != next++) die("a message is wrong");
    }
    received += some;
  };
  while (received == 0) receive();
  received = 0;
  const Clock::time_point begin = Clock::now();
  Clock::time_point now = begin;
  while (now - begin < measured_time) {
    for (int i = 0; i < 64; ++i) receive();
    now = Clock::now();
  }
  const double ns = std::chrono::duration<double, std::nano>(now - begin).count();
  const std::uint64_t counted = received;
  control.stop.store_relaxed(1);  // As above.
  // The sender may be waiting for room in send().
  while (::kill(child, 0) == 0) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) {
      if (status != 0) die("the sender failed");
      break;
    }
    receive();
  }
  ::munmap(&control, sizeof(control));
  return ns / static_cast<double>(std::max<std::uint64_t>(counted, 1));
}

struct Trips {
  double p50 = 0;
  double p99 = 0;
  double p999 = 0;
};

template <std::size_t kBytes, typename Link>
Trips measure_round_trip(const Places& places) {
  Control& control = *new (shared_memory(sizeof(Control))) Control;
  Link there;
  Link back;
  const pid_t child = run_child(places.sender, [&] {
    there.begin_receive();
    back.begin_send();
    const auto message = std::make_unique<Payload<kBytes>>();
    control.ready.store_release(1);
    while (control.stop.load_relaxed() == 0) {  // May be seen late.
      if (there.receive(message.get(), 1) == 0) {
        platform::pause();
        continue;
      }
      while (back.send(message.get(), 1) == 0) platform::pause();
    }
  });
  there.begin_send();
  back.begin_receive();
  while (control.ready.load_acquire() == 0) platform::pause();
  const auto message = std::make_unique<Payload<kBytes>>();
  std::vector<std::uint64_t> ticks;
  const Clock::time_point begin = Clock::now();
  for (std::uint64_t number = 0; Clock::now() - begin < measured_time; ++number) {
    std::memcpy(message->data(), &number, sizeof(number));
    const std::uint64_t before = platform::ticks();
    while (there.send(message.get(), 1) == 0) platform::pause();
    while (back.receive(message.get(), 1) == 0) platform::pause();
    ticks.push_back(platform::ticks() - before);
    if (number_of(message->data()) != number) die("a message is wrong");
  }
  control.stop.store_relaxed(1);  // As above.
  wait_for_child(child);
  ::munmap(&control, sizeof(control));
  std::sort(ticks.begin(), ticks.end());
  const auto at = [&](double share) {
    const auto index = static_cast<std::size_t>(share * static_cast<double>(ticks.size() - 1));
    return static_cast<double>(ticks[index]) / platform::ticks_per_second() * 1e9;
  };
  return {.p50 = at(0.5), .p99 = at(0.99), .p999 = at(0.999)};
}

/// ns per message of a copy on one processor.
template <std::size_t kBytes>
double measure_memcpy_own(const Places& places) {
  pin(places.receiver);
  constexpr std::size_t kSlots = slots_for(kBytes);
  const auto source = std::make_unique<Payload<kBytes>>();
  const auto target = std::make_unique<Payload<kBytes>[]>(kSlots);
  std::uint64_t copied = 0;
  const Clock::time_point begin = Clock::now();
  Clock::time_point now = begin;
  while (now - begin < measured_time) {
    for (std::size_t i = 0; i < kSlots; ++i) {
      std::memcpy(target[i].data(), source->data(), kBytes);
      asm volatile("" : : "r"(target[i].data()) : "memory");
    }
    copied += kSlots;
    now = Clock::now();
  }
  return std::chrono::duration<double, std::nano>(now - begin).count() /
         static_cast<double>(copied);
}

/// ns per message of the slower of two alternating copies: into slots that the other processor read
/// last, and of slots that it wrote last. A lower bound for a queue whose ends copy concurrently.
template <std::size_t kBytes>
double measure_memcpy_across(const Places& places) {
  constexpr std::size_t kSlots = slots_for(kBytes);
  constexpr std::size_t kPiece = std::min<std::size_t>(kBytes, std::size_t{64} * 1024);
  struct Shared {
    alignas(128) Atomic<std::uint32_t> turn;
    alignas(128) Atomic<std::uint32_t> stop;
    alignas(128) double sender_ns;
    std::array<Payload<kBytes>, kSlots> slots;
  };
  Shared& shared = *new (shared_memory(sizeof(Shared))) Shared;
  const auto own = std::make_unique<Payload<kBytes>>();
  const auto copy_slots = [&](std::uint32_t turn) {
    while (shared.turn.load_acquire() != turn) platform::pause();
    const std::uint64_t before = platform::ticks();
    for (Payload<kBytes>& slot : shared.slots) {
      std::byte* const target = (turn == 0 ? slot : *own).data();
      const std::byte* const source = (turn == 0 ? *own : slot).data();
      // In pieces, as the queue copies (src/message/ends.hpp): faster for lines of another core.
      for (std::size_t at = 0; at < kBytes; at += kPiece) {
        std::memcpy(target + at, source + at, kPiece);
      }
      asm volatile("" : : "r"(own.get()) : "memory");
    }
    const std::uint64_t ticks = platform::ticks() - before;
    shared.turn.store_release(1 - turn);
    return static_cast<double>(ticks) / kSlots / platform::ticks_per_second() * 1e9;
  };
  const pid_t child = run_child(places.sender, [&] {
    std::vector<double> times;
    while (shared.stop.load_relaxed() == 0) times.push_back(copy_slots(0));  // May be late.
    shared.sender_ns = median(times);
  });
  std::vector<double> times;
  const Clock::time_point begin = Clock::now();
  while (Clock::now() - begin < measured_time) times.push_back(copy_slots(1));
  shared.stop.store_relaxed(1);  // Ordered by the turn.
  shared.turn.store_release(0);  // The sender may have read `stop` too early.
  wait_for_child(child);
  const double slower = std::max(shared.sender_ns, median(times));
  ::munmap(&shared, sizeof(shared));
  return slower;
}

/// A queue or copy at one length: what it measures, and its value in each round.
template <typename Value>
struct Row {
  std::string name;
  std::size_t bytes = 0;
  std::size_t batch = 1;
  std::function<Value()> measure;
  std::vector<Value> values = {};
};
/// Those that are compared with each other.
template <typename Value>
using Groups = std::vector<std::vector<Row<Value>>>;

template <typename Value>
void measure_round(Groups<Value>& groups, std::size_t round) {
  for (std::vector<Row<Value>>& group : groups) {
    for (std::size_t i = 0; i < group.size(); ++i) {
      Row<Value>& row = group[(i + round) % group.size()];
      row.values.push_back(row.measure());
    }
  }
}

template <std::size_t kBytes>
void add_length(const Places& places, Groups<double>& rows, Groups<Trips>& trips) {
  using Cached = Reference<kBytes>;
  constexpr bool kIsShort = kBytes <= 64;
  for (const std::size_t batch : {std::size_t{1}, std::size_t{16}}) {
    if (batch > 1 && !kIsShort) continue;
    std::vector<Row<double>>& group = rows.emplace_back();
    const auto add = [&](const char* name, auto measure) {
      group.push_back({.name = name, .bytes = kBytes, .batch = batch, .measure = measure});
    };
    add("headrace", [=] { return measure_throughput<kBytes, Ours<kBytes>>(places, batch); });
    add("cached_index", [=] { return measure_throughput<kBytes, Cached>(places, batch); });
    if (batch > 1) continue;
    if constexpr (kBytes >= 32768) {
      using Placed = Ours<kBytes, message::Placement::memory>;
      add("headrace_memory", [=] { return measure_throughput<kBytes, Placed>(places, batch); });
    }
    add("memcpy_own", [=] { return measure_memcpy_own<kBytes>(places); });
    add("memcpy_across", [=] { return measure_memcpy_across<kBytes>(places); });
  }
  std::vector<Row<Trips>>& group = trips.emplace_back();
  const auto add = [&](const char* name, auto measure) {
    group.push_back({.name = name, .bytes = kBytes, .measure = measure});
  };
  add("headrace", [=] { return measure_round_trip<kBytes, Ours<kBytes>>(places); });
  add("cached_index", [=] { return measure_round_trip<kBytes, Cached>(places); });
}

int run(std::size_t round_count) {
  const Places places = find_places();
  if (places.same_cpu) die("two processors are needed and this process may use one; allow another");
  pin(places.receiver);
  Groups<double> rows;
  Groups<Trips> trips;
  add_length<8>(places, rows, trips);
  add_length<64>(places, rows, trips);
  add_length<512>(places, rows, trips);
  add_length<4096>(places, rows, trips);
  add_length<32768>(places, rows, trips);
  add_length<262144>(places, rows, trips);
  add_length<1048576>(places, rows, trips);
  for (std::size_t round = 0; round < round_count; ++round) {
    measure_round(rows, round);
    measure_round(trips, round);
  }
  Json throughput = Json::array();
  for (const auto& row : rows | std::views::join) {
    throughput.push_back({{"name", row.name},
                          {"message_bytes", row.bytes},
                          {"batch", row.batch},
                          {"times_ns", list_of(row.values)}});
  }
  Json round_trips = Json::array();
  for (const auto& row : trips | std::views::join) {
    round_trips.push_back({{"name", row.name},
                           {"message_bytes", row.bytes},
                           {"p50_ns", list_of(row.values, &Trips::p50)},
                           {"p99_ns", list_of(row.values, &Trips::p99)},
                           {"p999_ns", list_of(row.values, &Trips::p999)}});
  }
  print({{"sender_cpu", places.sender},
         {"receiver_cpu", places.receiver},
         {"same_core", places.same_core},
         {"throughput", throughput},
         {"round_trips", round_trips}});
  return 0;
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  if (const auto settings = headrace::bench::curve_in(argc, argv))
    return print_own_curves(*settings);
  if (argc != 3) headrace::bench::die("usage: headrace-bench-message ROUNDS MILLISECONDS");
  headrace::bench::measured_time = std::chrono::milliseconds(std::atoi(argv[2]));
  return headrace::bench::run(headrace::bench::parse_number(argv[1]));
}
