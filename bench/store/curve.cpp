// SPDX-License-Identifier: Apache-2.0
// The curves of 'headrace bench store --threads': puts and gets of blocks of 4 KiB in batches of
// 64, which the calling thread copies. One store; the keys of each thread are its own.
#include "curve.hpp"

#include <array>
#include <memory>
#include <string>

#include "headrace/store/store.hpp"

namespace headrace::bench {
namespace {

constexpr std::size_t kBytes = 4096;
constexpr std::size_t kTurn = 64;

struct Thread {
  std::vector<std::byte> bytes = std::vector<std::byte>(kTurn * kBytes);
  std::array<std::string, kTurn> keys;
  std::array<store::PutBlock, kTurn> puts;
  std::array<store::GetBlock, kTurn> gets;
};
struct Stage {
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<store::Store> store;
  std::vector<std::unique_ptr<Thread>> threads;
};

void check(store::Transfer transfer) {
  transfer.wait();
  if (!transfer.all_done()) die("a block was not done");
}

std::shared_ptr<Stage> make_stage(std::size_t thread_count) {
  const topo::Machine machine = must(topo::discover({.find_movers = false}));
  auto stage = std::make_shared<Stage>();
  stage->engine = must(engine::Engine::make(
      machine,
      {.threads_per_node = 1, .nodes = {machine.nodes.front().id}, .devices = {.use = false}}));
  // A put fills a new slot before it frees the replaced one.
  const std::size_t capacity_bytes = 2 * thread_count * kTurn * kBytes;
  stage->store =
      must(store::Store::make(*stage->engine, {.block_bytes = Bytes(kBytes),
                                               .tiers = {{.capacity = Bytes(capacity_bytes)}}}));
  for (std::size_t i = 0; i < thread_count; ++i) {
    Thread& thread = *stage->threads.emplace_back(std::make_unique<Thread>());
    for (std::size_t k = 0; k < kTurn; ++k) {
      thread.keys[k] = fmt::format("thread {:02} block {:02}", i, k);
      const auto bytes = std::span(thread.bytes).subspan(k * kBytes, kBytes);
      thread.puts[k] = {thread.keys[k], bytes};
      thread.gets[k] = {thread.keys[k], bytes};
    }
    check(stage->store->put(thread.puts));
  }
  return stage;
}

}  // namespace

int print_own_curves(const CurveSettings& settings) {
  const auto turns = [](const auto& submit) {
    return [submit](std::size_t threads) -> Curve::Turn {
      return [submit, stage = make_stage(threads)](std::size_t thread) {
        check(submit(*stage->store, *stage->threads[thread]));
        return kTurn;
      };
    };
  };
  const auto put = [](store::Store& store, const Thread& own) { return store.put(own.puts); };
  const auto get = [](store::Store& store, const Thread& own) { return store.get(own.gets); };
  const std::array curves{Curve{"put_4k", turns(put)}, Curve{"get_4k", turns(get)}};
  return print_curves(settings, curves);
}

}  // namespace headrace::bench
