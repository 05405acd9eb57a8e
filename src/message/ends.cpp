// SPDX-License-Identifier: Apache-2.0
#include "ends.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "headrace/platform/barrier.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/ticks.hpp"
#include "headrace/platform/wait.hpp"

namespace headrace::message::detail {
namespace {

using std::chrono::nanoseconds;
using Clock = std::chrono::steady_clock;

/// A sleep and its wake-up cost several microseconds.
constexpr nanoseconds kSpinMax = std::chrono::microseconds(50);
constexpr nanoseconds kRestMax = std::chrono::microseconds(10);
/// A sleeper wakes itself to check whether its peer is alive: soon at first, because without a
/// heavy barrier in the kernel a wake-up can be missed; then less and less often.
constexpr nanoseconds kSliceMin = std::chrono::milliseconds(1);
constexpr nanoseconds kSliceMax = std::chrono::seconds(1);
constexpr nanoseconds kPollPeersEvery = std::chrono::milliseconds(10);

/// Pauses between two looks. `line` is null if several lines may change: UMWAIT watches one.
void pass(const void* line) {
  if (line != nullptr && platform::has_line_wait()) {
    platform::wait_for_line(platform::ticks() + platform::to_ticks(kRestMax));
    platform::watch_line(line);
    return;
  }
  for (int i = 0; i < 16; ++i) platform::pause();
}

}  // namespace

Result<Segment> Segment::map_file(platform::SharedFile file, std::optional<std::uint32_t> owner,
                                  const platform::SharedFile* mapped) {
  const std::string tried = fmt::format("open the message queue '{}'", file.path());
  const std::uint32_t expected = owner.value_or(platform::effective_user());
  const std::uint32_t found = file.identity().owner;
  if (found != expected) {
    return fail(Code::permission_denied, tried,
                fmt::format("it belongs to user {} and not to {}", found, expected),
                "name the owner if that user is to be trusted");
  }
  const std::optional<std::uint64_t> file_bytes = file.byte_count();
  if (!file_bytes.has_value()) {
    return fail(Code::invalid_argument, tried, "it is a device", "name the file of a queue");
  }
  std::array<std::byte, sizeof(Head)> first{};
  HEADRACE_TAKE(read_count, file.read_at(0, first));
  HEADRACE_TAKE(head, read_head({first.data(), *read_count}, *file_bytes, tried));
  HEADRACE_TAKE(map,
                platform::SharedMap::map(mapped != nullptr ? *mapped : file, head->segment_bytes));
  return Segment{std::move(file), std::move(*map), *head};
}

End::End(Segment segment, std::string name, std::uint64_t role)
    : segment_(std::move(segment)),
      name_(std::move(name)),
      role_(role),
      fault_guard_(segment_.map.bytes(), fault_, kDamaged),
      fork_guard_(segment_.file.descriptor(), fault_, kForked) {}

Result<EndPointer> End::attach(const platform::SharedFile& file, const std::string& name,
                               std::uint64_t role) {
  // Opened again because locks belong to the open file description, which two ends must not share.
  HEADRACE_TAKE(own, platform::SharedFile::open_again(file.descriptor()));
  HEADRACE_TAKE(locked, own->try_lock(role));
  if (!*locked) return EndPointer();
  const std::uint32_t owner = own->identity().owner;  // Checked when the queue was opened.
  HEADRACE_TAKE(segment, Segment::map_file(std::move(*own), owner, &file));
  EndPointer end(new End(std::move(*segment), name, role));
  platform::join_shared_barrier();
  Atomic<std::uint64_t>& state = end->own_state();
  // Relaxed: only the lock holder writes it. Peers compare it; it publishes nothing.
  state.store_relaxed((state.load_relaxed() | 1U) + 2);
  return end;
}

End::~End() {
  if (fault_.load_relaxed() == kForked) {  // Private; publishes nothing.
    segment_.file.forget();
    return;
  }
  Atomic<std::uint64_t>& state = own_state();
  state.store_relaxed((state.load_relaxed() | 1U) - 1);  // As in attach().
  // Unlock while the fork guard still covers the descriptor: a fork before close() must not keep
  // the role.
  segment_.file.unlock(role_);
}

Atomic<std::uint64_t>& End::own_state() const {
  return role_ == kConsumerLock ? segment_.control().cons_state
                                : segment_.lane(role_ - kFirstLaneLock).prod_state;
}

Outcome fault_outcome(const End& end) noexcept {
  // Private; publishes nothing.
  return end.fault().load_relaxed() == End::kForked ? Outcome::forked : Outcome::damaged;
}

Outcome refuse_damaged(End& end) noexcept {
  std::uint32_t none = End::kNone;
  end.fault().compare_exchange_relaxed(none, End::kDamaged);  // Private; publishes nothing.
  return fault_outcome(end);
}

void wake(Atomic<std::uint32_t>& word) noexcept {
  platform::wake_sleepers(word);
}

PeerState End::check_peers() {
  bool any_alive = false;
  for (Peer& peer : peers_) {
    const std::uint64_t state = peer.state->load_relaxed();  // Compared only.
    const bool alive = segment_.file.is_locked_by_another(peer.lock);
    any_alive = any_alive || alive;
    if (alive || (state & 1U) == 0 || state == peer.lost_state) continue;
    if (peer.state->load_relaxed() != state) continue;  // Another peer attached, or it detached.
    peer.lost_state = state;
    return PeerState::lost;
  }
  if (any_alive || name_.empty()) return PeerState::none;
  const bool ours = platform::SharedFile::identity_at(name_) == segment_.file.identity();
  return ours ? PeerState::none : PeerState::replaced;
}

Outcome wait_for(End& end, Atomic<std::uint32_t>& word, const void* line, const Wait& wait,
                 Outcome nothing, const std::function<Outcome()>& look) {
  Outcome seen = look();
  if (seen != nothing) return seen;
  const Clock::time_point begin = Clock::now();
  const bool is_limited =
      wait.time_max.has_value() && *wait.time_max < std::chrono::hours(24 * 365);
  const Clock::time_point end_of_wait =
      is_limited ? begin + std::max(*wait.time_max, nanoseconds(0)) : Clock::time_point::max();
  Clock::time_point asked = begin;
  nanoseconds slice = kSliceMin;
  const auto ask = [&] {
    const PeerState news = end.check_peers();
    if (news == PeerState::none) return nothing;
    // First report what the peer published before it ended.
    const Outcome last = look();
    if (last != nothing) return last;
    return news == PeerState::lost ? Outcome::peer_lost : Outcome::replaced;
  };
  for (;;) {
    const Clock::time_point now = Clock::now();
    if (now >= end_of_wait) return Outcome::timed_out;
    if (wait.how == Waiting::poll || (wait.how == Waiting::adaptive && now - begin < kSpinMax)) {
      pass(line);
      if (now - asked >= kPollPeersEvery) {
        asked = now;
        if (const Outcome news = ask(); news != nothing) return news;
      }
      seen = look();
      if (seen != nothing) return seen;
      continue;
    }
    if (const Outcome news = ask(); news != nothing) return news;
    mark_asleep(word);
    platform::shared_heavy_barrier();
    seen = look();
    if (seen == nothing) {
      platform::sleep_on_word(word, 1, std::min<nanoseconds>(slice, end_of_wait - now));
      slice = std::min(2 * slice, kSliceMax);
      seen = look();
    }
    word.store_relaxed(0);  // Relaxed: at worst a wake-up finds no sleeper.
    if (seen != nothing) return seen;
  }
}

void EndDeleter::operator()(End* end) const noexcept {
  delete end;
}

}  // namespace headrace::message::detail
