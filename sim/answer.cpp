// SPDX-License-Identifier: Apache-2.0
#include "sim/answer.hpp"

#include <nlohmann/json.hpp>

#include "sim/measure.hpp"
#include "sim/model.hpp"
#include "sim/scenario.hpp"

namespace headrace::sim {
namespace {

using Json = nlohmann::ordered_json;

std::string_view name(Parameter::Kind kind) {
  switch (kind) {
    case Parameter::Kind::count:
      return "count";
    case Parameter::Kind::size:
      return "size";
    case Parameter::Kind::word:
      return "word";
    case Parameter::Kind::number:
      return "number";
    case Parameter::Kind::text:
      return "text";
  }
  return "";
}

std::string error_text(const Error& error) {
  return Json{{"error",
               {{"code", headrace::name(error.code)},
                {"tried", error.tried},
                {"cause", error.cause},
                {"remedy", error.remedy},
                {"os_errno", error.os_errno}}}}
      .dump();
}

}  // namespace

std::string list_scenarios() {
  Json all = Json::array();
  for (const Scenario& scenario : scenarios()) {
    Json parameters = Json::array();
    for (const Parameter& parameter : scenario.parameters) {
      parameters.push_back({{"name", parameter.name},
                            {"kind", name(parameter.kind)},
                            {"values", parameter.values},
                            {"allowed", parameter.allowed}});
    }
    all.push_back({{"name", scenario.name},
                   {"question", scenario.question},
                   {"machine", scenario.machine},
                   {"parameters", std::move(parameters)}});
  }
  return all.dump();
}

std::string answer(const std::string& request) {
  const Json asked = Json::parse(request);
  const auto model = read_model(asked.at("machine").get<std::string>());
  if (!model) return error_text(model.error());
  const auto scenario = asked.at("scenario").get<std::string>();
  Json results = Json::array();
  for (const Json& point : asked.at("points")) {
    std::map<std::string, std::string, std::less<>> values;
    for (const auto& [key, value] : point.items()) values.emplace(key, value.get<std::string>());
    const auto outcome = run_scenario(*model, scenario, values);
    if (!outcome) return error_text(outcome.error());
    Json figures = Json::object();
    for (const auto& [key, value] : outcome->figures) figures[key] = value;
    results.push_back({{"parameters", point},
                       {"figures", std::move(figures)},
                       {"bound", outcome->bound},
                       {"notes", outcome->notes}});
  }
  return Json{{"results", std::move(results)}}.dump();
}

std::string measure(const std::string& request) {
  const Json asked = Json::parse(request);
  const auto access = asked.at("access").get<std::string>();
  Stream stream{.access = access == "copy"   ? Access::copy
                          : access == "fill" ? Access::fill
                                             : Access::read,
                .cpus = {},
                .node = NodeId(asked.at("node").get<std::uint32_t>()),
                .bytes = asked.at("bytes").get<std::size_t>(),
                .rounds = asked.at("rounds").get<std::uint32_t>()};
  for (const Json& cpu : asked.at("cpus")) stream.cpus.emplace_back(cpu.get<std::uint32_t>());
  const auto figure =
      access == "latency" && !stream.cpus.empty()
          ? measure_latency(stream.cpus[0], stream.node, stream.bytes, stream.rounds)
          : measure_stream(stream);
  return figure ? Json{{"figure", *figure}}.dump() : error_text(figure.error());
}

}  // namespace headrace::sim
