// SPDX-License-Identifier: Apache-2.0
// What does each rule for persistent memory gain (docs/concepts/pmem.md)? Per rule a pair of cases:
// one follows it, one breaks it. All on an anonymous mapping, that is on DRAM: lines are flushed to
// DRAM, durability is simulated. Effects that only a DIMM shows (blocks, interleaving) do not
// appear. The pages are walked in order, so that no line is cached when it is accessed.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>

#include "headrace/pmem/medium.hpp"

namespace {

using headrace::kLineBytes;
using headrace::pmem::Digest;
using headrace::pmem::FlushInstruction;
using headrace::pmem::Granularity;
using headrace::pmem::kBlockBytes;
using headrace::pmem::Medium;

constexpr std::size_t kPoolBytes = std::size_t{64} << 20U;

/// Memory larger than the caches, used cyclically.
class Pool {
 public:
  explicit Pool(bool populated = true)
      : bytes_(static_cast<std::byte*>(
            ::mmap(nullptr, kPoolBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | (populated ? MAP_POPULATE : 0), -1, 0))) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() { ::munmap(bytes_, kPoolBytes); }
  std::byte* take(std::size_t byte_count) {
    if (at_ + byte_count > kPoolBytes) at_ = 0;
    std::byte* const place = bytes_ + at_;
    at_ += byte_count;
    return place;
  }

 private:
  std::byte* bytes_;
  std::size_t at_ = 0;
};

Medium medium_of(FlushInstruction instruction) {
  return Medium({.granularity = Granularity::line, .instruction = instruction});
}

Medium best() {
  return medium_of(headrace::pmem::flush_instructions().back());
}

alignas(kLineBytes) const std::array<std::byte, 4096> kSource{std::byte{1}};

std::span<const std::byte> source(std::size_t byte_count) {
  return std::span(kSource).first(byte_count);
}

/// Rule: choose the flush instruction. Argument: lines stored and flushed together.
void flush_by(benchmark::State& state, FlushInstruction instruction) {
  Pool pool;
  Medium medium = medium_of(instruction);
  const auto byte_count = static_cast<std::size_t>(state.range(0)) * kLineBytes;
  for (auto _ : state) {
    std::byte* const place = pool.take(byte_count);
    medium.store(place, source(byte_count));
    medium.persist(place, byte_count);
  }
}

/// Rule: do not flush clean lines.
void flush_clean(benchmark::State& state) {
  Pool pool;
  Medium medium = best();
  for (auto _ : state) {
    std::byte* const place = pool.take(1024);
    medium.store(place, source(kLineBytes));
    medium.persist(place, 1024);  // Fifteen of these lines are clean.
  }
}

/// Rules: whole blocks, non-temporal stores. Argument: bytes streamed at the start of each block,
/// with a fence each.
void block_streamed(benchmark::State& state) {
  Pool pool;
  Medium medium = best();
  const auto byte_count = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    medium.stream(pool.take(std::max(byte_count, kBlockBytes)), source(byte_count));
    medium.drain();
  }
}

/// Rule: use non-temporal stores. The same with cached stores, flushed.
void block_flushed(benchmark::State& state) {
  Pool pool;
  Medium medium = best();
  const auto byte_count = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    std::byte* const place = pool.take(std::max(byte_count, kBlockBytes));
    medium.store(place, source(byte_count));
    medium.persist(place, byte_count);
  }
}

/// Rule: use non-temporal stores, also to fill. Against memset and flushes.
void fill_streamed(benchmark::State& state) {
  Pool pool;
  Medium medium = best();
  const auto byte_count = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    medium.fill(pool.take(byte_count), std::byte{1}, byte_count);
    medium.drain();
  }
}

void fill_flushed(benchmark::State& state) {
  Pool pool;
  Medium medium = best();
  const auto byte_count = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    std::byte* const place = pool.take(byte_count);
    std::memset(place, 1, byte_count);
    medium.persist(place, byte_count);
  }
}

/// Rule: write no partial lines. 200 bytes, unpadded or padded to a block.
void line_in_part(benchmark::State& state) {
  Pool pool;
  Medium medium = best();
  for (auto _ : state) {
    medium.copy(pool.take(kBlockBytes), source(200));
    medium.drain();
  }
}

void line_padded(benchmark::State& state) {
  Pool pool;
  Medium medium = best();
  for (auto _ : state) {
    medium.copy(pool.take(kBlockBytes), source(kBlockBytes));
    medium.drain();
  }
}

/// Rule: validate by a checksum instead of a flag. 192 bytes, then the flag or checksum in the
/// fourth line.
void proof_by_flag(benchmark::State& state) {
  Pool pool;
  Medium medium = best();
  for (auto _ : state) {
    std::byte* const place = pool.take(kBlockBytes);
    medium.store(place, source(192));
    medium.persist(place, 192);
    auto& flag = *reinterpret_cast<std::uint64_t*>(place + 192);
    medium.store_word(flag, 1);
    medium.persist(&flag, sizeof(flag));
  }
}

void proof_by_checksum(benchmark::State& state) {
  Pool pool;
  Medium medium = best();
  alignas(kLineBytes) std::array<std::byte, kLineBytes> last{};
  for (auto _ : state) {
    std::byte* const place = pool.take(kBlockBytes);
    Digest digest;
    medium.stream(place, source(192), &digest);
    const std::uint64_t checksum = digest.value(1);
    std::memcpy(last.data(), &checksum, sizeof(checksum));
    medium.stream(place + 192, last);
    medium.drain();
  }
}

/// Rule: or put the flag into the line of the data: 56 bytes and a flag.
void flag_in_the_line(benchmark::State& state) {
  Pool pool;
  Medium medium = best();
  for (auto _ : state) {
    std::byte* const place = pool.take(2 * kLineBytes);
    medium.store(place, source(56));
    medium.store_word(*reinterpret_cast<std::uint64_t*>(place + 56), 1);
    medium.persist(place, kLineBytes);
  }
}

void flag_in_another_line(benchmark::State& state) {
  Pool pool;
  Medium medium = best();
  for (auto _ : state) {
    std::byte* const place = pool.take(2 * kLineBytes);
    medium.store(place, source(56));
    medium.persist(place, 56);
    auto& flag = *reinterpret_cast<std::uint64_t*>(place + kLineBytes);
    medium.store_word(flag, 1);
    medium.persist(&flag, sizeof(flag));
  }
}

/// Rule: fault pages in before measuring. Writes a block in each page of a mapping, once.
void pages(benchmark::State& state, bool populated) {
  Pool pool(populated);
  Medium medium = best();
  for (auto _ : state) {
    medium.stream(pool.take(4096), source(kBlockBytes));
    medium.drain();
  }
}
constexpr benchmark::IterationCount kPages = kPoolBytes / 4096;

void add_flush(const char* name, FlushInstruction instruction) {
  benchmark::RegisterBenchmark(
      (std::string("flush/") + name).c_str(),
      [instruction](benchmark::State& state) { flush_by(state, instruction); })
      ->Arg(1)
      ->Arg(4)
      ->Arg(16);
}

}  // namespace

int main(int argc, char** argv) {
  for (const FlushInstruction each : headrace::pmem::flush_instructions()) {
    add_flush(std::string(name(each)).c_str(), each);
  }
  if (!headrace::pmem::flush_instructions().empty()) {
    benchmark::RegisterBenchmark("flush/clean_lines_too", flush_clean);
    for (const int byte_count : {64, 128, 192, 256, 1024, 4096}) {
      benchmark::RegisterBenchmark("block/streamed", block_streamed)->Arg(byte_count);
      benchmark::RegisterBenchmark("block/stored_and_flushed", block_flushed)->Arg(byte_count);
    }
    for (const int byte_count : {256, 4096, 1 << 20}) {
      benchmark::RegisterBenchmark("fill/streamed", fill_streamed)->Arg(byte_count);
      benchmark::RegisterBenchmark("fill/stored_and_flushed", fill_flushed)->Arg(byte_count);
    }
    benchmark::RegisterBenchmark("line/in_part", line_in_part);
    benchmark::RegisterBenchmark("line/padded", line_padded);
    benchmark::RegisterBenchmark("proof/flag_after_data", proof_by_flag);
    benchmark::RegisterBenchmark("proof/checksum", proof_by_checksum);
    benchmark::RegisterBenchmark("flag/in_the_line_of_the_data", flag_in_the_line);
    benchmark::RegisterBenchmark("flag/in_another_line", flag_in_another_line);
    benchmark::RegisterBenchmark("pages/populated", [](benchmark::State& state) {
      pages(state, true);
    })->Iterations(kPages);
    benchmark::RegisterBenchmark("pages/at_first_touch", [](benchmark::State& state) {
      pages(state, false);
    })->Iterations(kPages);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
