// SPDX-License-Identifier: Apache-2.0
// Queues: creation, opening, state, closing, and roles.
#include "headrace/message/queue.hpp"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "ends.hpp"

namespace headrace::message {

using detail::End;
using detail::Head;
using detail::Segment;

struct Queue::State {
  State(Segment mapped, std::string file_name)
      : segment(std::move(mapped)), name(std::move(file_name)) {}

  const Segment segment;
  const std::string name;  ///< Empty for an unnamed queue.
  Atomic<std::uint32_t> fault{End::kNone};
  // Access to a truncated file must not end the process; the ends report it.
  const platform::FaultGuard guard{segment.map.bytes(), fault, End::kDamaged};
};

Queue::Queue(std::unique_ptr<State> state) : state_(std::move(state)) {}
Queue::Queue(Queue&& other) noexcept = default;
Queue& Queue::operator=(Queue&& other) noexcept = default;
Queue::~Queue() = default;

Result<Queue> Queue::make(const QueueOptions& options) {
  HEADRACE_TAKE(head, detail::head_of(options));
  HEADRACE_TAKE(file, platform::SharedFile::make_sealed(head->segment_bytes,
                                                        std::as_bytes(std::span(&*head, 1))));
  HEADRACE_TAKE(segment, Segment::map_file(std::move(*file), std::nullopt));
  return Queue(std::make_unique<State>(std::move(*segment), ""));
}

Result<Queue> Queue::make_named(const std::string& path, const QueueOptions& options) {
  HEADRACE_TAKE(head, detail::head_of(options));
  HEADRACE_TRY(platform::make_file(path, head->segment_bytes, std::as_bytes(std::span(&*head, 1)),
                                   options.permissions));
  return open(path);
}

Result<Queue> Queue::open(const std::string& path, std::optional<std::uint32_t> owner) {
  HEADRACE_TAKE(file, platform::SharedFile::open(path, true));
  HEADRACE_TAKE(segment, Segment::map_file(std::move(*file), owner));
  return Queue(std::make_unique<State>(std::move(*segment), path));
}

Result<Queue> Queue::from_descriptor(int descriptor, std::optional<std::uint32_t> owner) {
  HEADRACE_TAKE(file, platform::SharedFile::open_again(descriptor));
  HEADRACE_TAKE(segment, Segment::map_file(std::move(*file), owner));
  return Queue(std::make_unique<State>(std::move(*segment), ""));
}

int Queue::descriptor() const {
  return state_->segment.file.descriptor();
}

QueueState Queue::state() const {
  const Segment& segment = state_->segment;
  QueueState state;
  state.framing = static_cast<Framing>(segment.head.framing);
  state.message_bytes_max = segment.head.message_bytes_max;
  state.capacity = Bytes(segment.head.unit_bytes * segment.head.unit_count);
  state.producers_max = static_cast<std::uint32_t>(segment.head.lane_count);
  for (std::uint64_t i = 0; i < segment.head.lane_count; ++i) {
    if (segment.file.is_locked_by_another(detail::kFirstLaneLock + i)) ++state.producer_count;
  }
  state.has_consumer = segment.file.is_locked_by_another(detail::kConsumerLock);
  // edge: message-closed (acquire)
  state.closed = segment.control().any_closed.load_acquire() != 0;
  return state;
}

Result<Producer> Queue::producer() const {
  const Segment& segment = state_->segment;
  for (std::uint64_t i = 0; i < segment.head.lane_count; ++i) {
    HEADRACE_TAKE_WITHIN("attach to a message queue as a producer", end,
                         End::attach(segment.file, state_->name, detail::kFirstLaneLock + i));
    if (*end == nullptr) continue;
    Producer producer(std::move(*end));
    if (producer.fault_->load_relaxed() != End::kDamaged) return producer;  // Publishes nothing.
    return fail(Code::corrupt_data, "attach to a message queue as a producer",
                "its positions are damaged", "make the queue again");
  }
  return fail(Code::capacity_exceeded, "attach to a message queue as a producer",
              fmt::format("it is made for {}, and that many are attached", segment.head.lane_count),
              "end one first, or make the queue with a larger producers_max");
}

Result<Consumer> Queue::consumer() const {
  const std::string tried = "attach to a message queue as the consumer";
  HEADRACE_TAKE_WITHIN(tried, end,
                       End::attach(state_->segment.file, state_->name, detail::kConsumerLock));
  if (*end == nullptr) {
    return fail(Code::capacity_exceeded, tried, "another consumer is attached", "end it first");
  }
  Consumer consumer(std::move(*end));
  if (consumer.fault_->load_relaxed() != End::kDamaged) return consumer;  // Publishes nothing.
  return fail(Code::corrupt_data, tried, "its positions are damaged", "make the queue again");
}

void Queue::close() const {
  const Segment& segment = state_->segment;
  detail::Control& control = segment.control();
  // edge: message-closed (release)
  control.any_closed.store_release(1);
  if (detail::must_wake(control.cons_sleeps)) detail::wake(control.cons_sleeps);
  for (std::uint64_t i = 0; i < segment.head.lane_count; ++i) {
    Atomic<std::uint32_t>& word = segment.lane(i).prod_sleeps;
    if (detail::must_wake(word)) detail::wake(word);
  }
}

}  // namespace headrace::message
