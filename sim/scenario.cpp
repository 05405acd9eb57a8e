// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "headrace/base/check.hpp"

namespace headrace::sim {
namespace {

/// Of nodes, entries, threads; limits the running time.
constexpr double kCountMax = 4096;
constexpr double kSizeMax = 0x1p50;

double to_number(const std::string& text) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size() && std::isfinite(value) ? value
                                                                                         : -1;
}

Result<void> check(const Parameter& parameter, const std::string& text) {
  const auto refuse = [&](const std::string& cause, const std::string& remedy) {
    return detail::refuse(parameter.name, fmt::format("'{}' {}", text, cause), remedy);
  };
  if (parameter.kind == Parameter::Kind::size) {
    const auto size = parse_bytes(text);
    if (!size) return refuse("is not a size: " + size.error().cause, size.error().remedy);
    const double most = parameter.most > 0 ? parameter.most : kSizeMax;
    if (size->count() == 0 || static_cast<double>(size->count()) > most) {
      return refuse(
          fmt::format("is not from 1 B to {}", to_text(Bytes(static_cast<std::uint64_t>(most)))),
          "write a size in between");
    }
    return {};
  }
  if (parameter.kind == Parameter::Kind::word) {
    const auto& allowed = parameter.allowed.empty() ? parameter.values : parameter.allowed;
    if (std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
      return refuse("is not known", fmt::format("use one of {}", fmt::join(allowed, ", ")));
    }
    return {};
  }
  if (parameter.kind == Parameter::Kind::text) return {};
  const double value = to_number(text);
  const double most = parameter.most > 0 ? parameter.most : kCountMax;
  if (value < 0 || value > most) {
    return refuse(fmt::format("is not a number from 0 to {:.0f}", most), "write one");
  }
  if (parameter.kind == Parameter::Kind::count && value != std::floor(value)) {
    return refuse("is not a whole number", "write a whole number");
  }
  return {};
}

}  // namespace

namespace detail {

Failure refuse(std::string_view parameter, const std::string& cause, const std::string& remedy) {
  return fail(Code::invalid_argument, fmt::format("set the parameter '{}'", parameter), cause,
              remedy);
}

Result<std::uint32_t> node_of(const Model& model, const Point& point, std::string_view parameter) {
  const std::uint32_t node = point.count(parameter);
  if (model.node(node) != nullptr) return node;
  std::vector<std::uint32_t> known;
  for (const NodeModel& each : model.nodes) known.push_back(each.node);
  return refuse(parameter, fmt::format("the machine has no node {}", node),
                fmt::format("use one of {}", fmt::join(known, ", ")));
}

}  // namespace detail

const std::string& Point::word(std::string_view name) const {
  const auto found = values_.find(name);
  HEADRACE_CHECK(found != values_.end(), "a scenario asks for its own parameters");
  return found->second;
}

std::uint32_t Point::count(std::string_view name) const {
  return static_cast<std::uint32_t>(to_number(word(name)));
}

double Point::number(std::string_view name) const {
  return to_number(word(name));
}

double Point::size(std::string_view name) const {
  return static_cast<double>(parse_bytes(word(name))->count());
}

double Outcome::figure(std::string_view name) const {
  const auto found = std::ranges::find(figures, name, &std::pair<std::string, double>::first);
  HEADRACE_CHECK(found != figures.end(), "the figure is one of the scenario");
  return found->second;
}

std::span<const Scenario> scenarios() {
  static const std::vector<Scenario> kAll = [] {
    std::vector<Scenario> all;
    for (auto* const part : {detail::device_scenarios, detail::memory_scenarios,
                             detail::query_scenarios, detail::injection_scenarios}) {
      for (Scenario& scenario : part()) all.push_back(std::move(scenario));
    }
    return all;
  }();
  return kAll;
}

Result<Outcome> run_scenario(const Model& model, std::string_view name,
                             const std::map<std::string, std::string, std::less<>>& values) {
  const auto found = std::ranges::find(scenarios(), name, &Scenario::name);
  if (found == scenarios().end()) {
    return fail(Code::not_found, fmt::format("run the scenario '{}'", name), "there is none",
                "'headrace sim list' names all");
  }
  std::map<std::string, std::string, std::less<>> all;
  std::vector<std::string_view> known;
  for (const Parameter& parameter : found->parameters) {
    known.push_back(parameter.name);
    const auto given = values.find(parameter.name);
    const std::string& value = given == values.end() ? parameter.values.front() : given->second;
    HEADRACE_TRY(check(parameter, value));
    all.emplace(parameter.name, value);
  }
  for (const auto& [key, value] : values) {
    if (all.contains(key)) continue;
    return fail(Code::not_found, fmt::format("set the parameter '{}' of '{}'", key, name),
                "there is none", fmt::format("use one of {}", fmt::join(known, ", ")));
  }
  return found->run(model, Point(std::move(all)));
}

}  // namespace headrace::sim
