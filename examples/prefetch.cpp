// SPDX-License-Identifier: Apache-2.0
// Copy a region to faster memory, do other work meanwhile, then use the copy.
#include <cstdio>
#include <headrace/cache/cache.hpp>
#include <numeric>
#include <vector>

using namespace headrace;

static int fail_with(const Error& error) {
  std::fprintf(stderr, "prefetch: %s\n", error.message().c_str());
  return 1;
}

int main() {
  const auto machine = topo::discover();
  if (!machine) return fail_with(machine.error());
  const auto engine = engine::Engine::make(*machine);  // Moves bytes, here by worker threads.
  if (!engine) return fail_with(engine.error());
  cache::CacheOptions options;  // Default: copy to faster memory.
  if (!machine->has_faster_tier()) options.placement = cache::placement::local;
  const auto cache = cache::Cache::make(*machine, **engine, options);
  if (!cache) return fail_with(cache.error());

  const std::vector<unsigned char> column(mib(8).count(), 1);
  const cache::Entry entry = (*cache)->access(std::as_bytes(std::span(column)));
  // ... other work while the bytes move ...
  entry.wait();
  const auto* bytes = reinterpret_cast<const unsigned char*>(entry.data().data());
  const long sum = std::accumulate(bytes, bytes + entry.data().size(), 0L);

  const cache::CacheStatistics statistics = (*cache)->statistics();
  if (const auto node = entry.node()) {
    std::printf("sum %ld from the copy on node %u\n", sum, node->value());
  } else {
    std::printf("sum %ld from the source: there was no room for a copy\n", sum);
  }
  std::printf("moved %s; %llu miss, %llu hits\n", to_text(Bytes(statistics.bytes_moved)).c_str(),
              static_cast<unsigned long long>(statistics.misses),
              static_cast<unsigned long long>(statistics.hits));
  return 0;
}
