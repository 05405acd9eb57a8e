// SPDX-License-Identifier: Apache-2.0
// The recording, and find_waste(). The states that a recording allows: explore.cpp.
#include "headrace/pmem/recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "headrace/base/check.hpp"
#include "headrace/base/units.hpp"
#include "ranges.hpp"

namespace headrace::pmem {
namespace {

constexpr std::size_t kAlignment = 4096;

}  // namespace

Recorder::Recorder(std::span<const std::byte> initial, Granularity granularity,
                   FlushInstruction instruction)
    : initial_(initial.begin(), initial.end()),
      storage_(initial.size() + kAlignment),
      granularity_(granularity),
      instruction_(instruction) {
  HEADRACE_CHECK(granularity != Granularity::page, "pages are written back by the system");
  const std::size_t before = reinterpret_cast<std::uintptr_t>(storage_.data()) % kAlignment;
  memory_ = std::span(storage_).subspan((kAlignment - before) % kAlignment, initial.size());
  std::ranges::copy(initial, memory_.begin());
}

std::uint64_t Recorder::offset_of(const void* begin, std::size_t byte_count) const {
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  const auto base = reinterpret_cast<std::uintptr_t>(memory_.data());
  HEADRACE_CHECK(first >= base && first - base <= memory_.size() &&
                     byte_count <= memory_.size() - (first - base),
                 "what is stored or flushed lies in the recorder's memory", first - base,
                 byte_count);
  return first - base;
}

void Recorder::add(Event event, std::span<const std::byte> bytes) {
  if (!label_known_) {
    const std::string text = phase_.empty() ? label_ : phase_ + ": " + label_;
    const auto known = std::ranges::find(labels_, text);
    label_index_ = static_cast<std::uint32_t>(known - labels_.begin());
    if (known == labels_.end()) labels_.push_back(text);
    label_known_ = true;
  }
  event.label = label_index_;
  event.data = data_.size();
  data_.insert(data_.end(), bytes.begin(), bytes.end());
  events_.push_back(event);
  if (!other_ || in_other_) return;
  in_other_ = true;
  const std::string phase = phase_;
  const std::string label = label_;
  other_(events_.size() - 1);
  phase_ = phase;
  label_ = label;
  label_known_ = false;
  in_other_ = false;
}

void Recorder::store(std::byte* target, std::span<const std::byte> source) {
  if (source.empty()) return;
  const std::uint64_t offset = offset_of(target, source.size());
  std::memcpy(target, source.data(), source.size());
  add({.kind = Event::Kind::store, .offset = offset, .byte_count = source.size()}, source);
}

void Recorder::store_word(std::uint64_t& target, std::uint64_t value) {
  const std::uint64_t offset = offset_of(&target, sizeof(target));
  HEADRACE_CHECK(offset % sizeof(target) == 0, "a word is aligned", offset);
  // edge: ring-words (release)
  store_release(target, value);
  add({.kind = Event::Kind::word, .offset = offset, .byte_count = sizeof(target)},
      std::as_bytes(std::span(&value, 1)));
}

void Recorder::stream(std::byte* target, std::span<const std::byte> lines, Digest* digest) {
  if (lines.empty()) return;
  const std::uint64_t offset = offset_of(target, lines.size());
  HEADRACE_CHECK(offset % kLineBytes == 0 && lines.size() % kLineBytes == 0,
                 "whole lines are streamed", offset, lines.size());
  std::memcpy(target, lines.data(), lines.size());
  if (digest != nullptr) digest_lines(lines, *digest);
  add({.kind = Event::Kind::stream, .offset = offset, .byte_count = lines.size()}, lines);
}

void Recorder::copy(std::byte* target, std::span<const std::byte> source) {
  detail::copy_range(*this, target, source);
}

void Recorder::fill(std::byte* target, std::byte value, std::size_t byte_count) {
  detail::fill_range(*this, target, value, byte_count);
}

void Recorder::flush_with(FlushInstruction instruction, const void* begin, std::size_t byte_count) {
  if (byte_count == 0 || granularity_ == Granularity::byte) return;
  add({.kind = Event::Kind::flush,
       .instruction = instruction,
       .offset = offset_of(begin, byte_count),
       .byte_count = byte_count},
      {});
}

void Recorder::drain() {
  add({.kind = Event::Kind::drain}, {});
}

void Recorder::label(const char* text) {
  label_ = text;
  label_known_ = false;
}

void Recorder::phase(std::string text) {
  phase_ = std::move(text);
  label_known_ = false;
}

void Recorder::mark(std::uint64_t mark) {
  add({.kind = Event::Kind::mark, .mark = mark}, {});
}

Waste find_waste(const Recorder& recorder) {
  Waste waste;
  std::map<std::string, std::uint64_t> counts;
  std::set<std::uint64_t> dirty;  // Lines with cached stores since their last flush.
  std::map<std::uint64_t, std::set<std::uint64_t>>
      lines_of_block;  // Flushed or streamed since a drain.
  std::map<std::uint64_t, std::uint32_t> label_of_block;
  bool waited_for = false;
  const auto on_its_way = [&](std::uint64_t line, const Event& event) {
    const std::uint64_t block = line / (kBlockBytes / kLineBytes);
    lines_of_block[block].insert(line);
    label_of_block[block] = event.label;
    waited_for = true;
  };
  const auto commit = [&] {
    for (const auto& [block, lines] : lines_of_block) {
      ++waste.blocks;
      if (lines.size() * kLineBytes == kBlockBytes) continue;
      ++waste.partial_blocks;
      ++counts["part of a block written: " + recorder.labels()[label_of_block[block]]];
    }
    lines_of_block.clear();
  };
  for (const Event& event : recorder.events()) {
    const std::uint64_t first = event.offset / kLineBytes;
    const std::uint64_t end = (event.offset + event.byte_count + kLineBytes - 1) / kLineBytes;
    switch (event.kind) {
      case Event::Kind::store:
      case Event::Kind::word:
        for (std::uint64_t line = first; line < end; ++line) dirty.insert(line);
        break;
      case Event::Kind::stream:
        for (std::uint64_t line = first; line < end; ++line) on_its_way(line, event);
        break;
      case Event::Kind::flush:
        for (std::uint64_t line = first; line < end; ++line) {
          if (dirty.erase(line) == 0) {
            ++waste.clean_flushes;
            ++counts["a clean line flushed: " + recorder.labels()[event.label]];
          } else {
            on_its_way(line, event);
          }
        }
        if (event.instruction == FlushInstruction::clflush) commit();
        break;
      case Event::Kind::drain:
        if (!waited_for) {
          ++waste.needless_drains;
          ++counts["a fence with nothing to wait for: " + recorder.labels()[event.label]];
        }
        waited_for = false;
        commit();
        break;
      case Event::Kind::mark:
        break;
    }
  }
  commit();
  for (const auto& [text, count] : counts) {
    waste.details.push_back(fmt::format("{} ({})", text, counted(count, "time")));
  }
  return waste;
}

}  // namespace headrace::pmem
