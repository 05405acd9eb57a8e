// SPDX-License-Identifier: Apache-2.0
// Question: how often does an access hit, by eviction policy, on traces of different kinds? Does
// not measure time: the mover completes every request without touching it, and memory for copies
// and regions are addresses that are never read.
//
//   eviction_bench SEEDS ACCESSES DIRECTORY
//
// Method. One thread replays each trace through an empty Cache with room for a number of regions of
// one page; each handle is dropped at once. For comparison, hits of an exact LRU and of Belady's
// MIN are computed. All accesses count, including the first ones. Traces are generated from the
// seeds 1 to SEEDS with ACCESSES accesses each, and read from the recorded .txt files of DIRECTORY.
// Prints one JSON document: hit rates (for generated traces the mean and, as "spread", the highest
// less the lowest of any policy), and for each policy the mean and the worst share of MIN's hits
// over all traces and capacities. Exits with 1 if anything is impossible: more hits than MIN, a
// refusal, an unreadable file.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/cache/cache.hpp"
#include "headrace/engine/engine.hpp"
#include "no_copies.hpp"
#include "trace.hpp"
#include "yardstick.hpp"

namespace {

using namespace headrace;
using bench::Trace;

constexpr std::size_t kRegionBytes = 4096;
constexpr std::size_t kRegionMax = std::size_t{1} << 24U;
constexpr std::array<std::size_t, 3> kCapacities{64, 256, 1024};
constexpr std::array kEvictions{cache::Eviction::lru, cache::Eviction::s3_fifo};
/// Columns: the policies, then the yardsticks.
constexpr std::size_t kLru = kEvictions.size();
constexpr std::size_t kMin = kLru + 1;
using HitRates = std::array<double, kMin + 1>;

[[noreturn]] void give_up(std::string_view why) {
  fmt::print(stderr, "eviction_bench: {}\n", why);
  std::exit(1);
}

std::string_view column_name(std::size_t column) {
  if (column == kMin) return "min";
  return column == kLru ? "lru_exact" : name(kEvictions[column]);
}

/// Machine and engine of all replays.
///
/// Threading: confined.
class Replayer {
 public:
  Replayer() {
    // Regions' addresses: mapped, as the cache requires of sources, but not readable.
    void* const addresses = ::mmap(nullptr, kRegionMax * kRegionBytes, PROT_NONE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (addresses == MAP_FAILED) give_up("there is no room for the addresses of the regions");
    addresses_ = static_cast<const std::byte*>(addresses);
  }
  Replayer(const Replayer&) = delete;
  Replayer& operator=(const Replayer&) = delete;
  ~Replayer() { ::munmap(const_cast<std::byte*>(addresses_), kRegionMax * kRegionBytes); }
  [[nodiscard]] double hit_rate(const Trace& trace, std::size_t capacity,
                                cache::Eviction eviction) const {
    cache::CacheOptions options;
    options.placement = cache::placement::on(machine_.nodes.front().id);
    options.capacity_per_node = Bytes(capacity * machine_.page_bytes.count());
    options.eviction = eviction;
    options.memory = std::make_shared<bench::NoMemory>();
    const auto cache =
        std::move(cache::Cache::make(machine_, *engine_, std::move(options)).value());
    for (const std::uint32_t region : trace.accesses) {
      if (region >= kRegionMax) give_up("a trace has more regions than there are addresses");
      static_cast<void>(
          cache->access({addresses_ + std::size_t{region} * kRegionBytes, kRegionBytes}));
    }
    const cache::CacheStatistics statistics = cache->statistics();
    if (statistics.hits + statistics.misses != trace.accesses.size()) {
      give_up(fmt::format("{} by {}: some accesses were refused", trace.name, name(eviction)));
    }
    return static_cast<double>(statistics.hits) / static_cast<double>(trace.accesses.size());
  }

 private:
  topo::Machine machine_ = topo::discover({.find_movers = false}).value();
  std::unique_ptr<engine::Engine> engine_ = bench::engine_that_moves_nothing();
  const std::byte* addresses_ = nullptr;
};

HitRates hit_rates(const Replayer& replayer, const Trace& trace, std::size_t capacity) {
  HitRates rates{};
  for (std::size_t column = 0; column < kEvictions.size(); ++column) {
    rates[column] = replayer.hit_rate(trace, capacity, kEvictions[column]);
  }
  const auto access_count = static_cast<double>(trace.accesses.size());
  rates[kLru] = static_cast<double>(bench::lru_hits(trace.accesses, capacity)) / access_count;
  rates[kMin] = static_cast<double>(bench::min_hits(trace.accesses, capacity)) / access_count;
  if (*std::max_element(rates.begin(), rates.end()) > rates[kMin]) {
    give_up(fmt::format("{}, {} regions: more hits than possible", trace.name, capacity));
  }
  return rates;
}

/// Results of one trace and capacity.
struct Row {
  std::string trace;
  std::size_t access_count = 0;
  std::uint32_t region_count = 0;
  std::size_t capacity = 0;
  std::vector<HitRates> by_seed;

  [[nodiscard]] double mean(std::size_t column) const {
    double sum = 0;
    for (const HitRates& rates : by_seed) sum += rates[column];
    return sum / static_cast<double>(by_seed.size());
  }
  [[nodiscard]] double spread() const {
    double widest = 0;
    for (std::size_t column = 0; column <= kMin; ++column) {
      const auto [low, high] = std::minmax_element(
          by_seed.begin(), by_seed.end(),
          [&](const HitRates& a, const HitRates& b) { return a[column] < b[column]; });
      widest = std::max(widest, (*high)[column] - (*low)[column]);
    }
    return widest;
  }
};

/// Traces by name, one per seed.
using Traces = std::map<std::string, std::vector<Trace>>;

void add_recorded(const std::filesystem::path& directory, Traces& traces) {
  std::error_code error;
  for (const auto& item : std::filesystem::directory_iterator(directory, error)) {
    if (item.path().extension() != ".txt") continue;
    std::ifstream file(item.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    Trace trace = bench::parse_trace(item.path().stem(), text);
    if (trace.accesses.empty()) give_up(item.path().string() + " is not a trace");
    traces[trace.name].push_back(std::move(trace));
  }
  if (error) give_up(directory.string() + ": " + error.message());
}

std::vector<Row> replay(const Traces& traces) {
  const Replayer replayer;
  std::vector<Row> rows;
  for (const auto& [name, by_seed] : traces) {
    for (const std::size_t capacity : kCapacities) {
      Row row{name, by_seed.front().accesses.size(), by_seed.front().region_count(), capacity, {}};
      for (const Trace& trace : by_seed) {
        row.by_seed.push_back(hit_rates(replayer, trace, capacity));
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

void print(const std::vector<Row>& rows) {
  fmt::print("{{\"rows\": [\n");
  for (const Row& row : rows) {
    fmt::print(
        "  {{\"trace\": \"{}\", \"access_count\": {}, \"region_count\": {}, \"capacity\": {}",
        row.trace, row.access_count, row.region_count, row.capacity);
    for (std::size_t column = 0; column <= kMin; ++column) {
      fmt::print(", \"{}\": {:.4f}", column_name(column), row.mean(column));
    }
    fmt::print(", \"seed_count\": {}, \"spread\": {:.4f}}}{}\n", row.by_seed.size(), row.spread(),
               &row == &rows.back() ? "" : ",");
  }
  fmt::print("], \"share_of_min\": {{");
  for (std::size_t column = 0; column < kMin; ++column) {
    double sum = 0;
    double worst = 1;
    std::size_t count = 0;
    for (const Row& row : rows) {
      if (row.mean(kMin) == 0) continue;
      const double share = row.mean(column) / row.mean(kMin);
      sum += share;
      worst = std::min(worst, share);
      ++count;
    }
    fmt::print("{}\"{}\": {{\"mean\": {:.4f}, \"worst\": {:.4f}}}", column == 0 ? "" : ", ",
               column_name(column), sum / static_cast<double>(count), worst);
  }
  fmt::print("}}}}\n");
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  std::array<std::size_t, 2> numbers{};
  bool understood = words.size() == 4;
  for (std::size_t i = 0; understood && i < numbers.size(); ++i) {
    const std::string_view word = words[i + 1];
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), numbers[i]);
    understood = error == std::errc() && end == word.data() + word.size() && numbers[i] > 0;
  }
  if (!understood) {
    std::fputs("usage: eviction_bench SEEDS ACCESSES DIRECTORY\n", stderr);
    return 2;
  }
  const auto [seed_count, access_count] = numbers;
  Traces traces;
  for (std::uint64_t seed = 1; seed <= seed_count; ++seed) {
    for (Trace& trace : bench::make_traces(seed, access_count)) {
      traces[trace.name].push_back(std::move(trace));
    }
  }
  add_recorded(words[3], traces);
  print(replay(traces));
  return 0;
}
