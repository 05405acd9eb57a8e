// SPDX-License-Identifier: Apache-2.0
// The cursors of a message queue in a model checker: the code of
// include/headrace/message/cursor.hpp, in the interleavings that Search selects, with every value
// that a load may see. Units, plain memory in the queue, are rl::var here, whose data races are
// reported. Not for: lengths and framing (tests/unit/message).
#include <gtest/gtest.h>

#include "explore.hpp"
#include "headrace/message/cursor.hpp"
#include "headrace/platform/barrier.hpp"

namespace headrace::message::detail {
namespace {

using test::explore;
using test::Search;

constexpr std::uint64_t kCapacity = 2;

/// A lane. A unit holds the number of its message, from 1.
struct Lane {
  [[nodiscard]] bool send(ProducerCursor& cursor, unsigned number) {
    const Look look = cursor.room_for(1);
    RL_ASSERT(look != Look::damaged);
    if (look != Look::ready) return false;
    units[cursor.position() % kCapacity]($) = number;
    cursor.stage(1);
    return true;
  }
  /// Returns 0 if there is no message.
  [[nodiscard]] unsigned peek(ConsumerCursor& cursor) {
    const Look look = cursor.look();
    RL_ASSERT(look != Look::damaged);
    if (look != Look::ready) return 0;
    const unsigned number = units[cursor.position() % kCapacity]($);
    cursor.advance(1);
    return number;
  }

  LaneWords words;
  rl::var<unsigned> units[kCapacity];
  Atomic<std::uint32_t> sleeps;
};

/// More messages than units: every unit is reused.
struct ARingGoesRound : rl::test_suite<ARingGoesRound, 2>, Lane {
  void thread(unsigned index) {
    if (index == 0) {
      ProducerCursor cursor(words, kCapacity, 0, 0);
      for (unsigned number = 1; number <= 4; ++number) {
        while (!send(cursor, number)) rl::yield(1, $);
        cursor.publish();
      }
    } else {
      ConsumerCursor cursor(words, kCapacity, 0);
      for (unsigned expected = 1; expected <= 4;) {
        const unsigned number = peek(cursor);
        if (number == 0) {
          rl::yield(1, $);
          continue;
        }
        RL_ASSERT(number == expected);
        ++expected;
        cursor.retire();
      }
    }
  }
};

/// Two messages are published together and released together.
struct ABatch : rl::test_suite<ABatch, 2>, Lane {
  void thread(unsigned index) {
    if (index == 0) {
      ProducerCursor cursor(words, kCapacity, 0, 0);
      for (unsigned number = 1; number <= 4; ++number) {
        while (!send(cursor, number)) rl::yield(1, $);
        if (number % 2 == 0) cursor.publish();
      }
    } else {
      ConsumerCursor cursor(words, kCapacity, 0);
      for (unsigned expected = 1; expected <= 4;) {
        const unsigned number = peek(cursor);
        if (number == 0) {
          rl::yield(1, $);
          continue;
        }
        RL_ASSERT(number == expected && number % 2 == 1);
        RL_ASSERT(peek(cursor) == number + 1);
        expected += 2;
        cursor.retire();
      }
    }
  }
};

/// The producer is killed after any of its steps: its published messages remain, and the next
/// producer continues behind them.
struct AProducerIsKilled : rl::test_suite<AProducerIsKilled, 2>, Lane {
  void thread(unsigned index) {
    if (index == 0) {
      {
        ProducerCursor cursor(words, kCapacity, 0, 0);
        RL_ASSERT(send(cursor, 1));
        cursor.publish();
        RL_ASSERT(send(cursor, 9));  // Killed before it is published.
      }
      ProducerCursor next(words, kCapacity, words.cons_head.load_acquire(),
                          words.prod_tail.load_acquire());
      while (!send(next, 2)) rl::yield(1, $);
      next.publish();
    } else {
      ConsumerCursor cursor(words, kCapacity, 0);
      for (unsigned expected = 1; expected <= 2;) {
        const unsigned number = peek(cursor);
        if (number == 0) {
          rl::yield(1, $);
          continue;
        }
        RL_ASSERT(number == expected);
        ++expected;
        cursor.retire();
      }
    }
  }
};

/// The consumer is killed between a message and its release: the message is delivered again, once.
struct AConsumerIsKilled : rl::test_suite<AConsumerIsKilled, 2>, Lane {
  void thread(unsigned index) {
    if (index == 0) {
      ProducerCursor cursor(words, kCapacity, 0, 0);
      for (unsigned number = 1; number <= 3; ++number) {
        while (!send(cursor, number)) rl::yield(1, $);
        cursor.publish();
      }
    } else {
      {
        ConsumerCursor cursor(words, kCapacity, 0);
        unsigned number = 0;
        while ((number = peek(cursor)) == 0) rl::yield(1, $);
        RL_ASSERT(number == 1);
        cursor.retire();
        while ((number = peek(cursor)) == 0) rl::yield(1, $);
        RL_ASSERT(number == 2);  // Killed before it is retired.
      }
      ConsumerCursor next(words, kCapacity, words.cons_head.load_acquire());
      for (unsigned expected = 2; expected <= 3;) {
        const unsigned number = peek(next);
        if (number == 0) {
          rl::yield(1, $);
          continue;
        }
        RL_ASSERT(number == expected);
        ++expected;
        next.retire();
      }
    }
  }
};

/// A message is sent while the consumer goes to sleep: the consumer sees it or is woken.
struct ASleeperAndAMessage : rl::test_suite<ASleeperAndAMessage, 2>, Lane {
  void thread(unsigned index) {
    if (index == 0) {
      ProducerCursor cursor(words, kCapacity, 0, 0);
      RL_ASSERT(send(cursor, 1));
      cursor.publish();
      woken = must_wake(sleeps);
    } else {
      ConsumerCursor cursor(words, kCapacity, 0);
      if (peek(cursor) != 0) return;
      mark_asleep(sleeps);
      platform::shared_heavy_barrier();
      slept = peek(cursor) == 0;
    }
  }
  void after() { RL_ASSERT(!slept || woken); }
  bool slept = false;
  bool woken = false;
};

TEST(CursorModel, ARingGoesRound) {
  explore<ARingGoesRound>("a ring of two units, four messages", Search::bounded);
}
TEST(CursorModel, ABatch) {
  explore<ABatch>("batches of two", Search::bounded);
}
TEST(CursorModel, AProducerIsKilled) {
  explore<AProducerIsKilled>("a producer is killed, another follows", Search::bounded);
}
TEST(CursorModel, AConsumerIsKilled) {
  explore<AConsumerIsKilled>("a consumer is killed, another follows", Search::bounded);
}
TEST(CursorModel, ASleeperAndAMessage) {
  explore<ASleeperAndAMessage>("a sleeper and a message", Search::full);
}

}  // namespace
}  // namespace headrace::message::detail
