// SPDX-License-Identifier: Apache-2.0
#include "layout.hpp"

#include <algorithm>
#include <cstring>

#include "headrace/platform/descriptor.hpp"

namespace headrace::telemetry::detail {

std::string program_name() {
  const Result<std::string> name = platform::load_file("/proc/self/comm", 64);
  return name ? name->substr(0, name->find('\n')) : std::string("unknown");
}

void put_text(std::span<char> target, std::string_view text) {
  const std::size_t length = std::min(text.size(), target.size() - 1);
  std::memcpy(target.data(), text.data(), length);
  std::ranges::fill(target.subspan(length), '\0');
}

std::string get_text(std::span<const char> source) {
  return {source.begin(), std::ranges::find(source, '\0')};
}

PackedRow pack(const Row& row) {
  PackedRow packed{};
  put_text(packed.kind, row.kind);
  put_text(packed.name, row.name);
  packed.value_count = std::min(row.values.size(), kValuesMax);
  for (std::size_t i = 0; i < packed.value_count; ++i) {
    put_text(packed.values[i].name, row.values[i].name);
    packed.values[i].value = row.values[i].value;
  }
  return packed;
}

Row unpack(const PackedRow& packed) {
  Row row{.kind = get_text(packed.kind), .name = get_text(packed.name), .values = {}};
  const std::size_t count = std::min<std::uint64_t>(packed.value_count, kValuesMax);
  for (std::size_t i = 0; i < count; ++i) {
    row.values.push_back({get_text(packed.values[i].name), packed.values[i].value});
  }
  return row;
}

void publish_words(std::span<std::uint64_t> target, std::span<const std::uint64_t> source) {
  for (std::size_t i = 0; i < source.size(); ++i) {
    store_release(target[i], source[i]);  // edge: telemetry-word (release)
  }
}

void read_words(std::span<std::uint64_t> target, std::span<std::uint64_t> source) {
  for (std::size_t i = 0; i < target.size(); ++i) {
    target[i] = load_acquire(source[i]);  // edge: telemetry-word (acquire)
  }
}

}  // namespace headrace::telemetry::detail
