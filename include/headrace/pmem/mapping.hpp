// SPDX-License-Identifier: Apache-2.0
// Mapping: a file or device of persistent memory in the address space, with what its platform says
// of when stores become durable. An ordinary file can be mapped too: it works, is slow, and says
// so.
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
  /// Take this granularity for granted instead of asking the platform. With one finer than the
  /// platform's, durability is pretended: for measuring and testing on ordinary memory.
  std::optional<Granularity> granularity = std::nullopt;
  /// Flush with this instruction instead of the processor's best.
  std::optional<FlushInstruction> flush = std::nullopt;
  /// Only to be read; stores end the process.
  bool read_only = false;
  /// Make every page present before the first use, as a benchmark must.
  bool prefault = false;
};

/// Threading: shared; the bytes have the rules of who uses them.
/// Ownership: unmaps on destruction.
class HEADRACE_API Mapping {
 public:
  /// Maps all of a file or a device (devdax, fsdax by MAP_SYNC) by libpmem2.
  ///
  /// The pages of a file can go away under a mapping: it is truncated, or a sparse file meets a
  /// full disk. The process would be ended by SIGBUS; instead a handler, put in place by the first
  /// mapping, lets the stores go nowhere and fault() says so from then on. Faults elsewhere go to
  /// the handler that was there before.
  ///
  /// Fails: not_found, permission_denied, io_failed; invalid_argument for an empty file, something
  ///        that cannot be mapped, and a flush instruction that this processor lacks.
  [[nodiscard]] static Result<Mapping> map(const std::string& path, const MapOptions& options = {});

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  [[nodiscard]] std::span<std::byte> bytes() const;
  /// The granularity in use, and what the platform says.
  [[nodiscard]] Granularity granularity() const;
  [[nodiscard]] Granularity platform_granularity() const;
  /// True if power may fail without harm: the platform saves lines or caches. It is false of every
  /// ordinary file, whatever granularity was forced.
  [[nodiscard]] bool is_persistent_memory() const;
  /// One sentence that says what this memory is and what it costs, for people.
  [[nodiscard]] const std::string& note() const;
  /// A medium for one thread. Valid as long as the mapping.
  [[nodiscard]] Medium medium() const;
  [[nodiscard]] Fault fault() const;
  /// Brings the range to the media themselves, past the buffers that ADR saves: for a device that
  /// may be taken out. Rarely needed, slow.
  ///
  /// Fails: io_failed.
  [[nodiscard]] Result<void> deep_flush(std::span<const std::byte> range) const;

  struct State;

 private:
  friend struct MappingAccess;
  explicit Mapping(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace headrace::pmem
