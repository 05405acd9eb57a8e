// SPDX-License-Identifier: Apache-2.0
// The soak's workload: random operations of every kind in two sets of memory, one for the devices
// and one for the processor, which must agree in every byte, including those around the operands.
// Not for: submission and completion.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/completions.hpp"
#include "engine/software/software.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/base/random.hpp"
#include "headrace/engine/engine.hpp"

namespace headrace::engine::soak {

/// Per copy of a job's memory.
inline constexpr std::size_t kArenaBytes = 512U << 10U;
inline constexpr std::size_t kLargeBytes = 40U << 10U;

struct alignas(4096) Arena {
  std::array<std::byte, kArenaBytes> bytes;
};

/// Memory that a retired device may still write to. Outlives the devices.
///
/// Threading: shared.
class Retired {
 public:
  void keep(std::unique_ptr<Arena> arena) {
    const Lock lock(mutex_);
    kept_.push_back(std::move(arena));
  }
  /// Call when the devices are idle.
  void clear() {
    const Lock lock(mutex_);
    kept_.clear();
  }
  [[nodiscard]] std::size_t byte_count() {
    const Lock lock(mutex_);
    return kept_.size() * sizeof(Arena);
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<Arena>> kept_ HEADRACE_GUARDED_BY(mutex_);
};

/// Counts of events, to check that each kind has occurred.
struct Tally {
  std::uint64_t operations = 0;
  std::uint64_t jobs = 0;
  std::uint64_t stopped = 0;
  std::uint64_t failed = 0;
  std::uint64_t fences_broken = 0;
  std::uint64_t findings = 0;
  std::uint64_t resumed = 0;  ///< After a page fault, with a part done by a device.
  std::uint64_t fell_back = 0;
  std::uint64_t abandoned = 0;  ///< A device may still write.
  std::uint64_t undecided = 0;  ///< A device's progress in a batch is unknown.
  std::uint64_t durable = 0;
  std::uint64_t named_others = 0;  ///< Came after other jobs.
  std::uint64_t never_begun = 0;   ///< Of these, not started because a predecessor failed.
  std::array<std::uint64_t, kOperationKindCount> by_kind{};
  // How the end was detected.
  std::uint64_t runs = 0;
  std::uint64_t awaited = 0;
  std::uint64_t continued = 0;
  std::uint64_t channel_ends = 0;
  std::uint64_t visits = 0;  ///< Polls, waits or stops by other threads.

  void add(const Tally& other) {
    const auto fields = [](Tally& tally) {
      return std::array{&tally.operations, &tally.jobs,          &tally.stopped,
                        &tally.failed,     &tally.fences_broken, &tally.findings,
                        &tally.resumed,    &tally.fell_back,     &tally.abandoned,
                        &tally.undecided,  &tally.durable,       &tally.runs,
                        &tally.awaited,    &tally.continued,     &tally.channel_ends,
                        &tally.visits,     &tally.named_others,  &tally.never_begun};
    };
    Tally copy = other;
    const auto mine = fields(*this);
    const auto theirs = fields(copy);
    for (std::size_t i = 0; i < mine.size(); ++i) *mine.at(i) += *theirs.at(i);
    for (std::size_t i = 0; i < by_kind.size(); ++i) by_kind.at(i) += other.by_kind.at(i);
  }
};

/// Draws operations into one copy of the memory. Two drawers with the same seed draw the same.
///
/// Threading: confined.
class Drawer {
 public:
  Drawer(Random random, Arena& arena) : random_(random), arena_(&arena) {}

  [[nodiscard]] Random random() const { return random_; }
  /// All operands are below.
  [[nodiscard]] std::size_t used_bytes() const { return used_; }

  std::vector<Operation> draw(std::size_t operations_max) {
    std::vector<Operation> drawn;
    const std::size_t count = 1 + (operations_max == 1 ? 0 : random_.below(operations_max));
    const std::size_t length_max = random_.chance(1, 6) ? 3000 : 400;
    // One of them is cut.
    const std::size_t large = random_.chance(1, 50) ? random_.below(count) : count;
    while (drawn.size() < count && used_ < kArenaBytes / 2) {
      const std::size_t most = drawn.size() == large ? kLargeBytes : length_max;
      const Operation made = one(1 + random_.below(most), drawn);
      if (made.validate() != Submit::accepted) continue;
      drawn.push_back(count > 1 && random_.chance(1, 6) ? made.fenced() : made);
    }
    return drawn;
  }

 private:
  /// Gap between operands, which must not be written.
  static constexpr std::size_t kGapBytes = 16;
  static constexpr std::size_t kAnyPhase = ~std::size_t{0};

  std::span<std::byte> place(std::size_t byte_count, std::size_t alignment = 1,
                             std::size_t phase = kAnyPhase) {
    std::size_t offset = used_ + kGapBytes + random_.below(64);
    offset = (offset + alignment - 1) / alignment * alignment;
    if (phase != kAnyPhase) offset += (phase - offset) % 4096;
    used_ = offset + byte_count + kGapBytes;
    return std::span(arena_->bytes).subspan(offset, byte_count);
  }
  /// Changes up to `most` bits.
  void spoil(std::span<std::byte> bytes, std::size_t most = 2) {
    const std::size_t count = random_.below(most + 1);
    for (std::size_t i = 0; i < count; ++i) {
      bytes[random_.below(bytes.size())] ^= static_cast<std::byte>(1U << random_.below(8));
    }
  }

  Operation one(std::size_t length, const std::vector<Operation>& before) {
    if (!before.empty() && random_.chance(1, 6)) {
      // Written by an operation before the fence.
      const Operation& writer = before[random_.below(before.size())];
      if (!writer.target().empty()) {
        return Operation::copy(place(writer.target().size()), writer.target()).fenced();
      }
    }
    const auto kind = static_cast<OperationKind>(random_.below(kOperationKindCount));
    // Most real work is copies.
    const Operation made = make(random_.chance(1, 3) ? OperationKind::copy : kind, length);
    if (random_.chance(1, 12)) return made.into_cache();
    const Operation durable = made.durable();
    return random_.chance(1, 12) && durable.validate() == Submit::accepted ? durable : made;
  }

  Operation make(OperationKind kind, std::size_t length) {
    switch (kind) {
      case OperationKind::no_op:
        return Operation::no_op();
      case OperationKind::drain:
        return Operation::drain();
      case OperationKind::copy: {
        const std::span<std::byte> source = place(length);
        return Operation::copy(random_.chance(1, 16) ? source : place(length), source);
      }
      case OperationKind::fill:
        return random_.chance(1, 3) ? Operation::fill(place(length), random_(), random_())
                                    : Operation::fill(place(length), random_());
      case OperationKind::compare: {
        const std::span<std::byte> first = place(length);
        const std::span<std::byte> other = place(length);
        std::ranges::copy(first, other.begin());
        spoil(other);
        return Operation::compare(first, other);
      }
      case OperationKind::compare_pattern: {
        const std::uint64_t pattern = random_();
        const std::span<std::byte> source = place(length);
        static_cast<void>(software::execute(Operation::fill(source, pattern)));
        spoil(source);
        return Operation::compare_pattern(source, pattern);
      }
      case OperationKind::create_delta: {
        const auto [earlier, later] = changed(length, 0);
        if (random_.chance(1, 8)) spoil(later, 40);
        return Operation::create_delta(place(kDeltaRoomMin + random_.below(200) / 8 * 8, 8),
                                       earlier, later);
      }
      case OperationKind::apply_delta: {
        const auto [earlier, later] = changed(length, 1);
        const std::span<std::byte> record = place(kDeltaRoomMin, 8);
        const std::uint32_t record_bytes =
            software::execute(Operation::create_delta(record, earlier, later)).result.delta_bytes;
        // An offset that is not in the target.
        if (random_.chance(1, 8)) record[1] = std::byte{0xff};
        return Operation::apply_delta(earlier, record.first(record_bytes));
      }
      case OperationKind::dualcast: {
        const std::span<std::byte> source = place(length);
        const std::span<std::byte> first = place(length);
        const auto phase = reinterpret_cast<std::uintptr_t>(first.data()) % 4096;
        return Operation::dualcast(first, place(length, 1, phase), source);
      }
      case OperationKind::crc:
      case OperationKind::copy_crc: {
        const CrcOptions options{static_cast<std::uint32_t>(random_()), random_.chance(1, 2),
                                 random_.chance(1, 2)};
        const std::span<std::byte> source = place(length);
        return kind == OperationKind::crc ? Operation::crc(source, options)
                                          : Operation::copy_crc(place(length), source, options);
      }
      case OperationKind::dif_check:
      case OperationKind::dif_insert:
      case OperationKind::dif_strip:
      case OperationKind::dif_update:
        return make_dif(kind, length);
      case OperationKind::cache_flush:
        break;
    }
    return Operation::cache_flush(place(length));
  }

  /// Two spans that differ in a few places, at least `least` (0 or 1).
  std::pair<std::span<std::byte>, std::span<std::byte>> changed(std::size_t length,
                                                                std::size_t least) {
    length = (length + 7) / 8 * 8;
    const std::span<std::byte> earlier = place(length, 8);
    const std::span<std::byte> later = place(length, 8);
    std::ranges::copy(earlier, later.begin());
    spoil(later);
    // Three bits of a byte, which the earlier changes of at most two bits cannot cancel.
    if (least > 0) later[random_.below(length)] ^= std::byte{7};
    return {earlier, later};
  }

  Operation make_dif(OperationKind kind, std::size_t length) {
    const DifFormat format{static_cast<DifBlock>(random_.below(random_.chance(1, 8) ? 4 : 2)),
                           random_.chance(1, 2), random_.chance(1, 2)};
    const std::size_t block = block_bytes(format.block);
    const std::size_t whole = block + kDifFieldBytes;
    const std::size_t count = 1 + length / whole;
    const DifTags tags{static_cast<std::uint32_t>(random_()), 1, 0};
    const std::span<std::byte> data = place(count * block);
    const std::span<std::byte> fields = place(count * whole);
    const Operation insert = Operation::dif_insert(fields, data, format, {.tags = tags});
    if (kind == OperationKind::dif_insert) return insert;
    static_cast<void>(software::execute(insert));
    if (random_.chance(1, 3)) spoil(fields);
    const DifSource check{.tags = tags};
    if (kind == OperationKind::dif_check) return Operation::dif_check(fields, format, check);
    if (kind == OperationKind::dif_strip) {
      return Operation::dif_strip(data, fields, format, check);
    }
    return Operation::dif_update(place(count * whole), fields, format, check, {.tags = {7, 8, 0}});
  }

  Random random_;
  Arena* arena_;
  std::size_t used_ = 0;
};

/// Operations of one job, their expected results, and the check.
///
/// Threading: confined.
class Work {
 public:
  Work(Random& random, Retired& retired)
      : random_(random),
        retired_(retired),
        real_(std::make_unique<Arena>()),
        model_(std::make_unique<Arena>()) {
    refill();
  }

  /// Draws operations, and carries them out on the model as the engine must on the other copy.
  void draw(std::size_t operations_max) {
    if (random_.chance(1, 512)) refill();
    Drawer real(random_, *real_);
    Drawer model(random_, *model_);
    operations_ = real.draw(operations_max);
    const std::vector<Operation> twins = model.draw(operations_max);
    random_ = real.random();
    used_ = std::min(real.used_bytes() + 64, kArenaBytes);
    completions_.assign(operations_.size(), {});
    expected_.clear();
    bool failed = false;
    bool broken = false;
    for (const Operation& twin : twins) {
      broken = broken || (twin.is_fenced() && failed);
      expected_.push_back(detail::ended(broken ? Completion{.cause = Cause::fence_broken}
                                               : software::execute(twin)));
      failed = failed || expected_.back().cause != Cause::none;
    }
  }

  [[nodiscard]] bool is_batch() const { return operations_.size() > 1; }
  [[nodiscard]] std::span<const Operation> operations() const { return operations_; }
  [[nodiscard]] Batch batch() { return {operations_, completions_}; }

  /// Checks work that ended with `end`.
  void check(const Completion& end, bool may_be_stopped, Tally& tally) {
    ++tally.jobs;
    tally.operations += operations_.size();
    if (end.fell_back) ++tally.fell_back;
    if (end.page_faults > 0 && end.bytes_by_device > 0) ++tally.resumed;
    if (!is_batch()) completions_[0] = end;
    const bool known = check_each(end, may_be_stopped, tally);
    const auto bytes = [&](const Arena& arena) { return std::span(arena.bytes).first(used_); };
    if (known && !std::ranges::equal(bytes(*real_), bytes(*model_))) {
      const auto [at, other] = std::ranges::mismatch(bytes(*real_), bytes(*model_));
      ADD_FAILURE() << "a byte is wrong, at " << static_cast<const void*>(&*at) << '\n' << shown();
    }
    if (end.late_write_possible) {
      ++tally.abandoned;
      retired_.keep(std::move(real_));
      real_ = std::make_unique<Arena>();
      real_->bytes = model_->bytes;
    } else if (!known) {
      std::ranges::copy(bytes(*model_), real_->bytes.begin());
    }
  }

  /// For work that never began, because a predecessor failed.
  void pass_over(Tally& tally) {
    ++tally.jobs;
    ++tally.never_begun;
    tally.operations += operations_.size();
    // Only its targets differ.
    for (const Completion& each : completions_) EXPECT_EQ(each.bytes_done, 0U) << shown();
    std::copy_n(model_->bytes.begin(), used_, real_->bytes.begin());
  }

  /// Current content of the engine's copy.
  [[nodiscard]] std::string_view memory() const {
    return {reinterpret_cast<const char*>(real_->bytes.data()), kArenaBytes};
  }

  /// For a person.
  [[nodiscard]] std::string shown() const {
    std::string all;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const Operation& one = operations_[i];
      all += fmt::format(
          "  {}{} of {} bytes, target {}+{}: {} {} {} bytes, status {:#x}; expected {} {} bytes\n",
          name(one.kind()), one.is_fenced() ? ", fenced," : "", one.byte_count(),
          fmt::ptr(one.target().data()), one.target().size(), name(completions_[i].state),
          name(completions_[i].cause), completions_[i].bytes_done, completions_[i].device_status,
          name(expected_[i].cause), expected_[i].bytes_done);
    }
    return all;
  }

 private:
  /// Returns whether the result of every operation is known.
  bool check_each(const Completion& end, bool may_be_stopped, Tally& tally) {
    const auto is_stopped = [](const Completion& one) { return one.state == JobState::stopped; };
    // A batch of which something failed and the rest was stopped has failed.
    if (is_stopped(end) || std::ranges::any_of(completions_, is_stopped)) {
      EXPECT_TRUE(may_be_stopped) << shown();
      ++tally.stopped;
      return false;
    }
    bool failed = false;
    bool right = true;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const Completion& got = completions_[i];
      const Completion& wanted = expected_[i];
      if (end.late_write_possible && got.cause == Cause::device_dead) {
        // Operations that a processor could not repeat: docs/concepts/engine.md, "no answer for a
        // batch". For the rest only fences can be checked.
        ++tally.undecided;
        EXPECT_TRUE(holds_fences()) << "a processor went on behind a broken fence\n" << shown();
        return false;
      }
      right = right && got.state == wanted.state && got.cause == wanted.cause &&
              got.result == wanted.result && got.bytes_done == wanted.bytes_done;
      failed = failed || wanted.cause != Cause::none;
      ++tally.by_kind.at(static_cast<std::size_t>(operations_[i].kind()));
      if (operations_[i].is_durable()) ++tally.durable;
      if (wanted.cause == Cause::fence_broken) ++tally.fences_broken;
      if (wanted.result.different) ++tally.findings;
    }
    if (failed) ++tally.failed;
    const Cause cause = !failed      ? Cause::none
                        : is_batch() ? Cause::batch_failed
                                     : expected_[0].cause;
    if (!right || end.state != (failed ? JobState::failed : JobState::done) || end.cause != cause) {
      ADD_FAILURE() << "the job is " << name(end.state) << ", " << name(end.cause) << '\n'
                    << shown();
    }
    return true;
  }

  /// False if a processor did anything behind a fence after a failure before it. What the device
  /// did there it had started before the failure was known.
  [[nodiscard]] bool holds_fences() const {
    bool failed = false;
    bool broken = false;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const Completion& one = completions_[i];
      broken = broken || (failed && operations_[i].is_fenced());
      if (broken && (one.fell_back || (one.cause != Cause::none && one.bytes_done != 0))) {
        return false;
      }
      failed = failed || one.cause != Cause::none;
    }
    return true;
  }

  void refill() {
    for (std::size_t i = 0; i < kArenaBytes; i += 8) {
      const std::uint64_t word = random_();
      std::memcpy(model_->bytes.data() + i, &word, sizeof word);
    }
    real_->bytes = model_->bytes;
  }

  Random& random_;
  Retired& retired_;
  std::unique_ptr<Arena> real_;
  std::unique_ptr<Arena> model_;
  std::size_t used_ = 0;
  std::vector<Operation> operations_;
  std::vector<Completion> completions_;
  std::vector<Completion> expected_;
};

}  // namespace headrace::engine::soak
