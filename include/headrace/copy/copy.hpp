// SPDX-License-Identifier: Apache-2.0
// Copying by the processor: one function, tuned to the machine.
// Not for: choosing the mover (engine) or the target (cache).
#pragma once

#include <cstddef>
#include <span>

#include "headrace/base/check.hpp"
#include "headrace/base/export.hpp"
#include "headrace/copy/dispatch.hpp"

namespace headrace::copy {

/// Copies `source` to `target`, which may overlap, with the variant that the profile in use names
/// for the length (profile.hpp); without a profile, with memmove.
///
/// Threading: shared.
/// Fails: never; the spans must have the same length (checked).
/// Cost: two predictable branches above move_bytes; counted by a test.
inline void copy_bytes(std::span<std::byte> target, std::span<const std::byte> source) {
  HEADRACE_CHECK(target.size() == source.size(), "source and target have the same length",
                 target.size(), source.size());
  if (source.empty()) return;  // The data of an empty span may be null, which memmove forbids.
  move_bytes(target.data(), source.data(), source.size());
}

/// One copy of a list; source and target may overlap.
struct CopyItem {
  std::byte* target = nullptr;
  const std::byte* source = nullptr;
  std::size_t byte_count = 0;
};

/// Makes the copies of a list in order, each as copy_bytes does. For many short copies: looks up
/// the table once, copies up to 16 bytes without a call, and prefetches for later copies of some
/// hundred bytes or more.
///
/// Threading: shared.
/// Fails: never.
/// Cost: less than that of single copies; see docs/concepts/copy.md.
HEADRACE_API void copy_many(std::span<const CopyItem> items) noexcept;

}  // namespace headrace::copy
