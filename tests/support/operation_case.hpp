// SPDX-License-Identifier: Apache-2.0
// Random operations of the engine over memory of their own, to be carried out twice and compared;
// and a reading of the wire format that is not the engine's: operation to descriptor and back.
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

/// The result of an operation, of any mover.
struct Finding {
  engine::Cause cause = engine::Cause::none;
  std::size_t bytes_done = 0;
  engine::OperationResult result = {};
  friend bool operator==(const Finding&, const Finding&) = default;
};
[[nodiscard]] Finding finding_of(const engine::Completion& outcome);
/// For a person, in a failed expectation.
void PrintTo(const Finding& finding, std::ostream* stream);
[[nodiscard]] std::string shown(const engine::Operation& operation);

/// A valid operation, and all memory that it names with a page or so around it. Some operands end
/// at a page that may not be touched, so that a byte read too far ends the test.
///
/// Threading: confined; all cases of a process with the same `memory` share it, so that one of them
/// is alive at a time.
class OperationCase {
 public:
  static constexpr std::size_t kBytesMax = 256U << 10U;

  /// About `byte_count` bytes (1 to kBytesMax), as the kind demands. Neither no_op nor drain.
  OperationCase(engine::OperationKind kind, std::size_t byte_count, Random& random,
                std::size_t memory = 0);

  [[nodiscard]] const engine::Operation& operation() const { return operation_; }
  /// The memory as it is.
  [[nodiscard]] std::vector<std::byte> snapshot() const;
  void restore(std::span<const std::byte> snapshot);
  /// True if byte `index` of a snapshot is one that the operation may write.
  [[nodiscard]] bool is_target(std::size_t index) const;

 private:
  struct Operand {
    std::span<std::byte> bytes;
    std::span<std::byte> region;  ///< With what lies around it.
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
/// What `descriptor` asks for; `at` gives the memory that its addresses mean. A seed that lies in
/// memory is taken from there.
[[nodiscard]] engine::Operation operation_of(const dsa::Descriptor& descriptor,
                                             const std::function<std::byte*(std::uint64_t)>& at);
/// What the record of an operation of `byte_count` bytes tells.
[[nodiscard]] Finding finding_of(engine::OperationKind kind, std::size_t byte_count,
                                 const dsa::CompletionRecord& record);

}  // namespace headrace::test
