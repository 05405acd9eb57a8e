// SPDX-License-Identifier: Apache-2.0
// The state of a mapping. Rings use its file for their locks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "headrace/base/atomic.hpp"
#include "headrace/platform/shared_file.hpp"
#include "headrace/pmem/mapping.hpp"

namespace headrace::pmem {

struct Mapping::State {
  State(platform::SharedFile open_file, platform::PersistentMap mapped)
      : file(std::move(open_file)), map(std::move(mapped)) {}

  platform::SharedFile file;
  platform::PersistentMap map;
  Granularity platform_granularity = Granularity::page;
  Granularity granularity = Granularity::page;
  FlushInstruction instruction = FlushInstruction::clflush;
  bool persistent = false;
  std::string note;
  Atomic<std::uint32_t> fault{0};
  std::optional<platform::FaultGuard> guard;  // Last: destroyed before what it guards.
};

struct MappingAccess {
  /// Maps an open file.
  [[nodiscard]] static Result<Mapping> map(platform::SharedFile file, const MapOptions& options);
  [[nodiscard]] static const platform::SharedFile& file(const Mapping& mapping) {
    return mapping.state_->file;
  }
};

}  // namespace headrace::pmem
