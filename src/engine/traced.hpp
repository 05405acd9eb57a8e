// SPDX-License-Identifier: Apache-2.0
// Operations as records of a trace, and a channel that records.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "headrace/base/trace.hpp"
#include "headrace/engine/channel.hpp"
#include "headrace/platform/ticks.hpp"

namespace headrace::engine::detail {

/// One operation, or a batch of `byte_count` in all. `what` has the rest.
inline void record(trace::Record what, std::span<const Operation> operations,
                   std::size_t byte_count, Path path) noexcept {
  const Operation& first = operations.front();
  what.source = trace::id_of(first.source().data());
  what.target = trace::id_of(first.target().data());
  what.byte_count = byte_count;
  what.count = static_cast<std::uint32_t>(operations.size());
  what.operation = static_cast<std::uint8_t>(static_cast<unsigned>(first.kind()) |
                                             static_cast<unsigned>(path) << 4U);
  trace::record(what);
}

/// Threading: confined.
class TracedChannel final : public Channel {
 public:
  explicit TracedChannel(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {}

  [[nodiscard]] Submit submit_copy(const CopyPlan& plan, Ticket& ticket) override {
    const Operation copy = Operation::copy(plan.target, plan.source);
    return traced({&copy, 1}, ticket, [&] { return channel_->submit_copy(plan, ticket); });
  }
  [[nodiscard]] Submit submit(const Operation& operation, Ticket& ticket) override {
    return traced({&operation, 1}, ticket, [&] { return channel_->submit(operation, ticket); });
  }
  [[nodiscard]] Submit submit_batch(const Batch& batch, Ticket& ticket) override {
    return traced(batch.operations, ticket, [&] { return channel_->submit_batch(batch, ticket); });
  }
  [[nodiscard]] bool poll(Ticket ticket, Completion& completion) override {
    const bool has_ended = channel_->poll(ticket, completion);
    if (has_ended) trace::record({.id = id_of(ticket), .kind = trace::Kind::wait, .count = 2});
    return has_ended;
  }
  [[nodiscard]] Completion wait(Ticket ticket) override {
    const std::uint64_t begun_ticks = platform::ticks();
    const Completion completion = channel_->wait(ticket);
    trace::record({.begin_ticks = begun_ticks, .id = id_of(ticket), .kind = trace::Kind::wait});
    return completion;
  }
  [[nodiscard]] std::size_t in_flight() const override { return channel_->in_flight(); }
  [[nodiscard]] std::size_t depth() const override { return channel_->depth(); }
  [[nodiscard]] const std::string& queue() const override { return channel_->queue(); }

 private:
  /// Tickets are smaller than the object.
  [[nodiscard]] std::uint64_t id_of(Ticket ticket) const {
    return trace::id_of(channel_.get()) + static_cast<std::uint64_t>(ticket);
  }
  template <typename Submission>
  Submit traced(std::span<const Operation> operations, Ticket& ticket,
                const Submission& submission) {
    const std::uint64_t begun_ticks = platform::ticks();
    const Submit answer = submission();
    if (answer != Submit::accepted) return answer;
    std::size_t byte_count = 0;
    for (const Operation& one : operations) byte_count += one.byte_count();
    record({.begin_ticks = begun_ticks, .id = id_of(ticket), .kind = trace::Kind::job}, operations,
           byte_count, Path::dsa);
    return answer;
  }

  std::unique_ptr<Channel> channel_;
};

}  // namespace headrace::engine::detail
