// SPDX-License-Identifier: Apache-2.0
// What the programs behind `headrace bench` share: the clock of a thread, medians, arguments, the
// JSON that they print, and errors that end them.
#pragma once

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "headrace/base/result.hpp"

namespace headrace::bench {

/// Processor time of this thread by default, which excludes other load on this core.
[[nodiscard]] inline double now_ns(clockid_t clock = CLOCK_THREAD_CPUTIME_ID) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// The upper one of two in the middle.
[[nodiscard]] inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

[[noreturn]] inline void die(std::string_view message) {
  fmt::print(stderr, "{}\n", message);
  std::exit(1);
}

template <typename T>
T must(Result<T> result) {
  if (!result.has_value()) die(result.error().message());
  if constexpr (!std::is_void_v<T>) {
    return std::move(*result);
  }
}

[[nodiscard]] inline std::uint64_t parse_number(std::string_view text, std::uint64_t least = 1) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least) {
    die(fmt::format("'{}' is not a {}number", text, least == 0 ? "" : "positive "));
  }
  return number;
}

/// Parses "1,2,4".
[[nodiscard]] inline std::vector<std::size_t> parse_numbers(std::string_view text,
                                                            std::uint64_t least = 1) {
  std::vector<std::size_t> numbers;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    numbers.push_back(parse_number(text.substr(0, end), least));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return numbers;
}

using Json = nlohmann::ordered_json;

/// get(each), with three decimals.
template <typename Values, typename Get = std::identity>
[[nodiscard]] Json list_of(const Values& values, const Get& get = {}) {
  Json list = Json::array();
  for (const auto& each : values) list.push_back(std::round(std::invoke(get, each) * 1e3) / 1e3);
  return list;
}
/// Prints a line at once.
inline void print(const Json& document) {
  fmt::print("{}\n", document.dump(-1, ' ', false, Json::error_handler_t::replace));
  std::fflush(stdout);
}

}  // namespace headrace::bench
