// SPDX-License-Identifier: Apache-2.0
#include "sim/answer.hpp"

#include <nlohmann/json.hpp>

#include "headrace/base/names.hpp"
#include "sim/measure.hpp"
#include "sim/model.hpp"
#include "sim/replay.hpp"
#include "sim/scenario.hpp"
#include "sim/trace.hpp"

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

ReplayOptions replay_options(const Json& run) {
  ReplayOptions options{.policy = run.value("policy", std::string("round_robin")),
                        .workers = run.value("workers", 0U),
                        .compute_scale = run.value("compute_scale", 1.0),
                        .bin_count = run.value("bins", 0U),
                        .working_bytes = run.value("working_bytes", 0.0)};
  const Json nodes = run.value("nodes", Json::object());
  for (const auto& [from, to] : nodes.items()) {
    options.nodes.emplace(std::stoul(from), to.get<std::uint32_t>());
  }
  if (run.contains("copies")) options.copies = run.at("copies").get<std::uint32_t>();
  if (run.contains("devices")) options.devices = run.at("devices").get<std::uint32_t>();
  options.path = find_name<ReplayPath>(run.value("path", std::string("recorded"))).value();
  return options;
}

Json to_json(const Replayed& replayed) {
  Json resources = Json::array();
  for (const Replayed::Resource& each : replayed.resources) {
    resources.push_back(
        {{"name", each.name}, {"utilisation", each.utilisation}, {"full", each.full_share}});
  }
  Json devices = Json::array();
  for (const Replayed::Device& each : replayed.devices) {
    devices.push_back({{"device", each.number},
                       {"submissions", each.submissions},
                       {"queued_us", each.queued_ns / 1e3}});
  }
  return {{"time_s", replayed.time_ns / 1e9},
          {"waited_s", replayed.waited_ns / 1e9},
          {"moving_s", replayed.moving_ns / 1e9},
          {"computing_s", replayed.computing_ns / 1e9},
          {"bound", replayed.bound},
          {"resources", std::move(resources)},
          {"devices", std::move(devices)},
          {"timeline", replayed.timeline},
          {"notes", replayed.notes}};
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

std::string answer_inject(const std::string& request, const NicFunction& nic) {
  const Json asked = Json::parse(request);
  const auto model = read_model(asked.at("machine").get<std::string>());
  if (!model) return error_text(model.error());
  if (!model->has_injection) {
    return error_text({.code = Code::unsupported,
                       .tried = "simulate injection",
                       .cause = "the machine has no field 'injection'",
                       .remedy = "use a machine with a NIC, such as injection-node or spr-1dsa"});
  }
  const std::string sharing = asked.value("sharing", std::string("none"));
  const InjectionRun run{.node = {.core_count = asked.value("cores", 2U),
                                  .sharing = find_name<Sharing>(sharing).value(),
                                  .polled = asked.value("polled", true),
                                  .protocol_on_nic = asked.value("protocol_on_nic", true),
                                  .memory_ratio = asked.value("memory_ratio", 1.0)},
                         .message_bytes = asked.value("bytes", 4096.0),
                         .message_count = asked.value("messages", 8U),
                         .receiver_count = asked.value("receivers", 1U),
                         .read_share = asked.value("read_share", 1.0),
                         .working_bytes = asked.value("working_bytes", 0.0)};
  const auto outcome = inject(model->injection, run, nic);
  if (!outcome) return error_text(outcome.error());
  return Json{{"time_ns", outcome->time_ns}, {"memory_lines", outcome->memory_lines}}.dump();
}

std::string answer_replay(const std::string& request, const NicFunction& nic) {
  const Json asked = Json::parse(request);
  const auto trace = read_trace(asked.at("trace").get<std::string>());
  if (!trace) return error_text(trace.error());
  Json results = Json::array();
  for (const Json& run : asked.at("runs")) {
    const auto model = read_model(run.at("machine").get<std::string>());
    if (!model) return error_text(model.error());
    ReplayOptions options = replay_options(run);
    if (run.value("inject", false)) options.nic = nic;
    const auto replayed = replay(*trace, *model, options);
    if (!replayed) return error_text(replayed.error());
    results.push_back(to_json(*replayed));
  }
  double waited_ns = 0;
  double computing_ns = 0;
  Json threads = Json::array();
  for (const TracedThread& thread : trace->threads) {
    for (const Step& step : thread.steps) {
      waited_ns += step.waited_ns;
      computing_ns += step.computing_ns;
    }
    threads.push_back(
        {{"process", thread.process}, {"thread", thread.number}, {"steps", thread.steps.size()}});
  }
  return Json{{"trace",
               {{"program", trace->program},
                {"operations", trace->operations.size()},
                {"recorded_s", trace->recorded_ns / 1e9},
                {"waited_s", waited_ns / 1e9},
                {"computing_s", computing_ns / 1e9},
                {"cut_off_bytes", trace->cut_off_bytes},
                {"lost", trace->lost_count},
                {"threads", std::move(threads)}}},
              {"results", std::move(results)}}
      .dump();
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
    streams.push_back({.access = find_name<Access>(each.at("access").get<std::string>()).value(),
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
    const bool sleeps = what == "wake" || what == "waking";
    if (sleeps || what == "look" || what == "looking") {
      return measure_worker({first.cpu, second}, first.node, first.bytes, sleeps,
                            what.ends_with("ing"), effort);
    }
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
