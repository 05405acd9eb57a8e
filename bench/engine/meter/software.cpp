// SPDX-License-Identifier: Apache-2.0
// Is any operation on a processor slower than its counterpart in the C library or ISA-L?
//
// A round alternates the same work on the same memory by both, up to kPairs times for some
// microseconds each, with alternating order, so that other load affects both equally. An operation
// without a single-call counterpart is compared with the calls one would make: dualcast with two
// copies, copy with checksum with a copy and a checksum, a delta with a comparison that finds no
// difference. `run` is a copy by Engine::run, `run_cold` the same in uncached memory. Prints one
// JSON object: median times per call of each round, in ns.
//
//   headrace-bench-engine-software ROUNDS [NAME]
#include <fmt/format.h>
#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "engine/software/software.hpp"
#include "headrace/engine/engine.hpp"
#include "measure.hpp"

namespace {

using headrace::bench::die;
using headrace::bench::must;
using headrace::engine::Completion;
using headrace::engine::DifBlock;
using headrace::engine::Engine;
using headrace::engine::kDifFieldBytes;
using headrace::engine::Operation;
using headrace::engine::Submit;
using Clock = std::chrono::steady_clock;

/// Duration of one side's turn.
constexpr double kTurnNs = 20'000;
constexpr std::size_t kPairs = 20;  ///< Fewer for calls that take longer than a turn.

/// Hides the value from the optimiser, which must then compute it.
template <typename Value>
void keep(const Value& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}
template <typename Value>
void hide(Value& value) {
  asm volatile("" : "+r"(value));
}

struct Setting {
  std::size_t byte_count;
  std::size_t round_count;
};

/// Medians of the rounds, in ns per call.
struct Times {
  std::vector<double> ours;
  std::vector<double> theirs;
};

struct Memory {
  explicit Memory(std::size_t size)
      : byte_count(size), source(room(size)), target(room(size)), second(room(size)) {
    const std::size_t all = size + size / 8;
    for (std::byte* const first : {paged(source), paged(target), paged(second)}) {
      for (std::size_t i = 0; i < all; ++i) first[i] = static_cast<std::byte>(i * 31 + (i >> 9U));
    }
  }
  /// With integrity fields, and slack to align to a page.
  static std::size_t room(std::size_t size) { return size + size / 8 + 2 * 4096; }
  static std::byte* paged(std::vector<std::byte>& bytes) {
    auto* const first = bytes.data();
    return first + (4096 - reinterpret_cast<std::uintptr_t>(first) % 4096);
  }
  [[nodiscard]] std::span<std::byte> from(std::size_t size) { return {paged(source), size}; }
  [[nodiscard]] std::span<std::byte> to(std::size_t size) { return {paged(target), size}; }
  [[nodiscard]] std::span<std::byte> other(std::size_t size) { return {paged(second), size}; }
  std::size_t byte_count;
  std::vector<std::byte> source;
  std::vector<std::byte> target;
  std::vector<std::byte> second;
};

template <typename Call>
double ns_per_call(const Call& call, std::size_t count) {
  const Clock::time_point begin = Clock::now();
  for (std::size_t i = 0; i < count; ++i) {
    call();
    asm volatile("" : : : "memory");
  }
  const std::chrono::duration<double, std::nano> taken = Clock::now() - begin;
  return taken.count() / static_cast<double>(count);
}

template <typename Ours, typename Theirs>
Times compare(const Setting& setting, const Ours& ours, const Theirs& theirs) {
  // Warms up, and estimates the time of a call.
  std::size_t count = 3;
  double once = 1;
  for (int i = 0; i < 3; ++i) {
    once = std::max({ns_per_call(ours, count), ns_per_call(theirs, count), 1.0});
    count = std::max(std::size_t{1}, static_cast<std::size_t>(kTurnNs / once));
  }
  const auto pair_count =
      std::clamp(static_cast<std::size_t>(kPairs * kTurnNs / once), std::size_t{2}, kPairs);
  Times times;
  std::vector<double> our_ns(pair_count);
  std::vector<double> their_ns(pair_count);
  for (std::size_t round = 0; round < setting.round_count; ++round) {
    for (std::size_t i = 0; i < pair_count; ++i) {
      if (i % 2 == 0) our_ns[i] = ns_per_call(ours, count);
      their_ns[i] = ns_per_call(theirs, count);
      if (i % 2 != 0) our_ns[i] = ns_per_call(ours, count);
    }
    times.ours.push_back(headrace::bench::median(our_ns));
    times.theirs.push_back(headrace::bench::median(their_ns));
  }
  return times;
}

void execute(const Operation& operation) {
  keep(headrace::engine::software::execute(operation));
}

/// Compares an operation on one processor with what a program would call instead.
template <typename Theirs>
Times beside(const Setting& setting, const Operation& operation, const Theirs& theirs) {
  return compare(setting, [&] { execute(operation); }, theirs);
}

unsigned char* data(std::span<std::byte> bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

std::uint32_t sum(std::span<std::byte> bytes) {
  return crc32_iscsi(data(bytes), static_cast<int>(bytes.size()), ~0U);
}

/// Hides the pointer: the compiler would otherwise hoist the comparison out of the loop.
int compared(std::span<std::byte> one, std::span<std::byte> other) {
  const std::byte* first = one.data();
  hide(first);
  return std::memcmp(first, other.data(), one.size());
}

Times copy(const Setting& setting) {
  const std::size_t size = setting.byte_count;
  Memory memory(size);
  return beside(setting, Operation::copy(memory.to(size), memory.from(size)),
                [&] { std::memmove(memory.to(size).data(), memory.from(size).data(), size); });
}

/// Copies sequentially through a source and a target pool of `pool_bytes` each.
Times run_in_pool(const Setting& setting, std::size_t pool_bytes) {
  const std::size_t size = setting.byte_count;
  Memory memory(pool_bytes);
  const auto engine = must(Engine::make(must(headrace::topo::discover({.find_movers = false})),
                                        {.threads_per_node = 1, .devices = {.use = false}}));
  const std::size_t place_count = pool_bytes / size;
  std::size_t turn = 0;
  const auto next = [&] {
    turn = turn + 1 == place_count ? 0 : turn + 1;
    return turn * size;
  };
  return compare(
      setting,
      [&] {
        const std::size_t at = next();
        Completion end;
        if (engine->run(Operation::copy(memory.to(pool_bytes).subspan(at, size),
                                        memory.from(pool_bytes).subspan(at, size)),
                        end) != Submit::accepted) {
          std::abort();
        }
        keep(end);
      },
      [&] {
        const std::size_t at = next();
        std::memcpy(memory.to(pool_bytes).data() + at, memory.from(pool_bytes).data() + at, size);
      });
}

Times run_of_copy(const Setting& setting) {
  return run_in_pool(setting, setting.byte_count);
}

Times run_of_cold_copy(const Setting& setting) {
  constexpr std::size_t kNoCacheHolds = std::size_t{64} << 20U;
  return run_in_pool(setting, std::max(kNoCacheHolds, setting.byte_count));
}

Times fill(const Setting& setting) {
  const std::size_t size = setting.byte_count;
  Memory memory(size);
  return beside(setting, Operation::fill(memory.to(size), 0x0102030405060708),
                [&] { std::memset(memory.to(size).data(), 7, size); });
}

Times compare_equal(const Setting& setting) {
  const std::size_t size = setting.byte_count;
  Memory memory(size);
  return beside(setting, Operation::compare(memory.to(size), memory.from(size)),
                [&] { keep(compared(memory.to(size), memory.from(size))); });
}

Times compare_pattern(const Setting& setting) {
  const std::size_t size = setting.byte_count;
  Memory memory(size);
  std::memset(memory.from(size).data(), 7, size);
  std::memset(memory.to(size).data(), 7, size);
  return beside(setting, Operation::compare_pattern(memory.from(size), 0x0707070707070707),
                [&] { keep(compared(memory.to(size), memory.from(size))); });
}

Times create_delta(const Setting& setting) {
  const std::size_t size = std::min(setting.byte_count, headrace::engine::kDeltaBytesMax);
  Memory memory(size);
  return beside(setting,
                Operation::create_delta(memory.other(4096), memory.to(size), memory.from(size)),
                [&] { keep(compared(memory.to(size), memory.from(size))); });
}

Times dualcast(const Setting& setting) {
  const std::size_t size = setting.byte_count;
  Memory memory(size);
  return beside(setting,
                Operation::dualcast(memory.to(size), memory.other(size), memory.from(size)), [&] {
                  std::memcpy(memory.to(size).data(), memory.from(size).data(), size);
                  std::memcpy(memory.other(size).data(), memory.from(size).data(), size);
                });
}

Times crc(const Setting& setting) {
  const std::size_t size = setting.byte_count;
  Memory memory(size);
  return beside(setting, Operation::crc(memory.from(size)), [&] { keep(sum(memory.from(size))); });
}

Times copy_crc(const Setting& setting) {
  const std::size_t size = setting.byte_count;
  Memory memory(size);
  return beside(setting, Operation::copy_crc(memory.to(size), memory.from(size)), [&] {
    std::memcpy(memory.to(size).data(), memory.from(size).data(), size);
    keep(sum(memory.from(size)));
  });
}

/// Blocks in about `size` bytes; at least one.
struct Blocks {
  explicit Blocks(std::size_t size) : count(std::max(std::size_t{1}, size / 512)) {}
  std::size_t count;
  [[nodiscard]] std::size_t plain() const { return count * 512; }
  [[nodiscard]] std::size_t whole() const { return count * (512 + kDifFieldBytes); }
};

Times dif_insert(const Setting& setting) {
  const Blocks blocks(setting.byte_count);
  Memory memory(std::max(setting.byte_count, blocks.plain()));
  return beside(
      setting,
      Operation::dif_insert(memory.to(blocks.whole()), memory.from(blocks.plain()), {}, {}), [&] {
        for (std::size_t i = 0; i < blocks.count; ++i) {
          unsigned char* const target = data(memory.to(blocks.whole())) + i * 520;
          const std::uint16_t guard =
              crc16_t10dif_copy(0, target, data(memory.from(blocks.plain())) + i * 512, 512);
          std::memcpy(target + 512, &guard, sizeof guard);
        }
      });
}

Times dif_check(const Setting& setting) {
  const Blocks blocks(setting.byte_count);
  Memory memory(std::max(setting.byte_count, blocks.plain()));
  execute(Operation::dif_insert(memory.to(blocks.whole()), memory.from(blocks.plain()), {}, {}));
  return beside(setting, Operation::dif_check(memory.to(blocks.whole()), {}, {}), [&] {
    for (std::size_t i = 0; i < blocks.count; ++i) {
      const unsigned char* const block = data(memory.to(blocks.whole())) + i * 520;
      std::uint16_t guard = 0;
      std::memcpy(&guard, block + 512, sizeof guard);
      if (__builtin_bswap16(guard) != crc16_t10dif(0, block, 512)) std::abort();
    }
  });
}

Times dif_strip(const Setting& setting) {
  const Blocks blocks(setting.byte_count);
  Memory memory(std::max(setting.byte_count, blocks.plain()));
  execute(Operation::dif_insert(memory.to(blocks.whole()), memory.from(blocks.plain()), {}, {}));
  return beside(
      setting,
      Operation::dif_strip(memory.other(blocks.plain()), memory.to(blocks.whole()), {}, {}), [&] {
        for (std::size_t i = 0; i < blocks.count; ++i) {
          keep(crc16_t10dif_copy(0, data(memory.other(blocks.plain())) + i * 512,
                                 data(memory.to(blocks.whole())) + i * 520, 512));
        }
      });
}

Times dif_update(const Setting& setting) {
  const Blocks blocks(setting.byte_count);
  Memory memory(std::max(setting.byte_count, blocks.plain()));
  execute(Operation::dif_insert(memory.to(blocks.whole()), memory.from(blocks.plain()), {}, {}));
  return beside(
      setting,
      Operation::dif_update(memory.other(blocks.whole()), memory.to(blocks.whole()), {}, {}, {}),
      [&] {
        for (std::size_t i = 0; i < blocks.count; ++i) {
          unsigned char* const target = data(memory.other(blocks.whole())) + i * 520;
          const std::uint16_t guard =
              crc16_t10dif_copy(0, target, data(memory.to(blocks.whole())) + i * 520, 512);
          std::memcpy(target + 512, &guard, sizeof guard);
        }
      });
}

struct Subject {
  const char* name;
  Times (*compare)(const Setting&);
};

constexpr std::array<std::size_t, 4> kSizes{64, 4U << 10U, 64U << 10U, 1U << 20U};
constexpr std::array<Subject, 12> kOperations{{{"copy", &copy},
                                               {"fill", &fill},
                                               {"compare", &compare_equal},
                                               {"compare_pattern", &compare_pattern},
                                               {"create_delta", &create_delta},
                                               {"dualcast", &dualcast},
                                               {"crc", &crc},
                                               {"copy_crc", &copy_crc},
                                               {"dif_insert", &dif_insert},
                                               {"dif_check", &dif_check},
                                               {"dif_strip", &dif_strip},
                                               {"dif_update", &dif_update}}};
constexpr std::array<std::size_t, 9> kRunSizes{
    64, 256, 1U << 10U, 2U << 10U, 4U << 10U, 16U << 10U, 64U << 10U, 1U << 20U, 16U << 20U};
constexpr std::array<Subject, 2> kRuns{{{"run", &run_of_copy}, {"run_cold", &run_of_cold_copy}}};

void measure(std::span<const Subject> subjects, std::span<const std::size_t> sizes,
             std::size_t round_count, std::string_view only, const char*& separator) {
  for (const Subject& subject : subjects) {
    if (!only.empty() && only != subject.name) continue;
    for (const std::size_t size : sizes) {
      const Times times = subject.compare({.byte_count = size, .round_count = round_count});
      fmt::print(R"({}{{"name": "{}", "bytes": {}, "ours_ns": [{:.2f}], "theirs_ns": [{:.2f}]}})",
                 separator, subject.name, size, fmt::join(times.ours, ", "),
                 fmt::join(times.theirs, ", "));
      separator = ",\n";
    }
  }
}

}  // namespace

int main(int argument_count, char** arguments) {
  const std::size_t round_count =
      argument_count >= 2 ? std::strtoull(arguments[1], nullptr, 10) : 0;
  const std::string_view only = argument_count == 3 ? arguments[2] : "";
  if (round_count == 0) die("usage: headrace-bench-engine-software ROUNDS [NAME]");
  const char* separator = "";
  fmt::print(R"({{"comparisons": [)");
  measure(kOperations, kSizes, round_count, only, separator);
  measure(kRuns, kRunSizes, round_count, only, separator);
  fmt::print("]}}\n");
  return 0;
}
