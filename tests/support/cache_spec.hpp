// SPDX-License-Identifier: Apache-2.0
// The sequential specification of the cache as a pure model, and a check of recorded histories
// against it. Not for: nodes of copies, hits and misses, when memory is freed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "headrace/base/check.hpp"

namespace headrace::test {

/// Effect of the cache's calls on each byte as a program sees it; a *value* is any unit that is
/// written as a whole.
///
/// | call                 | effect on each byte of its region                                    |
/// | -------------------- | -------------------------------------------------------------------- |
/// | access, wait, data   | returns `current`; while a change is live any of `current`, `source` |
/// |                      | and what the change writes                                           |
/// | change begins        | only if no change is live; then one is. `data` is `current`          |
/// | change ends          | `current` is the value written; no effect if it was discarded        |
/// | write_back, flush,   | `source` is `current`, unless a change is live                       |
/// | clear                |                                                                      |
/// | invalidate           | `current` is `source`: unwritten changes are lost. A live change     |
/// |                      | inside the region is discarded; one partly inside continues          |
/// | (the cache, any time)| `source` is `current`, unless a change is live                       |
///
/// Bytes are independent, and histories that are linearizable per byte are linearizable (Herlihy
/// and Wing: linearizability is local), so the model has one byte.
struct CacheSpec {
  enum class Kind : std::uint8_t { read, begin_change, end_change, write_back, invalidate };
  struct Operation {
    Kind kind{};
    /// read: the value read. begin_change and end_change: the value that the change writes.
    std::uint64_t value = 0;
    /// begin_change: the value before the change.
    std::uint64_t before = 0;
  };

  std::uint64_t current = 0;
  std::uint64_t source = 0;
  std::optional<std::uint64_t> live = std::nullopt;  ///< Value that the live change writes.
  std::set<std::uint64_t> abandoned = {};            ///< Changes whose end has no effect.

  friend auto operator<=>(const CacheSpec&, const CacheSpec&) = default;

  /// The possible states after the operation; empty if it is not allowed in this state.
  [[nodiscard]] std::vector<CacheSpec> after(const Operation& operation) const {
    CacheSpec next = *this;
    switch (operation.kind) {
      case Kind::read: {
        const bool is_live = live && (operation.value == *live || operation.value == source);
        if (operation.value != current && !is_live) return {};
        return {next};
      }
      case Kind::begin_change:
        if (live || operation.before != current) return {};
        next.live = operation.value;
        return {next};
      case Kind::end_change:
        if (next.abandoned.erase(operation.value) != 0) return {next};
        if (live != operation.value) return {};
        next.current = *live;
        next.live = std::nullopt;
        return {next};
      case Kind::write_back:
        if (!live) next.source = current;
        return {next};
      case Kind::invalidate: {
        if (!live) {
          next.current = source;
          return {next};
        }
        CacheSpec abandoned_too = next;
        abandoned_too.current = source;
        abandoned_too.abandoned.insert(*live);
        abandoned_too.live = std::nullopt;
        return {next, abandoned_too};
      }
    }
    return {};
  }
};

/// An operation of a thread, between two instants of one clock whose values are unique.
struct RecordedOperation {
  CacheSpec::Operation operation;
  std::uint64_t called_at = 0;
  std::uint64_t returned_at = 0;
};

/// Searches for an order of the operations on one byte that the specification allows and that
/// respects real time (an operation that returned before another was called precedes it). Returns a
/// description of the violation if there is none.
///
/// Keeps every state possible after the events so far, with the pending operations that have taken
/// effect in it.
///
/// Cost: linear in the operations, exponential in the number pending at once.
[[nodiscard]] inline std::optional<std::string> find_violation(
    std::vector<RecordedOperation> history) {
  struct Event {
    std::uint64_t at = 0;
    std::size_t operation = 0;
    bool is_return = false;
  };
  std::vector<Event> events;
  for (std::size_t i = 0; i < history.size(); ++i) {
    events.push_back({history[i].called_at, i, false});
    events.push_back({history[i].returned_at, i, true});
  }
  std::sort(events.begin(), events.end(),
            [](const Event& a, const Event& b) { return a.at < b.at; });

  using Possible = std::tuple<std::uint32_t, CacheSpec>;  // Pending operations that have taken
                                                          // effect, and the state.
  std::set<Possible> possible{{0, CacheSpec{}}};
  std::array<std::optional<std::size_t>, 32> under_way{};
  for (const Event& event : events) {
    if (!event.is_return) {
      const auto free = std::find(under_way.begin(), under_way.end(), std::nullopt);
      HEADRACE_CHECK(free != under_way.end(), "at most 32 operations are under way at once");
      *free = event.operation;
      continue;
    }
    std::vector<Possible> unseen(possible.begin(), possible.end());
    const auto reach = [&](std::uint32_t effective, const CacheSpec& state) {
      if (possible.emplace(effective, state).second) unseen.emplace_back(effective, state);
    };
    while (!unseen.empty()) {
      const auto [effective, state] = unseen.back();
      unseen.pop_back();
      if (!state.live) {
        CacheSpec written = state;
        written.source = state.current;
        reach(effective, written);
      }
      for (std::uint32_t i = 0; i < under_way.size(); ++i) {
        if (!under_way[i] || (effective >> i & 1U) != 0) continue;
        for (const CacheSpec& next : state.after(history[*under_way[i]].operation)) {
          reach(effective | 1U << i, next);
        }
      }
    }
    const auto which = static_cast<std::uint32_t>(
        std::find(under_way.begin(), under_way.end(), event.operation) - under_way.begin());
    std::set<Possible> left;
    for (const auto& [effective, state] : possible) {
      if ((effective >> which & 1U) != 0) left.emplace(effective & ~(1U << which), state);
    }
    if (left.empty()) {
      std::ostringstream text;
      const RecordedOperation& wrong = history[event.operation];
      text << "operation of kind " << static_cast<int>(wrong.operation.kind) << " with value "
           << wrong.operation.value << " (before " << wrong.operation.before << "), called at "
           << wrong.called_at << ", returned at " << wrong.returned_at
           << ", has no place; possible before:";
      std::size_t shown_count = 0;
      for (const auto& [effective, state] : possible) {
        if (++shown_count > 8) break;
        text << " {current " << state.current << ", source " << state.source << ", live "
             << (state.live ? std::to_string(*state.live) : "none") << "}";
      }
      return text.str();
    }
    possible = std::move(left);
    under_way[which] = std::nullopt;
  }
  return std::nullopt;
}

}  // namespace headrace::test
