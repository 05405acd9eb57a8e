// SPDX-License-Identifier: Apache-2.0
// Answer: the simulator's interface in JSON text, for callers outside C++.
#pragma once

#include <string>

#include "sim/injection.hpp"

namespace headrace::sim {

/// A list of all scenarios with their parameters.
[[nodiscard]] std::string list_scenarios();

/// Runs `{"machine": PATH, "scenario": NAME, "points": [{KEY: TEXT, ...}, ...]}`.
///
/// Returns: {"results": [...]}, one element per point in the same order, or {"error": {...}} with
///          the fields of headrace::Error.
[[nodiscard]] std::string answer(const std::string& request);

/// Replays `{"trace": PATH, "runs": [{"machine": PATH, "nodes": {NODE: NODE}, "copies": NODE,
/// "devices": N, "policy": NAME, "path": "recorded" | "cpu" | "dsa", "workers": N,
/// "compute_scale": X, "bins": N, "inject": bool, "working_bytes": N}, ...]}`; all but the machine
/// may be missing. `nic` decides for runs with "inject".
///
/// Returns: {"trace": {...}, "results": [...]}, one element per run, or {"error": {...}}.
[[nodiscard]] std::string answer_replay(const std::string& request, const NicFunction& nic);

/// Runs inject(): `{"machine": PATH, "bytes": N, "messages": N, "cores": N, "receivers": N,
/// "sharing": "none" | "l2" | "siblings", "polled": bool, "protocol_on_nic": bool, "read_share": X,
/// "memory_ratio": X, "working_bytes": N}`; all but the machine may be missing.
///
/// Returns: {"time_ns": X, "memory_lines": X}, or {"error": {...}}.
[[nodiscard]] std::string answer_inject(const std::string& request, const NicFunction& nic);

/// Measures this machine: `{"what": "streams" | "latency" | "handover" | "messages" | "trips",
/// "streams": [{"access": "read" | "fill" | "copy", "cpu": N, "node": N, "span": N, "bytes": N}],
/// "samples": N, "round_us": N, "time_max_ms": N}`. Measurements between two processors use those
/// of the first two streams, and `bytes` of the first.
///
/// Returns: {"values": [[...], ...], "rounds": N, "disturbed": N} as Samples, or {"error": {...}}.
[[nodiscard]] std::string measure(const std::string& request);

}  // namespace headrace::sim
