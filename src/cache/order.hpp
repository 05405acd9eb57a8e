// SPDX-License-Identifier: Apache-2.0
// Order: in which order the entries of a shard are given up, by a named policy and by what the
// accesses have said of reads to come. It knows neither lengths nor the users of an entry: it
// proposes, and takes back what its caller cannot do without.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <utility>

#include "entry.hpp"
#include "ghosts.hpp"
#include "headrace/cache/cache.hpp"
#include "pool.hpp"

namespace headrace::cache::detail {

/// What is known of the reads of an entry, in the word EntryState::marks. Readers write it without
/// a lock, so it is advice: the queues follow when an entry is looked at.
///
/// | kind     | value                            | set by                                      |
/// | -------- | -------------------------------- | ------------------------------------------- |
/// | ordinary | uses (s3_fifo), time of the last | insertions and hits that say nothing, or    |
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
  /// The time that is meant, within 2^29 of `now`.
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

/// Every entry is in one of the queues or in promises_, or out of all because it has been proposed.
///
/// Threading: confined: under the shard's mutex, but for touch().
class Order {
 public:
  Order(Eviction policy, Pool& pool) : policy_(policy), pool_(pool) {}

  /// Notes a hit. Writes only if that tells something new.
  ///
  /// Threading: shared.
  void touch(EntryState& entry, Hint hint) const {
    // relaxed throughout: advice, which may be lost.
    const Marks marks(entry.marks.load_relaxed());
    if (hint.kind() != Hint::Kind::unknown) [[unlikely]] {
      const Marks said = marks_for(hint);
      if (said.word() != marks.word()) entry.marks.store_relaxed(said.word());
      return;
    }
    switch (policy_) {
      case Eviction::s3_fifo:
        if (!marks.is_ordinary()) {
          entry.marks.store_relaxed(1);
        } else if (marks.word() < kUseCountMax) {
          entry.marks.store_relaxed(marks.word() + 1);
        }
        return;
      case Eviction::lru: {
        const Marks now = Marks::ordinary(static_cast<std::uint32_t>(now_.load_relaxed()));
        if (marks.word() != now.word()) entry.marks.store_relaxed(now.word());
        return;
      }
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
  /// Takes out the entry to be given up next, or 0. `newcomer` is the hint of what room is made
  /// for, which is not in the order yet: nothing goes that is promised for an earlier time than it
  /// is.
  [[nodiscard]] std::uint32_t propose(Hint newcomer);
  /// Puts an entry back that was proposed and stays.
  void put_back(std::uint32_t number);
  /// Tells that an entry that was proposed is gone.
  void gone(std::uint32_t number);
  /// Calls `visit(number)` for every entry; it may remove what it visits.
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
  struct Queue {
    std::uint32_t oldest = 0;
    std::uint32_t newest = 0;
    std::uint32_t count = 0;
  };
  /// A count of uses ends here.
  static constexpr std::uint32_t kUseCountMax = 3;
  /// Reads that are promised for later than this cannot be told from missed ones.
  static constexpr std::uint32_t kPromiseMax = 1U << 28U;
  /// Where an entry is: numbers of queues, and promises_.
  static constexpr std::uint8_t kMain = 0;
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
  /// Takes the oldest of `queue` out, which has one. True if it is to be judged by the policy: else
  /// it is promised for later, and has gone there.
  [[nodiscard]] bool take_oldest(std::uint8_t queue, std::uint32_t& number);
  [[nodiscard]] std::uint64_t time_near_now(Marks marks) const;
  [[nodiscard]] bool is_overdue(Marks marks) const;
  void expire(EntryState& entry);
  /// Sends promises that are overdue, or of which a hit has said something since, where they
  /// belong.
  void settle_promises();
  [[nodiscard]] std::uint32_t propose_clock(std::uint8_t queue);
  [[nodiscard]] std::uint32_t propose_lru();
  [[nodiscard]] std::uint32_t propose_s3_fifo(Hint newcomer);
  [[nodiscard]] std::uint32_t propose_spent();
  [[nodiscard]] std::uint32_t propose_promised(Hint newcomer);

  const Eviction policy_;
  Pool& pool_;
  /// From here on what only insertions and evictions need, in lines that hits do not read.
  alignas(64) std::array<Queue, 3> queues_{};
  /// By the time of their next read. An entry's `older` and `newer` hold that time while it is
  /// here.
  std::set<std::pair<std::uint64_t, std::uint32_t>> promises_;
  /// Counts additions: the time of lru and of promises.
  Atomic<std::uint64_t> now_{0};
  /// The count of entries, a while ago: for readers.
  Atomic<std::uint32_t> recent_count_{0};
  /// Regions that left the small queue of s3_fifo unused: a second look at them counts.
  Ghosts ghosts_;
};

}  // namespace headrace::cache::detail
