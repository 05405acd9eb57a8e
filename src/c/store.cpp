// SPDX-License-Identifier: Apache-2.0
// The block store of headrace.h, implemented by the C++ store.
#include <algorithm>
#include <new>
#include <span>

#include "common.hpp"
#include "headrace/store/shared.hpp"

namespace {

using headrace::store::BlockEnd;
using headrace::store::BlockView;
using headrace::store::GetBlock;
using headrace::store::Outcome;
using headrace::store::PutBlock;
using headrace::store::Store;
using headrace::store::StoreOptions;
using headrace::store::Transfer;

static_assert(HEADRACE_OUTCOME_DISK_FULL == static_cast<int>(Outcome::disk_full));

/// Behind headrace_store: the store, or that of a server, which it keeps.
using Owner = std::shared_ptr<Store>;

Store& store_of(headrace_store* store) {
  return *headrace::c::object_of<Owner>(store);
}

headrace::engine::Engine& engine_of(headrace_engine* engine) {
  return *reinterpret_cast<headrace::engine::Engine*>(engine);
}

const Transfer& transfer_of(const headrace_transfer* transfer) {
  return headrace::c::object_of<Transfer>(transfer);
}

std::string_view key_of(const void* key, std::size_t key_bytes) {
  return key == nullptr ? std::string_view()
                        : std::string_view(static_cast<const char*>(key), key_bytes);
}

headrace::Result<std::unique_ptr<Owner>> make(headrace_engine* engine,
                                              const headrace_store_options* given) {
  HEADRACE_TAKE(options, headrace::c::read_options(given, "make a store"));
  if (engine == nullptr || given == nullptr ||
      (options->tiers == nullptr && options->tier_count != 0)) {
    return headrace::fail(headrace::Code::invalid_argument, "make a store",
                          "the engine, the options or the tiers are null", "pass all of them");
  }
  StoreOptions made{.checksums = !options->no_checksums,
                    .promote_after = options->never_promote ? 0U : 2U};
  if (options->never_inline) made.inline_max = {};
  if (options->block_bytes != 0) made.block_bytes = headrace::Bytes(options->block_bytes);
  const headrace_tier* given_tier = options->tiers;
  for (std::size_t i = 0; i < options->tier_count; ++i) {
    HEADRACE_TAKE(tier, headrace::c::read_options(given_tier, "make a store"));
    given_tier = headrace::c::next_options(given_tier);
    headrace::store::TierOptions& one = made.tiers.emplace_back();
    one.capacity = headrace::Bytes(tier->capacity_bytes);
    if (tier->path != nullptr) one.path = tier->path;
    if (tier->has_node) one.node = headrace::NodeId(tier->node);
    if (tier->process_only) one.durability = headrace::store::Durability::process;
  }
  if (options->share == nullptr) {
    HEADRACE_TAKE(store, Store::make(engine_of(engine), std::move(made)));
    return std::make_unique<Owner>(std::move(*store));
  }
  headrace::store::ServeOptions serving{.socket = options->share, .store = std::move(made)};
  if (options->clients_max != 0) serving.clients_max = options->clients_max;
  HEADRACE_TAKE(server, headrace::store::Server::make(engine_of(engine), serving));
  const std::shared_ptr<headrace::store::Server> keeper(std::move(*server));
  return std::make_unique<Owner>(keeper, &keeper->served());
}

headrace::Result<std::unique_ptr<Owner>> connect(headrace_engine* engine, const char* socket,
                                                 std::uint64_t deadline_ms) {
  if (engine == nullptr || socket == nullptr) {
    return headrace::fail(headrace::Code::invalid_argument, "connect to a shared store",
                          "the engine or the socket is null", "pass both");
  }
  headrace::store::ConnectOptions options;
  if (deadline_ms != 0) {
    options.deadline = std::chrono::milliseconds(std::min(deadline_ms, std::uint64_t{1} << 32U));
  }
  HEADRACE_TAKE(store, headrace::store::connect(engine_of(engine), socket, options));
  return std::make_unique<Owner>(std::move(*store));
}

/// Null if out of memory.
template <typename Start>
headrace_transfer* start(const Start& start_one) {
  try {
    return reinterpret_cast<headrace_transfer*>(new Transfer(start_one()));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

const char* headrace_outcome_name(enum headrace_outcome outcome) noexcept {
  return headrace::store::name(static_cast<Outcome>(outcome)).data();
}

const char* headrace_outcome_text(enum headrace_outcome outcome) noexcept {
  return headrace::store::explain(static_cast<Outcome>(outcome)).data();
}

headrace_store* headrace_store_make(headrace_engine* engine, const headrace_store_options* options,
                                    headrace_error* error) noexcept {
  return headrace::c::make_for_c<headrace_store>("make a store", error,
                                                 [&] { return make(engine, options); });
}

headrace_store* headrace_store_connect(headrace_engine* engine, const char* socket,
                                       uint64_t deadline_ms, headrace_error* error) noexcept {
  return headrace::c::make_for_c<headrace_store>(
      "connect to a shared store", error, [&] { return connect(engine, socket, deadline_ms); });
}

void headrace_store_free(headrace_store* store) noexcept {
  delete reinterpret_cast<Owner*>(store);
}

headrace_transfer* headrace_store_put(headrace_store* store, const headrace_put_block* blocks,
                                      size_t block_count, size_t tier) noexcept {
  return start([&] {
    std::vector<PutBlock> made;
    made.reserve(block_count);
    for (const headrace_put_block& each : std::span(blocks, block_count)) {
      made.push_back({.key = key_of(each.key, each.key_bytes),
                      .source = {static_cast<const std::byte*>(each.source), each.byte_count}});
    }
    return store_of(store).put(made, tier);
  });
}

headrace_transfer* headrace_store_get(headrace_store* store, const headrace_get_block* blocks,
                                      size_t block_count) noexcept {
  return start([&] {
    std::vector<GetBlock> made;
    made.reserve(block_count);
    for (const headrace_get_block& each : std::span(blocks, block_count)) {
      made.push_back({.key = key_of(each.key, each.key_bytes),
                      .target = {static_cast<std::byte*>(each.target), each.byte_count}});
    }
    return store_of(store).get(made);
  });
}

bool headrace_transfer_poll(const headrace_transfer* transfer) noexcept {
  return transfer_of(transfer).poll();
}

bool headrace_transfer_wait(const headrace_transfer* transfer, uint64_t time_ns_max) noexcept {
  return transfer_of(transfer).wait_for(headrace::c::time_of(time_ns_max));
}

enum headrace_outcome headrace_transfer_outcome(const headrace_transfer* transfer, size_t index,
                                                size_t* byte_count) noexcept {
  const Transfer& asked = transfer_of(transfer);
  BlockEnd end;
  if (asked.poll() && index < asked.ends().size()) end = asked.ends()[index];
  if (byte_count != nullptr) *byte_count = end.byte_count;
  return static_cast<enum headrace_outcome>(end.outcome);
}

void headrace_transfer_free(headrace_transfer* transfer) noexcept {
  delete reinterpret_cast<Transfer*>(transfer);
}

enum headrace_outcome headrace_store_view(headrace_store* store, const void* key, size_t key_bytes,
                                          headrace_view* view) noexcept {
  *view = {};
  try {
    auto found = std::make_unique<BlockView>(store_of(store).view(key_of(key, key_bytes)));
    const auto outcome = static_cast<enum headrace_outcome>(found->outcome);
    if (outcome == HEADRACE_OUTCOME_DONE) {
      *view = {found->bytes.data(), found->bytes.size(), found->in_place, found.get()};
      static_cast<void>(found.release());
    }
    return outcome;
  } catch (const std::bad_alloc&) {
    return HEADRACE_OUTCOME_FAILED;
  }
}

void headrace_view_end(headrace_view* view) noexcept {
  delete static_cast<BlockView*>(view->keeper);
  *view = {};
}

size_t headrace_store_length(headrace_store* store, const void* key, size_t key_bytes) noexcept {
  return store_of(store).length(key_of(key, key_bytes)).value_or(0);
}

bool headrace_store_pin(headrace_store* store, const void* key, size_t key_bytes) noexcept {
  return store_of(store).pin(key_of(key, key_bytes));
}

bool headrace_store_unpin(headrace_store* store, const void* key, size_t key_bytes) noexcept {
  return store_of(store).unpin(key_of(key, key_bytes));
}

enum headrace_outcome headrace_store_remove(headrace_store* store, const void* key,
                                            size_t key_bytes) noexcept {
  return static_cast<enum headrace_outcome>(store_of(store).remove(key_of(key, key_bytes)));
}

size_t headrace_store_clear(headrace_store* store) noexcept {
  return store_of(store).clear();
}

int headrace_store_descriptor(headrace_store* store) noexcept {
  return store_of(store).event_descriptor().value_or(-1);
}
