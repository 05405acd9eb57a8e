// SPDX-License-Identifier: Apache-2.0
// The recorder: each thread stores its records into blocks of the file that only it writes. A
// record is whole once its kind is stored, which is last; a killed process leaves whole records.
#include "headrace/telemetry/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>

#include "headrace/base/mutex.hpp"
#include "headrace/base/trace.hpp"
#include "headrace/platform/descriptor.hpp"
#include "headrace/platform/growing_file.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/platform/process.hpp"
#include "headrace/platform/thread.hpp"
#include "headrace/platform/ticks.hpp"

namespace headrace::telemetry {
namespace {

using trace::Kind;
using trace::Record;

constexpr std::size_t kHeadBytes = 4096;
constexpr std::size_t kBlockBytes = std::size_t{64} << 10U;
/// By so many blocks the file grows: on ext4, pages beyond its last end cost twice as much.
constexpr std::uint64_t kStepBlocks = 16;
/// Some 50 us: for longer, it is recorded how long the thread ran, which costs less than 1 us.
constexpr std::uint64_t kLongTicks = std::uint64_t{1} << 17U;
/// Of the head, what all traces of this version have in common.
constexpr std::string_view kSame =
    R"({"format": "headrace-trace", "version": 1, "records": "binary", )";

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

/// Where this thread stores its next record.
struct Cursor {
  Record* next = nullptr;
  Record* end = nullptr;
  const platform::GrowingFile* file = nullptr;
  std::uint64_t last_ticks = 0;  ///< End of the last record; 0 before the first one of a block.
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Cursor cursor;

constinit Atomic<const platform::GrowingFile*> current{nullptr};
/// The rest of a block whose thread has ended, for another thread.
constinit Atomic<Record*> spare{nullptr};
constinit Nodes nodes;

Record* end_of_block(const platform::GrowingFile& file, Record* record) {
  const auto offset = reinterpret_cast<std::byte*>(record) - file.bytes().data();
  const std::size_t block = (static_cast<std::size_t>(offset) - kHeadBytes) / kBlockBytes;
  return reinterpret_cast<Record*>(file.bytes().data() + kHeadBytes + (block + 1) * kBlockBytes);
}

/// Passes on the rest of the thread's block when the thread ends.
struct AtThreadEnd {
  ~AtThreadEnd() {
    // edge: trace-spare (acq_rel)
    if (cursor.next != cursor.end && cursor.file == current.load_relaxed()) {  // A hint.
      static_cast<void>(spare.exchange_acq_rel(cursor.next));
    }
    cursor = {};
  }
};

/// Gives the thread room for at least three records; this takes time from `begun_ticks` on. Returns
/// false if there is none.
[[gnu::noinline]] bool refill(const platform::GrowingFile& file,
                              std::uint64_t begun_ticks) noexcept {
  thread_local const AtThreadEnd at_end;
  static_cast<void>(at_end);
  if (cursor.file == &file && cursor.next != nullptr) {
    auto* const end = reinterpret_cast<std::byte*>(cursor.end);
    file.release({end - kBlockBytes, kBlockBytes});
  }
  cursor = {};
  // edge: trace-spare (acq_rel)
  Record* next = spare.exchange_acq_rel(nullptr);
  const bool is_ours = next != nullptr &&
                       reinterpret_cast<std::byte*>(next) > file.bytes().data() &&
                       reinterpret_cast<std::byte*>(next) < &file.bytes().back();
  if (!is_ours || end_of_block(file, next) - next < 3) {
    auto& counters =
        *reinterpret_cast<Counters*>(file.bytes().data() + kHeadBytes - sizeof(Counters));
    const std::uint64_t number = counters.blocks.fetch_add_relaxed(1);  // No order.
    const std::uint64_t offset = kHeadBytes + number * kBlockBytes;
    const std::uint64_t step = number % kStepBlocks == 0 ? kStepBlocks : 1;
    if (offset + kBlockBytes > kTraceBytesMax ||
        !file.extend(offset, std::min(step * kBlockBytes, kTraceBytesMax - offset))) {
      counters.lost.fetch_add_relaxed(1);  // Statistics.
      trace::sink.store_relaxed(nullptr);  // Nothing is published by it.
      return false;
    }
    next = reinterpret_cast<Record*>(file.bytes().data() + offset);
  }
  cursor = {.next = next, .end = end_of_block(file, next), .file = &file};
  const auto node = platform::current_node();
  *cursor.next = {.begin_ticks = begun_ticks,
                  .end_ticks = platform::ticks(),
                  .id = platform::process_id(),
                  .other = platform::thread_id(),
                  .source_node = node ? static_cast<std::uint8_t>(node->value()) : trace::kNoNode};
  store_release(cursor.next->kind, Kind::thread);  // edge: trace-record (release)
  ++cursor.next;
  return true;
}

void store(const Record& what) noexcept {
  // Before what the recorder itself does.
  const std::uint64_t now = what.end_ticks != 0 ? what.end_ticks : platform::ticks_after();
  const std::uint64_t begin = what.begin_ticks != 0 ? what.begin_ticks : now;
  const platform::GrowingFile& file = *current.load_relaxed();  // Published with the sink.
  if (cursor.end - cursor.next < 2 || cursor.file != &file) [[unlikely]] {
    if (!refill(file, now)) return;
  }
  if (now - cursor.last_ticks > kLongTicks) [[unlikely]] {
    cursor.last_ticks = std::max(begin, cursor.last_ticks);
    store({.begin_ticks = cursor.last_ticks,
           .end_ticks = cursor.last_ticks,
           .id = platform::thread_sleep_count(),
           .other = static_cast<std::uint64_t>(platform::thread_cpu_time().count()),
           .kind = Kind::ran});
  }
  cursor.last_ticks = now;
  Record& into = *cursor.next++;
  into.begin_ticks = begin;
  into.end_ticks = now;
  into.id = what.id;
  into.other = what.other;
  into.source = what.source;
  into.target = what.target;
  into.byte_count = what.byte_count;
  into.count = what.count;
  into.source_node = what.source == 0 ? trace::kNoNode : nodes.of(what.source);
  into.target_node = what.target == 0 ? trace::kNoNode : nodes.of(what.target);
  into.operation = what.operation;
  store_release(into.kind, what.kind);  // edge: trace-record (release)
}

std::string head_text() {
  const Result<std::string> name = platform::load_file("/proc/self/comm", 64);
  std::string program;
  for (const char letter : name ? name->substr(0, name->find('\n')) : "unknown") {
    program +=
        letter == '"' || letter == '\\' || static_cast<unsigned char>(letter) < ' ' ? '?' : letter;
  }
  std::string head = fmt::format(
      "{}\"ticks_per_second\": {:.0f}, \"record_bytes\": {}, \"block_bytes\": {}, "
      "\"program\": \"{}\"}}\n",
      kSame, platform::ticks_per_second(), sizeof(Record), kBlockBytes, program);
  head.resize(kHeadBytes, '\0');
  return head;
}

struct Control {
  Mutex mutex;
  std::set<std::string> used HEADRACE_GUARDED_BY(mutex);
};
Control& control() {
  static auto& made = *new Control;  // Static objects may record after it would be destroyed.
  return made;
}

}  // namespace

Result<void> start_trace(const std::string& path) {
  const std::string tried = fmt::format("record a trace into '{}'", path);
  const Lock held(control().mutex);
  if (trace::is_on()) {
    return fail(Code::invalid_argument, tried, "this process records a trace already",
                "stop that one first");
  }
  if (control().used.contains(path)) {
    return fail(Code::invalid_argument, tried, "this process has recorded into it before",
                "name another file");
  }
  HEADRACE_TAKE_WITHIN(
      tried, file, platform::GrowingFile::open(path, head_text(), kSame.size(), kTraceBytesMax));
  control().used.insert(path);
  // Never freed: other threads may be recording when it stops.
  current.store_relaxed(std::make_unique<platform::GrowingFile>(*file).release());  // Below.
  // edge: trace-spare (acq_rel)
  static_cast<void>(spare.exchange_acq_rel(nullptr));
  static const bool kWatches = [] {
    platform::GrowingFile::in_children([] {
      cursor = {};
      // edge: trace-spare (acq_rel)
      static_cast<void>(spare.exchange_acq_rel(nullptr));
    });
    return true;
  }();
  static_cast<void>(kWatches);
  trace::sink.store_release(store);  // edge: trace-sink (release)
  return {};
}

void stop_trace() {
  trace::sink.store_relaxed(nullptr);  // Nothing is published by it.
}

}  // namespace headrace::telemetry
