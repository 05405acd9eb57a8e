// SPDX-License-Identifier: Apache-2.0
// libFuzzer's entry point: a violation aborts the process, and libFuzzer keeps the input.
#include <cstdio>
#include <cstdlib>

#include "harness.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t byte_count) {
  if (const auto broken = headrace::test::HEADRACE_FUZZ_SUBJECT({data, byte_count})) {
    std::fprintf(stderr, "broken promise: %s\n", broken->c_str());
    std::abort();
  }
  return 0;
}
