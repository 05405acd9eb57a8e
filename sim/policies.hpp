// SPDX-License-Identifier: Apache-2.0
// Policies: the library's own, asked about a machine that is not there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/base/result.hpp"
#include "sim/model.hpp"

namespace headrace::sim {

/// Indexes of the devices, of the first `count`, that engine::movers' policy of that name chooses
/// for a copy between these nodes.
///
/// Fails: not_found if there is no such policy.
[[nodiscard]] Result<std::vector<std::uint32_t>> choose_devices(const Model& model,
                                                                const std::string& policy,
                                                                std::size_t count,
                                                                std::uint32_t source,
                                                                std::uint32_t target);

}  // namespace headrace::sim
