// SPDX-License-Identifier: Apache-2.0
// For builds without a generator: can_run() is false for every variant, so these functions are
// never called.
#include "generator.hpp"
#include "headrace/base/check.hpp"

namespace headrace::copy::detail {

std::size_t loop_bytes_min(const Variant& /*variant*/) {
  return 0;
}

std::size_t generate(const Variant& /*variant*/, Move /*fallback*/, std::span<std::byte> /*room*/) {
  HEADRACE_CHECK(kHasGenerator, "only what can run is generated");
  return 0;
}

std::size_t generate_entry(std::span<const Range> /*ranges*/, Move /*fallback*/,
                           std::span<std::byte> /*room*/, std::uintptr_t /*place*/) {
  HEADRACE_CHECK(kHasGenerator, "only what can run is generated");
  return 0;
}

void generate_fill_entry(const void* /*libc*/, const void* /*longer*/, std::size_t /*bytes_min*/,
                         std::span<std::byte> /*room*/, std::uintptr_t /*place*/) {
  HEADRACE_CHECK(kHasGenerator, "only what can run is generated");
}

void generate_jumps(const void* /*shorter*/, const void* /*longer*/, std::size_t /*bytes_min*/,
                    std::span<std::byte> /*room*/, std::uintptr_t /*place*/) {
  HEADRACE_CHECK(kHasGenerator, "only what can run is generated");
}

void generate_probe(const ColdProbe& /*probe*/, Move /*warm*/, Move /*cold*/,
                    std::span<std::byte> /*room*/) {
  HEADRACE_CHECK(kHasGenerator, "only what can run is generated");
}

void generate_guard(Move /*other*/, std::span<std::byte> /*room*/) {
  HEADRACE_CHECK(kHasGenerator, "only what can run is generated");
}

}  // namespace headrace::copy::detail
