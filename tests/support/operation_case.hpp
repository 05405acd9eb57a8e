// SPDX-License-Identifier: Apache-2.0
// Random engine operations with their memory, to be carried out twice and compared; and an
// independent implementation of the wire format: operation to descriptor and back.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/random.hpp"
#include "headrace/dsa/descriptor.hpp"
#include "headrace/engine/job.hpp"

namespace headrace::test {

/// The result of an operation by any mover.
struct Finding {
  engine::Cause cause = engine::Cause::none;
  std::size_t bytes_done = 0;
  engine::OperationResult result = {};
  friend bool operator==(const Finding&, const Finding&) = default;
};
[[nodiscard]] Finding finding_of(const engine::Completion& outcome);
/// Used by GoogleTest to print a failed expectation.
void PrintTo(const Finding& finding, std::ostream* stream);
[[nodiscard]] std::string shown(const engine::Operation& operation);

/// A valid operation, and the memory of its operands with about a page around each. Some operands
/// end at an inaccessible page, so that an access beyond their end ends the test.
///
/// Threading: confined; cases of a process with the same `memory` share it, so only one may be
/// alive.
class OperationCase {
 public:
  static constexpr std::size_t kBytesMax = 256U << 10U;

  /// About `byte_count` bytes (1 to kBytesMax), rounded as the kind requires. Not for no_op and
  /// drain.
  OperationCase(engine::OperationKind kind, std::size_t byte_count, Random& random,
                std::size_t memory = 0);

  [[nodiscard]] const engine::Operation& operation() const { return operation_; }
  /// The current content of the memory.
  [[nodiscard]] std::vector<std::byte> snapshot() const;
  void restore(std::span<const std::byte> snapshot);
  /// True if the operation may write byte `index` of a snapshot.
  [[nodiscard]] bool is_target(std::size_t index) const;

 private:
  struct Operand {
    std::span<std::byte> bytes;
    std::span<std::byte> region;  ///< Includes its surroundings.
    bool written = false;
  };
  std::span<std::byte> place(std::size_t byte_count, bool written, std::size_t alignment = 1,
                             std::size_t phase = kAnyPhase);
  static constexpr std::size_t kAnyPhase = ~std::size_t{0};
  engine::Operation make(engine::OperationKind kind, std::size_t byte_count);
  engine::Operation make_delta(std::size_t byte_count);
  engine::Operation make_apply(std::size_t byte_count);
  engine::Operation make_dif(engine::OperationKind kind, std::size_t byte_count);
  void spoil(std::span<std::byte> bytes);
  void spoil_fields(std::span<std::byte> blocks, std::size_t block_bytes);
  engine::DifTags any_tags();

  Random& random_;
  std::size_t memory_;
  std::array<Operand, 3> operands_;
  std::size_t operand_count_ = 0;
  engine::Operation operation_;
};

/// Kinds with operands: all but no_op and drain.
[[nodiscard]] std::span<const engine::OperationKind> kinds_with_operands();

[[nodiscard]] dsa::Descriptor descriptor_of(const engine::Operation& operation);
/// The operation that `descriptor` requests; `at` maps its addresses to memory. A seed in memory is
/// read from there.
[[nodiscard]] engine::Operation operation_of(const dsa::Descriptor& descriptor,
                                             const std::function<std::byte*(std::uint64_t)>& at);
/// The result in the record of an operation of `byte_count` bytes.
[[nodiscard]] Finding finding_of(engine::OperationKind kind, std::size_t byte_count,
                                 const dsa::CompletionRecord& record);

}  // namespace headrace::test
