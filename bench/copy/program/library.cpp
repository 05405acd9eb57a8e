// SPDX-License-Identifier: Apache-2.0
// The functions that program.c calls in headrace-bench-copy-library, in place of the C library's:
// those of libheadrace, with the profile that an engine would use.
#include <cstddef>
#include <span>

#include "headrace/copy/copy.hpp"
#include "headrace/copy/fill_compare.hpp"
#include "headrace/copy/profile.hpp"

namespace {

[[maybe_unused]] const bool kReady = headrace::copy::use_default_profile().used;

}  // namespace

extern "C" {

void* headrace_bench_move(void* target, const void* source, std::size_t byte_count) {
  return headrace::copy::move_bytes(target, source, byte_count);
}

void* headrace_bench_set(void* target, int value, std::size_t byte_count) {
  headrace::copy::set_bytes({static_cast<std::byte*>(target), byte_count},
                            static_cast<std::byte>(value));
  return target;
}

int headrace_bench_compare(const void* left, const void* right, std::size_t byte_count) {
  const std::span one(static_cast<const std::byte*>(left), byte_count);
  const std::span other(static_cast<const std::byte*>(right), byte_count);
  const std::size_t same = headrace::copy::first_difference(one, other);
  if (same == byte_count) return 0;
  return static_cast<int>(one[same]) - static_cast<int>(other[same]);
}

}  // extern "C"
