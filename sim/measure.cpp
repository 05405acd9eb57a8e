// SPDX-License-Identifier: Apache-2.0
#include "sim/measure.hpp"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include "headrace/platform/memory.hpp"
#include "headrace/platform/thread.hpp"

namespace headrace::sim {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kLine = 64;

/// Pages of one thread.
///
/// Threading: owned.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (!pages_.empty()) platform::free_pages(pages_);
  }
  [[nodiscard]] Result<void> take(std::size_t bytes, NodeId node,
                                  platform::Pages kind = platform::Pages::plain) {
    auto pages = platform::allocate_pages(bytes, node, kind);
    if (!pages) return fail(pages.error());
    pages_ = *pages;
    return platform::prefault_pages(pages_);
  }
  [[nodiscard]] std::byte* data() const { return pages_.data(); }

 private:
  std::span<std::byte> pages_;
};

/// Reads every word; the sum keeps the compiler from leaving it out.
std::uint64_t read_all(const std::byte* first, std::size_t bytes) {
  std::uint64_t sum = 0;
  const auto* const words = reinterpret_cast<const std::uint64_t*>(first);
  for (std::size_t i = 0; i < bytes / sizeof(std::uint64_t); ++i) sum += words[i];
  return sum;
}

/// One thread's part of a round.
std::uint64_t go_through(const Stream& stream, std::byte* source, std::byte* target) {
  if (stream.access == Access::read) return read_all(source, stream.bytes);
  if (stream.access == Access::fill) {
    std::memset(source, 1, stream.bytes);
  } else {
    std::memcpy(target, source, stream.bytes);
  }
  return static_cast<std::uint64_t>(source[stream.bytes / 2]);
}

}  // namespace

Result<double> measure_stream(const Stream& stream) {
  if (stream.cpus.empty() || stream.bytes < kLine || stream.rounds == 0) {
    return fail(Code::invalid_argument, "measure memory",
                "there is no processor, no round or less than a line", "give at least one");
  }
  const std::size_t count = stream.cpus.size();
  std::vector<Memory> sources(count);
  std::vector<Memory> targets(count);
  std::vector<std::optional<Error>> errors(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (auto taken = sources[i].take(stream.bytes, stream.node); !taken) return fail(taken.error());
    if (stream.access != Access::copy) continue;
    if (auto taken = targets[i].take(stream.bytes, stream.node); !taken) return fail(taken.error());
  }
  // One round's begin and end of each thread: a round lasts from the first to the last.
  std::vector<Clock::time_point> begins(count);
  std::vector<Clock::time_point> ends(count);
  std::vector<std::uint64_t> sums(count);
  std::barrier barrier(static_cast<std::ptrdiff_t>(count) + 1);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      if (auto pinned = platform::pin_this_thread({&stream.cpus[i], 1}); !pinned) {
        errors[i] = pinned.error();
      }
      for (std::uint32_t round = 0; round < stream.rounds; ++round) {
        barrier.arrive_and_wait();
        begins[i] = Clock::now();
        sums[i] += go_through(stream, sources[i].data(), targets[i].data());
        ends[i] = Clock::now();
        barrier.arrive_and_wait();
      }
    });
  }
  double best_ns = std::numeric_limits<double>::infinity();
  for (std::uint32_t round = 0; round < stream.rounds; ++round) {
    barrier.arrive_and_wait();
    barrier.arrive_and_wait();
    const auto begin = *std::min_element(begins.begin(), begins.end());
    const auto end = *std::max_element(ends.begin(), ends.end());
    best_ns = std::min(best_ns, std::chrono::duration<double, std::nano>(end - begin).count());
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error.has_value()) return fail(*error);
  }
  return static_cast<double>(stream.bytes * count) / std::max(1.0, best_ns);
}

Result<double> measure_latency(CpuId cpu, NodeId node, std::size_t bytes, std::uint32_t rounds) {
  const std::size_t count = bytes / kLine;
  if (count < 2 || count > UINT32_MAX || rounds == 0) {
    return fail(Code::invalid_argument, "measure the latency of memory",
                "there is no round, or less than two lines or more than 2^32", "give some");
  }
  // A load that misses the TLB as well would be another latency.
  const bool fits = bytes >= platform::huge_page_bytes() && platform::huge_page_bytes() > 0;
  const auto kind = fits ? platform::Pages::huge : platform::Pages::plain;
  Memory memory;
  if (auto taken = memory.take(count * kLine, node, kind); !taken) return fail(taken.error());
  // A cycle through all lines (Sattolo), the next one's number in each.
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  std::mt19937 random(1);
  for (std::size_t i = count - 1; i > 0; --i) {
    std::swap(order[i], order[std::uniform_int_distribution<std::size_t>(0, i - 1)(random)]);
  }
  const auto line = [&](std::uint32_t index) {
    return reinterpret_cast<std::uint32_t*>(memory.data() + std::size_t{index} * kLine);
  };
  for (std::uint32_t i = 0; i < count; ++i) *line(i) = order[i];
  std::optional<Error> error;
  double best_ns = std::numeric_limits<double>::infinity();
  std::thread([&] {
    if (auto pinned = platform::pin_this_thread({&cpu, 1}); !pinned) error = pinned.error();
    // A part of the cycle each: a round that is not interrupted is what is looked for.
    const std::size_t steps = std::min<std::size_t>(count, 20'000);
    std::uint32_t at = 0;
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const auto begin = Clock::now();
      for (std::size_t i = 0; i < steps; ++i) at = *line(at);
      const auto end = Clock::now();
      const double ns = std::chrono::duration<double, std::nano>(end - begin).count();
      best_ns = std::min(best_ns, ns / static_cast<double>(steps));
    }
    *line(at) = at;  // Keeps the loads.
  }).join();
  if (error.has_value()) return fail(*error);
  return best_ns;
}

}  // namespace headrace::sim
