// SPDX-License-Identifier: Apache-2.0
#include "sim/answer.hpp"

#include <nlohmann/json.hpp>

#include "headrace/base/names.hpp"
#include "sim/measure.hpp"
#include "sim/model.hpp"
#include "sim/scenario.hpp"

namespace headrace::sim {
namespace {

using Json = nlohmann::ordered_json;

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
                            {"kind", headrace::name(parameter.kind)},
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
  const auto what = asked.at("what").get<std::string>();
  const Effort effort{
      .sample_count = asked.at("samples").get<std::uint32_t>(),
      .round_time = std::chrono::microseconds(asked.at("round_us").get<std::uint32_t>()),
      .time_max = std::chrono::milliseconds(asked.at("time_max_ms").get<std::uint32_t>())};
  std::vector<Stream> streams;
  for (const Json& each : asked.at("streams")) {
    const auto access = each.at("access").get<std::string>();
    streams.push_back({.access = access == "copy"     ? Access::copy
                                 : access == "fill"   ? Access::fill
                                 : access == "update" ? Access::update
                                                      : Access::read,
                       .cpu = CpuId(each.at("cpu").get<std::uint32_t>()),
                       .node = NodeId(each.at("node").get<std::uint32_t>()),
                       .span = each.at("span").get<std::size_t>(),
                       .bytes = each.at("bytes").get<std::size_t>()});
  }
  const auto samples = [&]() -> Result<Samples> {
    if (what == "streams") return measure_streams(streams, effort);
    const Stream& first = streams.at(0);
    if (what == "latency") return measure_latency(first.cpu, first.node, first.bytes, effort);
    const CpuId second = streams.at(1).cpu;
    if (what == "handover") return measure_handover(first.cpu, second, first.bytes, effort);
    return measure_messages(first.cpu, second, first.bytes, what == "trips", effort);
  }();
  if (!samples) return error_text(samples.error());
  return Json{{"values", samples->values},
              {"rounds", samples->round_count},
              {"disturbed", samples->disturbed_count}}
      .dump();
}

}  // namespace headrace::sim
