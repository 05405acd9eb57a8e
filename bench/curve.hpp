// SPDX-License-Identifier: Apache-2.0
// The curves of `headrace bench ... --threads LIST`: the same work by 1, 2, ... threads at once,
// each on a processor of its own, and what one operation executes, counted by single steps.
// Rates are wall-clock; a speed-up is the median of the ratios to one thread within a round: of all
// rounds, and of those in which measure_line_ns() found the first two processors near each other.
#pragma once

#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "measure.hpp"
#include "stepper.hpp"
#include "threads.hpp"

namespace headrace::bench {

/// One curve. `make` prepares the work of `threads` threads; what it returns does a number of
/// operations, a few hundred at most, as thread `thread`, and returns the number.
struct Curve {
  using Turn = std::function<std::size_t(std::size_t thread)>;
  const char* name;
  std::function<Turn(std::size_t threads)> make;
};

struct CurveSettings {
  std::vector<std::size_t> threads;  ///< Ascending from 1.
  std::size_t round_count = 0;
  std::chrono::milliseconds each{};  ///< Of one measurement.
};

/// Parses "curve LIST ROUNDS MILLISECONDS", where LIST is as "1,2,4". Nothing of other words.
[[nodiscard]] inline std::optional<CurveSettings> curve_in(int argc, char** argv) {
  const auto words = std::span(argv, static_cast<std::size_t>(argc)).subspan(1);
  if (words.empty() || words[0] != std::string_view("curve")) return std::nullopt;
  if (words.size() != 4) die("usage: PROGRAM curve LIST ROUNDS MILLISECONDS");
  CurveSettings settings{.threads = parse_numbers(words[1]),
                         .round_count = parse_number(words[2]),
                         .each = std::chrono::milliseconds(parse_number(words[3]))};
  const auto& all = settings.threads;
  if (all.empty() || all.front() != 1 || !std::ranges::is_sorted(all, std::less_equal<>())) {
    die(fmt::format("'{}' does not ascend from 1", words[1]));
  }
  if (all.back() > allowed_processors().size()) {
    die(fmt::format("{} threads have no processors of their own: this process may use {}",
                    all.back(), allowed_processors().size()));
  }
  return settings;
}

struct CurvePoint {
  std::vector<double> per_s;         ///< Operations of all threads, by round.
  std::vector<double> kernel_share;  ///< Of the processor time.
  std::vector<double> line_ns;       ///< Before and after averaged; 0 with one thread.
};

inline void measure_point(const Curve& curve, std::size_t threads, std::chrono::milliseconds each,
                          CurvePoint& point) {
  const auto kernel_and_all = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return std::pair(seconds(usage.ru_stime), seconds(usage.ru_stime) + seconds(usage.ru_utime));
  };
  const Curve::Turn turn = curve.make(threads);
  std::vector<double> rates(threads);
  std::pair<double, double> before;
  const double line_ns = threads == 1 ? 0 : measure_line_ns();
  const auto work = [&](std::size_t thread, const std::function<void()>& wait_for_start) {
    turn(thread);  // State of the thread that is made by its first call.
    if (thread == 0) before = kernel_and_all();
    wait_for_start();
    const double begin_ns = now_ns(CLOCK_MONOTONIC);
    const double wanted_ns = std::chrono::duration<double, std::nano>(each).count();
    std::size_t done = 0;
    double took_ns = 0;
    while (took_ns < wanted_ns) {
      done += turn(thread);
      took_ns = now_ns(CLOCK_MONOTONIC) - begin_ns;
    }
    rates[thread] = static_cast<double>(done) * 1e9 / took_ns;
  };
  run_together(threads, work);
  const std::pair<double, double> after = kernel_and_all();
  point.line_ns.push_back(threads == 1 ? 0 : (line_ns + measure_line_ns()) / 2);
  double per_s = 0;
  for (const double rate : rates) per_s += rate;
  point.per_s.push_back(per_s);
  point.kernel_share.push_back((after.first - before.first) / (after.second - before.second));
}

/// What the machine allows: threads that only compute, in registers.
inline Curve curve_of_processors() {
  return {"processors", [](std::size_t) -> Curve::Turn {
            return [](std::size_t) {
              multiply(256);
              return 256;
            };
          }};
}

/// Measures the curves in turns, after that of the processors, and prints one JSON document.
inline int print_curves(const CurveSettings& settings, std::span<const Curve> given) {
  const std::vector<std::size_t>& threads = settings.threads;
  std::vector<Curve> curves{curve_of_processors()};
  curves.insert(curves.end(), given.begin(), given.end());
  std::vector<std::vector<CurvePoint>> points(curves.size(),
                                              std::vector<CurvePoint>(threads.size()));
  for (std::size_t round = 0; round < settings.round_count; ++round) {
    for (std::size_t i = 0; i < curves.size(); ++i) {
      for (std::size_t k = 0; k < threads.size(); ++k) {
        const std::size_t turn = (k + round) % threads.size();
        measure_point(curves[i], threads[turn], settings.each, points[i][turn]);
      }
    }
  }
  double least_ns = 1e9;  // Less than infinity.
  for (const auto& curve : points) {
    least_ns = std::min(least_ns, std::ranges::min(curve.back().line_ns));
  }
  Json measured = Json::object();
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const Curve::Turn turn = curves[i].make(1);
    turn(0);
    begin_stepping();
    const auto count = static_cast<double>(turn(0));
    const Steps steps = end_stepping();
    const auto of_each = [&](std::uint64_t all) { return static_cast<double>(all) / count; };
    Json list = Json::array();
    for (std::size_t k = 0; k < threads.size(); ++k) {
      const CurvePoint& point = points[i][k];
      std::vector<double> ratios;
      std::vector<double> near_ratios;
      for (std::size_t round = 0; round < settings.round_count; ++round) {
        ratios.push_back(point.per_s[round] / points[i].front().per_s[round]);
        if (point.line_ns[round] <= 2 * least_ns) near_ratios.push_back(ratios.back());
      }
      list.push_back({{"threads", threads[k]},
                      {"operations_per_s", median(point.per_s)},
                      {"speedup", median(ratios)},
                      {"speedup_near", near_ratios.empty() ? Json() : Json(median(near_ratios))},
                      {"line_ns", point.line_ns},
                      {"kernel_share", median(point.kernel_share)}});
    }
    measured[curves[i].name] = {{"instructions", of_each(steps.instructions)},
                                {"locked", of_each(steps.locked)},
                                {"system_calls", of_each(steps.system_calls)},
                                {"barriers", of_each(steps.barriers)},
                                {"curve", list}};
  }
  print({{"processors", allowed_processors().size()},
         {"rounds", settings.round_count},
         {"curves", measured}});
  return 0;
}

/// Runs "curve LIST ROUNDS MILLISECONDS"; defined by a program whose curves have their own file.
int print_own_curves(const CurveSettings& settings);

}  // namespace headrace::bench
