// SPDX-License-Identifier: Apache-2.0
// Change: the handle of who changes the bytes of a region. It may outlive the cache.
#include <utility>

#include "headrace/cache/cache.hpp"
#include "ledger.hpp"

namespace headrace::cache {

Change::Change(Change&& other) noexcept
    : data_(other.data_),
      entry_(std::move(other.entry_)),
      ledger_(std::exchange(other.ledger_, nullptr)),
      ticket_(other.ticket_),
      range_address_(other.range_address_),
      range_byte_count_(other.range_byte_count_),
      number_(other.number_) {}

Change& Change::operator=(Change&& other) noexcept {
  if (this == &other) return *this;
  end();
  data_ = other.data_;
  entry_ = std::move(other.entry_);
  ledger_ = std::exchange(other.ledger_, nullptr);
  ticket_ = other.ticket_;
  range_address_ = other.range_address_;
  range_byte_count_ = other.range_byte_count_;
  number_ = other.number_;
  return *this;
}

Change::~Change() {
  end();
}

void Change::end() noexcept {
  if (ledger_ == nullptr) return;
  detail::Changes::Range range{{range_address_, range_byte_count_}, number_, ticket_};
  if (number_ != 0) range.shelf = ledger_->pool[number_].shelf_number();
  if (ledger_->changes.end(range)) ledger_->write_back({&range, 1});
  std::exchange(ledger_, nullptr)->let_go();
}

}  // namespace headrace::cache
