// SPDX-License-Identifier: Apache-2.0
// Question: what does a block store cost in addition to its copies?
//
//   headrace-bench-store ROUNDS MIB
//   headrace-bench-store curve LIST ROUNDS MILLISECONDS (curve.cpp)
//
// Method. An engine with one worker thread and no devices, a store with one tier of memory. Per
// round, in rotated order:
//   copy_in_large   memcpy of MIB blocks of 1 MiB, in random order, to random places of memory as
//                   large as the store's
//   copy_out_large  the same, back
//   put_large       put of the same blocks, from submission to completion
//   get_large       the same, back
//   copy_in_small, copy_out_small    memcpy of 4 KiB blocks, MIB MiB in total
//   list_in_small, list_out_small    the same by copy::copy_many, lists of 64
//   put_small, get_small             put and get of the same, in batches of 64, four in flight;
//                                    the calling thread copies (StoreOptions::inline_max)
//   put_small_handed, get_small_handed    the same, by the worker (inline_max 0)
// Copies and store use the same buffers in the same order, and the same amount of huge-page memory.
// The bound is the faster of the two copies: no index, no free list, no keys. Times are wall-clock
// ns per block; `*_cpu` is the processor time of all threads, waits included, and `*_submit` the
// wall-clock time of one submission. The blocks read are compared with those put. Prints one JSON
// document.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "curve.hpp"
#include "headrace/base/random.hpp"
#include "headrace/copy/copy.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/store/store.hpp"
#include "measure.hpp"

namespace headrace::bench {
namespace {

constexpr std::size_t kLarge = std::size_t{1} << 20U;
constexpr std::size_t kSmall = 4096;
constexpr std::size_t kBatch = 64;
constexpr std::size_t kInFlight = 4;

using Series = std::map<std::string, std::vector<double>>;

/// Blocks of one length: their bytes, their keys, and stores for them.
class Blocks {
 public:
  Blocks(engine::Engine& engine, std::size_t block_bytes, std::size_t byte_count,
         std::span<const Bytes> inline_max)
      : block_bytes_(block_bytes),
        count_(byte_count / block_bytes),
        source_(byte_count),
        target_(byte_count),
        order_(count_) {
    Random random(block_bytes);
    for (std::size_t at = 0; at + 8 <= byte_count; at += 8) {
      const std::uint64_t word = random();
      std::memcpy(&source_[at], &word, 8);
    }
    std::iota(order_.begin(), order_.end(), 0);
    for (std::size_t i = 0; i < count_; ++i) keys_.push_back(fmt::format("block {:08}", i));
    // Each put fills a new slot, and frees the replaced one when it completes.
    const std::size_t capacity_bytes = 2 * byte_count + kBatch * block_bytes;
    for (const Bytes each : inline_max) {
      stores_.push_back(
          must(store::Store::make(engine, {.block_bytes = Bytes(block_bytes),
                                           .tiers = {{.capacity = Bytes(capacity_bytes)}},
                                           .inline_max = each})));
    }
    // Allocated as the memory of a store.
    void* const pages =
        ::mmap(nullptr, capacity_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) die("there is not enough memory");
    slots_ = {static_cast<std::byte*>(pages), capacity_bytes};
    static_cast<void>(::madvise(pages, capacity_bytes, MADV_HUGEPAGE));  // Advice.
    std::ranges::fill(slots_, std::byte{0});
    places_.resize(capacity_bytes / block_bytes);
    std::iota(places_.begin(), places_.end(), 0);
  }
  Blocks& operator=(Blocks&&) = delete;
  ~Blocks() { ::munmap(slots_.data(), slots_.size()); }

  void shuffle(std::uint64_t seed) {
    Random random(seed);
    std::shuffle(order_.begin(), order_.end(), random);
    std::shuffle(places_.begin(), places_.end(), random);
    std::ranges::fill(target_, std::byte{0});
  }
  /// `move_all` copies a list of items.
  template <typename MoveAll>
  void copy(Series& series, const std::string& how, const std::string& size,
            const MoveAll& move_all) {
    const auto all = [&](const auto& item_of) {
      std::array<copy::CopyItem, kBatch> items;
      for (std::size_t first = 0; first < count_; first += kBatch) {
        const std::size_t count = std::min(kBatch, count_ - first);
        for (std::size_t i = 0; i < count; ++i) items[i] = item_of(first + i);
        move_all(std::span(items).first(count));
      }
    };
    Times in;
    all([&](std::size_t i) {
      return copy::CopyItem{&slots_[places_[i] * block_bytes_], &source_[order_[i] * block_bytes_],
                            block_bytes_};
    });
    note(series, how + "_in_" + size, in);
    Times out;
    all([&](std::size_t i) {
      return copy::CopyItem{&target_[order_[i] * block_bytes_], &slots_[places_[i] * block_bytes_],
                            block_bytes_};
    });
    note(series, how + "_out_" + size, out);
  }
  void put_and_get(Series& series, const std::string& name, std::size_t store_index) {
    store::Store& store = *stores_[store_index];
    run<store::PutBlock>(series, "put_" + name, source_,
                         [&](std::span<store::PutBlock> blocks) { return store.put(blocks); });
    run<store::GetBlock>(series, "get_" + name, target_,
                         [&](std::span<store::GetBlock> blocks) { return store.get(blocks); });
    if (target_ != source_) die("a block has other bytes than were put");
    std::ranges::fill(target_, std::byte{0});
  }

 private:
  struct Times {
    double clock_ns = now_ns(CLOCK_MONOTONIC);
    double cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID);
  };
  void note(Series& series, const std::string& name, const Times& begin) const {
    const Times end;
    const auto count = static_cast<double>(count_);
    series[name].push_back((end.clock_ns - begin.clock_ns) / count);
    series[name + "_cpu"].push_back((end.cpu_ns - begin.cpu_ns) / count);
  }
  template <typename Block, typename Submit>
  void run(Series& series, const std::string& name, std::span<std::byte> bytes,
           const Submit& submit) {
    std::array<store::Transfer, kInFlight> transfers;
    double submit_ns = 0;
    const Times begin;
    std::size_t turn = 0;
    for (std::size_t first = 0; first < count_; first += kBatch) {
      store::Transfer& place = transfers[turn++ % kInFlight];
      place.wait();
      std::array<Block, kBatch> blocks;
      const std::size_t count = std::min(kBatch, count_ - first);
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t block = order_[first + i];
        blocks[i] = {keys_[block], bytes.subspan(block * block_bytes_, block_bytes_)};
      }
      const double before = now_ns(CLOCK_MONOTONIC);
      place = submit(std::span(blocks).first(count));
      submit_ns += now_ns(CLOCK_MONOTONIC) - before;
    }
    for (store::Transfer& transfer : transfers) {
      transfer.wait();
      if (!transfer.all_done()) die("a block was not done");
    }
    note(series, name, begin);
    series[name + "_submit"].push_back(submit_ns / static_cast<double>(turn));
  }

  const std::size_t block_bytes_;
  const std::size_t count_;
  std::vector<std::byte> source_;
  std::vector<std::byte> target_;
  std::vector<std::size_t> order_;
  std::vector<std::string> keys_;
  std::vector<std::unique_ptr<store::Store>> stores_;
  std::span<std::byte> slots_;
  std::vector<std::size_t> places_;
};

int run(std::uint64_t rounds, std::uint64_t mib_count) {
  const topo::Machine machine = must(topo::discover());
  const auto engine = must(engine::Engine::make(
      machine,
      {.threads_per_node = 1, .nodes = {machine.nodes.front().id}, .devices = {.use = false}}));
  Series series;
  {
    const std::array<Bytes, 2> both{store::StoreOptions().inline_max, Bytes(0)};
    Blocks large(*engine, kLarge, mib_count * kLarge, std::span(both).first(1));
    Blocks small(*engine, kSmall, mib_count * kLarge, both);
    Series unused;
    const auto one_by_one = [](std::span<const copy::CopyItem> items) {
      for (const auto& item : items) std::memcpy(item.target, item.source, item.byte_count);
    };
    const std::array<std::function<void(Series&)>, 6> parts = {
        [&](Series& to) { large.copy(to, "copy", "large", one_by_one); },
        [&](Series& to) { large.put_and_get(to, "large", 0); },
        [&](Series& to) { small.copy(to, "copy", "small", one_by_one); },
        [&](Series& to) { small.copy(to, "list", "small", copy::copy_many); },
        [&](Series& to) { small.put_and_get(to, "small", 0); },
        [&](Series& to) { small.put_and_get(to, "small_handed", 1); }};
    for (std::uint64_t round = 0; round <= rounds; ++round) {
      large.shuffle(round);
      small.shuffle(round);
      // The first round is a warm-up.
      for (std::size_t i = 0; i < parts.size(); ++i) {
        parts[(i + round) % parts.size()](round == 0 ? unused : series);
      }
    }
  }
  print({{"series_ns", series}, {"blocks_large", std::min<std::uint64_t>(mib_count, kBatch)}});
  return 0;
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  if (const auto settings = headrace::bench::curve_in(argc, argv))
    return print_own_curves(*settings);
  if (argc != 3) {
    fmt::print(stderr, "usage: headrace-bench-store ROUNDS MIB\n");
    return 2;
  }
  return headrace::bench::run(std::strtoull(argv[1], nullptr, 10),
                              std::strtoull(argv[2], nullptr, 10));
}
