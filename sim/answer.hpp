// SPDX-License-Identifier: Apache-2.0
// Answer: the simulator's interface in JSON text, for callers outside C++.
#pragma once

#include <string>

namespace headrace::sim {

/// A list of all scenarios with their parameters.
[[nodiscard]] std::string list_scenarios();

/// Runs `{"machine": PATH, "scenario": NAME, "points": [{KEY: TEXT, ...}, ...]}`.
///
/// Returns: {"results": [...]}, one element per point in the same order, or {"error": {...}} with
///          the fields of headrace::Error.
[[nodiscard]] std::string answer(const std::string& request);

/// Measures this machine: `{"what": "streams" | "latency" | "handover" | "messages" | "trips",
/// "streams": [{"access": "read" | "fill" | "copy", "cpu": N, "node": N, "span": N, "bytes": N}],
/// "samples": N, "round_us": N, "time_max_ms": N}`. Measurements between two processors use those
/// of the first two streams, and `bytes` of the first.
///
/// Returns: {"values": [[...], ...], "rounds": N, "disturbed": N} as Samples, or {"error": {...}}.
[[nodiscard]] std::string measure(const std::string& request);

}  // namespace headrace::sim
