// SPDX-License-Identifier: Apache-2.0
// The consumer: choice of the lane, validation of messages, and waiting.
#include <chrono>
#include <utility>

#include "ends.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/ticks.hpp"

namespace headrace::message {

using detail::End;

namespace {

/// A round trip of a line between distant cores. With half of it, messages of 64 bytes took 1.6
/// times as long there.
constexpr std::chrono::nanoseconds kGatherTime{400};

}  // namespace

Consumer::Consumer(detail::EndPointer end) : end_(std::move(end)) {
  const detail::Segment& segment = end_->segment();
  lane_count_ = static_cast<std::uint32_t>(segment.head.lane_count);
  lanes_ = std::make_unique<Lane[]>(lane_count_);
  fault_ = &end_->fault();
  message_bytes_max_ = segment.head.message_bytes_max;
  for (std::uint32_t i = 0; i < lane_count_; ++i) {
    detail::LaneWords& words = segment.lane(i);
    // edge: message-retired (acquire)
    const std::uint64_t head = words.cons_head.load_acquire();
    // edge: message-published (acquire)
    const std::uint64_t tail = words.prod_tail.load_acquire();
    if (tail - head > segment.head.unit_count) detail::refuse_damaged(*end_);
    lanes_[i] = {.cursor = detail::ConsumerCursor(words, segment.head.unit_count, head),
                 .geometry = segment.geometry(i),
                 .prod_sleeps = &words.prod_sleeps,
                 .number = i};
    end_->watch({.state = &words.prod_state, .lock = detail::kFirstLaneLock + i});
  }
  lane_ = lanes_.get();
}

Consumer::Consumer(Consumer&&) noexcept = default;
Consumer& Consumer::operator=(Consumer&&) noexcept = default;
Consumer::~Consumer() = default;

void Consumer::pause_for_batch() noexcept {
  const auto end = std::chrono::steady_clock::now() + kGatherTime;
  while (std::chrono::steady_clock::now() < end) platform::pause();
}

Outcome Consumer::look_further() noexcept {
  // A producer that always has messages must not starve the others.
  std::uint32_t index = static_cast<std::uint32_t>(lane_ - lanes_.get());
  if (++turn_ > kTurnMax) index = (index + 1) % lane_count_;
  for (std::uint32_t tried = 0; tried < lane_count_; ++tried) {
    Lane& lane = lanes_[index];
    const detail::Look look = lane.cursor.look();
    if (look == detail::Look::damaged) return detail::refuse_damaged(*end_);
    if (look == detail::Look::ready) {
      if (&lane != lane_ || turn_ > kTurnMax) turn_ = 1;
      lane_ = &lane;
      return Outcome::done;
    }
    index = (index + 1) % lane_count_;
  }
  return when_empty();
}

Outcome Consumer::when_empty() noexcept {
  // edge: message-closed (acquire)
  if (end_->segment().control().any_closed.load_acquire() == 0) return Outcome::empty;
  // Messages committed before the queue was closed are visible now.
  for (std::uint32_t i = 0; i < lane_count_; ++i) {
    const detail::Look look = lanes_[i].cursor.look();
    if (look == detail::Look::damaged) return detail::refuse_damaged(*end_);
    if (look == detail::Look::not_yet) continue;
    lane_ = &lanes_[i];
    return Outcome::done;
  }
  return Outcome::closed;
}

Outcome Consumer::read_variable(Message& message) noexcept {
  Lane& lane = *lane_;
  for (;;) {
    const std::uint64_t position = lane.cursor.position();
    const std::uint64_t before_end = lane.geometry.before_end(position);
    const std::byte* const unit = lane.geometry.at(position);
    // Read once: the producer may be hostile. Ordered by the look() that found it.
    const std::uint64_t length = *reinterpret_cast<const volatile std::uint64_t*>(unit);
    if (length == detail::kSkip) {
      // A skip is always published together with the message after it.
      if (before_end >= lane.cursor.count()) return detail::refuse_damaged(*end_);
      lane.cursor.advance(before_end);
      continue;
    }
    if (length > lane.geometry.message_bytes_max) return detail::refuse_damaged(*end_);
    const std::uint64_t units = detail::variable_units(length);
    if (units > lane.cursor.count() || units > before_end) return detail::refuse_damaged(*end_);
    message.bytes = {unit + detail::kVariableUnitBytes, static_cast<std::size_t>(length)};
    message.producer = lane.number;
    lane.cursor.advance(units);
    return Outcome::done;
  }
}

void Consumer::release_all() noexcept {
  for (std::uint32_t i = 0; i < lane_count_; ++i) {
    Lane& lane = lanes_[i];
    if (!lane.cursor.has_lent()) continue;
    lane.cursor.retire();
    if (detail::must_wake(*lane.prod_sleeps)) detail::wake(*lane.prod_sleeps);
  }
}

Outcome Consumer::try_receive(std::span<std::byte> target, std::size_t& received) noexcept {
  const std::uint64_t begun_ticks = trace::is_on() ? platform::ticks() : 0;
  Outcome outcome = find_lane();
  if (outcome != Outcome::done) return outcome;
  Message message;
  const detail::ConsumerCursor before = lane_->cursor;
  outcome = read_next(message);
  if (outcome != Outcome::done) return outcome;
  received = message.bytes.size();
  if (received > target.size()) {
    lane_->cursor = before;
    return Outcome::too_large;
  }
  detail::copy_bytes(target.data(), message.bytes);
  if (begun_ticks != 0) [[unlikely]]
    record(received, begun_ticks);
  return release();
}

void Consumer::record(std::size_t byte_count, std::uint64_t begun_ticks) const noexcept {
  trace::record({.begin_ticks = begun_ticks,
                 .id = end_->lane_id(lane_->number),
                 .other = lane_->cursor.position(),
                 .byte_count = byte_count,
                 .kind = trace::Kind::receive,
                 .count = begun_ticks != 0 ? 1U : 0U});
}

Outcome Consumer::receive(std::span<std::byte> target, std::size_t& received,
                          const Wait& wait) noexcept {
  const Outcome outcome = try_receive(target, received);
  if (outcome != Outcome::empty) return outcome;
  const Outcome waited = wait_for_message(wait);
  return waited == Outcome::done ? try_receive(target, received) : waited;
}

Outcome Consumer::wait_for_message(const Wait& wait) noexcept {
  Atomic<std::uint32_t>& word = end_->segment().control().cons_sleeps;
  const void* const line = lane_count_ == 1 ? &end_->segment().lane(0).prod_tail : nullptr;
  const std::uint64_t begun_ticks = trace::is_on() ? platform::ticks() : 0;
  const Outcome outcome =
      detail::wait_for(*end_, word, line, wait, Outcome::empty, [&] { return find_lane(); });
  if (begun_ticks != 0) [[unlikely]] {
    trace::record({.begin_ticks = begun_ticks,
                   .id = end_->lane_id(lane_->number),
                   .other = lane_->cursor.position(),
                   .kind = trace::Kind::arrival,
                   .count = outcome == Outcome::done ? 1U : 0U});
  }
  return outcome;
}

}  // namespace headrace::message
