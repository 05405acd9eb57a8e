// SPDX-License-Identifier: Apache-2.0
// Salvage: every entry of a ring whose checksum verifies, however damaged the rest of the file is.
#pragma once

#include <functional>

#include "headrace/pmem/ring.hpp"
#include "ring_layout.hpp"

namespace headrace::pmem::detail {

/// Reads only. The memory may change meanwhile: each record is copied before its checksum is
/// verified.
[[nodiscard]] Salvage salvage_records(const RingMemory& ring,
                                      const std::function<void(const Entry&)>& take);

}  // namespace headrace::pmem::detail
