// SPDX-License-Identifier: Apache-2.0
#include "sim/room.hpp"

#include <vector>

#include "cache/order.hpp"

namespace headrace::sim {

struct Room::State {
  explicit State(double capacity) : capacity_bytes(capacity) {}

  /// As the cache does: held copies stay, and nothing is evicted unless that frees enough.
  bool make_room(double bytes) {
    std::vector<std::uint32_t> kept;
    std::vector<std::uint32_t> leaving;
    double gained = 0;
    while (used_bytes - gained + bytes > capacity_bytes) {
      const std::uint32_t number = order.propose({});
      if (number == 0) break;
      if (held[number]) {
        kept.push_back(number);
      } else {
        gained += sizes[number];
        leaving.push_back(number);
      }
    }
    const bool enough = used_bytes - gained + bytes <= capacity_bytes;
    for (const std::uint32_t number : leaving) {
      if (enough) {
        order.gone(number);
        pool.give_back(number);
        used_bytes -= sizes[number];
        ++eviction_count;
      } else {
        kept.push_back(number);
      }
    }
    for (const std::uint32_t number : kept) order.put_back(number);
    return enough;
  }

  cache::detail::Pool pool;
  cache::detail::Pool::Stash stash;
  cache::detail::Order order{cache::CacheOptions{}.eviction, pool};
  double capacity_bytes;
  double used_bytes = 0;
  std::uint64_t eviction_count = 0;
  // Indexed by copy number.
  std::vector<double> sizes;
  std::vector<bool> held;
};

Room::Room(double capacity_bytes) : state_(std::make_unique<State>(capacity_bytes)) {}
Room::~Room() = default;

std::uint32_t Room::take(std::uint64_t address, double bytes) {
  if (!state_->make_room(bytes)) return 0;
  const std::uint32_t number = state_->pool.take(state_->stash);
  if (state_->sizes.size() <= number) {
    state_->sizes.resize(number + 1);
    state_->held.resize(number + 1);
  }
  cache::detail::EntryState& entry = state_->pool[number];
  entry.address.store_relaxed(address);
  entry.byte_count.store_relaxed(static_cast<std::uint64_t>(bytes));
  state_->sizes[number] = bytes;
  state_->held[number] = true;
  state_->order.add(number, entry, {});
  state_->used_bytes += bytes;
  return number;
}

void Room::release(std::uint32_t number) {
  state_->held[number] = false;
}

double Room::used_bytes() const {
  return state_->used_bytes;
}

std::uint64_t Room::eviction_count() const {
  return state_->eviction_count;
}

}  // namespace headrace::sim
