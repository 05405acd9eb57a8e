// SPDX-License-Identifier: Apache-2.0
// Order: the eviction order of the entries of a shard, by a policy and the hints of accesses. It
// knows neither lengths nor the users of an entry: it proposes entries, and takes back those that
// the caller cannot evict.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <utility>

#include "entry.hpp"
#include "ghosts.hpp"
#include "headrace/cache/cache.hpp"
#include "pool.hpp"

namespace headrace::cache::detail {

/// What is known about the reads of an entry, in the word EntryState::marks. Readers write it
/// without a lock, so it is advisory: the queues are updated when an entry is examined.
///
/// | kind     | value                            | set by                                      |
/// | -------- | -------------------------------- | ------------------------------------------- |
/// | ordinary | uses (s3_fifo), time of the last | insertions and hits without a hint, or      |
/// |          | use (lru)                        | Hint::many()                                |
/// | promised | time of the next read            | Hint::after()                               |
/// | spent    | 0                                | Hint::once()                                |
///
/// Times are counts of insertions, modulo 2^30.
///
/// Threading: immutable.
class Marks {
 public:
  enum class Kind : std::uint32_t { ordinary, promised, spent };

  constexpr explicit Marks(std::uint32_t word) : word_(word) {}
  [[nodiscard]] static constexpr Marks ordinary(std::uint32_t value) {
    return Marks(value & kValueMask);
  }
  [[nodiscard]] static constexpr Marks promised(std::uint64_t time) {
    return Marks(kPromised | (static_cast<std::uint32_t>(time) & kValueMask));
  }
  [[nodiscard]] static constexpr Marks spent() { return Marks(kSpent); }

  [[nodiscard]] constexpr std::uint32_t word() const { return word_; }
  [[nodiscard]] constexpr Kind kind() const { return static_cast<Kind>(word_ >> kValueBits); }
  [[nodiscard]] constexpr bool is_ordinary() const { return word_ <= kValueMask; }
  [[nodiscard]] constexpr std::uint32_t value() const { return word_ & kValueMask; }
  /// The full time, which is within 2^29 of `now`.
  [[nodiscard]] constexpr std::uint64_t time_near(std::uint64_t now) const {
    const std::uint32_t ahead = (value() - static_cast<std::uint32_t>(now)) << (32 - kValueBits);
    return now + static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(ahead)} >>
                                            (32 - kValueBits));
  }

 private:
  static constexpr std::uint32_t kValueBits = 30;
  static constexpr std::uint32_t kValueMask = (1U << kValueBits) - 1;
  static constexpr std::uint32_t kPromised = 1U << kValueBits;
  static constexpr std::uint32_t kSpent = 2U << kValueBits;

  std::uint32_t word_;
};

/// Every entry is in one of the queues or in promises_, or in none because it has been proposed.
///
/// Threading: confined: under the shard's mutex, except touch().
class Order {
 public:
  /// Of `share` insertions on the node about one comes here.
  Order(Eviction policy, Pool& pool, std::uint32_t share = 1)
      : policy_(policy), share_(share), pool_(pool) {}

  /// Records a hit. Writes only if the marks change.
  ///
  /// Threading: shared.
  void touch(EntryState& entry, Hint hint) const {
    const Marks marks(entry.marks.load_relaxed());  // relaxed throughout: advisory, may be lost.
    if (hint.kind() != Hint::Kind::unknown) [[unlikely]] {
      const Marks said = marks_for(hint);
      if (said.word() != marks.word()) entry.marks.store_relaxed(said.word());
      return;
    }
    if (policy_ == Eviction::s3_fifo) {
      if (marks.word() < kUseCountMax) {
        entry.marks.store_relaxed(marks.word() + 1);
      } else if (!marks.is_ordinary()) [[unlikely]] {
        entry.marks.store_relaxed(1);
      }
    } else {
      const Marks now = Marks::ordinary(static_cast<std::uint32_t>(now_.load_relaxed()));
      if (marks.word() != now.word()) entry.marks.store_relaxed(now.word());
    }
  }
  void add(std::uint32_t number, EntryState& entry, Hint hint) {
    // relaxed: only additions write it, under the lock.
    now_.store_relaxed(now_.load_relaxed() + 1);
    if (policy_ != Eviction::s3_fifo || hint.kind() != Hint::Kind::unknown) [[unlikely]] {
      return add_by_hint(number, entry, hint);
    }
    entry.marks.store_relaxed(0);  // relaxed: advice.
    push(ghosts_.take(entry.region().address) ? kMain : kSmall, number, entry);
  }
  void remove(std::uint32_t number);
  /// Removes and returns the next entry to evict, or 0. `newcomer` is the hint of the entry that
  /// needs the room and is not in the order yet: if it is promised, entries promised for an earlier
  /// time stay.
  [[nodiscard]] Pool::Taken propose(Hint newcomer);
  void put_back(std::uint32_t number);  ///< Puts back an entry that was proposed and stays.
  void gone(const EntryState& entry);   ///< Reports that an entry that was proposed is gone.
  /// Calls `visit(number)` for every entry; `visit` may remove it.
  template <typename Visit>
  void for_each(Visit visit) {
    for (const Queue& queue : queues_) {
      for (std::uint32_t at = queue.oldest; at != 0;) {
        const std::uint32_t newer = pool_[at].newer;
        visit(at);
        at = newer;
      }
    }
    for (auto place = promises_.begin(); place != promises_.end();) {
      const std::uint32_t number = place->second;
      ++place;
      visit(number);
    }
  }

 private:
  /// `older` of the oldest is arbitrary.
  struct Queue {
    std::uint32_t oldest = 0;
    std::uint32_t newest = 0;
    std::uint32_t count = 0;
  };
  static constexpr std::uint32_t kUseCountMax = 3;  ///< Use counts saturate here.
  /// Reads promised for later than this could not be told from overdue ones.
  static constexpr std::uint32_t kPromiseMax = 1U << 28U;
  static constexpr std::uint8_t kMain = 0;  ///< Location of an entry: a queue, or promises_.
  static constexpr std::uint8_t kSmall = 1;
  static constexpr std::uint8_t kSpent = 2;
  static constexpr std::uint8_t kPromises = 3;

  void add_by_hint(std::uint32_t number, EntryState& entry, Hint hint);
  [[nodiscard]] Marks marks_for(Hint hint) const;
  [[nodiscard]] std::uint32_t count() const;
  void push(std::uint8_t queue, std::uint32_t number) { push(queue, number, pool_[number]); }
  void push(std::uint8_t queue, std::uint32_t number, EntryState& entry) {
    Queue& place = queues_[queue];
    entry.queue = queue;
    entry.older = place.newest;
    entry.newer = 0;
    (place.newest != 0 ? pool_[place.newest].newer : place.oldest) = number;
    place.newest = number;
    ++place.count;
  }
  void push_oldest(std::uint8_t queue, std::uint32_t number);
  void promise(std::uint32_t number, std::uint64_t time);
  /// Removes and returns the oldest entry of `queue`, which must not be empty; null if it is
  /// promised for later and was moved to promises_.
  [[nodiscard]] EntryState* take_oldest(std::uint8_t queue, std::uint32_t& number);
  [[nodiscard]] std::uint64_t time_near_now(Marks marks) const;
  [[nodiscard]] bool is_overdue(Marks marks) const;
  void expire(EntryState& entry);
  /// Moves entries whose promise is overdue, or was changed by a hit, to where they belong.
  void check_promises();
  [[nodiscard]] Pool::Taken propose_clock(std::uint8_t queue);
  [[nodiscard]] Pool::Taken propose_lru();
  [[gnu::always_inline, nodiscard]] inline Pool::Taken propose_s3_fifo(Hint newcomer);
  [[nodiscard]] Pool::Taken propose_spent();
  [[nodiscard]] Pool::Taken propose_promised(Hint newcomer);

  /// The distance of a read that `hint` announces, in insertions here.
  [[nodiscard]] std::uint32_t distance(Hint hint) const {
    return std::min(hint.region_count(), kPromiseMax) / share_;
  }

  const Eviction policy_;
  const std::uint32_t share_;
  Pool& pool_;
  /// From here on only for insertions and evictions, in lines that hits of s3_fifo without a hint
  /// do not read.
  alignas(64) std::array<Queue, 3> queues_{};
  /// Number of additions: the clock of lru and of promises.
  Atomic<std::uint64_t> now_{0};
  /// By the time of the next read, which an entry holds in `older` and `newer` while it is here.
  std::set<std::pair<std::uint64_t, std::uint32_t>> promises_;
  /// A recent count of entries, for readers.
  Atomic<std::uint32_t> recent_count_{0};
  /// Regions evicted from the small queue of s3_fifo: if inserted again, they go to the main queue.
  Ghosts ghosts_;
};

}  // namespace headrace::cache::detail
