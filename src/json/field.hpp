// SPDX-License-Identifier: Apache-2.0
// Reads untrusted JSON: a value and its path. Header only and not installed: for machine records,
// models of the simulator, and configurations and fault scripts of the emulator. Not for: writing.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <concepts>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/error.hpp"
#include "headrace/base/names.hpp"

namespace headrace::json {

using Json = nlohmann::ordered_json;

/// A JSON value with its path for messages: "nodes[3].cpus".
///
/// The first failure is kept in State; invalid values read as placeholders, so the caller checks
/// once, at the end.
///
/// Threading: confined.
class Field {
 public:
  struct State {
    std::string tried;   ///< As in Error.
    std::string remedy;  ///< Replaces the remedy of every failure, if not empty.
    /// Prefix of "field 'way'" in a message: "line 7: ".
    std::function<std::string(std::string_view way)> place = [](std::string_view) { return ""; };
    std::optional<Error> error = std::nullopt;
    /// Names that were looked up, by the way of their object.
    std::map<std::string, std::vector<std::string>, std::less<>> known = {};
  };
  Field(State& state, const Json* json, std::string way)
      : state_(&state), json_(json), way_(std::move(way)) {}

  /// "nodes[3].cpus".
  [[nodiscard]] const std::string& way() const { return way_; }
  /// Null if the value is absent.
  [[nodiscard]] const Json* json() const { return json_; }
  [[nodiscard]] bool is_present() const { return json_ != nullptr && !json_->is_null(); }

  void refuse(const std::string& cause, const std::string& remedy,
              Code code = Code::corrupt_data) const {
    if (state_->error.has_value()) return;
    const std::string what = way_.empty() ? "it" : fmt::format("field '{}'", way_);
    state_->error =
        Error{code, 0, state_->tried, fmt::format("{}{} {}", state_->place(way_), what, cause),
              state_->remedy.empty() ? remedy : state_->remedy};
  }

  [[nodiscard]] Field operator[](const char* key) const {
    const Json* inner = nullptr;
    std::vector<std::string>& known = state_->known[way_];
    if (std::ranges::find(known, key) == known.end()) known.emplace_back(key);
    if (json_ != nullptr && !json_->is_object()) {
      refuse("is not an object", "write it as {\"name\": ...}");
    } else if (json_ != nullptr) {
      if (const auto found = json_->find(key); found != json_->end()) inner = &*found;
    }
    return {*state_, inner, way_to(key)};
  }

  /// Empty if the value is absent.
  [[nodiscard]] std::vector<Field> elements(std::size_t count_max) const {
    std::vector<Field> fields;
    if (!is_present()) return fields;
    if (!json_->is_array()) {
      refuse("is not a list", "write it as [...]");
    } else if (json_->size() > count_max) {
      refuse(fmt::format("has {} elements, more than the {} allowed", json_->size(), count_max),
             "write fewer");
    } else {
      for (std::size_t index = 0; index < json_->size(); ++index) {
        fields.emplace_back(*state_, &(*json_)[index], fmt::format("{}[{}]", way_, index));
      }
    }
    return fields;
  }

  /// Rejects names that were not looked up in an object of which others were: otherwise misspelt
  /// ones would be ignored silently. Call it once all is read; it comes before other failures.
  void refuse_unknown() const {
    const auto known = state_->known.find(way_);
    if (is_present() && json_->is_array()) {
      for (const Field& each : elements(json_->size())) each.refuse_unknown();
    }
    if (known == state_->known.end() || json_ == nullptr || !json_->is_object()) return;
    for (const auto& [key, value] : json_->items()) {
      const Field member(*state_, &value, way_to(key));
      if (std::ranges::find(known->second, key) == known->second.end()) {
        state_->error.reset();  // It may be that the right name is missing.
        member.refuse("is not known", fmt::format("use one of {}", fmt::join(known->second, ", ")));
      }
      member.refuse_unknown();
    }
  }

  /// Allows any name in this object, which was not read to its end.
  void ignore() const { state_->known.erase(way_); }

  [[nodiscard]] std::string text(const std::string& remedy = R"(write it as "...")") const {
    if (is_present() && json_->is_string()) return json_->get<std::string>();
    refuse(is_present() ? "is not a string" : "is missing", remedy);
    return {};
  }
  /// One of `words`; the first of them on failure.
  template <typename Words>
  [[nodiscard]] std::string one_of(const Words& words) const {
    std::string word = text();
    if (std::find(std::begin(words), std::end(words), word) != std::end(words)) return word;
    const std::string known = fmt::format("{}", fmt::join(words, ", "));
    refuse(fmt::format("is '{}', not one of {}", word, known), "use one of " + known);
    return std::string(*std::begin(words));
  }

  /// The enumerator of that name; the first one on failure.
  template <typename Enum>
  [[nodiscard]] Enum enumerator() const {
    const std::string word = text();
    if (const std::optional<Enum> found = find_name<Enum>(word)) return *found;
    refuse(fmt::format("is '{}', not one of {}", word, list_names<Enum>()),
           "use one of " + list_names<Enum>());
    return Enum{};
  }

  [[nodiscard]] std::uint64_t number(std::uint64_t most, std::uint64_t least = 0) const {
    if (!is_present() || !json_->is_number_unsigned()) {
      refuse(is_present() ? "is not a whole number from 0 on" : "is missing", "write the number");
      return least;
    }
    const auto value = json_->get<std::uint64_t>();
    if (value >= least && value <= most) return value;
    if (value > most) {
      refuse(fmt::format("is {}, more than the {} allowed", value, most), "write less");
    } else {
      refuse(fmt::format("is {}", value), fmt::format("write at least {}", least));
    }
    return least;
  }
  [[nodiscard]] bool truth() const {
    if (is_present() && json_->is_boolean()) return json_->get<bool>();
    refuse(is_present() ? "is no truth value" : "is missing", "write true or false");
    return false;
  }
  [[nodiscard]] std::uint32_t index() const {
    return static_cast<std::uint32_t>(number(UINT32_MAX));
  }
  /// Read it into `into`, if it is present.
  template <std::integral T>
  void take(T& into, std::uint64_t most, std::uint64_t least = 0) const {
    if (is_present()) into = static_cast<T>(number(most, least));
  }
  void take(std::string& into) const {
    if (is_present()) into = text();
  }
  /// A number above 0, up to `most`.
  [[nodiscard]] double figure(double most) const {
    const double value = is_present() && json_->is_number() ? json_->get<double>() : 0;
    if (value > 0 && value <= most) return value;
    refuse(fmt::format("is not a number above 0 and up to {}", most), "write such a number");
    return 1;
  }

 private:
  [[nodiscard]] std::string way_to(const std::string& key) const {
    return way_.empty() ? key : way_ + "." + key;
  }

  State* state_;
  const Json* json_;
  std::string way_;
};

/// Refuses other files than those of `name` and `version`.
inline void check_schema(const Field& schema, std::string_view name, std::uint64_t version) {
  if (const std::string found = schema["name"].text(); found != name) {
    return schema["name"].refuse(fmt::format("is '{}', not '{}'", found, name), {});
  }
  const std::uint64_t found = schema["version"].number(UINT32_MAX);
  if (found == version) return;
  schema["version"].refuse(fmt::format("is {}, and this program reads version {}", found, version),
                           {}, Code::version_mismatch);
}

}  // namespace headrace::json
