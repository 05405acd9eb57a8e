// SPDX-License-Identifier: Apache-2.0
// Policies: the library's mover policies, applied to a simulated machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.hpp"
#include "sim/model.hpp"

namespace headrace::sim {

/// Indexes of the devices, among the first `count`, to which engine::route() gives a copy of
/// `bytes` between these nodes under the named mover policy.
///
/// Fails: not_found if there is no such policy; unsupported if the policy chooses no device.
[[nodiscard]] Result<std::vector<std::uint32_t>> choose_devices(
    const Model& model, const std::string& policy, std::size_t count, std::uint32_t source,
    std::uint32_t target, std::size_t bytes, std::uint64_t turn = 0);

/// Sizes of the at most `count` parts into which an engine with default options splits a copy of
/// `bytes` (engine::detail::part_count, part_end).
[[nodiscard]] std::vector<double> split(double bytes, std::size_t count);

/// What carries out a copy of `bytes` submitted with default options: "calling thread", "processor"
/// or "device" (engine::route). `in_batch`: copies of the same size in its batch, 0 if not batched;
/// `waits`: run() instead of submit().
[[nodiscard]] std::string_view path_of(double bytes, std::size_t in_batch, bool waits);

}  // namespace headrace::sim
