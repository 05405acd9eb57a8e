// SPDX-License-Identifier: Apache-2.0
#include "sim/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <unordered_map>

#include "headrace/base/names.hpp"
#include "headrace/base/trace.hpp"
#include "headrace/dsa/descriptor.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/platform/descriptor.hpp"

namespace headrace::sim {
namespace {

using Json = nlohmann::ordered_json;
using trace::Block;
using Type = trace::Kind;
using trace::Record;

constexpr std::size_t kHeadBytes = 4096;
constexpr std::size_t kRecordsAt = offsetof(Block, records);
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 30U;
/// In batches, which are simulated one by one, and other records.
constexpr std::uint64_t kOperationsMax = std::uint64_t{64} << 20U;

/// Makes the operations and the steps of the threads from records in the order of time.
class Maker {
 public:
  Maker(Trace& trace, double ns_per_tick, std::uint64_t begin_ticks)
      : trace_(trace), ns_per_tick_(ns_per_tick), begin_ticks_(begin_ticks) {}

  void add(std::uint32_t thread, const Record& record) {
    if (states_.size() <= thread) states_.resize(thread + 1);
    process_ = trace_.threads[thread].process;
    switch (record.kind) {
      case Type::job:
      case Type::run:
        return operation(thread, record);
      case Type::after:
        if (const auto* const before = find(record.other)) after_.push_back(*before);
        return;
      case Type::cached:
      case Type::put:
      case Type::get:
        return part(record);
      case Type::wait:
        return wait(thread, record);
      case Type::send:
      case Type::receive:
      case Type::arrival:
      case Type::room:
        return message(thread, record);
      case Type::ran:
        return ran(thread, record);
      case Type::none:
      case Type::thread:  // The recorder took a block.
        pass(thread, record);
    }
  }

 private:
  struct State {
    std::uint64_t end_ticks = 0;
    double computing_ns = 0;  ///< Not yet before a step, as the next one.
    double asleep_ns = 0;
    double between_ns = 0;  ///< Between records since `ran`.
    Record ran = {};
  };

  [[nodiscard]] std::uint64_t key(std::uint64_t id) const {
    return id + process_ * 0x9E37'79B9'7F4A'7C15U;
  }
  [[nodiscard]] const std::uint32_t* find(std::uint64_t id) const {
    const auto found = latest_.find(key(id));
    return found == latest_.end() ? nullptr : &found->second;
  }

  /// The thread computed until the record began, and not until it ended.
  double pass(std::uint32_t thread, const Record& record) {
    State& state = states_[thread];
    TracedThread& traced = trace_.threads[thread];
    if (state.end_ticks == 0) {
      traced.begin_ns = static_cast<double>(record.begin_ticks - begin_ticks_) * ns_per_tick_;
    } else if (record.begin_ticks > state.end_ticks) {
      const double between_ns =
          static_cast<double>(record.begin_ticks - state.end_ticks) * ns_per_tick_;
      state.computing_ns += between_ns;
      state.between_ns += between_ns;
    }
    const std::uint64_t begin = std::max(record.begin_ticks, state.end_ticks);
    state.end_ticks = std::max(record.end_ticks, state.end_ticks);
    return static_cast<double>(state.end_ticks - begin) * ns_per_tick_;
  }
  /// Of the time between two of these records, the thread had a processor for no more than it ran.
  /// It slept for the rest or, if it never slept, other threads had its processor.
  void ran(std::uint32_t thread, const Record& record) {
    pass(thread, record);
    State& state = states_[thread];
    const double between_ns = std::exchange(state.between_ns, 0);
    const Record before = std::exchange(state.ran, record);
    if (before.kind == Type::none) return;
    const auto ran_ns = static_cast<double>(record.other - before.other);
    const double absent_ns = std::clamp(between_ns - ran_ns, 0.0, state.computing_ns);
    state.computing_ns -= absent_ns;
    if (record.id != before.id) state.asleep_ns += absent_ns;
  }
  void step(std::uint32_t thread, Step step) {
    step.computing_ns = std::exchange(states_[thread].computing_ns, 0);
    step.asleep_ns = std::exchange(states_[thread].asleep_ns, 0);
    trace_.threads[thread].steps.push_back(step);
  }

  void operation(std::uint32_t thread, const Record& record) {
    const auto index = static_cast<std::uint32_t>(trace_.operations.size());
    const bool runs = record.kind == Type::run;
    TracedOperation made{.bytes = static_cast<double>(record.byte_count),
                         .count = std::max(1U, record.count),
                         .kind = static_cast<std::uint8_t>(record.operation & 15U),
                         .path = static_cast<std::uint8_t>(record.operation >> 4U),
                         .source_node = record.source_node,
                         .target_node = record.target_node,
                         .is_synchronous = runs,
                         .reused_bytes = reuse(record),
                         .after = std::exchange(after_, {})};
    const std::uint32_t* const cause = runs || record.other == 0 ? nullptr : find(record.other);
    if (cause != nullptr) {
      made.after.insert(made.after.begin(), *cause);
      made.chained = true;
    }
    trace_.operations.push_back(std::move(made));
    if (!runs) latest_[key(record.id)] = index;
    if (cause != nullptr) return;
    pass(thread, record);
    step(thread, {.index = index});
  }

  /// Bytes since the last use of the less recently used operand.
  double reuse(const Record& record) {
    double& moved = moved_[process_];
    const bool both = record.source != 0 && record.target != 0;
    moved += static_cast<double>(record.byte_count) * (both ? 2 : 1);
    double longest = 0;
    for (const std::uint64_t address : {record.source, record.target}) {
      if (address == 0) continue;
      const auto [place, is_new] = used_.try_emplace(key(address / kPageBytes), moved);
      longest = std::max(longest, is_new ? kNotBefore : moved - place->second);
      place->second = moved;
    }
    return longest;
  }

  void part(const Record& record) {
    const std::uint32_t* const job = find(record.other);
    if (job == nullptr) return;
    if (record.kind == Type::cached) trace_.operations[*job].cached = true;
    // What has been waited for is dropped by the next part.
    auto& [parts, waited] = parts_[key(record.id)];
    if (std::exchange(waited, false) || record.kind == Type::cached) parts.clear();
    parts.push_back(*job);
  }

  void wait(std::uint32_t thread, const Record& record) {
    const std::uint32_t* const job = find(record.id);
    const bool is_look = record.count == 2;
    if (is_look && job != nullptr && trace_.operations[*job].cached) return;
    const double waited_ns = pass(thread, record);
    if (record.count == 0) return;
    if (job != nullptr) {
      return step(thread, {.waited_ns = waited_ns, .index = *job, .kind = Step::Kind::wait});
    }
    const auto found = parts_.find(key(record.id));
    if (found == parts_.end()) return;
    found->second.second = true;
    double once_ns = waited_ns;
    for (const std::uint32_t part : found->second.first) {
      step(thread,
           {.waited_ns = std::exchange(once_ns, 0), .index = part, .kind = Step::Kind::wait});
    }
  }

  void message(std::uint32_t thread, const Record& record) {
    const double waited_ns = pass(thread, record);
    if (record.kind == Type::room || (record.kind == Type::arrival && record.count == 0)) return;
    const auto [lane, is_new] = lanes_.try_emplace(record.id, trace_.lane_count);
    trace_.lane_count += is_new ? 1 : 0;
    step(thread, {.waited_ns = record.kind == Type::arrival ? waited_ns : 0,
                  .bytes = static_cast<double>(record.byte_count),
                  .position = record.other,
                  .index = lane->second,
                  .kind = record.kind == Type::send      ? Step::Kind::send
                          : record.kind == Type::receive ? Step::Kind::receive
                                                         : Step::Kind::arrival,
                  .copied = record.count != 0});
  }

  Trace& trace_;
  const double ns_per_tick_;
  const std::uint64_t begin_ticks_;
  std::uint64_t process_ = 0;
  std::vector<State> states_;
  std::vector<std::uint32_t> after_;
  std::unordered_map<std::uint64_t, std::uint32_t> latest_;  ///< Operations by job.
  std::unordered_map<std::uint64_t, std::pair<std::vector<std::uint32_t>, bool>> parts_;
  std::unordered_map<std::uint64_t, std::uint32_t> lanes_;
  std::unordered_map<std::uint64_t, double> used_;
  std::unordered_map<std::uint64_t, double> moved_;  ///< By process.
};

struct Placed {
  std::uint64_t at = 0;
  std::uint32_t thread = 0;
  const Record* record = nullptr;
};

class Reader {
 public:
  explicit Reader(const std::string& path) : tried_(fmt::format("read the trace '{}'", path)) {}

  Result<Trace> binary(const Json& head, std::span<const std::byte> file) {
    const double ticks = head.value("ticks_per_second", 0.0);
    if (!(ticks > 0)) return damaged("its head has impossible numbers");
    if (file.size() < kHeadBytes) return damaged("it ends inside its head");
    std::memcpy(&trace_.lost_count, file.data() + kHeadBytes - 8, 8);
    // A copy replaces what it is a copy of, which is before it in the file.
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::span<const std::byte>> blocks;
    for (auto begin = kHeadBytes; begin + kRecordsAt < file.size(); begin += sizeof(Block)) {
      const auto& each = *reinterpret_cast<const Block*>(file.data() + begin);
      const std::uint64_t state = each.state.load_acquire();  // edge: trace-record (acquire)
      const std::size_t length = static_cast<std::uint32_t>(state);
      if (length > sizeof(each.records)) return damaged("a block has an impossible length");
      const auto there = file.subspan(begin + kRecordsAt);
      if (length == 0) continue;
      blocks[{each.origin, state >> 32U}] = there.first(std::min(length, there.size()));
    }
    for (const auto& [name, bytes] : blocks) {
      HEADRACE_TRY(block(bytes, &bytes.back() == &file.back()));
    }
    return make(1e9 / ticks);
  }

  /// The events of the emulator: a process waits for what ended right before it submits.
  Result<Trace> descriptors(std::string_view lines) {
    trace_.has_descriptors = true;
    std::map<std::array<std::uint64_t, 3>, std::size_t> submitted;
    std::size_t number = 1;
    while (!lines.empty()) {
      const std::size_t end = lines.find('\n');
      if (end == std::string_view::npos) {
        trace_.cut_off_bytes = static_cast<double>(lines.size());
        break;
      }
      const std::string_view line = lines.substr(0, end);
      lines.remove_prefix(end + 1);
      ++number;
      const Json event = Json::parse(line, nullptr, false);
      if (!event.is_object() || !event.contains("event")) {
        return damaged(fmt::format("line {} is no event", number));
      }
      HEADRACE_TRY(descriptor(event, submitted));
    }
    return make(1);
  }

 private:
  [[nodiscard]] Failure damaged(const std::string& cause) const {
    return fail(Code::corrupt_data, tried_, cause, "record it again");
  }

  std::uint32_t thread_of(std::uint64_t process, std::uint64_t number, std::uint8_t node) {
    const auto [place, is_new] =
        threads_.try_emplace({process, number}, static_cast<std::uint32_t>(threads_.size()));
    if (is_new) {
      trace_.threads.push_back({.process = process, .number = number, .node = node});
    }
    return place->second;
  }

  Result<void> block(std::span<const std::byte> bytes, bool ends_file) {
    std::uint32_t thread = 0;
    std::uint64_t before_ticks = 0;
    trace::Words words{};
    for (bool is_first = true; !bytes.empty(); is_first = false) {
      if (!unpack(bytes, words)) {
        if (!ends_file) return damaged("a record ends outside its block");
        trace_.cut_off_bytes = static_cast<double>(bytes.size());
        break;
      }
      const auto* const record = &records_.emplace_back(std::bit_cast<Record>(words));
      const Type kind = record->kind;
      if (kind == Type::none || kind > Type::ran || (is_first && kind != Type::thread)) {
        return damaged(
            fmt::format("a record has the unknown kind {}", static_cast<unsigned>(kind)));
      }
      if (kind == Type::thread) {
        thread = thread_of(record->id, record->other, record->source_node);
        before_ticks = 0;
        if (record->end_ticks > record->begin_ticks) {
          placed_.push_back({record->end_ticks, thread, record});
        }
        continue;
      }
      if (record->end_ticks < record->begin_ticks) {
        return damaged(fmt::format("an operation of thread {} ends before it begins",
                                   trace_.threads[thread].number));
      }
      if (record->end_ticks < before_ticks) {
        return damaged(
            fmt::format("the clock of thread {} goes back", trace_.threads[thread].number));
      }
      before_ticks = record->end_ticks;
      const bool submits = kind == Type::job || kind == Type::run;
      operation_count_ += submits ? std::max(1U, record->count) : 1;
      if (operation_count_ > kOperationsMax) {
        return fail(Code::capacity_exceeded, tried_,
                    fmt::format("it has more than {} operations", kOperationsMax),
                    "record a shorter part, or again if the file is damaged");
      }
      const bool begins = kind == Type::job || kind == Type::after || kind == Type::send;
      placed_.push_back({begins ? record->begin_ticks : record->end_ticks, thread, record});
    }
    return {};
  }

  /// Takes a record from the begin of `bytes`; `words` are those of the one before it.
  static bool unpack(std::span<const std::byte>& bytes, trace::Words& words) {
    std::size_t at = sizeof(std::uint32_t);
    if (bytes.size() < at) return false;
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::size_t length = std::to_integer<unsigned>(bytes[i / 2]) >> i % 2 * 4 & 15U;
      if (length > sizeof(words[i]) || length > bytes.size() - at) return false;
      std::uint64_t changed = 0;
      std::memcpy(&changed, bytes.data() + at, length);
      words[i] ^= changed;
      at += length;
    }
    bytes = bytes.subspan(at);
    return true;
  }

  Result<void> descriptor(const Json& event,
                          std::map<std::array<std::uint64_t, 3>, std::size_t>& submitted) {
    const auto number = [&](const char* name) {
      const auto found = event.find(name);
      return found != event.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
    };
    const std::string what = event.value("event", std::string());
    const std::array key{number("device"), number("queue"), number("sequence")};
    const std::uint64_t now = number("time_ns");
    if (now < last_ns_) return damaged("its clock goes back");
    last_ns_ = now;
    if (what == "submitted") {
      const std::string opcode = event.value("opcode", std::string());
      const auto known = find_name<engine::OperationKind>(opcode == "move" ? "copy" : opcode);
      const std::uint32_t thread = thread_of(number("process"), 0, 0);
      submitted[key] = made_.size();
      made_.push_back(
          {thread,
           std::exchange(ended_[thread], 0),
           {.begin_ticks = now,
            .end_ticks = now,
            .id = made_.size() + 1,
            .source = 1,
            .target = 1,
            .byte_count = opcode == "batch" ? 0 : number("byte_count"),
            .kind = Type::job,
            .operation = static_cast<std::uint8_t>(
                static_cast<std::uint8_t>(known.value_or(engine::OperationKind::no_op)) | 16U),
            .count = opcode == "batch" ? 0U : 1U}});
    } else if (const auto found = submitted.find(key); found != submitted.end()) {
      const bool is_member = number("index") != 0;
      if (what == "started" && number("fence") != 0 && made_[found->second].record.count != 0) {
        // The rest of the batch begins when what is before the fence has ended.
        Made rest = made_[found->second];
        rest.waits_for = 0;
        rest.record.begin_ticks = rest.record.end_ticks = now;
        rest.record.other = std::exchange(rest.record.id, made_.size() + 1);
        rest.record.byte_count = rest.record.count = 0;
        made_.push_back(rest);
        found->second = made_.size() - 1;
      }
      Made& made = made_[found->second];
      if (what == "started" && is_member) {
        made.record.byte_count += number("byte_count");
        ++made.record.count;
      } else if (!is_member && (what == "finished" || what == "aborted")) {
        ended_[made.thread] = found->second + 1;
        made.end_ns = now;
      }
    }
    return {};
  }

  Result<Trace> make(double ns_per_tick) {
    std::vector<Record> waits;
    waits.reserve(made_.size());
    for (const Made& made : made_) {
      if (made.waits_for != 0) {
        const std::uint64_t end_ns = made_[made.waits_for - 1].end_ns;
        waits.push_back(
            {.begin_ticks = end_ns, .end_ticks = end_ns, .id = made.waits_for, .kind = Type::wait});
        placed_.push_back({end_ns, made.thread, &waits.back()});
      }
      placed_.push_back({made.record.begin_ticks, made.thread, &made.record});
    }
    if (placed_.empty()) {
      return fail(Code::invalid_argument, tried_, "it has no operation",
                  "record a program that uses engines, caches, stores or queues");
    }
    std::ranges::stable_sort(placed_, {}, &Placed::at);
    std::uint64_t begin = UINT64_MAX;
    std::uint64_t end = 0;
    for (const Placed& each : placed_) {
      begin = std::min(begin, each.record->begin_ticks);
      end = std::max(end, each.record->end_ticks);
    }
    trace_.recorded_ns = static_cast<double>(end - begin) * ns_per_tick;
    Maker maker(trace_, ns_per_tick, begin);
    for (const Placed& each : placed_) maker.add(each.thread, *each.record);
    return std::move(trace_);
  }

  struct Made {
    std::uint32_t thread = 0;
    std::size_t waits_for = 0;  ///< Index of what ended right before, plus 1.
    Record record;
    std::uint64_t end_ns = 0;
  };
  const std::string tried_;
  Trace trace_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> threads_;
  std::deque<Record> records_;
  std::vector<Placed> placed_;
  std::vector<Made> made_;
  std::unordered_map<std::uint32_t, std::size_t> ended_;  ///< By thread: as Made::waits_for.
  std::uint64_t last_ns_ = 0;
  std::uint64_t operation_count_ = 0;
};

}  // namespace

Result<Trace> read_trace(const std::string& path) {
  const std::string tried = fmt::format("read the trace '{}'", path);
  HEADRACE_TAKE_WITHIN(tried, file, platform::load_file(path, kFileBytesMax));
  const auto no_trace = [&] {
    return fail(Code::invalid_argument, tried, "it is no trace",
                "record one: HEADRACE_TRACE=FILE, or 'headrace emulate --trace FILE'");
  };
  const std::string_view text = *file;
  const std::size_t end = text.substr(0, kHeadBytes).find('\n');
  const Json head =
      end == std::string_view::npos ? Json() : Json::parse(text.substr(0, end), nullptr, false);
  if (!head.is_object() || head.value("format", Json()) != "headrace-trace") return no_trace();
  const bool is_text = head.value("records", Json()) == "json";
  if (head.value("version", Json()) != (is_text ? 1 : 2)) {
    return fail(Code::version_mismatch, tried,
                fmt::format("it is of version {}", head.value("version", Json()).dump()),
                "use the Headrace that recorded it, or record it again");
  }
  try {
    Reader reader(path);
    auto read = is_text ? reader.descriptors(text.substr(end + 1))
                        : reader.binary(head, std::as_bytes(std::span(text)));
    if (read && head.value("program", Json()).is_string()) read->program = head.at("program");
    return read;
  } catch (const Json::type_error&) {
    return fail(Code::corrupt_data, tried, "a value has the wrong type", "record it again");
  }
}

}  // namespace headrace::sim
