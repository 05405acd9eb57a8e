// SPDX-License-Identifier: Apache-2.0
#include "emu/device/trace.hpp"

#include <array>
#include <charconv>
#include <string_view>

#include "headrace/base/names.hpp"
#include "headrace/dsa/descriptor.hpp"

namespace headrace::emu {
namespace {

/// Text of fixed capacity; truncates.
class Line {
 public:
  explicit Line(std::span<char> room) : room_(room) {}
  void add(std::string_view text) noexcept {
    for (const char letter : text) {
      if (length_ < room_.size()) room_[length_++] = letter;
    }
  }
  void add(std::string_view name, std::uint64_t value) noexcept {
    add(name);
    std::array<char, 20> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    add({digits.data(), static_cast<std::size_t>(end - digits.data())});
  }
  [[nodiscard]] std::size_t length() const noexcept { return length_; }

 private:
  std::span<char> room_;
  std::size_t length_ = 0;
};

}  // namespace

std::size_t write_json(const TraceEvent& event, std::span<char> into) noexcept {
  Line line(into);
  line.add(event.in_steps ? "{\"step\":" : "{\"time_ns\":", event.time);
  line.add(",\"event\":\"");
  line.add(headrace::name(event.kind));
  line.add("\",\"device\":", event.device);
  if (event.numa_node < 0) {
    line.add(",\"numa_node\":-1");
  } else {
    line.add(",\"numa_node\":", static_cast<std::uint64_t>(event.numa_node));
  }
  line.add(",\"queue\":", event.queue);
  line.add(",\"engine\":", event.engine);
  line.add(",\"sequence\":", event.sequence);
  line.add(",\"index\":", event.index);
  if (event.fenced) line.add(",\"fence\":1");
  const std::string_view opcode = dsa::name(static_cast<dsa::Opcode>(event.opcode));
  if (opcode == "unknown") {
    line.add(",\"opcode\":", event.opcode);
  } else {
    line.add(",\"opcode\":\"");
    line.add(opcode);
    line.add("\"");
  }
  line.add(",\"status\":", event.raw_status);
  line.add(",\"byte_count\":", event.byte_count);
  if (event.kind == TraceKind::control) {
    line.add(",\"command\":\"");
    line.add(headrace::name(event.command));
    line.add("\"");
  }
  if (event.process_id != 0) {
    line.add(",\"process\":", static_cast<std::uint64_t>(event.process_id));
  }
  line.add("}");
  return line.length();
}

std::string to_json(const TraceEvent& event) {
  std::array<char, kTraceLineMax> room{};
  return {room.data(), write_json(event, room)};
}

}  // namespace headrace::emu
