// SPDX-License-Identifier: Apache-2.0
// The client of a shared store. The calling thread copies what is short; one thread does the rest,
// takes the server's answers, and connects again when that has ended.
#include <poll.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <thread>

#include "headrace/base/clock.hpp"
#include "headrace/store/shared.hpp"
#include "shared.hpp"
#include "state.hpp"

namespace headrace::store {
namespace {

using detail::SharedLink;
using detail::TransferBatch;
using detail::Wish;
using std::chrono::nanoseconds;
using BatchPointer = std::shared_ptr<TransferBatch>;

/// Of blocks that the calling thread copies, and after which a packet is sent.
constexpr std::size_t kInlineBytesMax = std::size_t{256} << 10U;
/// Of a server that has the socket; without one, connecting fails at once.
constexpr nanoseconds kReconnectMax = std::chrono::seconds(1);

}  // namespace

/// Threading: shared.
class ClientState final : public Store {
 public:
  ClientState(engine::Engine& engine, std::string path, const ConnectOptions& options,
              std::shared_ptr<SharedLink> link, platform::EventDescriptor wake)
      : engine_(engine),
        path_(std::move(path)),
        deadline_(detail::bounded(options.deadline)),
        wake_(std::move(wake)),
        link_(std::move(link)) {}
  [[gnu::noinline]] ~ClientState() override {
    {
      const Lock lock(mutex_);
      is_ending_ = true;
    }
    wake_.signal();
    if (thread_.joinable()) thread_.join();
  }
  /// As of StoreState.
  static void operator delete(ClientState* state, std::destroying_delete_t /*how*/) {
    if (state->is_forked()) return;
    state->~ClientState();
    ::operator delete(state);
  }
  [[nodiscard]] Result<void> start() {
    HEADRACE_TAKE(started, platform::start_thread("connect to a shared store", [this] { talk(); }));
    thread_ = std::move(*started);
    return {};
  }

  [[nodiscard]] Transfer put(std::span<const PutBlock> blocks, std::size_t tier,
                             const TransferOptions& options) override;
  [[nodiscard]] Transfer get(std::span<const GetBlock> blocks,
                             const TransferOptions& options) override;
  [[nodiscard]] Transfer flush() override { return submit({.wish = Wish::flush}); }
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
  [[nodiscard]] Result<int> event_descriptor() override;

 private:
  struct Item {
    BatchPointer batch = nullptr;  ///< Null: it has ended as timed_out.
    std::uint32_t index = 0;
    Wish wish = Wish::get;
    std::uint8_t tier = 0;
    std::string key = {};
    std::span<const std::byte> source = {};
    std::span<std::byte> target = {};
    detail::Texts* texts = nullptr;
    nanoseconds expires{};
  };
  using Ended = std::vector<BatchPointer>;
  /// Requests of one batch, not yet sent.
  struct Packet {
    std::string bytes = {};
    std::size_t block_bytes = 0;
    const TransferBatch* batch = nullptr;
  };

  [[nodiscard]] bool is_forked() const { return platform::fork_count() != fork_count_; }
  /// Null without a server, and in a child of fork().
  [[nodiscard]] std::shared_ptr<SharedLink> current() const {
    if (is_forked()) return nullptr;
    const Lock lock(mutex_);
    return link_;
  }
  [[nodiscard]] BatchPointer begin(std::size_t block_count, const TransferOptions& options) const {
    return TransferBatch::make(block_count, options, engine_.waiting());
  }
  /// Sends what is short, if nothing waits; the rest goes to the thread.
  [[nodiscard]] Transfer submit(const BatchPointer& batch, std::vector<Item> items) const;
  [[nodiscard]] Transfer submit(Item item) const {
    item.batch = begin(1, {});
    return submit(item.batch, {item});
  }
  [[nodiscard]] BlockEnd ask(Wish wish, std::string_view key = {},
                             detail::Texts* texts = nullptr) const {
    const Transfer transfer = submit({.wish = wish, .key = std::string(key), .texts = texts});
    transfer.wait();
    return transfer.ends().front();
  }
  /// False if the block is not in place, does not match its checksum there, or is longer than
  /// `bytes_max`, which is then 0.
  [[nodiscard]] bool copy_in_place(SharedLink& link, std::string_view key,
                                   std::span<std::byte> target, BlockEnd& end,
                                   std::size_t& bytes_max) const;
  [[nodiscard]] Outcome copy(std::span<std::byte> target, std::span<const std::byte> source,
                             std::optional<std::uint32_t> crc = std::nullopt) const;
  /// Copies the source. Not `done` if the item ends with that.
  [[nodiscard]] Outcome prepare(const Item& item, const SharedLink& link,
                                std::uint32_t place) const;
  /// A free place of the link, which is not null.
  [[nodiscard]] std::optional<std::uint32_t> place() const HEADRACE_REQUIRES(mutex_);
  void add(Packet& packet, Item item, std::uint32_t place) const HEADRACE_REQUIRES(mutex_);
  /// Empties it.
  void send(Packet& packet) const HEADRACE_REQUIRES(mutex_);
  static void end(const Item& item, BlockEnd end, Ended& ended) {
    item.batch->ends[item.index] = end;
    if (--item.batch->left == 0) ended.push_back(item.batch);
  }
  void announce(const Ended& ended) const {
    // edge: client-event-made (acquire)
    for (const BatchPointer& batch : ended) batch->announce(signalled_.load_acquire());
  }

  // The thread.
  void talk();
  void receive();
  void take(const SharedLink& link, const detail::AnswerHead& answer,
            std::span<platform::Descriptor> files);
  /// Returns whether to go on.
  [[nodiscard]] bool send_waiting();
  void connect_again();
  void expire(nanoseconds now);
  /// Drops the connection, and ends what was sent.
  void lose();

  engine::Engine& engine_;
  const std::string path_;
  const nanoseconds deadline_;
  const std::uint32_t fork_count_ = (platform::watch_forks(), platform::fork_count());
  const platform::EventDescriptor wake_;
  std::optional<platform::EventDescriptor> event_ HEADRACE_GUARDED_BY(mutex_);
  Atomic<const platform::EventDescriptor*> signalled_{nullptr};
  mutable Mutex mutex_;
  std::shared_ptr<SharedLink> link_ HEADRACE_GUARDED_BY(mutex_);  ///< Changed by the thread only.
  mutable std::deque<Item> waiting_ HEADRACE_GUARDED_BY(mutex_);
  /// Not yet answered, by place.
  mutable std::array<Item, detail::kRequestsMax> sent_ HEADRACE_GUARDED_BY(mutex_);
  mutable std::uint64_t taken_ HEADRACE_GUARDED_BY(mutex_) = 0;  ///< Set of their places.
  bool is_busy_ HEADRACE_GUARDED_BY(mutex_) = false;  ///< The thread is about to send an item.
  bool is_ending_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

Transfer ClientState::put(std::span<const PutBlock> blocks, std::size_t tier,
                          const TransferOptions& options) {
  const BatchPointer batch = begin(blocks.size(), options);
  std::vector<Item> items(blocks.size());
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    items[i] = {.batch = batch,
                .index = i,
                .wish = Wish::put,
                .tier = static_cast<std::uint8_t>(std::min(tier, kTiersMax)),
                .key = std::string(blocks[i].key),
                .source = blocks[i].source};
  }
  return submit(batch, std::move(items));
}

Transfer ClientState::get(std::span<const GetBlock> blocks, const TransferOptions& options) {
  const BatchPointer batch = begin(blocks.size(), options);
  const std::shared_ptr<SharedLink> link = current();
  std::size_t bytes_max = link == nullptr ? 0 : kInlineBytesMax;
  std::vector<Item> items;
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    const auto [key, target] = blocks[i];
    if (bytes_max != 0 && copy_in_place(*link, key, target, batch->ends[i], bytes_max)) {
      --batch->left;
    } else {
      items.push_back({.batch = batch, .index = i, .key = std::string(key), .target = target});
    }
  }
  if (!items.empty()) return submit(batch, std::move(items));
  // edge: client-event-made (acquire)
  batch->announce(signalled_.load_acquire());
  return Transfer(batch);
}

Transfer ClientState::submit(const BatchPointer& batch, std::vector<Item> items) const {
  Ended ended;
  bool wakes = false;
  if (items.empty()) ended.push_back(batch);
  if (is_forked()) {
    for (const Item& item : items) end(item, {.outcome = Outcome::closed}, ended);
  } else if (!items.empty()) {
    const nanoseconds expires = steady_clock().now() + deadline_;
    std::size_t bytes_max = kInlineBytesMax;
    Packet packet;
    const Lock lock(mutex_);
    for (Item& item : items) {
      item.expires = expires;
      const std::size_t byte_count = std::max(item.source.size(), item.target.size());
      const bool is_next = link_ != nullptr && waiting_.empty() && !is_busy_;
      const auto free = is_next && byte_count <= bytes_max ? place() : std::nullopt;
      if (!free) {
        wakes = wakes || waiting_.empty();
        waiting_.push_back(std::move(item));
        continue;
      }
      bytes_max -= byte_count;
      const Outcome prepared = prepare(item, *link_, *free);
      if (prepared == Outcome::done) {
        add(packet, std::move(item), *free);
      } else {
        end(item, {.outcome = prepared}, ended);
      }
    }
    send(packet);
  }
  if (wakes) wake_.signal();
  announce(ended);
  return Transfer(batch);
}

bool ClientState::copy_in_place(SharedLink& link, std::string_view key, std::span<std::byte> target,
                                BlockEnd& end, std::size_t& bytes_max) const {
  const std::optional<SharedLink::Found> found = link.find(key);
  if (!found) return false;
  const std::size_t byte_count = found->bytes.size();
  bool is_done = false;
  if (byte_count > bytes_max) {
    bytes_max = 0;
  } else if (byte_count > target.size()) {
    end = {.outcome = Outcome::wrong_length};
    is_done = true;
  } else {
    const Outcome copied = copy(target.first(byte_count), found->bytes, found->crc);
    is_done = copied != Outcome::corrupt;
    end = {copied, copied == Outcome::done ? static_cast<std::uint32_t>(byte_count) : 0};
    bytes_max -= byte_count;
    link.note(found->cell);
  }
  link.give_back(found->lease);
  return is_done;
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

Outcome ClientState::prepare(const Item& item, const SharedLink& link, std::uint32_t place) const {
  if (detail::needs_key(item.wish) && !detail::is_key(item.key)) return Outcome::bad_key;
  if (item.source.size() > link.shape.block_bytes) return Outcome::wrong_length;
  return copy(link.place(place).first(item.source.size()), item.source);
}

std::optional<std::uint32_t> ClientState::place() const {
  const auto first = static_cast<std::uint32_t>(std::countr_one(taken_));
  return first < link_->shape.place_count ? std::optional(first) : std::nullopt;
}

void ClientState::add(Packet& packet, Item item, std::uint32_t place) const {
  const std::size_t byte_count = std::max(item.source.size(), item.target.size());
  const detail::RequestHead head{.wish = item.wish,
                                 .tier = item.tier,
                                 .key_bytes = static_cast<std::uint16_t>(item.key.size()),
                                 .place = place,
                                 .byte_count = static_cast<std::uint32_t>(std::min<std::uint64_t>(
                                     byte_count, link_->shape.block_bytes))};
  packet.bytes.append(reinterpret_cast<const char*>(&head), sizeof(head)).append(item.key);
  packet.block_bytes += byte_count;
  packet.batch = item.batch.get();
  taken_ |= std::uint64_t{1} << place;
  item.key.clear();
  sent_[place] = std::move(item);
}

void ClientState::send(Packet& packet) const {
  // If the connection has ended, so does receive().
  if (!packet.bytes.empty()) link_->socket.send(std::as_bytes(std::span(packet.bytes)));
  packet = {};
}

void ClientState::talk() {
  nanoseconds next = steady_clock().now();
  do {
    const std::shared_ptr<SharedLink> link = current();
    std::array<pollfd, 2> watched{};
    watched[0] = {.fd = wake_.descriptor(), .events = POLLIN, .revents = 0};
    watched[1] = {
        .fd = link == nullptr ? -1 : link->socket.descriptor(), .events = POLLIN, .revents = 0};
    platform::poll_until(watched, deadline_ / 4);
    if (watched[0].revents != 0) wake_.reset();
    receive();
    const nanoseconds now = steady_clock().now();
    if (now < next) continue;
    next = now + deadline_ / 4;
    expire(now);
  } while (send_waiting());
}

void ClientState::receive() {
  const std::shared_ptr<SharedLink> link = current();
  if (link == nullptr) return;
  std::array<detail::AnswerHead, detail::kRequestsMax> answers;
  while (true) {
    std::vector<platform::Descriptor> files;
    const std::optional<std::size_t> count =
        link->socket.receive(std::as_writable_bytes(std::span(answers)), &files);
    if (!count) return;
    if (*count == 0) return lose();
    for (const detail::AnswerHead& answer :
         std::span(answers).first(*count / sizeof(detail::AnswerHead))) {
      take(*link, answer, files);
    }
  }
}

void ClientState::take(const SharedLink& link, const detail::AnswerHead& answer,
                       std::span<platform::Descriptor> files) {
  const std::uint32_t place = answer.place % detail::kRequestsMax;  // The server is trusted.
  Item item;
  {
    const Lock lock(mutex_);
    std::swap(item, sent_[place]);
  }
  BlockEnd end{.outcome = answer.outcome, .byte_count = answer.value};
  if (item.batch != nullptr && item.wish == Wish::get && answer.outcome == Outcome::done) {
    const auto target = item.target.first(std::min<std::size_t>(answer.value, item.target.size()));
    end.outcome = copy(target, link.place(place).first(target.size()));
  }
  if (item.batch != nullptr && item.texts != nullptr && !files.empty()) {
    const auto file = platform::SharedFile::adopt(std::move(files.front()));
    std::string bytes(file.byte_count().value_or(0), '\0');
    static_cast<void>(file.read_at(0, std::as_writable_bytes(std::span(bytes))));
    *item.texts = detail::Texts(std::move(bytes));
  }
  Ended ended;
  {
    const Lock lock(mutex_);
    taken_ &= ~(std::uint64_t{1} << place);
    if (item.batch != nullptr) ClientState::end(item, end, ended);
  }
  announce(ended);
}

void ClientState::expire(nanoseconds now) {
  Ended ended;
  {
    const Lock lock(mutex_);
    const auto is_late = [&](Item& item) {
      const bool late = item.batch != nullptr && item.expires < now;
      // A place stays taken until its answer comes.
      if (late) end(item, {.outcome = Outcome::timed_out}, ended);
      if (late) item.batch = nullptr;
      return late;
    };
    for (Item& item : sent_) is_late(item);
    std::erase_if(waiting_, is_late);
  }
  announce(ended);
}

void ClientState::lose() {
  Ended ended;
  {
    const Lock lock(mutex_);
    link_.reset();
    for (Item& item : sent_) {
      if (item.batch != nullptr) end(item, {.outcome = Outcome::closed}, ended);
      item = {};
    }
    taken_ = 0;
  }
  announce(ended);
}

bool ClientState::send_waiting() {
  Packet packet;
  while (true) {
    {
      const Lock lock(mutex_);
      const bool has_room = packet.block_bytes < kInlineBytesMax && !waiting_.empty() &&
                            waiting_.front().batch.get() == packet.batch && place();
      if (!has_room) send(packet);
    }
    if (packet.batch == nullptr) receive();
    Item item;
    std::shared_ptr<SharedLink> link;
    std::optional<std::uint32_t> free;
    {
      const Lock lock(mutex_);
      is_busy_ = false;
      if (waiting_.empty()) {
        return !is_ending_ ||
               std::ranges::any_of(sent_, [](const Item& each) { return each.batch != nullptr; });
      }
      link = link_;
      if (link != nullptr) {
        free = place();
        if (!free) return true;
        item = std::move(waiting_.front());
        waiting_.pop_front();
        is_busy_ = true;
      }
    }
    if (link == nullptr) {
      connect_again();
      continue;
    }
    BlockEnd end;
    std::size_t bytes_max = link->shape.block_bytes;
    const bool is_done =
        item.wish == Wish::get && copy_in_place(*link, item.key, item.target, end, bytes_max);
    if (!is_done) end = {.outcome = prepare(item, *link, *free)};
    Ended ended;
    {
      const Lock lock(mutex_);
      if (is_done || end.outcome != Outcome::done) {
        ClientState::end(item, end, ended);
      } else {
        add(packet, std::move(item), *free);
      }
    }
    announce(ended);
  }
}

void ClientState::connect_again() {
  auto made = SharedLink::make(path_, std::min(deadline_, kReconnectMax));
  Ended ended;
  {
    const Lock lock(mutex_);
    if (made) {
      link_ = std::move(*made);
    } else {
      for (const Item& item : waiting_) end(item, {.outcome = Outcome::closed}, ended);
      waiting_.clear();
    }
  }
  announce(ended);
}

BlockView ClientState::view(std::string_view key) {
  const std::shared_ptr<SharedLink> link = current();
  const auto found = link == nullptr ? std::nullopt : link->find(key);
  if (!found) return Store::view(key);
  link->note(found->cell);
  const auto end = [link, lease = found->lease](const void*) { link->give_back(lease); };
  return {.outcome = Outcome::done,
          .bytes = found->bytes,
          .in_place = true,
          .keeper = std::shared_ptr<const void>(found->bytes.data(), end)};
}

std::optional<std::size_t> ClientState::length(std::string_view key) const {
  const std::shared_ptr<SharedLink> link = current();
  if (const auto found = link == nullptr ? std::nullopt : link->find(key)) {
    link->give_back(found->lease);
    return found->bytes.size();
  }
  const BlockEnd end = ask(Wish::length, key);
  return end.outcome == Outcome::done ? std::optional<std::size_t>(end.byte_count) : std::nullopt;
}

Result<int> ClientState::event_descriptor() {
  const Lock lock(mutex_);
  if (!event_) {
    HEADRACE_TAKE(made, platform::EventDescriptor::make());
    event_.emplace(std::move(*made));
    // edge: client-event-made (release)
    signalled_.store_release(&*event_);
  }
  return event_->descriptor();
}

Result<std::unique_ptr<Store>> connect(engine::Engine& engine, const std::string& socket,
                                       const ConnectOptions& options) {
  HEADRACE_TAKE(
      link, SharedLink::make(socket, detail::bounded(options.deadline), options.is_interrupted));
  HEADRACE_TAKE(wake, platform::EventDescriptor::make());
  std::error_code is_gone;  // The current directory, or it connects again from another.
  const std::string path = std::filesystem::absolute(socket, is_gone).string();
  auto client = std::make_unique<ClientState>(engine, is_gone ? socket : path, options,
                                              std::move(*link), std::move(*wake));
  HEADRACE_TRY(client->start());
  return client;
}

}  // namespace headrace::store
