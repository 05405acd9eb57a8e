// SPDX-License-Identifier: Apache-2.0
// Rings with several crashes in a row: processes are killed during calls, and power fails at any
// moment. The crash check (lab/ring_check.hpp) explores a single crash in more depth; this covers
// combinations of both kinds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/random.hpp"
#include "ring_crash_check.hpp"
#include "support/seed.hpp"

namespace headrace::pmem::detail {
namespace {

using Contents = std::vector<std::byte>;

struct Killed {};

/// Memory of a process that is killed at one of its calls; in a stream, after some words.
///
/// Threading: confined.
class MortalMemory {
 public:
  MortalMemory(Recorder& recorder, Random& random) : recorder_(recorder), random_(random) {}

  void dies_after(std::optional<std::uint64_t> calls) { left_ = calls; }

  void store(std::byte* target, std::span<const std::byte> source) {
    step();
    recorder_.store(target, source);
  }
  void store_word(std::uint64_t& target, std::uint64_t value) {
    step();
    recorder_.store_word(target, value);
  }
  void stream(std::byte* target, std::span<const std::byte> lines, Digest* digest = nullptr) {
    if (left_ == 0) recorder_.store(target, lines.first(random_.below(lines.size() / 8 + 1) * 8));
    step();
    recorder_.stream(target, lines, digest);
  }
  void flush(const void* begin, std::size_t byte_count) {
    step();
    recorder_.flush(begin, byte_count);
  }
  void flush_with(FlushInstruction instruction, const void* begin, std::size_t byte_count) {
    step();
    recorder_.flush_with(instruction, begin, byte_count);
  }
  void drain() {
    step();
    recorder_.drain();
  }
  void persist(const void* begin, std::size_t byte_count) {
    flush(begin, byte_count);
    drain();
  }
  void label(const char* text) { recorder_.label(text); }
  [[nodiscard]] Granularity granularity() const { return Granularity::line; }
  [[nodiscard]] Fault fault() const { return Fault::none; }

 private:
  void step() {
    if (!left_.has_value()) return;
    if (*left_ == 0) throw Killed{};
    --*left_;
  }

  Recorder& recorder_;
  Random& random_;
  std::optional<std::uint64_t> left_;
};

/// What the ring guarantees at a moment, in ordinals.
struct Promise {
  std::map<std::uint64_t, Contents> entries;  ///< Entries that may be present.
  std::uint64_t returned = 0;                 ///< Entries below must be present.
  std::uint64_t letting_go = 0;               ///< Entries below may be gone.
  std::uint64_t acknowledged = 0;             ///< Entries below must be gone.

  /// Entries from `end` on are absent and must not reappear.
  void end_at(std::uint64_t end) { entries.erase(entries.lower_bound(end), entries.end()); }
};

/// Random lives of one ring. A life is the time between two power failures.
///
/// Threading: confined.
template <typename Ends>
class Lives {
 public:
  Lives(Ends ends, std::uint64_t seed) : ends_(ends), random_(seed) {
    constexpr std::size_t kFileBytes = kDataOffset + 4096;
    Recorder pages{Contents(kFileBytes)};  // For the alignment.
    format_ring(pages.memory(), kFileBytes, seed);
    file_.assign(pages.memory().begin(), pages.memory().end());
  }

  /// What is wrong; empty if nothing is.
  std::string run() {
    std::string wrong;
    for (std::uint64_t left = 2 + random_.below(5); left > 0 && wrong.empty(); --left) {
      wrong = live();
    }
    return wrong;
  }

 private:
  using Producer = decltype(std::declval<Ends>().producer(std::declval<MortalMemory&>(),
                                                          std::declval<const RingMemory&>()));
  using Consumer = decltype(std::declval<Ends>().consumer(std::declval<MortalMemory&>(),
                                                          std::declval<const RingMemory&>()));

  static RingMemory ring_in(std::span<std::byte> file) {
    return open_ring(file, "open a ring").value();
  }

  std::string live() {
    Recorder recorder(file_);
    const RingMemory ring = ring_in(recorder.memory());
    std::vector<Promise> promises;
    const auto mark = [&] {
      promises.push_back(now_);
      recorder.mark(promises.size() - 1);
    };
    mark();
    MortalMemory memory(recorder, random_);
    std::optional<Producer> producer;
    std::optional<Consumer> consumer;
    const std::uint64_t of_producer = 3 + random_.below(3);  // Of eight steps; full or empty ring.
    for (std::uint64_t left = 1 + random_.below(24); left > 0; --left) {
      const bool produces = random_.below(8) < of_producer;
      std::optional<std::uint64_t> calls;
      if (random_.chance(1, 6)) calls = random_.below(9);
      memory.dies_after(calls);
      try {
        std::string wrong;
        if (produces && producer.has_value()) {
          enqueue(*producer, mark);
        } else if (produces) {
          producer.emplace(ends_.producer(memory, ring));
          wrong = found(producer->attach("attach"));
          now_.returned = std::max(now_.returned, producer->next_ordinal());
        } else if (consumer.has_value()) {
          wrong = consume(*consumer, mark);
        } else {
          consumer.emplace(ends_.consumer(memory, ring));
          const bool at_rest = !producer.has_value();
          const Result<Chain> chain = consumer->attach("attach", at_rest);
          if (at_rest || !chain.has_value()) wrong = found(chain);
        }
        if (!wrong.empty()) return wrong;
      } catch (const Killed&) {
        produces ? producer.reset() : consumer.reset();
      }
      mark();
      if (random_.chance(1, 9)) producer.reset();
      if (random_.chance(1, 9)) consumer.reset();
    }
    return fail_power(recorder, promises);
  }

  std::string found(const Result<Chain>& chain) {
    if (!chain.has_value()) return "the ring is refused: " + chain.error().cause;
    now_.end_at(chain->end.ordinal);
    return "";
  }

  template <typename Mark>
  void enqueue(Producer& producer, const Mark& mark) {
    std::vector<Contents> bytes;
    std::vector<std::span<const std::byte>> entries;
    for (std::uint64_t left = 1 + random_.below(3); left > 0; --left) {
      static constexpr std::array<std::size_t, 8> kLengths{8, 216, 472, 24, 217, 100, 0, 300};
      bytes.emplace_back(kLengths[random_.below(kLengths.size())]);
      // Half of them repeat words of others.
      const bool same = random_.chance(1, 2);
      for (std::byte& byte : bytes.back()) byte = static_cast<std::byte>(same ? 1 : random_());
    }
    for (const Contents& each : bytes) {
      now_.entries[now_.returned + entries.size()] = each;
      entries.emplace_back(each);
    }
    mark();
    if (producer.enqueue_all(entries) == Enqueue::done) {
      now_.returned += entries.size();
    } else {
      now_.end_at(now_.returned);
    }
  }

  template <typename Mark>
  std::string consume(Consumer& consumer, const Mark& mark) {
    Entry entry;
    const Next outcome = consumer.next(entry);
    if (outcome == Next::empty) return "";
    if (outcome != Next::entry) return "an entry is damaged";
    now_.returned = std::max(now_.returned, entry.ordinal + 1);
    mark();
    if (random_.chance(1, 4)) return "";
    now_.letting_go = std::max(now_.letting_go, entry.ordinal + 1);
    mark();
    consumer.acknowledge();
    if (ends_.keeps_acknowledgements()) now_.acknowledged = entry.ordinal + 1;
    return "";
  }

  /// Verifies possible states of the memory, and continues from one of them.
  std::string fail_power(const Recorder& recorder, const std::vector<Promise>& promises) {
    std::uint64_t count = 0;
    const Verify verify = [&](std::span<std::byte> state, std::uint64_t mark) {
      const Contents before(state.begin(), state.end());
      Promise after = promises[mark];
      std::string wrong = judge(state, after);
      if (wrong.empty() && random_.below(++count) == 0) {
        file_ = before;
        now_ = std::move(after);
      }
      return wrong;
    };
    const Exploration explored =
        explore(recorder, verify, {.states_per_moment_max = 48, .seed = random_()});
    return explored.first_bad.has_value() ? explored.first_bad->report() : "";
  }

  /// Recovers and compares; afterwards `promise` describes what was found.
  std::string judge(std::span<std::byte> file, Promise& promise) {
    Medium memory = lab::plain_memory();
    auto consumer = ends_.consumer(memory, ring_in(file));
    const Result<Chain> chain = consumer.attach("recover", true);
    if (!chain.has_value()) return "the ring is refused: " + chain.error().cause;
    const std::uint64_t first = chain->first.ordinal;
    if (first < promise.acknowledged || first > promise.letting_go) {
      return fmt::format("entry {} is the first, not one of {} to {}", first, promise.acknowledged,
                         promise.letting_go);
    }
    std::uint64_t end = first;
    Entry entry;
    Next outcome = consumer.next(entry);
    for (; outcome == Next::entry; outcome = consumer.next(entry), ++end) {
      const auto known = promise.entries.find(end);
      if (entry.ordinal != end || known == promise.entries.end() ||
          !std::ranges::equal(entry.bytes, known->second)) {
        return fmt::format("entry {} is torn, another's, or came back to life", end);
      }
    }
    if (outcome != Next::empty) return fmt::format("entry {} is damaged", end);
    if (end < promise.returned) {
      return fmt::format("entries {} to {} are lost", end, promise.returned - 1);
    }
    promise.end_at(end);
    promise.returned = end;
    promise.letting_go = promise.acknowledged = first;
    return "";
  }

  Ends ends_;
  Random random_;
  Contents file_;
  Promise now_;
};

template <typename Ends>
void live(Ends ends) {
  constexpr std::uint64_t kRings =
      40;  // Every run draws different ones; sanitizers take twenty times as long.
  for (std::uint64_t ring = 0; ring < kRings; ++ring) {
    ASSERT_EQ(Lives(ends, test::seed() + ring).run(), "") << "ring " << ring;
  }
}

TEST(RingLives, OptimisedWithEachAcknowledgementDurable) {
  live(lab::BlockEnds{.acknowledgement = Acknowledgement::each});
}

TEST(RingLives, OptimisedWithLazyAcknowledgements) {
  live(lab::BlockEnds{.acknowledgement = Acknowledgement::lazy});
}

TEST(RingLives, Naive) {
  live(lab::PositionEnds{.instruction = FlushInstruction::clflush});
}

TEST(RingLives, WithFences) {
  live(lab::PositionEnds{.instruction = FlushInstruction::clwb});
}

}  // namespace
}  // namespace headrace::pmem::detail
