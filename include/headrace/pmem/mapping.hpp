// SPDX-License-Identifier: Apache-2.0
// Mapping: a file or device of persistent memory, mapped, with the granularity at which its
// platform makes stores durable. An ordinary file can be mapped too, and is slow.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "headrace/base/export.hpp"
#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"
#include "headrace/pmem/medium.hpp"

namespace headrace::pmem {

struct MapOptions {
  /// Use this granularity instead of the platform's. One finer than the platform's only simulates
  /// durability: for measuring and testing on ordinary memory.
  std::optional<Granularity> granularity = std::nullopt;
  /// Flush with this instruction. Default: the processor's best.
  std::optional<FlushInstruction> flush = std::nullopt;
  /// Map read-only; a store raises SIGSEGV.
  bool read_only = false;
  /// Fault in every page when mapping, as a benchmark must.
  bool prefault = false;
};

/// Threading: shared; the users of the bytes synchronise their accesses.
/// Ownership: unmaps on destruction.
class HEADRACE_API Mapping {
 public:
  /// Maps a whole file or device (devdax, fsdax with MAP_SYNC) with libpmem2.
  ///
  /// A mapped file can lose pages: it is truncated, or it is sparse and its disk is full. Instead
  /// of letting SIGBUS end the process, a handler installed by the first mapping discards the
  /// stores, and fault() returns Fault::lost from then on. Faults at other addresses are passed to
  /// the previous handler.
  ///
  /// Fails: not_found, permission_denied, io_failed; invalid_argument for an empty file, a file
  ///        that cannot be mapped, and a flush instruction that this processor lacks.
  [[nodiscard]] static Result<Mapping> map(const std::string& path, const MapOptions& options = {});

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  [[nodiscard]] std::span<std::byte> bytes() const;
  /// The granularity in use, and the platform's.
  [[nodiscard]] Granularity granularity() const;
  [[nodiscard]] Granularity platform_granularity() const;
  /// True if flushed data survives a power failure (ADR or eADR). False for every ordinary file,
  /// even with a forced granularity.
  [[nodiscard]] bool is_persistent_memory() const;
  /// One sentence for a person: what this memory is and what durability costs on it.
  [[nodiscard]] const std::string& note() const;
  /// A medium for one thread. Valid until the mapping is destroyed.
  [[nodiscard]] Medium medium() const;
  [[nodiscard]] Fault fault() const;

  struct State;

 private:
  friend struct MappingAccess;
  explicit Mapping(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace headrace::pmem
