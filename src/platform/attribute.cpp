// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/attribute.hpp"

#include "headrace/platform/descriptor.hpp"

namespace headrace::platform {

std::optional<std::string> load_attribute(const std::string& path) {
  constexpr std::size_t kBytesMax = 64U << 10U;
  Result<std::string> text = load_file(path, kBytesMax);
  if (!text.has_value()) return std::nullopt;
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return std::move(*text);
}

std::optional<std::uint64_t> load_number(const std::string& path) {
  const std::optional<std::string> text = load_attribute(path);
  return text.has_value() ? parse_number(*text) : std::nullopt;
}

}  // namespace headrace::platform
