// SPDX-License-Identifier: Apache-2.0
#include "order.hpp"

#include <new>

namespace headrace::cache::detail {
namespace {

/// lru: entries examined to find the one used longest ago.
constexpr std::uint32_t kLruSample = 8;
/// Valid promises examined before check_promises() ends.
constexpr std::uint32_t kPromisesLookedAt = 8;
/// s3_fifo: one entry in ten is in the small queue.
constexpr std::uint32_t kSmallShare = 10;
/// s3_fifo: ghosts beyond one per entry.
constexpr std::uint32_t kGhostMin = 16;
/// s3_fifo: hits that an entry on probation needs to stay. With one, entries that are read exactly
/// twice, such as prefetched and then read, displace entries that are read again and again.
constexpr std::uint32_t kAdmittedUseCount = 2;

std::uint64_t time_of(const EntryState& entry) {
  return std::uint64_t{entry.older} << 32U | entry.newer;
}

// relaxed: advice.
Marks marks_of(const EntryState& entry) {
  return Marks(entry.marks.load_relaxed());
}
void set_marks(EntryState& entry, Marks marks) {
  entry.marks.store_relaxed(marks.word());  // relaxed: advice.
}

}  // namespace

std::uint32_t Order::count() const {
  return queues_[kMain].count + queues_[kSmall].count + queues_[kSpent].count +
         static_cast<std::uint32_t>(promises_.size());
}

Marks Order::marks_for(Hint hint) const {
  const std::uint64_t now = now_.load_relaxed();  // relaxed: advice.
  switch (hint.kind()) {
    case Hint::Kind::unknown:
      break;
    case Hint::Kind::once:
      return Marks::spent();
    case Hint::Kind::many:
      // As if it had been hit in the future, or often.
      if (policy_ != Eviction::lru) return Marks::ordinary(kUseCountMax);
      // relaxed, and without the lock: any recent number of entries will do.
      return Marks::ordinary(static_cast<std::uint32_t>(now) + recent_count_.load_relaxed() +
                             kLruSample);
    case Hint::Kind::later:
      // Times further ahead could not be told from the past.
      return Marks::promised(now + distance(hint));
  }
  return Marks::ordinary(policy_ == Eviction::lru ? static_cast<std::uint32_t>(now) : 0);
}

void Order::push_oldest(std::uint8_t queue, std::uint32_t number) {
  Queue& place = queues_[queue];
  EntryState& entry = pool_[number];
  entry.queue = queue;
  entry.newer = place.oldest;
  (place.oldest != 0 ? pool_[place.oldest].older : place.newest) = number;
  place.oldest = number;
  ++place.count;
}

void Order::promise(std::uint32_t number, std::uint64_t time) {
  EntryState& entry = pool_[number];
  try {
    promises_.emplace(time, number);
  } catch (const std::bad_alloc&) {
    set_marks(entry, Marks::ordinary(0));
    return push(kMain, number);  // It becomes an ordinary entry.
  }
  entry.queue = kPromises;
  entry.older = static_cast<std::uint32_t>(time >> 32U);
  entry.newer = static_cast<std::uint32_t>(time);
}

void Order::remove(std::uint32_t number) {
  EntryState& entry = pool_[number];
  if (entry.queue == kPromises) {
    promises_.erase({time_of(entry), number});
  } else {
    Queue& place = queues_[entry.queue];
    const std::uint32_t older = place.oldest == number ? 0 : entry.older;
    (older != 0 ? pool_[older].newer : place.oldest) = entry.newer;
    (entry.newer != 0 ? pool_[entry.newer].older : place.newest) = older;
    --place.count;
  }
}

void Order::add_by_hint(std::uint32_t number, EntryState& entry, Hint hint) {
  if (policy_ == Eviction::lru) recent_count_.store_relaxed(count() + 1);  // relaxed: as add().
  set_marks(entry, marks_for(hint));
  entry.queue = kMain;
  if (hint.kind() == Hint::Kind::later) return put_back(number);
  push(hint.kind() == Hint::Kind::once ? kSpent : kMain, number, entry);
}

void Order::put_back(std::uint32_t number) {
  EntryState& entry = pool_[number];
  const Marks marks = marks_of(entry);
  switch (marks.kind()) {
    case Marks::Kind::promised:
      if (!is_overdue(marks)) return promise(number, time_near_now(marks));
      expire(entry);
      break;
    case Marks::Kind::spent:
      return push(kSpent, number);
    case Marks::Kind::ordinary:
      break;
  }
  push(entry.queue == kPromises ? kMain : entry.queue, number);
}

std::uint64_t Order::time_near_now(Marks marks) const {
  return marks.time_near(now_.load_relaxed());  // relaxed: under the lock.
}

bool Order::is_overdue(Marks marks) const {
  // Promises are approximate: allow the time in which all entries are replaced once on top.
  return time_near_now(marks) + count() < now_.load_relaxed();  // relaxed: under the lock.
}

void Order::expire(EntryState& entry) {
  // It was not read when promised: treat it as inserted then, and not hit since.
  const Marks marks = marks_of(entry);
  set_marks(entry, Marks::ordinary(policy_ == Eviction::lru ? marks.value() : 0));
  if (entry.queue == kPromises) entry.queue = policy_ == Eviction::s3_fifo ? kSmall : kMain;
}

void Order::gone(const EntryState& entry) {
  if (policy_ != Eviction::s3_fifo) return;
  if (entry.queue != kSmall || !marks_of(entry).is_ordinary()) return;
  ghosts_.add(entry.region().address, count() + kGhostMin);  // As many ghosts as entries.
}

EntryState* Order::take_oldest(std::uint8_t queue, std::uint32_t& number) {
  Queue& place = queues_[queue];
  number = place.oldest;
  EntryState& entry = pool_[number];
  place.oldest = entry.newer;
  if (entry.newer == 0) place.newest = 0;
  --place.count;
  const Marks marks = marks_of(entry);
  if (marks.kind() != Marks::Kind::promised) return &entry;
  if (is_overdue(marks)) {
    expire(entry);
    return &entry;
  }
  promise(number, time_near_now(marks));
  return nullptr;
}

void Order::check_promises() {
  // Promises changed by a hit are mostly among the next ones, because those were due.
  std::uint64_t time_min = 0;
  for (std::uint32_t holding_count = 0; holding_count < kPromisesLookedAt;) {
    const auto place = promises_.lower_bound({time_min, 0});
    if (place == promises_.end()) return;
    const auto [time, number] = *place;
    const Marks marks = marks_of(pool_[number]);
    const bool holds = marks.kind() == Marks::Kind::promised && time_near_now(marks) == time;
    if (holds && !is_overdue(marks)) {
      ++holding_count;
      time_min = time + 1;
      continue;
    }
    remove(number);
    put_back(number);
  }
}

inline Pool::Taken Order::propose_s3_fifo(Hint newcomer) {
  const Queue& small = queues_[kSmall];
  const std::uint32_t more = newcomer.kind() == Hint::Kind::unknown ? 1 : 0;
  const std::uint32_t total = small.count + queues_[kMain].count + more;
  while (small.oldest != 0 &&
         ((small.count + more) * kSmallShare > total || queues_[kMain].oldest == 0)) {
    std::uint32_t number = 0;
    EntryState* const entry = take_oldest(kSmall, number);
    if (entry == nullptr) continue;
    const Marks marks = marks_of(*entry);
    if (marks.word() < kAdmittedUseCount || !marks.is_ordinary()) return {number, entry};
    set_marks(*entry, Marks::ordinary(0));
    push(kMain, number, *entry);
  }
  const Pool::Taken taken = propose_clock(kMain);
  return taken.number != 0 ? taken : propose_clock(kSmall);
}

Pool::Taken Order::propose(Hint newcomer) {
  if (!promises_.empty()) [[unlikely]]
    check_promises();
  if (queues_[kSpent].oldest != 0) [[unlikely]] {
    if (const Pool::Taken spent = propose_spent(); spent.number != 0) return spent;
  }
  const Pool::Taken taken = policy_ == Eviction::lru ? propose_lru() : propose_s3_fifo(newcomer);
  return taken.number != 0 ? taken : propose_promised(newcomer);
}

Pool::Taken Order::propose_spent() {
  while (queues_[kSpent].oldest != 0) {
    std::uint32_t number = 0;
    EntryState* const entry = take_oldest(kSpent, number);
    if (entry == nullptr) continue;
    if (marks_of(*entry).kind() == Marks::Kind::spent) return {number, entry};
    push(kMain, number);  // It was hit again.
  }
  return {};
}

Pool::Taken Order::propose_clock(std::uint8_t queue) {
  // Readers may mark entries as fast as they are passed: after kUseCountMax rounds the oldest is
  // proposed anyway.
  for (std::uint64_t left = kUseCountMax * std::uint64_t{queues_[queue].count};
       queues_[queue].oldest != 0; --left) {
    std::uint32_t number = 0;
    EntryState* const entry = take_oldest(queue, number);
    if (entry == nullptr) {
      ++left;
      continue;
    }
    const Marks marks = marks_of(*entry);
    if (marks.word() == 0 || !marks.is_ordinary() || left == 0) return {number, entry};
    set_marks(*entry, Marks::ordinary(marks.word() - 1));
    push(queue, number, *entry);
  }
  return {};
}

Pool::Taken Order::propose_lru() {
  const std::uint64_t now = now_.load_relaxed();  // relaxed: under the lock.
  const Queue& main = queues_[kMain];
  std::array<std::uint32_t, kLruSample> sample{};
  std::size_t sample_count = 0;
  std::size_t found = 0;
  std::uint64_t time_min = 0;
  while (sample_count < sample.size() && main.oldest != 0) {
    std::uint32_t number = 0;
    const EntryState* const entry = take_oldest(kMain, number);
    if (entry == nullptr) continue;
    const Marks marks = marks_of(*entry);
    const bool is_spent = marks.kind() == Marks::Kind::spent;
    const std::uint64_t time = is_spent ? 0 : marks.time_near(now);
    if (sample_count == 0 || time < time_min) {
      found = sample_count;
      time_min = time;
    }
    sample[sample_count++] = number;
    if (is_spent) break;
  }
  if (sample_count == 0) return {};
  // Those before it were used later and go to the back of the queue. Those behind it keep their
  // place.
  for (std::size_t i = 0; i < found; ++i) push(kMain, sample[i]);
  for (std::size_t i = sample_count; i-- > found + 1;) push_oldest(kMain, sample[i]);
  return {sample[found], &pool_[sample[found]]};
}

Pool::Taken Order::propose_promised(Hint newcomer) {
  const bool is_promised_itself = newcomer.kind() == Hint::Kind::later;
  // relaxed: under the lock.
  const std::uint64_t time_of_newcomer = now_.load_relaxed() + 1 + distance(newcomer);
  while (!promises_.empty()) {
    const auto [time, number] = *promises_.rbegin();
    const Marks marks = marks_of(pool_[number]);
    const bool is_promised = marks.kind() == Marks::Kind::promised;
    const bool holds = is_promised && time_near_now(marks) == time;
    if (holds && is_promised_itself && time <= time_of_newcomer) return {};
    remove(number);
    if (holds || !is_promised || is_overdue(marks)) return {number, &pool_[number]};
    put_back(number);  // A hit has changed the promised time.
  }
  return {};
}

}  // namespace headrace::cache::detail
