// SPDX-License-Identifier: Apache-2.0
// Scenario: a named question with parameters that a model of a machine answers. The names are also
// those of the benchmarks that ask a real machine the same.
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
  /// Values that are swept if none is given; the first one if another parameter is swept instead.
  std::vector<std::string> values;
  /// Of a word: all that are allowed, if more than `values`. A text is checked by the scenario.
  std::vector<std::string> allowed = {};
  /// The greatest count or size; 0: what any scenario can take.
  double most = 0;
};

/// Values of all parameters of a scenario, checked.
class Point {
 public:
  explicit Point(std::map<std::string, std::string, std::less<>> values)
      : values_(std::move(values)) {}
  [[nodiscard]] const std::string& word(std::string_view name) const;
  [[nodiscard]] std::uint32_t count(std::string_view name) const;
  [[nodiscard]] double number(std::string_view name) const;
  [[nodiscard]] double size(std::string_view name) const;
  /// The same point but for one value.
  [[nodiscard]] Point with(std::string_view name, std::string value) const;
  [[nodiscard]] const std::map<std::string, std::string, std::less<>>& values() const {
    return values_;
  }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

struct Outcome {
  std::vector<std::pair<std::string, double>> figures;
  std::string bound;               ///< What limits it.
  std::vector<std::string> notes;  ///< What to know about the figures.

  [[nodiscard]] double figure(std::string_view name) const;
};

struct Scenario {
  std::string_view name;
  std::string_view question;
  /// A machine that has what it needs, taken if none is named.
  std::string_view machine;
  std::vector<Parameter> parameters;
  Result<Outcome> (*run)(const Model& model, const Point& point);
};

/// In the order in which they are listed. Names are unique.
[[nodiscard]] std::span<const Scenario> scenarios();

/// Answers one point; values that are not given are the first ones of the parameters.
///
/// Fails: not_found for a scenario or parameter that does not exist; invalid_argument for a value;
///        unsupported if the machine lacks what the scenario needs.
[[nodiscard]] Result<Outcome> run_scenario(
    const Model& model, std::string_view name,
    const std::map<std::string, std::string, std::less<>>& values);

namespace detail {
// The scenarios by the file that they are in.
[[nodiscard]] std::vector<Scenario> device_scenarios();
[[nodiscard]] std::vector<Scenario> memory_scenarios();
[[nodiscard]] std::vector<Scenario> query_scenarios();
[[nodiscard]] std::vector<Scenario> injection_scenarios();

[[nodiscard]] Failure refuse(std::string_view parameter, const std::string& cause,
                             const std::string& remedy);
/// Refuses a node that the model lacks.
[[nodiscard]] Result<std::uint32_t> node_of(const Model& model, const Point& point,
                                            std::string_view parameter);
}  // namespace detail

}  // namespace headrace::sim
