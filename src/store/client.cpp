// SPDX-License-Identifier: Apache-2.0
// The client of a shared store. It copies blocks in place, and asks the server for the rest.
#include <poll.h>

#include <algorithm>
#include <map>

#include "headrace/base/clock.hpp"
#include "headrace/store/shared.hpp"
#include "shared.hpp"
#include "state.hpp"

namespace headrace::store {

using detail::SharedLink;
using detail::TransferBatch;
using detail::Wish;

/// Threading: shared.
class ClientState final : public Store {
 public:
  ClientState(engine::Engine& engine, const ConnectOptions& options,
              std::shared_ptr<SharedLink> link, platform::EventDescriptor event)
      : engine_(engine), options_(options), link_(std::move(link)), event_(std::move(event)) {}

  [[nodiscard]] Transfer put(std::span<const PutBlock> blocks, std::size_t tier,
                             const TransferOptions& options) override {
    std::vector<Item> items;
    for (const auto& [key, source] : blocks) {
      items.push_back({.wish = Wish::put, .key = key, .source = source});
    }
    return run(items, options, static_cast<std::uint8_t>(std::min(tier, kTiersMax)));
  }
  [[nodiscard]] Transfer get(std::span<const GetBlock> blocks,
                             const TransferOptions& options) override {
    std::vector<Item> items;
    for (const auto& [key, target] : blocks) items.push_back({.key = key, .target = target});
    return run(items, options);
  }
  [[nodiscard]] Transfer flush() override {
    Item item{.wish = Wish::flush};
    return run({&item, 1}, {});
  }
  [[nodiscard]] BlockView view(std::string_view key) override;
  [[nodiscard]] std::optional<std::size_t> length(std::string_view key) const override;
  [[nodiscard]] bool pin(std::string_view key) override {
    return ask(Wish::pin, key).outcome == Outcome::done;
  }
  bool unpin(std::string_view key) override {
    return ask(Wish::unpin, key).outcome == Outcome::done;
  }
  Outcome remove(std::string_view key) override { return ask(Wish::remove, key).outcome; }
  std::size_t clear() override { return ask(Wish::clear).byte_count; }
  [[nodiscard]] std::vector<std::string> keys() const override {
    detail::Texts texts;
    static_cast<void>(ask(Wish::keys, {}, &texts));
    std::vector<std::string> keys;
    while (std::optional<std::string> key = texts.take()) keys.push_back(std::move(*key));
    return keys;
  }
  [[nodiscard]] StoreStatistics statistics() const override {
    detail::Texts texts;
    static_cast<void>(ask(Wish::totals, {}, &texts));
    return detail::unpack(std::move(texts));
  }
  [[nodiscard]] Result<int> event_descriptor() override { return event_.descriptor(); }

 private:
  struct Item {
    Wish wish = Wish::get;
    std::string_view key = {};
    std::span<const std::byte> source = {};
    std::span<std::byte> target = {};
    detail::Texts* texts = nullptr;
    BlockEnd end = {};
  };
  using Sent = std::map<std::uint32_t, Item*>;  ///< Not yet answered, by place.

  [[nodiscard]] Transfer run(std::span<Item> items, const TransferOptions& options,
                             std::uint8_t tier = 0) const;
  [[nodiscard]] BlockEnd ask(Wish wish, std::string_view key = {},
                             detail::Texts* texts = nullptr) const {
    Item item{.wish = wish, .key = key, .texts = texts};
    const Transfer transfer = run({&item, 1}, {});
    return transfer.ends().front();
  }
  /// Ends the item, or sends it.
  void start(Item& item, std::uint8_t tier, Sent& sent) const HEADRACE_REQUIRES(mutex_);
  void receive(Sent& sent) const HEADRACE_REQUIRES(mutex_);
  [[nodiscard]] bool copy_in_place(Item& item) const;
  [[nodiscard]] Outcome copy(std::span<std::byte> target, std::span<const std::byte> source,
                             std::optional<std::uint32_t> crc = std::nullopt) const;

  engine::Engine& engine_;
  const ConnectOptions options_;
  const std::shared_ptr<SharedLink> link_;
  platform::EventDescriptor event_;
  /// Held while the server is asked.
  mutable Mutex mutex_;
  /// Not `running` once the connection has failed.
  mutable Outcome failure_ HEADRACE_GUARDED_BY(mutex_) = Outcome::running;
};

Transfer ClientState::run(std::span<Item> items, const TransferOptions& options,
                          std::uint8_t tier) const {
  const auto batch = TransferBatch::make(items.size(), options, engine_.waiting());
  std::vector<Item*> left;
  for (Item& item : items) {
    const bool has_key = detail::is_key(item.key) || !detail::needs_key(item.wish);
    const bool fits = item.source.size() <= link_->shape.block_bytes;
    if (!has_key || !fits || link_->is_forked()) {
      item.end.outcome = link_->is_forked() ? Outcome::closed
                         : has_key          ? Outcome::wrong_length
                                            : Outcome::bad_key;
    } else if (item.wish != Wish::get || !copy_in_place(item)) {
      left.push_back(&item);
    }
  }
  if (!left.empty()) {
    const Lock lock(mutex_);
    Sent sent;
    for (Item* const item : left) {
      while (sent.size() == link_->shape.place_count) receive(sent);
      start(*item, tier, sent);
    }
    while (!sent.empty()) receive(sent);
  }
  std::ranges::transform(items, batch->ends.begin(), &Item::end);
  batch->announce(&event_);
  return Transfer(batch);
}

void ClientState::start(Item& item, std::uint8_t tier, Sent& sent) const {
  item.end.outcome = failure_;
  if (failure_ != Outcome::running) return;
  std::uint32_t place = 0;
  while (sent.contains(place)) ++place;
  const Outcome copied = copy(link_->place(place).first(item.source.size()), item.source);
  if (copied != Outcome::done) item.end.outcome = copied;
  if (copied != Outcome::done) return;
  const std::size_t length = std::max(item.source.size(), item.target.size());
  const detail::RequestHead head{.wish = item.wish,
                                 .tier = tier,
                                 .key_bytes = static_cast<std::uint16_t>(item.key.size()),
                                 .place = place,
                                 .byte_count = static_cast<std::uint32_t>(
                                     std::min<std::uint64_t>(length, link_->shape.block_bytes))};
  // If the connection has ended, so does receive().
  link_->socket.send(std::as_bytes(std::span(&head, 1)), std::as_bytes(std::span(item.key)));
  sent.emplace(place, &item);
}

void ClientState::receive(Sent& sent) const {
  pollfd watched{.fd = link_->socket.descriptor(), .events = POLLIN, .revents = 0};
  const std::chrono::nanoseconds until = steady_clock().now() + options_.deadline;
  detail::AnswerHead head;
  std::vector<platform::Descriptor> files;
  std::optional<std::size_t> count;
  while (!count && steady_clock().now() < until) {
    platform::poll_until({&watched, 1}, until - steady_clock().now());
    count = link_->socket.receive(std::as_writable_bytes(std::span(&head, 1)), &files);
  }
  const auto found = sent.find(head.place);
  if (!count || *count != sizeof(head) || found == sent.end()) {
    // A late answer would be taken for that of another request.
    failure_ = Outcome::closed;
    for (const auto& [place, item] : std::exchange(sent, {})) {
      item->end.outcome = count ? Outcome::closed : Outcome::timed_out;
    }
    return;
  }
  Item& item = *found->second;
  item.end = {.outcome = head.outcome, .byte_count = head.value};
  if (item.wish == Wish::get && head.outcome == Outcome::done) {
    const auto target = item.target.first(std::min<std::size_t>(head.value, item.target.size()));
    item.end.outcome = copy(target, link_->place(head.place).first(target.size()));
  }
  if (item.texts != nullptr && !files.empty()) {
    const auto file = platform::SharedFile::adopt(std::move(files.front()));
    std::string bytes(file.byte_count().value_or(0), '\0');
    static_cast<void>(file.read_at(0, std::as_writable_bytes(std::span(bytes))));
    *item.texts = detail::Texts(std::move(bytes));
  }
  sent.erase(found);
}

/// False if the block is not in place, or does not match its checksum there.
bool ClientState::copy_in_place(Item& item) const {
  const std::optional<SharedLink::Found> found = link_->find(item.key);
  if (!found) return false;
  const std::size_t byte_count = found->bytes.size();
  item.end = {.outcome = Outcome::wrong_length};
  if (byte_count <= item.target.size()) {
    const Outcome copied = copy(item.target.first(byte_count), found->bytes, found->crc);
    item.end = {copied, copied == Outcome::done ? static_cast<std::uint32_t>(byte_count) : 0};
    link_->note(found->cell);
  }
  link_->give_back(found->lease);
  return item.end.outcome != Outcome::corrupt;
}

Outcome ClientState::copy(std::span<std::byte> target, std::span<const std::byte> source,
                          std::optional<std::uint32_t> crc) const {
  if (source.empty()) return Outcome::done;
  engine::Completion completion;
  const auto operation =
      crc ? engine::Operation::copy_crc(target, source) : engine::Operation::copy(target, source);
  if (engine_.run(operation, completion) != engine::Submit::accepted) return Outcome::closed;
  const Outcome outcome = detail::outcome_of(completion);
  const bool differs = outcome == Outcome::done && crc && completion.result.crc != *crc;
  return differs ? Outcome::corrupt : outcome;
}

BlockView ClientState::view(std::string_view key) {
  const std::optional<SharedLink::Found> found = link_->find(key);
  if (!found) return Store::view(key);
  link_->note(found->cell);
  const auto end = [link = link_, lease = found->lease](const void*) { link->give_back(lease); };
  return {.outcome = Outcome::done,
          .bytes = found->bytes,
          .in_place = true,
          .keeper = std::shared_ptr<const void>(found->bytes.data(), end)};
}

std::optional<std::size_t> ClientState::length(std::string_view key) const {
  if (const std::optional<SharedLink::Found> found = link_->find(key)) {
    link_->give_back(found->lease);
    return found->bytes.size();
  }
  const BlockEnd end = ask(Wish::length, key);
  return end.outcome == Outcome::done ? std::optional<std::size_t>(end.byte_count) : std::nullopt;
}

Result<std::unique_ptr<Store>> connect(engine::Engine& engine, const std::string& socket,
                                       const ConnectOptions& options) {
  HEADRACE_TAKE(link, SharedLink::make(socket, options.deadline));
  HEADRACE_TAKE(event, platform::EventDescriptor::make());
  return std::make_unique<ClientState>(engine, options, std::move(*link), std::move(*event));
}

}  // namespace headrace::store
