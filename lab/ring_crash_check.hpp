// SPDX-License-Identifier: Apache-2.0
// Checks one ring under the recorder, independent of its rules: runs a script, and verifies what
// recovery finds. ring_check.cpp has the list of rings.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "block_ring.hpp"
#include "headrace/base/check.hpp"
#include "headrace/lab/ring_check.hpp"
#include "headrace/pmem/medium.hpp"
#include "position_ring.hpp"

namespace headrace::pmem::lab {

/// Memory in which every store is durable at once, for steps outside the recording, such as
/// recovery.
[[nodiscard]] inline Medium plain_memory() {
  return Medium({.granularity = Granularity::byte});
}

/// Producer and consumer of a ring with given rules.
struct BlockEnds {
  Acknowledgement acknowledgement = Acknowledgement::each;
  SomeRules<BlockRules> rules = {};

  [[nodiscard]] bool keeps_acknowledgements() const {
    return acknowledgement == Acknowledgement::each;
  }
  [[nodiscard]] auto producer(auto& memory, const RingMemory& ring) const {
    return BlockProducer(memory, ring, rules);
  }
  [[nodiscard]] auto consumer(auto& memory, const RingMemory& ring) const {
    return BlockConsumer(memory, ring, acknowledgement, rules);
  }
};

struct PositionEnds {
  FlushInstruction instruction = FlushInstruction::clflush;
  SomeRules<PositionRules> rules = {};

  [[nodiscard]] bool keeps_acknowledgements() const { return true; }
  [[nodiscard]] auto producer(auto& memory, const RingMemory& ring) const {
    return PositionProducer(memory, ring, instruction, rules);
  }
  [[nodiscard]] auto consumer(auto& memory, const RingMemory& ring) const {
    return PositionConsumer(memory, ring, instruction, rules);
  }
};

/// What the ring guarantees at a moment, in ordinals.
struct Promise {
  std::uint64_t begun = 0;         ///< Entries below may be present.
  std::uint64_t returned = 0;      ///< Entries below must be present.
  std::uint64_t seen = 0;          ///< Entries below were lent: they must be present, too.
  std::uint64_t letting_go = 0;    ///< Entries below may be gone.
  std::uint64_t acknowledged = 0;  ///< Entries below must be gone, if acknowledgements are durable.
  std::uint64_t second_life = UINT64_MAX;  ///< Entries from here on belong to the second life.
};

/// Bytes of entry `ordinal`; a life is the time between two crashes.
[[nodiscard]] inline std::vector<std::byte> entry_of(std::uint64_t ordinal, unsigned life) {
  // From one word to the largest that fits, and lengths on both sides of a line and a block.
  static constexpr std::array<std::size_t, 6> kLengths{8, 216, 472, 24, 217, 100};
  std::vector<std::byte> bytes(kLengths[ordinal % kLengths.size()]);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(ordinal * 31 + i * 7 + life * 101 + 1);
  }
  return bytes;
}

template <typename Producer>
Enqueue enqueue_one(Producer& producer, std::uint64_t ordinal, unsigned life) {
  const std::vector<std::byte> bytes = entry_of(ordinal, life);
  const std::span<const std::byte> entry(bytes);
  return producer.enqueue_all({&entry, 1});
}

/// Checks one ring.
///
/// Threading: confined.
template <typename Ends>
class RingCheck {
 public:
  RingCheck(Ends ends, const CheckOptions& options) : ends_(ends), options_(options) {}

  CheckReport run() {
    const Script prompt = record(Pace::prompt, std::nullopt);
    const Script slow = record(Pace::slow, std::nullopt);
    report_.waste = find_waste(*prompt.recorder);
    // Most states go to the scripts without interleaving.
    examine(prompt, options_.states_per_moment_max);
    if (!over()) examine(slow, options_.states_per_moment_max);
    if (!over()) tear_twice();
    const std::size_t prompt_count = prompt.recorder->events().size();
    const std::size_t event_count = prompt_count + slow.recorder->events().size();
    const std::uint64_t share = std::max<std::uint64_t>(options_.states_per_moment_max / 32, 16);
    for (std::size_t at = 0; at < event_count && !over(); ++at) {
      if (options_.progress &&
          !options_.progress(static_cast<double>(at + 1) / static_cast<double>(event_count))) {
        break;
      }
      examine(at < prompt_count ? record(Pace::prompt, at) : record(Pace::slow, at - prompt_count),
              share);
    }
    return std::move(report_);
  }

 private:
  static constexpr std::size_t kCapacity = 4096;
  static constexpr std::size_t kFileBytes = kDataOffset + kCapacity;
  static constexpr std::uint64_t kWarmUpCount = 29;
  /// Entries that a slow consumer leaves in the ring: as many as fit.
  static constexpr std::uint64_t kLeftCount = 10;
  static constexpr std::uint64_t kSecondCrashOneIn = 512;
  static constexpr std::uint64_t kSecondCrashStates = 48;
  /// Enough to try all states of every single line.
  static constexpr std::uint64_t kSecondTearStates = 8192;

  /// prompt: the ring stays nearly empty. slow: it stays nearly full.
  enum class Pace : std::uint8_t { prompt, slow };
  static std::uint64_t left_count(Pace pace) { return pace == Pace::slow ? kLeftCount : 0; }

  struct Script {
    std::unique_ptr<Recorder> recorder;
    std::vector<Promise> promises;
  };

  [[nodiscard]] bool over() const { return options_.stop_at_first && report_.states_bad != 0; }

  static RingMemory ring_in(std::span<std::byte> file) {
    return open_ring(file, "check a ring").value();
  }

  /// A used ring: entries of an old lap could be mistaken for new ones.
  std::vector<std::byte> warmed_up(Pace pace) {
    Recorder pages{std::vector<std::byte>(kFileBytes)};  // For the alignment.
    const std::span<std::byte> file = pages.memory();
    format_ring(file, file.size(), 0x5eed);
    Medium memory = plain_memory();
    const RingMemory ring = ring_in(file);
    auto producer = ends_.producer(memory, ring);
    auto consumer = ends_.consumer(memory, ring);
    HEADRACE_CHECK(producer.attach("warm up").has_value(), "a new ring can be attached");
    HEADRACE_CHECK(consumer.attach("warm up", true).has_value(), "a new ring can be attached");
    for (std::uint64_t i = 0; i < kWarmUpCount; ++i) {
      static_cast<void>(enqueue_one(producer, i, 0));
      if (i >= kWarmUpCount - left_count(pace)) continue;
      Entry lent;
      static_cast<void>(consumer.next(lent));
      consumer.acknowledge();
    }
    consumer.flush();
    return {file.begin(), file.end()};
  }

  /// Records the script; with `other_at`, the consumer also takes a step after that event.
  Script record(Pace pace, std::optional<std::size_t> other_at) {
    ++report_.runs;
    Script script;
    script.recorder = std::make_unique<Recorder>(warmed_up(pace));
    Recorder& recorder = *script.recorder;
    const RingMemory ring = ring_in(recorder.memory());
    Promise now{.begun = kWarmUpCount,
                .returned = kWarmUpCount,
                .seen = kWarmUpCount - left_count(pace),
                .letting_go = kWarmUpCount - left_count(pace),
                .acknowledged = kWarmUpCount - left_count(pace)};
    const auto mark = [&] {
      script.promises.push_back(now);
      recorder.mark(script.promises.size() - 1);
    };
    mark();
    auto consumer = ends_.consumer(recorder, ring);
    recorder.phase("attach consumer");
    HEADRACE_CHECK(consumer.attach("check", true).has_value(), "the ring can be attached");
    std::optional<decltype(ends_.producer(recorder, ring))> producer;
    const auto attach_producer = [&] {
      recorder.phase("attach producer");
      producer.emplace(ends_.producer(recorder, ring));
      HEADRACE_CHECK(producer->attach("check").has_value(), "the ring can be attached");
    };
    attach_producer();

    const auto step = [&](bool acknowledges) {
      Entry entry;
      recorder.phase(fmt::format("next after {}", now.seen));
      if (consumer.next(entry) != Next::entry) return;
      now.seen = entry.ordinal + 1;
      mark();
      if (!acknowledges) return;
      recorder.phase(fmt::format("acknowledge {}", entry.ordinal));
      now.letting_go = now.seen;
      mark();
      consumer.acknowledge();
      if (ends_.keeps_acknowledgements()) now.acknowledged = now.letting_go;
      mark();
    };
    if (other_at.has_value()) {
      recorder.interleave([&, at = *other_at](std::size_t event) {
        if (event == at) step(true);
      });
    }
    const auto enqueue = [&](std::size_t count) {
      std::vector<std::vector<std::byte>> bytes;
      std::vector<std::span<const std::byte>> entries;
      for (std::size_t i = 0; i < count; ++i) bytes.push_back(entry_of(now.begun + i, 1));
      for (const std::vector<std::byte>& each : bytes) entries.emplace_back(each);
      recorder.phase(fmt::format("enqueue {}", now.begun));
      const std::uint64_t begun = now.begun;
      now.begun += count;
      mark();
      const bool done = producer->enqueue_all(entries) == Enqueue::done;
      if (done) {
        now.returned = now.begun;
      } else {
        now.begun = begun;
      }
      mark();
      return done;
    };
    bool was_killed = false;
    for (std::size_t done = 0; done < options_.entry_count;) {
      // With a prompt consumer, every third enqueue has up to three entries. A slow consumer takes
      // an entry only when the ring is full.
      const std::size_t count = pace == Pace::prompt && done % 3 == 1
                                    ? std::min(options_.entry_count - done, std::size_t{3})
                                    : std::size_t{1};
      for (std::size_t tries = 0; !enqueue(count) && tries < kLeftCount; ++tries) {
        step(true);
        // Once, the producer is replaced, as after its process was killed: the new one knows only
        // the ring's content.
        if (!std::exchange(was_killed, true)) attach_producer();
      }
      done += count;
      if (pace == Pace::prompt) step(done % 2 == 0);
    }
    while (now.seen < now.returned) {
      const std::uint64_t before = now.seen;
      step(true);
      if (now.seen == before) break;
    }
    recorder.interleave({});
    return script;
  }

  void examine(const Script& script, std::uint64_t states_max) {
    const Verify verify = [&](std::span<std::byte> file, std::uint64_t mark) {
      return judge(file, script.promises[mark]);
    };
    add(explore(*script.recorder, verify,
                {.states_per_moment_max = states_max,
                 .seed = options_.seed + report_.runs,
                 .stop_at_first = options_.stop_at_first}));
  }

  void add(const Exploration& exploration) {
    report_.states_tried += exploration.states_tried;
    report_.states_bad += exploration.states_bad;
    report_.moments += exploration.moments;
    report_.moments_exhaustive += exploration.moments_exhaustive;
    if (report_.first_bad.empty() && exploration.first_bad.has_value()) {
      report_.first_bad = exploration.first_bad->report();
    }
  }

  /// What is wrong with the ring after a crash; empty if nothing is.
  std::string judge(std::span<std::byte> file, const Promise& promise) {
    Promise after = promise;
    std::string wrong = walk(file, after);
    if (!wrong.empty()) return wrong;
    // Continue: nothing behind the end may come back to life.
    const std::vector<std::byte> before(file.begin(), file.end());
    Medium memory = plain_memory();
    const RingMemory ring = ring_in(file);
    auto producer = ends_.producer(memory, ring);
    if (!producer.attach("go on").has_value()) return "the producer cannot attach again";
    if (enqueue_one(producer, after.begun, 2) == Enqueue::done) {
      Promise gone_on = after;
      gone_on.begun = gone_on.returned = after.begun + 1;
      wrong = walk(file, gone_on);
      if (!wrong.empty()) return "after one more entry: " + wrong;
    }
    if (++judged_count_ % kSecondCrashOneIn != 0) return "";
    return crash_again(before, after, kSecondCrashStates);
  }

  /// An entry is complete except for one word of its first line, and power fails again while the
  /// next entry is written in its place: the second must not complete the first.
  void tear_twice() {
    Recorder pages(warmed_up(Pace::prompt));  // For the alignment.
    const std::span<std::byte> file = pages.memory();
    Medium memory = plain_memory();
    auto producer = ends_.producer(memory, ring_in(file));
    HEADRACE_CHECK(producer.attach("tear").has_value(), "the ring can be attached");
    const auto enqueue = [&](std::uint64_t ordinal) {
      static_cast<void>(enqueue_one(producer, ordinal, 1));
      return std::vector<std::byte>(file.begin(), file.end());
    };
    const std::vector<std::byte> before = enqueue(kWarmUpCount);
    const std::vector<std::byte> after = enqueue(kWarmUpCount + 1);
    std::size_t line = kDataOffset;
    while (std::ranges::equal(std::span(before).subspan(line, kLineBytes),
                              std::span(after).subspan(line, kLineBytes))) {
      line += kLineBytes;
    }
    for (std::size_t at = line; at < line + kLineBytes && !over(); at += sizeof(std::uint64_t)) {
      const auto word = std::span(before).subspan(at, sizeof(std::uint64_t));
      if (std::ranges::equal(word, std::span(after).subspan(at, word.size()))) continue;
      std::ranges::copy(std::span(before).first(kDataOffset), file.begin());
      std::ranges::copy(std::span(after).subspan(kDataOffset), file.subspan(kDataOffset).begin());
      std::ranges::copy(word, file.subspan(at).begin());
      Promise promise{.begun = kWarmUpCount + 2,
                      .returned = kWarmUpCount + 1,
                      .seen = kWarmUpCount,
                      .letting_go = kWarmUpCount,
                      .acknowledged = kWarmUpCount};
      ++report_.states_tried;
      std::string wrong = walk(file, promise);
      if (wrong.empty()) wrong = crash_again(file, promise, kSecondTearStates);
      if (wrong.empty()) continue;
      ++report_.states_bad;
      if (report_.first_bad.empty()) report_.first_bad = std::move(wrong);
    }
  }

  /// Continues from `file` under a new recorder, with a crash at any moment.
  std::string crash_again(std::span<const std::byte> file, const Promise& promise,
                          std::uint64_t states_max) {
    ++report_.second_crashes;
    Recorder recorder(file);
    std::vector<Promise> promises;
    Promise now = promise;
    const auto mark = [&] {
      promises.push_back(now);
      recorder.mark(promises.size() - 1);
    };
    mark();
    const RingMemory ring = ring_in(recorder.memory());
    auto producer = ends_.producer(recorder, ring);
    recorder.phase("attach again");
    if (!producer.attach("go on").has_value()) return "the producer cannot attach again";
    for (int i = 0; i < 2; ++i) {
      recorder.phase(fmt::format("enqueue {} in the second life", now.begun));
      ++now.begun;
      mark();
      if (enqueue_one(producer, now.begun - 1, 2) != Enqueue::done) break;
      now.returned = now.begun;
      mark();
    }
    const Exploration again = explore(recorder,
                                      [&](std::span<std::byte> later, std::uint64_t at) {
                                        Promise after = promises[at];
                                        return walk(later, after);
                                      },
                                      {.states_per_moment_max = states_max, .seed = options_.seed});
    report_.states_tried += again.states_tried;
    if (!again.first_bad.has_value()) return "";
    return "after a second crash: " + again.first_bad->report();
  }

  /// Recovers and compares. Afterwards `promise` describes what was found.
  std::string walk(std::span<std::byte> file, Promise& promise) {
    Medium memory = plain_memory();
    const RingMemory ring = ring_in(file);
    auto consumer = ends_.consumer(memory, ring);
    const Result<Chain> found = consumer.attach("recover", true);
    if (!found.has_value()) return "recovery refuses the ring: " + found.error().cause;
    const std::uint64_t first = found->first.ordinal;
    if (first > promise.letting_go) {
      return fmt::format("entries {} to {} are gone without an acknowledgement", promise.letting_go,
                         first - 1);
    }
    if (first < promise.acknowledged) {
      return fmt::format("entry {} comes again, which was acknowledged", first);
    }
    std::uint64_t end = first;
    Entry entry;
    for (;;) {
      const Next outcome = consumer.next(entry);
      if (outcome == Next::empty) break;
      if (outcome != Next::entry) return fmt::format("entry {} is damaged", end);
      if (entry.ordinal != end) {
        return fmt::format("entry {} comes where {} has to", entry.ordinal, end);
      }
      if (end >= promise.begun) return fmt::format("entry {} was never enqueued", end);
      const unsigned life = end < kWarmUpCount ? 0U : (end >= promise.second_life ? 2U : 1U);
      if (!std::ranges::equal(entry.bytes, entry_of(end, life))) {
        return fmt::format("entry {} is torn or has other content", end);
      }
      ++end;
    }
    if (end < promise.returned) {
      return fmt::format("entries {} to {} are lost, whose enqueue had returned", end,
                         promise.returned - 1);
    }
    if (end < promise.seen) {
      return fmt::format("entries {} to {} are lost, which the consumer had seen", end,
                         promise.seen - 1);
    }
    promise.begun = promise.returned = end;
    promise.seen = std::min(promise.seen, end);
    promise.letting_go = std::max(promise.letting_go, first);
    promise.acknowledged = ends_.keeps_acknowledgements() ? first : promise.acknowledged;
    promise.second_life = std::min(promise.second_life, end);
    return "";
  }

  Ends ends_;
  CheckOptions options_;
  std::uint64_t judged_count_ = 0;
  CheckReport report_;
};

}  // namespace headrace::pmem::lab
