// SPDX-License-Identifier: Apache-2.0
// A point of headrace-bench-movement: what to measure, as a line of KEY=VALUE words.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"

namespace headrace::bench {

/// A point that cannot be measured here; the message says why.
struct Unmeasurable {
  std::string why;
};

template <typename T>
T value_of(Result<T> result) {
  if (!result.has_value()) throw Unmeasurable{result.error().message()};
  return std::move(*result);
}

struct Point {
  std::string by = "channel";  ///< channel, engine (jobs), cpu (the calling threads) or none.
  std::string operation = "copy";
  std::size_t bytes = 4096;  ///< Per operation.
  std::size_t batch = 1;     ///< Operations per submission.
  std::size_t depth = 1;     ///< Submissions in flight; 1: waits for each.
  std::size_t threads = 1;
  std::size_t count = 0;  ///< Operations per round, all threads together; 0: limited by time.
  /// Source, and target, of all threads together; more if an operation needs it.
  std::size_t span = std::size_t{64} << 20U;
  std::vector<std::string> queues;  ///< For channels: thread i uses queue i modulo their number.
  std::string policy;               ///< Of jobs.
  std::string path = "hardware";    ///< Of jobs.
  std::optional<NodeId> source;
  std::optional<NodeId> target;
  bool huge = false;                    ///< Pages of 2 MiB.
  std::string faults = "none";          ///< Else how faults on absent pages are handled.
  bool cache = false;                   ///< Writes targets into the cache.
  std::string waiting = "adaptive";     ///< As engine::Waiting.
  bool split = false;                   ///< Also times preparing, submitting and waiting.
  bool read = false;                    ///< Also times reading the target afterwards.
  std::optional<std::size_t> beside{};  ///< Bytes that another thread reads repeatedly meanwhile.
};

inline std::size_t size_of(std::string_view text) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Unmeasurable{fmt::format("'{}' is not a number", text)};
  }
  return number;
}

inline NodeId node_of(std::string_view text) {
  return NodeId(static_cast<std::uint32_t>(size_of(text)));
}

inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

/// Keys of a point.
inline const std::map<std::string_view, void (*)(Point&, const std::string&)> kWords{
    {"by", [](Point& to, const std::string& value) { to.by = value; }},
    {"operation", [](Point& to, const std::string& value) { to.operation = value; }},
    {"bytes", [](Point& to, const std::string& value) { to.bytes = size_of(value); }},
    {"batch", [](Point& to, const std::string& value) { to.batch = size_of(value); }},
    {"depth", [](Point& to, const std::string& value) { to.depth = size_of(value); }},
    {"threads", [](Point& to, const std::string& value) { to.threads = size_of(value); }},
    {"count", [](Point& to, const std::string& value) { to.count = size_of(value); }},
    {"queues", [](Point& to, const std::string& value) { to.queues = split(value, ','); }},
    {"policy", [](Point& to, const std::string& value) { to.policy = value; }},
    {"path", [](Point& to, const std::string& value) { to.path = value; }},
    {"source", [](Point& to, const std::string& value) { to.source = node_of(value); }},
    {"target", [](Point& to, const std::string& value) { to.target = node_of(value); }},
    {"span", [](Point& to, const std::string& value) { to.span = size_of(value); }},
    {"huge", [](Point& to, const std::string& value) { to.huge = value == "1"; }},
    {"faults", [](Point& to, const std::string& value) { to.faults = value; }},
    {"cache", [](Point& to, const std::string& value) { to.cache = value == "1"; }},
    {"waiting", [](Point& to, const std::string& value) { to.waiting = value; }},
    {"split", [](Point& to, const std::string& value) { to.split = value == "1"; }},
    {"read", [](Point& to, const std::string& value) { to.read = value == "1"; }},
    {"beside", [](Point& to, const std::string& value) { to.beside = size_of(value); }},
};

inline Point parse(const std::string& line) {
  Point point;
  for (const std::string& word : split(line, ' ')) {
    const std::size_t at = std::min(word.find('='), word.size());
    const auto known = kWords.find(std::string_view(word).substr(0, at));
    if (known == kWords.end()) throw Unmeasurable{fmt::format("unknown key '{}' in a point", word)};
    known->second(point, word.substr(std::min(at + 1, word.size())));
  }
  return point;
}

}  // namespace headrace::bench
