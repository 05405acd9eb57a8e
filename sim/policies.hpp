// SPDX-License-Identifier: Apache-2.0
// Policies: the library's own, asked about a machine that is not there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.hpp"
#include "sim/model.hpp"

namespace headrace::sim {

/// Indexes of the devices, of the first `count`, that engine::route() gives a copy of `bytes`
/// between these nodes to, by the movers' policy of that name.
///
/// Fails: not_found if there is no such policy; unsupported if the policy chooses none.
[[nodiscard]] Result<std::vector<std::uint32_t>> choose_devices(
    const Model& model, const std::string& policy, std::size_t count, std::uint32_t source,
    std::uint32_t target, std::size_t bytes, std::uint64_t turn = 0);

/// How an engine with default options cuts a copy of `bytes` into `count` parts at most: the sizes
/// of the parts (engine::detail::part_count, part_end).
[[nodiscard]] std::vector<double> split(double bytes, std::size_t count);

/// Who carries out a copy of `bytes` that is submitted with default options: "calling thread",
/// "processor" or "device" (engine::route). `in_batch`: of so many others of its size, 0 for none;
/// `waits`: it is run and not submitted.
[[nodiscard]] std::string_view path_of(double bytes, std::size_t in_batch, bool waits);

}  // namespace headrace::sim
