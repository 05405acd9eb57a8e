// SPDX-License-Identifier: Apache-2.0
// The producer: placement of messages, and waiting for room.
#include <algorithm>
#include <utility>

#include "ends.hpp"
#include "headrace/platform/line_flush.hpp"
#include "headrace/platform/ticks.hpp"

namespace headrace::message {

using detail::End;
using detail::kVariableUnitBytes;

Producer::Producer(detail::EndPointer end) : end_(std::move(end)) {
  const detail::Segment& segment = end_->segment();
  number_ = static_cast<std::uint32_t>(end_->role() - detail::kFirstLaneLock);
  detail::LaneWords& words = segment.lane(number_);
  // edge: message-retired (acquire)
  const std::uint64_t head = words.cons_head.load_acquire();
  // edge: message-published (acquire)
  const std::uint64_t tail = words.prod_tail.load_acquire();
  if (tail - head > segment.head.unit_count) detail::refuse_damaged(*end_);
  cursor_ = detail::ProducerCursor(words, segment.head.unit_count, head, tail);
  geometry_ = segment.geometry(number_);
  ahead_ = std::max<std::uint64_t>(1, detail::kAheadBytes / geometry_.unit_bytes);
  fault_ = &end_->fault();
  cons_sleeps_ = &segment.control().cons_sleeps;
  any_closed_ = &segment.control().any_closed;
  end_->watch({.state = &segment.control().cons_state, .lock = detail::kConsumerLock});
}

Outcome Producer::reserve_variable(std::size_t byte_count,
                                   std::span<std::byte>& room_span) noexcept {
  if (byte_count > geometry_.message_bytes_max) return Outcome::too_large;
  const std::uint64_t units = detail::variable_units(byte_count);
  const std::uint64_t before_end = geometry_.before_end(cursor_.position());
  const std::uint64_t skipped = units > before_end ? before_end : 0;
  const Outcome outcome = room(skipped + units);
  if (outcome != Outcome::done) return outcome;
  reserved_ = units;
  skip_ = skipped;
  room_span = {geometry_.at(cursor_.position() + skipped) + kVariableUnitBytes, byte_count};
  return Outcome::done;
}

void Producer::skip_to_start() noexcept {
  std::memcpy(geometry_.at(cursor_.position()), &detail::kSkip, sizeof(detail::kSkip));
  cursor_.stage(std::exchange(skip_, 0));
}

Outcome Producer::put(std::span<const std::byte> message) {
  std::span<std::byte> target;
  const Outcome outcome = reserve(message.size(), target);
  if (outcome != Outcome::done) return outcome;
  if (copy_) {
    copy_(target, message);
  } else {
    const std::size_t cached =
        placement_ == Placement::memory
            ? 0
            : (placement_ == Placement::header ? std::min(message.size(), kLineBytes)
                                               : message.size());
    detail::copy_bytes(target.data(), message.first(cached));
    if (cached < message.size()) {
      platform::stream_bytes(target.data() + cached, message.subspan(cached));
      platform::store_fence();  // Order the streamed bytes before publication.
    }
  }
  stage(message.size());
  return Outcome::done;
}

Outcome Producer::try_send(std::span<const std::byte> message) {
  const std::uint64_t begun_ticks = trace::is_on() ? platform::ticks() : 0;
  const Outcome outcome = put(message);
  if (outcome != Outcome::done) return outcome;
  if (has_fault()) return detail::fault_outcome(*end_);
  return publish_and(0, begun_ticks);
}

void Producer::record(std::uint64_t unit_count, std::uint64_t begun_ticks) const noexcept {
  const std::uint64_t position = cursor_.position() + unit_count;
  trace::record({.begin_ticks = begun_ticks,
                 .id = end_->lane_id(number_),
                 .other = position,
                 .byte_count = (position - cursor_.published()) * geometry_.unit_bytes,
                 .kind = trace::Kind::send,
                 .count = begun_ticks != 0 ? 1U : 0U});
}

Outcome Producer::send(std::span<const std::byte> message, const Wait& wait) {
  for (;;) {
    Outcome outcome = try_send(message);
    if (outcome != Outcome::full) return outcome;
    outcome = wait_for_room(message.size(), wait);
    if (outcome != Outcome::done) return outcome;
  }
}

Outcome Producer::try_send_all(std::span<const std::span<const std::byte>> messages,
                               std::size_t& sent) {
  sent = 0;
  Outcome outcome = Outcome::done;
  for (; sent < messages.size(); ++sent) {
    outcome = put(messages[sent]);
    if (outcome != Outcome::done) break;
  }
  if (sent == 0) return outcome;
  const Outcome published = publish();
  return published == Outcome::done ? outcome : published;
}

Outcome Producer::wait_for_room(std::size_t byte_count, const Wait& wait) noexcept {
  const detail::Segment& segment = end_->segment();
  detail::LaneWords& words = segment.lane(number_);
  const auto look = [&] {
    std::span<std::byte> unused;
    return reserve(byte_count, unused);
  };
  const std::uint64_t begun_ticks = trace::is_on() ? platform::ticks() : 0;
  const Outcome outcome =
      detail::wait_for(*end_, words.prod_sleeps, &words.cons_head, wait, Outcome::full, look);
  if (begun_ticks != 0) [[unlikely]] {
    trace::record(
        {.begin_ticks = begun_ticks, .id = end_->lane_id(number_), .kind = trace::Kind::room});
  }
  return outcome;
}

void Producer::place(Placement placement) {
  placement_ = placement;
  copy_ = nullptr;
}

void Producer::place(CopyFunction copy) {
  copy_ = std::move(copy);
}

}  // namespace headrace::message
