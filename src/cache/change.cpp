// SPDX-License-Identifier: Apache-2.0
// Change: the right to change the bytes of a region. It may outlive the cache.
#include <memory>
#include <utility>

#include "core.hpp"
#include "headrace/cache/cache.hpp"

namespace headrace::cache {

Change::Change(Change&& other) noexcept
    : data_(other.data_),
      entry_(std::move(other.entry_)),
      core_(std::exchange(other.core_, nullptr)),
      ticket_(other.ticket_),
      range_address_(other.range_address_),
      range_byte_count_(other.range_byte_count_),
      number_(other.number_) {}

Change& Change::operator=(Change&& other) noexcept {
  if (this == &other) return *this;
  std::destroy_at(this);
  return *std::construct_at(this, std::move(other));
}

Change::~Change() {
  end();
}

void Change::end() noexcept {
  if (core_ == nullptr) return;
  detail::DirtyRanges::Range range{{range_address_, range_byte_count_}, number_, ticket_};
  if (number_ != 0) range.shard = core_->pool[number_].shard_number();
  if (core_->dirty.end(range)) core_->write_back({&range, 1});
  std::exchange(core_, nullptr)->let_go();
}

}  // namespace headrace::cache
