// SPDX-License-Identifier: Apache-2.0
// Operations on their way between headrace.h and the engine: the same bytes on both sides. Not for:
// what they do.
#pragma once

#include <cstring>
#include <span>
#include <type_traits>

#include "headrace.h"
#include "headrace/engine/operation.hpp"

namespace headrace::engine::detail {

static_assert(std::is_trivially_copyable_v<Operation> &&
              sizeof(headrace_operation) == sizeof(Operation) &&
              alignof(headrace_operation) == alignof(Operation));

inline headrace_operation to_c(const Operation& operation) {
  headrace_operation made{};
  std::memcpy(&made, &operation, sizeof made);
  return made;
}

inline Operation from_c(const headrace_operation& operation) {
  Operation made;
  std::memcpy(static_cast<void*>(&made), &operation, sizeof made);
  return made;
}

inline std::span<std::byte> bytes(void* first, std::size_t byte_count) {
  return {static_cast<std::byte*>(first), byte_count};
}
inline std::span<const std::byte> bytes(const void* first, std::size_t byte_count) {
  return {static_cast<const std::byte*>(first), byte_count};
}

}  // namespace headrace::engine::detail
