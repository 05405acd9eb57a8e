// SPDX-License-Identifier: Apache-2.0
// A point of headrace-bench-movement: what to measure, as a line of JSON.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"
#include "measure.hpp"

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

/// Throws Unmeasurable if the line is no point.
inline Point parse(const std::string& line) try {
  Json words = Json::parse(line);
  Point point;
  const auto read = [&](const char* key, auto& to) {
    const auto found = words.find(key);
    if (found == words.end()) return false;
    found->get_to(to);
    words.erase(found);
    return true;
  };
  const auto read_node = [&](const char* key, std::optional<NodeId>& to) {
    if (std::uint32_t id = 0; read(key, id)) to = NodeId(id);
  };
  read("by", point.by);
  read("operation", point.operation);
  read("bytes", point.bytes);
  read("batch", point.batch);
  read("depth", point.depth);
  read("threads", point.threads);
  read("count", point.count);
  read("span", point.span);
  read("queues", point.queues);
  read("policy", point.policy);
  read("path", point.path);
  read_node("source", point.source);
  read_node("target", point.target);
  read("huge", point.huge);
  read("faults", point.faults);
  read("cache", point.cache);
  read("waiting", point.waiting);
  read("split", point.split);
  read("read", point.read);
  if (std::size_t bytes = 0; read("beside", bytes)) point.beside = bytes;
  if (!words.empty()) throw Unmeasurable{fmt::format("unknown in a point: {}", words.dump())};
  return point;
} catch (const Json::exception& error) {
  throw Unmeasurable{fmt::format("'{}' is no point: {}", line, error.what())};
}

}  // namespace headrace::bench
