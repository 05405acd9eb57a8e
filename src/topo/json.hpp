// SPDX-License-Identifier: Apache-2.0
// JSON of the parts that descriptions and records share. Internal: nlohmann-json and its exceptions
// stay inside this layer.
#pragma once

#include "headrace/json/field.hpp"
#include "headrace/topo/machine.hpp"

namespace headrace::topo {

using json::Field;
using json::Json;

[[nodiscard]] Json to_json_value(const std::vector<HugePages>& pools);
[[nodiscard]] Json to_json_value(const std::vector<DsaDevice>& devices);
/// Never throws: replaces invalid UTF-8.
[[nodiscard]] std::string dump(const Json& json);

}  // namespace headrace::topo
