// SPDX-License-Identifier: Apache-2.0
// Feeds arbitrary bytes to the emulated device, which must not crash or hang, must complete with a
// defined status, and may write only the operands of a descriptor.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "headrace/dsa/descriptor.hpp"

namespace headrace::test {

/// Description of a violation, if any.
using Broken = std::optional<std::string>;

/// One descriptor on made-up memory with holes, in slices.
[[nodiscard]] Broken throw_at_operation(std::span<const std::uint8_t> input);
/// Lists of descriptors through portals, in batches, on real memory, deterministically.
[[nodiscard]] Broken throw_at_device(std::span<const std::uint8_t> input);

/// Reads the input sequentially; zeros after its end.
///
/// Threading: confined.
class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  template <typename Value>
  Value take() {
    Value value{};
    const std::size_t count = std::min(sizeof value, bytes_.size());
    if (count != 0) std::memcpy(&value, bytes_.data(), count);
    bytes_ = bytes_.subspan(count);
    return value;
  }
  [[nodiscard]] bool empty() const { return bytes_.empty(); }

 private:
  std::span<const std::uint8_t> bytes_;
};

/// Whether `raw` is a status byte that a device may write.
[[nodiscard]] inline bool is_status(std::uint8_t raw) {
  if (raw == dsa::kStatusAborted) return true;
  const auto status = dsa::status_of(raw);
  return status != dsa::Status::none && dsa::name(status) != "unknown";
}

}  // namespace headrace::test
