// SPDX-License-Identifier: Apache-2.0
// What benchmarks share: the clock of a thread, quantiles, two subjects that take turns, and, for
// the programs behind `headrace bench`, arguments, lists of JSON, and errors that end them.
#pragma once

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "headrace/base/result.hpp"

namespace headrace::bench {

/// Whether sizes are those that are reported, not those of a smoke test.
[[nodiscard]] inline bool is_full() {
  return std::getenv("HEADRACE_BENCH_FULL") != nullptr;
}

/// Processor time of this thread by default, which excludes other load on this core.
[[nodiscard]] inline double now_ns(clockid_t clock = CLOCK_THREAD_CPUTIME_ID) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

[[nodiscard]] inline double quantile(std::vector<double> values, double share) {
  const auto rank = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + rank, values.end());
  return values[static_cast<std::size_t>(rank)];
}
/// The upper one of two in the middle.
[[nodiscard]] inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Medians of two subjects that took turns.
struct Turns {
  double above_ns = 0;
  double below_ns = 0;
};
/// Measures `above` and `below` once in each iteration of a Google Benchmark, in alternating order,
/// and reports `ratio`, that of their medians, with the quartiles of the single ratios.
template <typename State, typename Above, typename Below>
Turns take_turns(State& state, const Above& above, const Below& below) {
  std::vector<double> above_ns;
  std::vector<double> below_ns;
  std::vector<double> ratios;
  for ([[maybe_unused]] auto _ : state) {
    const bool is_above_first = ratios.size() % 2 == 1;
    if (is_above_first) above_ns.push_back(above());
    below_ns.push_back(below());
    if (!is_above_first) above_ns.push_back(above());
    ratios.push_back(above_ns.back() / below_ns.back());
    state.SetIterationTime((above_ns.back() + below_ns.back()) * 1e-9);
  }
  const Turns turns{.above_ns = quantile(above_ns, 0.5), .below_ns = quantile(below_ns, 0.5)};
  state.counters["ratio"] = turns.above_ns / turns.below_ns;
  state.counters["ratio_q1"] = quantile(ratios, 0.25);
  state.counters["ratio_q3"] = quantile(ratios, 0.75);
  return turns;
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

[[nodiscard]] inline std::uint64_t parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number == 0) {
    die(fmt::format("'{}' is not a positive number", text));
  }
  return number;
}

/// "[1.00, 2.50]" of get(each).
template <typename Values, typename Get>
[[nodiscard]] std::string list_of(const Values& values, const Get& get) {
  std::string text;
  for (const auto& each : values) {
    text += fmt::format("{}{:.3f}", text.empty() ? "" : ", ", get(each));
  }
  return "[" + text + "]";
}
[[nodiscard]] inline std::string list_of(const std::vector<double>& values) {
  return list_of(values, [](double value) { return value; });
}

}  // namespace headrace::bench
