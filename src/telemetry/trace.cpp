// SPDX-License-Identifier: Apache-2.0
// The recorder: each thread stores its records into a block of the file that only it writes. A
// record counts once the length of the block is stored, so a killed process leaves whole records.
#include "headrace/telemetry/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <set>
#include <span>

#include "headrace/base/mutex.hpp"
#include "headrace/base/prefetch_write.hpp"
#include "headrace/base/trace.hpp"
#include "headrace/platform/growing_file.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/platform/process.hpp"
#include "headrace/platform/thread.hpp"
#include "headrace/platform/ticks.hpp"
#include "layout.hpp"

namespace headrace::telemetry {
namespace {

using trace::Block;
using trace::Kind;

constexpr std::size_t kHeadBytes = 4096;
/// Some 50 us: for longer, it is recorded how long the thread ran, which costs less than 1 us.
constexpr std::uint64_t kLongTicks = std::uint64_t{1} << 17U;
/// Of the head, what all traces of this version have in common.
constexpr std::string_view kSame =
    R"({"format": "headrace-trace", "version": 2, "records": "binary", )";

/// At the end of the head; shared by all processes that record.
struct Counters {
  Atomic<std::uint64_t> blocks;
  Atomic<std::uint64_t> lost;  ///< Processes that stopped because the file was full.
};

/// Nodes of regions of 2 MiB, as of when they were first seen.
///
/// Threading: shared.
class Nodes {
 public:
  [[nodiscard]] std::uint8_t of(std::uint64_t address) noexcept {
    const std::uint64_t region = address >> 21U;
    Atomic<std::uint64_t>& place = places_[region % places_.size()];
    const std::uint64_t seen = place.load_relaxed();  // One word that says all.
    if (seen >> 8U == region) [[likely]]
      return static_cast<std::uint8_t>(seen);
    return ask(place, address);
  }

 private:
  [[gnu::noinline]] static std::uint8_t ask(Atomic<std::uint64_t>& place,
                                            std::uint64_t address) noexcept {
    if (address == 0) return trace::kNoNode;
    const auto node = platform::node_of_address(reinterpret_cast<const void*>(address));
    // Not present yet: another page of the region may be.
    if (!node || node->value() >= trace::kNoNode) return trace::kNoNode;
    place.store_relaxed(address >> 21U << 8U | node->value());  // As above.
    return static_cast<std::uint8_t>(node->value());
  }
  std::array<Atomic<std::uint64_t>, 1024> places_{};
};

/// Where this thread stores its records.
struct Cursor {
  Block* block = nullptr;
  const platform::GrowingFile* file = nullptr;
  std::uint64_t last_ticks = 0;  ///< End of the last record; 0 before the first one.
  std::uint32_t fork_count = 0;
  std::uint32_t number = 0;  ///< Changes before the thread's last destructors run.
  [[nodiscard]] bool is_for(const platform::GrowingFile& now) const noexcept {
    return file == &now && fork_count == platform::fork_count() &&
           number == platform::thread_number();
  }
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Cursor cursor;

constinit Atomic<const platform::GrowingFile*> current{nullptr};
/// By thread number; a thread goes on with that of one that has ended.
constinit std::array<Block*, platform::kThreadNumberMax + 1> blocks{};
constinit Nodes nodes;

/// Stores the bytes in which a record differs from the one before it, behind eight times four bits
/// with the number of bytes of each word.
[[gnu::always_inline]] inline void append(Block& block, const trace::Words& record) noexcept {
  const std::uint64_t state = block.state.load_relaxed();  // Its own.
  std::byte* const begin = block.records.data() + static_cast<std::uint32_t>(state);
  std::byte* next = begin + sizeof(std::uint32_t);
  std::uint32_t lengths = 0;
#pragma GCC unroll 8
  for (std::size_t i = 0; i < record.size(); ++i) {
    const std::uint64_t changed = record[i] ^ block.last[i];
    if (changed == 0) continue;  // Most are, and it is foreseen which.
    block.last[i] = record[i];
    std::memcpy(next, &changed, sizeof(changed));
    const auto length = static_cast<unsigned>(std::bit_width(changed) + 7) / 8;
    next += length;
    lengths |= length << 4 * i;
  }
  std::memcpy(begin, &lengths, sizeof(lengths));
  // A program that copies from memory leaves no line of the block in a cache.
  prefetch_for_write(begin + 256);
  // edge: trace-record (release)
  block.state.store_release(state + static_cast<std::uint64_t>(next - begin));
}

[[nodiscard]] bool is_full(const Block& block) noexcept {
  return static_cast<std::uint32_t>(block.state.load_relaxed()) >  // Its own.
         sizeof(block.records) - 3 * (sizeof(std::uint32_t) + sizeof(trace::Words));
}

Counters& counters_of(const platform::GrowingFile& file) noexcept {
  return *reinterpret_cast<Counters*>(file.bytes().data() + kHeadBytes - sizeof(Counters));
}

/// Copies the records of `block` to the end of the file, and then the head: a copy with a head is
/// whole. Returns its offset; 0 if the file is full.
std::uint64_t add_copy(const platform::GrowingFile& file, const Block& block,
                       std::size_t length) noexcept {
  const std::uint64_t number = counters_of(file).blocks.fetch_add_relaxed(1);  // No order.
  const std::uint64_t offset = kHeadBytes + number * sizeof(Block);
  const std::span head(reinterpret_cast<const std::byte*>(&block), offsetof(Block, records));
  const bool is_done = offset + sizeof(Block) <= kTraceBytesMax &&
                       file.write(offset + head.size(), std::span(block.records).first(length)) &&
                       file.write(offset, head);
  return is_done ? offset : 0;
}

/// A block for the thread, which has none; null if the file is full.
Block* take_block(const platform::GrowingFile& file) noexcept {
  static Block empty{};
  const std::uint32_t number = platform::thread_number();
  Block* block = blocks[number];
  if (block != nullptr && block->file == &file && block->process == platform::process_id())
    return block;
  const std::uint64_t offset = add_copy(file, empty, empty.records.size());
  if (offset == 0) return nullptr;
  block = reinterpret_cast<Block*>(file.bytes().data() + offset);
  block->origin = offset;
  block->file = &file;
  block->process = platform::process_id();
  if (number < platform::kThreadNumberMax) blocks[number] = block;
  return block;
}

/// Makes room for at least three records; this takes time from `begun_ticks` on. Returns false if
/// there is none.
[[gnu::noinline]] bool refill(const platform::GrowingFile& file,
                              std::uint64_t begun_ticks) noexcept {
  if (!cursor.is_for(file)) {
    cursor = {take_block(file), &file, 0, platform::fork_count(), platform::thread_number()};
  }
  Block* const block = cursor.block;
  const std::uint64_t state = block == nullptr ? 0 : block->state.load_relaxed();  // Its own.
  const bool fills = block != nullptr && is_full(*block);
  if (block == nullptr || (fills && add_copy(file, *block, state & 0xFFFF'FFFFU) == 0)) {
    cursor = {};
    counters_of(file).lost.fetch_add_relaxed(1);  // Statistics.
    trace::sink.store_relaxed(nullptr);           // Nothing is published by it.
    return false;
  }
  if (fills) {
    block->last = {};
    block->state.store_release(((state >> 32U) + 1) << 32U);  // edge: trace-record (release)
  }
  const auto node = platform::current_node();
  append(*block,
         {begun_ticks, platform::ticks(), platform::process_id(), platform::thread_id(), 0, 0, 0,
          static_cast<std::uint64_t>(Kind::thread) |
              (node ? node->value() : std::uint64_t{trace::kNoNode}) << 16U});
  return true;
}

void store(std::uint64_t begin_ticks, std::uint64_t id, std::uint64_t other, std::uint64_t source,
           std::uint64_t target, std::uint64_t byte_count, std::uint64_t rest) noexcept {
  const std::uint64_t now = platform::ticks_after();  // Before what the recorder itself does.
  const std::uint64_t begin = begin_ticks != 0 ? begin_ticks : now;
  const platform::GrowingFile& file = *current.load_relaxed();  // Published with the sink.
  if ((!cursor.is_for(file) || is_full(*cursor.block)) && !refill(file, now)) return;
  if (now - cursor.last_ticks > kLongTicks) [[unlikely]] {
    const std::uint64_t last = std::max(begin, cursor.last_ticks);
    const auto ran_ns = static_cast<std::uint64_t>(platform::thread_cpu_time().count());
    append(*cursor.block, {last, last, platform::thread_sleep_count(), ran_ns, 0, 0, 0,
                           static_cast<std::uint64_t>(Kind::ran)});
  }
  cursor.last_ticks = now;
  const std::uint64_t source_node = source == 0 ? trace::kNoNode : nodes.of(source);
  const std::uint64_t target_node = target == 0 ? trace::kNoNode : nodes.of(target);
  append(*cursor.block, {begin, now, id, other, source, target, byte_count,
                         rest | source_node << 16U | target_node << 24U});
}

std::string head_text() {
  std::string program = detail::program_name();
  const auto is_special = [](char letter) {
    return letter == '"' || letter == '\\' || static_cast<unsigned char>(letter) < ' ';
  };
  std::ranges::replace_if(program, is_special, '?');
  std::string head = fmt::format("{}\"ticks_per_second\": {:.0f}, \"program\": \"{}\"}}\n", kSame,
                                 platform::ticks_per_second(), program);
  head.resize(kHeadBytes, '\0');
  return head;
}

}  // namespace

Result<void> start_trace(const std::string& path) {
  const std::string tried = fmt::format("record a trace into '{}'", path);
  struct Control {
    Mutex mutex;
    std::set<std::string> used HEADRACE_GUARDED_BY(mutex);
  };
  static auto& control = *new Control;  // Static objects may record after it would be destroyed.
  const Lock held(control.mutex);
  if (trace::is_on()) {
    return fail(Code::invalid_argument, tried, "this process records a trace already",
                "stop that one first");
  }
  if (control.used.contains(path)) {
    return fail(Code::invalid_argument, tried, "this process has recorded into it before",
                "name another file");
  }
  HEADRACE_TAKE_WITHIN(
      tried, file, platform::GrowingFile::open(path, head_text(), kSame.size(), kTraceBytesMax));
  control.used.insert(path);
  // Never freed: other threads may be recording when it stops.
  current.store_relaxed(std::make_unique<platform::GrowingFile>(*file).release());  // Below.
  platform::watch_forks();
  trace::sink.store_release(store);  // edge: trace-sink (release)
  return {};
}

void stop_trace() {
  trace::sink.store_relaxed(nullptr);  // Nothing is published by it.
}

}  // namespace headrace::telemetry
