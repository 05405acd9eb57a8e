// SPDX-License-Identifier: Apache-2.0
// JSON of the parts that descriptions and records share. Only for sources: nlohmann-json stays
// inside this layer, and none of its exceptions leaves it.
#pragma once

#include <nlohmann/json.hpp>

#include "headrace/topo/machine.hpp"

namespace headrace::topo {

using Json = nlohmann::ordered_json;

[[nodiscard]] Json to_json_value(const std::vector<HugePages>& pools);
[[nodiscard]] Json to_json_value(const std::vector<DsaDevice>& devices);
/// Never throws: what is not UTF-8 is replaced.
[[nodiscard]] std::string dump(const Json& json);

}  // namespace headrace::topo
