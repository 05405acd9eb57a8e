// SPDX-License-Identifier: Apache-2.0
// Scenario: a named, parameterised question that the model of a machine answers. A benchmark that
// measures the same on a real machine has the same name.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/result.hpp"
#include "sim/model.hpp"

namespace headrace::sim {

struct Parameter {
  enum class Kind : std::uint8_t { count, size, word, number, text };
  std::string_view name;
  Kind kind = Kind::count;
  /// Values swept if none is given; the first is used if another parameter is swept.
  std::vector<std::string> values;
  /// Of a word: all allowed values, if more than `values`. The scenario checks a text.
  std::vector<std::string> allowed = {};
  /// Greatest count or size; 0: the limit common to all scenarios.
  double most = 0;
};

/// Validated values of all parameters of a scenario.
class Point {
 public:
  explicit Point(std::map<std::string, std::string, std::less<>> values)
      : values_(std::move(values)) {}
  [[nodiscard]] const std::string& word(std::string_view name) const;
  [[nodiscard]] std::uint32_t count(std::string_view name) const;
  /// -1 for a text that is no number.
  [[nodiscard]] double number(std::string_view name) const;
  [[nodiscard]] double size(std::string_view name) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

struct Outcome {
  std::vector<std::pair<std::string, double>> figures;
  std::string bound;                 ///< The limiting resource.
  std::vector<std::string> notes{};  ///< Remarks on the figures.

  [[nodiscard]] double figure(std::string_view name) const;
};

struct Scenario {
  std::string_view name;
  std::string_view question;
  /// Default machine; it has what the scenario needs.
  std::string_view machine;
  std::vector<Parameter> parameters;
  Result<Outcome> (*run)(const Model& model, const Point& point);
};

/// In the order in which they are listed. Names are unique.
[[nodiscard]] std::span<const Scenario> scenarios();

/// Runs one point; a value not given is the parameter's first one.
///
/// Fails: not_found for a scenario or parameter that does not exist; invalid_argument for a value;
///        unsupported if the machine lacks what the scenario needs.
[[nodiscard]] Result<Outcome> run_scenario(
    const Model& model, std::string_view name,
    const std::map<std::string, std::string, std::less<>>& values);

namespace detail {
// Scenarios by source file.
[[nodiscard]] std::vector<Scenario> device_scenarios();
[[nodiscard]] std::vector<Scenario> memory_scenarios();
[[nodiscard]] std::vector<Scenario> query_scenarios();
[[nodiscard]] std::vector<Scenario> injection_scenarios();

[[nodiscard]] Failure refuse(std::string_view parameter, const std::string& cause,
                             const std::string& remedy);
/// Fails: invalid_argument for a node that the model lacks.
[[nodiscard]] Result<std::uint32_t> node_of(const Model& model, const Point& point,
                                            std::string_view parameter);
}  // namespace detail

}  // namespace headrace::sim
