// SPDX-License-Identifier: Apache-2.0
// The server of a shared store. One thread talks to the clients.
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

#include "headrace/store/shared.hpp"
#include "shared.hpp"
#include "state.hpp"

namespace headrace::store {
namespace {

using detail::kRequestsMax;
using detail::RequestHead;
using detail::Wish;
using platform::LocalSocket;

constexpr std::size_t kPlacesBytes = std::size_t{16} << 20U;
constexpr std::size_t kTurn = 8;  ///< Requests taken of one client before the next one's.
constexpr const char* kServing = "serve a store";

}  // namespace

struct ServerState;
/// Whose requests the calling thread answers.
[[gnu::tls_model("initial-exec")]] static constinit thread_local const ServerState* talking =
    nullptr;

struct ServerState final : Server {
  struct Client {
    LocalSocket socket;
    platform::SharedMap memory;
    detail::SharedCells::Reader reader;
    ClientStatistics statistics;
    std::multiset<std::string> pins = {};
    std::uint64_t waiting = 0;  ///< Requests not yet answered.
    bool is_gone = false;
    // In a child of fork(), which would keep the connection from ending.
    Atomic<std::uint32_t> forked{0};
    const platform::ForkGuard guard{socket.descriptor(), forked, 1};
  };
  /// A packet of puts, gets, or a flush in flight.
  struct Request {
    ServerState* server = nullptr;
    std::shared_ptr<Client> client;  ///< Keeps its memory.
    std::vector<detail::AnswerHead> answers;
    Atomic<bool> is_ended;
    Transfer transfer;  ///< Last: its destructor waits.
  };

  ServerState(const ServeOptions& chosen, LocalSocket socket, platform::EventDescriptor event,
              std::unique_ptr<detail::SharedCells> made)
      : options(chosen),
        listener(std::move(socket)),
        wake(std::move(event)),
        cells(std::move(made)) {}
  ~ServerState() override {
    is_ending.store_relaxed(true);  // Ordered by the event.
    wake.signal();
    if (talker.joinable()) talker.join();
    listener.hide();
    store.reset();  // It reads the memory of clients.
  }
  /// As of StoreState: in a child of fork() the socket and the thread are its parent's.
  static void operator delete(ServerState* state, std::destroying_delete_t /*how*/) {
    if (state->forked.load_relaxed() != 0) return;  // One thread.
    state->~ServerState();
    ::operator delete(state);
  }

  [[nodiscard]] Store& served() const override { return *store; }
  void talk();
  void welcome(LocalSocket socket);
  struct Asked {
    RequestHead head;
    std::string_view key;
  };
  /// None if it is no packet of a client.
  [[nodiscard]] std::vector<Asked> parse(std::span<const std::byte> packet) const;
  /// Returns the number of requests in a packet of the client; 0 if it has sent none.
  std::size_t listen_to(const std::shared_ptr<Client>& client);
  void answer_ended();
  [[nodiscard]] StoreStatistics totals() const;
  static void end(void* context, std::span<const BlockEnd> ends) noexcept;
  static void reply(Client& client, std::span<const detail::AnswerHead> answers,
                    const detail::Texts& texts = detail::Texts());
  /// Answers at once.
  void settle(Client& client, Wish wish, const std::string& key, detail::AnswerHead answer);
  /// Frees what the client holds.
  void drop(Client& client);

  const ServeOptions options;
  LocalSocket listener;
  Atomic<std::uint32_t> forked{0};
  const platform::ForkGuard listener_guard{listener.descriptor(), forked, 1};
  const platform::ForkGuard lock_guard{listener.lock(), forked, 1};
  platform::EventDescriptor wake;
  const std::unique_ptr<detail::SharedCells> cells;
  std::unique_ptr<StoreState> store;
  // Of the talker.
  std::vector<std::shared_ptr<Client>> clients;
  std::vector<std::unique_ptr<Request>> requests;
  Atomic<bool> is_ending;
  std::thread talker;
};

void ServerState::talk() {
  talking = this;
  cells->mark().hold();
  bool accepts = true;  // Not for a moment after it has failed, as with no free descriptors.
  // What it has taken is answered before its end.
  for (std::size_t first = 0; !is_ending.load_relaxed() || !requests.empty(); ++first) {
    std::vector<pollfd> watched;
    const auto watch = [&](int descriptor, bool takes) {  // Else it only watches for its end.
      watched.push_back(
          {.fd = descriptor, .events = static_cast<short>(takes ? POLLIN : 0), .revents = 0});
    };
    watch(wake.descriptor(), true);
    const bool takes = !is_ending.load_relaxed();
    watch(listener.descriptor(), takes && accepts);
    for (const std::shared_ptr<Client>& client : clients) {
      watch(client->socket.descriptor(), takes && client->waiting < kRequestsMax);
    }
    // The end of a flush does not wake it.
    const bool is_woken = requests.empty() && accepts;
    platform::poll_until(watched, std::chrono::milliseconds(is_woken ? 3'600'000 : 10));
    accepts = true;
    if (watched[0].revents != 0) wake.reset();
    answer_ended();
    // A few requests of each in turn, from another one first each time.
    for (std::size_t i = 0; i < clients.size(); ++i) {
      const std::size_t at = (first + i) % clients.size();
      const auto [fd, events, revents] = watched[2 + at];
      if (revents != 0 && events == 0) clients[at]->is_gone = true;
      const bool has_sent = revents != 0 && !clients[at]->is_gone;
      for (std::size_t taken = has_sent ? 0 : kTurn;
           taken < kTurn && clients[at]->waiting < kRequestsMax;) {
        const std::size_t count = listen_to(clients[at]);
        taken += count == 0 ? kTurn : count;
      }
    }
    answer_ended();
    std::erase_if(clients, [&](const std::shared_ptr<Client>& client) {
      if (client->is_gone) drop(*client);
      return client->is_gone;
    });
    if (watched[1].revents == 0) continue;
    std::optional<LocalSocket> accepted = listener.accept();
    accepts = accepted.has_value();
    if (accepts) welcome(std::move(*accepted));
  }
  cells->mark().release();
}

void ServerState::answer_ended() {
  std::erase_if(requests, [](const std::unique_ptr<Request>& request) {
    // edge: shared-request-ended (acquire)
    if (!request->is_ended.load_acquire() && !request->transfer.poll()) return false;
    request->transfer.wait();  // It is about to end.
    auto answer = request->answers.begin();
    for (const BlockEnd& end : request->transfer.ends()) {
      answer->value = end.byte_count;
      if (end.outcome != Outcome::done) answer->outcome = end.outcome;
      if (answer + 1 != request->answers.end()) ++answer;  // A flush has one.
    }
    reply(*request->client, request->answers);
    return true;
  });
}

void ServerState::welcome(LocalSocket socket) {
  const detail::SharedShape& shape = cells->shape;
  detail::Welcome hello{.hash = detail::Index::hash_of("headrace"), .shape = shape};
  auto file = platform::SharedFile::make_sealed(shape.client_byte_count(), {});
  auto memory = file ? platform::SharedMap::map(*file, shape.client_byte_count())
                     : Result<platform::SharedMap>(fail(file.error()));
  if (!memory || clients.size() >= options.clients_max) {
    hello.refusal =
        memory ? detail::Welcome::Refusal::too_many : detail::Welcome::Refusal::no_memory;
    socket.send(std::as_bytes(std::span(&hello, 1)));
    return;
  }
  const std::array<int, 2> files = {cells->file.descriptor(), file->descriptor()};
  if (!socket.send(std::as_bytes(std::span(&hello, 1)), {}, files)) return;
  const auto& words = *reinterpret_cast<const detail::ClientWords*>(memory->bytes().data());
  const std::uint32_t peer = socket.peer();
  clients.emplace_back(new Client{.socket = std::move(socket),
                                  .memory = std::move(*memory),
                                  .reader = {.words = &words},
                                  .statistics = {.process = peer}});
  store->share(&clients.back()->reader, nullptr);
}

std::vector<ServerState::Asked> ServerState::parse(std::span<const std::byte> packet) const {
  std::vector<Asked> asked;
  while (!packet.empty()) {
    RequestHead head;
    if (packet.size() >= sizeof(head)) std::memcpy(&head, packet.data(), sizeof(head));
    const RequestHead& first = asked.empty() ? head : asked.front().head;
    if (packet.size() < sizeof(head) + head.key_bytes || asked.size() == kRequestsMax ||
        head.wish > (asked.empty() ? Wish::totals : Wish::get) || head.wish != first.wish ||
        head.tier != first.tier || head.place >= cells->shape.place_count ||
        head.byte_count > cells->shape.stride_bytes) {
      return {};
    }
    const auto* const key = reinterpret_cast<const char*>(packet.data() + sizeof(head));
    asked.push_back({head, {key, head.key_bytes}});
    packet = packet.subspan(sizeof(head) + head.key_bytes);
  }
  return asked;
}

std::size_t ServerState::listen_to(const std::shared_ptr<Client>& client) {
  // A private copy: the client cannot change what has been checked.
  std::array<std::byte, kRequestsMax * (sizeof(RequestHead) + kKeyBytesMax) + 1> packet;
  const std::optional<std::size_t> count = client->socket.receive(packet);
  if (!count) return 0;
  const std::vector<Asked> asked = parse(std::span(packet).first(*count));
  // Otherwise its end, or no client of ours.
  client->is_gone = asked.empty();
  if (client->is_gone) return 0;
  client->waiting += asked.size();
  client->statistics.requests += asked.size();
  const auto [head, key] = asked.front();
  if (head.wish > Wish::flush) {
    settle(*client, head.wish, std::string(key), {.place = head.place});
    return 1;
  }
  Request& request = *requests.emplace_back(std::make_unique<Request>());
  request.server = this;
  request.client = client;
  std::vector<PutBlock> puts;
  std::vector<GetBlock> gets;
  for (const Asked& each : asked) {
    request.answers.push_back({.place = each.head.place});
    const std::span<std::byte> place =
        cells->shape.place(client->memory.bytes(), each.head.place).first(each.head.byte_count);
    if (head.wish == Wish::put) puts.push_back({.key = each.key, .source = place});
    if (head.wish == Wish::get) gets.push_back({.key = each.key, .target = place});
  }
  const TransferOptions then{.on_done = &end, .context = &request};
  request.transfer = head.wish == Wish::put   ? store->put(puts, head.tier, then)
                     : head.wish == Wish::get ? store->get(gets, then)
                                              : store->flush();
  return asked.size();
}

void ServerState::settle(Client& client, Wish wish, const std::string& key,
                         detail::AnswerHead answer) {
  detail::Texts texts;
  std::size_t number = 0;
  bool is_known = true;
  if (wish == Wish::remove) answer.outcome = store->remove(key);
  if (wish == Wish::clear) number = store->clear();
  for (const std::shared_ptr<Client>& each : clients) {
    // The pins of a block end with it.
    if (wish == Wish::remove && answer.outcome == Outcome::done) each->pins.erase(key);
    if (number != 0) each->pins.clear();
  }
  if (wish == Wish::length) is_known = (number = store->length(key).value_or(0)) != 0;
  if (wish == Wish::pin) {
    is_known = client.pins.size() < cells->shape.lease_count && store->pin(key);
    if (is_known) client.pins.insert(key);
  }
  if (wish == Wish::unpin) {
    const auto pin = client.pins.find(key);
    is_known = pin != client.pins.end() && store->unpin(key);
    if (pin != client.pins.end()) client.pins.erase(pin);
  }
  if (wish == Wish::keys) {
    for (const std::string& each : store->keys()) texts.add(each);
  }
  if (wish == Wish::totals) texts = detail::pack(totals());
  answer.value = static_cast<std::uint32_t>(number);
  if (!is_known) answer.outcome = Outcome::unknown_key;
  reply(client, {&answer, 1}, texts);
}

void ServerState::reply(Client& client, std::span<const detail::AnswerHead> answers,
                        const detail::Texts& texts) {
  client.waiting -= answers.size();
  std::optional<platform::SharedFile> file;
  if (!texts.bytes().empty()) {
    const auto bytes = std::as_bytes(std::span(texts.bytes()));
    if (auto made = platform::SharedFile::make_sealed(bytes.size(), bytes)) file = std::move(*made);
  }
  const int attached = file ? file->descriptor() : -1;
  // There is room for answers to as many requests as a client may have.
  const bool is_sent =
      client.socket.send(std::as_bytes(answers), {}, std::span(&attached, file ? 1 : 0));
  client.is_gone = client.is_gone || !is_sent;
}

void ServerState::drop(Client& client) {
  store->share(nullptr, &client.reader);
  for (const std::string& key : client.pins) store->unpin(key);
  client.socket.end();
}

StoreStatistics ServerState::totals() const {
  StoreStatistics all = store->statistics();
  for (const std::shared_ptr<Client>& client : clients) {
    ClientStatistics& each = all.clients.emplace_back(client->statistics);
    each.reads_in_place = client->reader.words->read_count.load_relaxed();  // As a hint.
    each.pins = client->pins.size();
    each.leases = static_cast<std::uint64_t>(std::ranges::count_if(
        client->reader.words->leases, [](const auto& lease) { return lease.load_relaxed() != 0; }));
  }
  return all;
}

void ServerState::end(void* context, std::span<const BlockEnd> /*ends*/) noexcept {
  auto& request = *static_cast<Request*>(context);
  ServerState& server = *request.server;
  // edge: shared-request-ended (release)
  request.is_ended.store_release(true);
  if (talking != &server) server.wake.signal();
}

Result<std::unique_ptr<Server>> Server::make(engine::Engine& engine, const ServeOptions& options) {
  HEADRACE_TRY(detail::check(options.store));
  const TierOptions& memory = options.store.tiers.front();
  detail::SharedShape shape{.block_bytes = options.store.block_bytes.count()};
  shape.stride_bytes = detail::Tier::stride_of(shape.block_bytes);
  shape.cell_count = memory.capacity.count() / shape.block_bytes;
  if (!memory.path.empty() || memory.node) {
    return fail(Code::invalid_argument, kServing, "its first tier is a file, or on one node",
                "name memory on any node first");
  }
  if (shape.cell_count == 0 || options.clients_max == 0 || options.clients_max > 64) {
    return fail(Code::invalid_argument, kServing,
                "no block fits into its first tier, or clients_max is not 1 to 64",
                "ask for room for one block or more, and for 1 to 64 clients");
  }
  shape.place_count = static_cast<std::uint32_t>(
      std::clamp<std::size_t>(kPlacesBytes / shape.stride_bytes, 1, kRequestsMax));
  shape.lease_count = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(shape.cell_count / (2 * std::uint64_t{options.clients_max}), 256));
  if (options.replace_within.count() != 0) {
    HEADRACE_TRY(LocalSocket::end_listener(options.socket, detail::bounded(options.replace_within),
                                           options.is_interrupted));
  }
  HEADRACE_TAKE_WITHIN(kServing, socket, LocalSocket::listen(options.socket, options.group));
  HEADRACE_TAKE_WITHIN(kServing, event, platform::EventDescriptor::make());
  HEADRACE_TAKE_WITHIN(kServing, cells, detail::SharedCells::make(shape));
  auto state = std::make_unique<ServerState>(options, std::move(*socket), std::move(*event),
                                             std::move(*cells));
  HEADRACE_TAKE(store, StoreState::make(engine, options.store, state->cells.get()));
  state->store = std::move(*store);
  HEADRACE_TAKE(thread, platform::start_thread(kServing, [&talker = *state] { talker.talk(); }));
  state->talker = std::move(*thread);
  return state;
}

}  // namespace headrace::store
