// SPDX-License-Identifier: Apache-2.0
#include "entry.hpp"

#include <limits>
#include <utility>

#include "headrace/base/check.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/platform/memory.hpp"

namespace headrace::cache {
namespace detail {

std::uint64_t footprint_bytes(std::size_t byte_count) {
  const std::uint64_t mask = platform::page_bytes() - 1;
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  // A length that no region can have must not wrap around to a small one.
  return byte_count > kMax - mask ? kMax : (std::uint64_t{byte_count} + mask) & ~mask;
}

EntryState::~EntryState() {
  stop();
  wait();
  // The phase ends inside the job's callback, the job itself only after it.
  if (job.state() != engine::JobState::idle) job.wait();
  free_copy();
}

Phase EntryState::current_phase() const {
  // edge: entry-submitted (acquire)
  // edge: entry-ended (acquire)
  return phase.load_acquire();
}

bool EntryState::sole() const {
  // relaxed: who acts on it destroys the entry, and the destroying decrement acquires.
  return references.load_relaxed() == 1;
}

void EntryState::wait() {
  for (;;) {
    switch (current_phase()) {
      case Phase::pending:
        // edge: entry-submitted (acquire)
        // edge: entry-ended (acquire)
        phase.wait_acquire(Phase::pending);
        break;
      case Phase::moving:
        // The job's callback ends the phase before its waiters return.
        job.wait();
        break;
      case Phase::idle:
      case Phase::copied:
      case Phase::left:
        return;
    }
  }
}

void EntryState::stop() {
  if (current_phase() == Phase::moving) job.stop();
}

void EntryState::expect_submission() {
  // relaxed: the shelf's mutex publishes the entry.
  phase.store_relaxed(Phase::pending);
}

void EntryState::announce_submission() {
  Phase expected = Phase::pending;
  // edge: entry-submitted (acq_rel)
  if (phase.compare_exchange_acq_rel(expected, Phase::moving)) phase.notify_all();
}

void EntryState::end(Phase last) {
  // edge: entry-ended (release)
  phase.store_release(last);
  phase.notify_all();
}

void EntryState::move_ended(void* context, const engine::Completion& completion) noexcept {
  EntryState& state = *static_cast<EntryState*>(context);
  const bool done = completion.state == engine::JobState::done;
  // Counted first, so that who has waited finds it counted.
  if (done) {
    state.ledger->bytes_moved.add(state.source.size());
  } else {
    state.ledger->moves_failed.add(1);
  }
  state.end(done ? Phase::copied : Phase::left);
}

bool EntryState::allocate_copy(NodeId on_node, Room& reserved) {
  room = &reserved;
  node = on_node;
  const std::size_t byte_count = footprint_bytes(source.size());
  const Result<std::span<std::byte>> memory = ledger->memory->allocate(byte_count, on_node);
  if (!memory.has_value()) return false;
  HEADRACE_CHECK(memory->size() >= byte_count, "a memory source gives at least what was asked for",
                 memory->size(), byte_count);
  copy = *memory;
  return true;
}

void EntryState::free_copy() noexcept {
  if (!copy.empty()) ledger->memory->free(copy);
  if (room != nullptr) room->release(footprint_bytes(source.size()));
  copy = {};
  room = nullptr;
}

}  // namespace detail

using detail::Phase;

Entry::Entry(detail::EntryState* state) : state_(state) {}

Entry::Entry(const Entry& other) : state_(other.state_) {
  // relaxed: `other` keeps the state alive meanwhile, and nothing is published.
  state_->references.fetch_add_relaxed(1);
}

Entry::Entry(Entry&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}

Entry& Entry::operator=(const Entry& other) {
  Entry copy(other);
  std::swap(state_, copy.state_);
  return *this;
}

Entry& Entry::operator=(Entry&& other) noexcept {
  Entry moved(std::move(other));
  std::swap(state_, moved.state_);
  return *this;
}

Entry::~Entry() {
  if (state_ == nullptr) return;
  // edge: entry-released (acq_rel)
  if (state_->references.fetch_sub_acq_rel(1) == 1) delete state_;
}

void Entry::wait() const {
  state_->wait();
}

bool Entry::try_wait() const {
  // Some movers advance only when they are polled.
  if (state_->current_phase() == Phase::moving) static_cast<void>(state_->job.poll());
  return ended(state_->current_phase());
}

std::span<const std::byte> Entry::data() const {
  if (!cached()) return state_->source;
  return state_->copy.first(state_->source.size());
}

bool Entry::cached() const {
  return state_->current_phase() == Phase::copied;
}

std::optional<NodeId> Entry::node() const {
  return cached() ? std::optional(state_->node) : std::nullopt;
}

}  // namespace headrace::cache
