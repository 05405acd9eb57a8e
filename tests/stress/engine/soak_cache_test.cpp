// SPDX-License-Identifier: Apache-2.0
// The soak of a full cache: four threads access a cache that has room for a sixteenth of what they
// ask for, on two emulated devices that fail by one script after another. Every copy is compared
// with its source; mappings, memory and files are counted before and after.
//
// Runs at least HEADRACE_SOAK_OPERATIONS accesses (scripts/soak: ten million).
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "emulated.hpp"
#include "headrace/base/random.hpp"
#include "headrace/cache/cache.hpp"
#include "support/cache_stage.hpp"
#include "support/seed.hpp"
#include "support/taken.hpp"

namespace headrace::engine {
namespace {

using emu::FaultKind;
using emu::FaultRule;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kSourceBytes = std::size_t{32} << 20U;
constexpr std::size_t kThreadCount = 4;

struct Script {
  const char* name;
  emu::FaultScript faults;
};

std::vector<Script> scripts() {
  const FaultRule full{.kind = FaultKind::queue_full, .probability = 0.1};
  const FaultRule page{.kind = FaultKind::page_fault, .probability = 0.05, .at_byte = 4096};
  const FaultRule target{.kind = FaultKind::page_fault, .probability = 0.05, .write = true};
  const FaultRule error{
      .kind = FaultKind::status, .probability = 0.02, .raw_status = DSA_COMP_HW_ERR1};
  const FaultRule slow{.kind = FaultKind::slow, .probability = 0.005, .delay_ns = 300'000};
  const FaultRule reset{.kind = FaultKind::reset, .every = 2003};
  std::vector<Script> all{{"healthy", {}},
                          {"full queues", test::script({full})},
                          {"page faults", test::script({page, target})},
                          {"errors", test::script({error})},
                          {"slow", test::script({slow})},
                          {"resets", test::script({reset})},
                          {"all of these", test::script({full, page, target, error, slow, reset})}};
  if constexpr (!test::kReportsEveryRace) {
    const FaultRule lost{.kind = FaultKind::lost_completion, .nth = 500};
    const FaultRule silent{.kind = FaultKind::halt, .device = 0, .nth = 500};
    const FaultRule dead{.kind = FaultKind::halt, .nth = 1000};
    all.push_back({"lost completions", test::script({lost, full})});
    all.push_back({"one device silent", test::script({silent, page, error})});
    all.push_back({"all devices silent", test::script({dead, slow})});
  }
  return all;
}

struct Ends {
  std::uint64_t accesses = 0;
  std::uint64_t cached = 0;
  std::uint64_t wrong = 0;
  std::uint64_t bytes_kept = 0;
  std::uint64_t late_writes = 0;
};

std::uint64_t goal() {
  const char* const given = std::getenv("HEADRACE_SOAK_OPERATIONS");
  return given != nullptr ? std::stoull(given) : 15'000;
}

/// What one thread does.
Ends use(cache::Cache& cache, std::span<const std::byte> source, std::uint64_t count,
         std::uint64_t seed) {
  Random random(seed);
  Ends ends;
  std::array<std::optional<cache::Entry>, 4> held;
  while (ends.accesses < count) {
    const std::size_t page_count = 1 + random.below(16);
    const std::size_t first = random.below(kSourceBytes / kPage - page_count);
    const auto region = source.subspan(first * kPage, page_count * kPage);
    if (random.chance(1, 64)) cache.invalidate(region);
    cache::Entry entry = cache.access(region);
    entry.wait();
    ++ends.accesses;
    if (entry.cached()) ++ends.cached;
    if (std::memcmp(entry.data().data(), region.data(), region.size()) != 0) ++ends.wrong;
    held.at(random.below(held.size())) = std::move(entry);
  }
  return ends;
}

/// All scripts in turn. Memory that an abandoned device may still write to is never freed.
Ends run(std::span<const std::byte> source, std::uint64_t count, bool tells) {
  Ends all;
  for (const Script& script : scripts()) {
    const test::Emulated machine = test::make_emulated(
        {.device_count = 2,
         .device = {.timeout = std::chrono::milliseconds(test::kReportsEveryRace ? 20'000 : 200)},
         .faults = script.faults,
         .policy = movers::round_robin});
    cache::CacheOptions options;
    options.placement = cache::placement::on(NodeId(0));
    options.capacity_per_node = Bytes(kSourceBytes / 16);
    const auto cache = std::move(
        cache::Cache::make(headrace::test::hand_made_machine(), *machine.engine, std::move(options))
            .value());
    std::array<Ends, kThreadCount> ends;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreadCount; ++i) {
      threads.emplace_back([&, i] {
        ends.at(i) = use(*cache, source, count / scripts().size() / kThreadCount + 1,
                         headrace::test::seed() + i);
      });
    }
    for (std::thread& thread : threads) thread.join();
    cache->clear();
    const cache::CacheStatistics seen = cache->statistics();
    EXPECT_GT(seen.evictions, 0U) << script.name;
    EXPECT_EQ(seen.bytes_cached, seen.bytes_kept) << script.name;
    EXPECT_LE(seen.moves_failed, seen.late_writes) << script.name;
    Ends sum{.bytes_kept = seen.bytes_kept, .late_writes = seen.late_writes};
    for (const Ends& each : ends) {
      sum.accesses += each.accesses;
      sum.cached += each.cached;
      sum.wrong += each.wrong;
    }
    EXPECT_EQ(sum.wrong, 0U) << script.name;
    EXPECT_GT(sum.cached, sum.accesses / 8) << script.name;
    if (tells) {
      std::printf("soak of a full cache, %s: %llu accesses, %llu evictions, %llu wrong\n",
                  script.name, static_cast<unsigned long long>(sum.accesses),
                  static_cast<unsigned long long>(seen.evictions),
                  static_cast<unsigned long long>(sum.wrong));
      std::fflush(stdout);
    }
    all.bytes_kept += sum.bytes_kept;
    all.late_writes += sum.late_writes;
  }
  return all;
}

TEST(Soak, AFullCacheHasTheRightBytesAndLeaksNothingWhateverTheDevicesDo) {
  std::vector<std::byte> source(kSourceBytes);
  for (std::size_t i = 0; i < source.size(); ++i) {
    source[i] = static_cast<std::byte>(i ^ i / kPage * 37);
  }
  static_cast<void>(run(source, 10'000, false));
  const headrace::test::Taken before;
  const Ends ends = run(source, goal(), true);
  const headrace::test::Taken after;
  EXPECT_LE(after.mappings, before.mappings + ends.late_writes + 8) << "of heaps and devices";
  EXPECT_LE(after.pages, before.pages + ends.bytes_kept / kPage + 4096);
  EXPECT_EQ(after.files, before.files);
  std::printf(
      "soak of a full cache: %llu mappings, %llu pages before; %llu, %llu after; "
      "%llu pages kept for %llu late writes\n",
      static_cast<unsigned long long>(before.mappings),
      static_cast<unsigned long long>(before.pages),
      static_cast<unsigned long long>(after.mappings), static_cast<unsigned long long>(after.pages),
      static_cast<unsigned long long>(ends.bytes_kept / kPage),
      static_cast<unsigned long long>(ends.late_writes));
}

}  // namespace
}  // namespace headrace::engine
