// SPDX-License-Identifier: Apache-2.0
// What Python says of an operation becomes one of the engine, and how it ended becomes what Python
// is told. That numbers are in their ranges is seen to by headrace/operation.py.
#include <nanobind/nanobind.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "headrace/base/units.hpp"

#include "bindings.hpp"

namespace headrace::python {
namespace {

using engine::OperationKind;
using engine::Submit;

constexpr unsigned kFenced = 1;
constexpr unsigned kDurable = 2;
constexpr unsigned kIntoCache = 4;

[[noreturn]] void refuse(Code code, std::string cause, std::string remedy) {
  throw Failed{Error{code, 0, "submit an operation", std::move(cause), std::move(remedy)}};
}

OperationKind kind_of(std::string_view text) {
  for (std::size_t i = 0; i < engine::kOperationKindCount; ++i) {
    const auto kind = static_cast<OperationKind>(i);
    if (name(kind) == text) return kind;
  }
  refuse_operation(quoted(text) + " is no operation", "make one with headrace.Operation");
}

/// Takes the options of a kind one after the other; what is missing is 0.
///
/// Threading: confined.
class Options {
 public:
  explicit Options(const std::vector<std::uint64_t>& numbers) : numbers_(numbers) {}
  std::uint64_t number() { return at_ < numbers_.size() ? numbers_[at_++] : 0; }
  bool flag() { return number() != 0; }
  // Braces take their numbers from left to right.
  engine::CrcOptions crc() {
    return {.seed = static_cast<std::uint32_t>(number()), .raw = flag(), .reflect_data = flag()};
  }
  engine::DifFormat format() {
    return {.block = static_cast<engine::DifBlock>(number() & 3U),
            .invert_seed = flag(),
            .invert_guard = flag()};
  }
  engine::DifTags tags() {
    return {.reference = static_cast<std::uint32_t>(number()),
            .application = static_cast<std::uint16_t>(number()),
            .application_mask = static_cast<std::uint16_t>(number())};
  }
  engine::DifSource check() {
    return {.tags = tags(),
            .check_guard = flag(),
            .check_reference = flag(),
            .fixed_reference = flag(),
            .increment_application = flag(),
            .skip_ones_in_application = flag(),
            .skip_ones_in_tags = flag(),
            .skip_ones_in_field = flag(),
            .ones_in_field_are_an_error = flag()};
  }
  engine::DifTarget make() {
    return {.tags = tags(),
            .fixed_reference = flag(),
            .increment_application = flag(),
            .keep_guard = flag(),
            .keep_application = flag(),
            .keep_reference = flag()};
  }

 private:
  const std::vector<std::uint64_t>& numbers_;
  std::size_t at_ = 0;
};

std::span<const std::byte> bytes_of(const std::optional<Buffer>& buffer) {
  return buffer ? buffer->bytes() : std::span<const std::byte>();
}

std::span<std::byte> writable_bytes_of(const std::optional<Buffer>& buffer) {
  return buffer ? buffer->writable_bytes() : std::span<std::byte>();
}

engine::Operation make(OperationKind kind, std::span<std::byte> target,
                       std::span<const std::byte> source, const std::optional<Buffer>& second,
                       Options options) {
  using engine::Operation;
  switch (kind) {
    case OperationKind::no_op:
      return Operation::no_op();
    case OperationKind::drain:
      return Operation::drain();
    case OperationKind::copy:
      return Operation::copy(target, source);
    case OperationKind::fill: {
      const std::uint64_t low = options.number();
      return Operation::fill(target, low, options.number());
    }
    case OperationKind::compare:
      return Operation::compare(source, bytes_of(second));
    case OperationKind::compare_pattern:
      return Operation::compare_pattern(source, options.number());
    case OperationKind::create_delta:
      return Operation::create_delta(target, source, bytes_of(second));
    case OperationKind::apply_delta:
      return Operation::apply_delta(target, source);
    case OperationKind::dualcast:
      return Operation::dualcast(target, writable_bytes_of(second), source);
    case OperationKind::crc:
      return Operation::crc(source, options.crc());
    case OperationKind::copy_crc:
      return Operation::copy_crc(target, source, options.crc());
    case OperationKind::dif_check: {
      const engine::DifFormat format = options.format();
      return Operation::dif_check(source, format, options.check());
    }
    case OperationKind::dif_insert: {
      const engine::DifFormat format = options.format();
      return Operation::dif_insert(target, source, format, options.make());
    }
    case OperationKind::dif_strip: {
      const engine::DifFormat format = options.format();
      return Operation::dif_strip(target, source, format, options.check());
    }
    case OperationKind::dif_update: {
      const engine::DifFormat format = options.format();
      const engine::DifSource check = options.check();
      return Operation::dif_update(target, source, format, check, options.make());
    }
    case OperationKind::cache_flush:
      return Operation::cache_flush(target);
  }
  return {};
}

struct Operand {
  std::string_view role;
  std::span<const std::byte> bytes;
};

/// In the order in which a sentence names them.
std::array<Operand, 3> operands_of(const engine::Operation& what) {
  const bool is_written = what.kind() == OperationKind::dualcast;
  return {{{"source", what.source()},
           {"target", what.target()},
           {is_written ? "second target" : "other source", what.second_source()}}};
}

/// What is wrong, with the figures that matter.
std::string cause_of(Submit answer, const engine::Operation& what) {
  std::string told;
  for (const Operand& operand : operands_of(what)) {
    if (operand.bytes.empty()) continue;
    if (answer == Submit::length_differs) {
      told += told.empty() ? fmt::format("the {} has {}", operand.role,
                                         counted(operand.bytes.size(), "byte"))
                           : fmt::format(", the {} {}", operand.role, operand.bytes.size());
    } else {
      told += fmt::format("{} of {} at {:#x}",
                          told.empty() ? operand.role : fmt::format(", {}", operand.role),
                          counted(operand.bytes.size(), "byte"),
                          reinterpret_cast<std::uintptr_t>(operand.bytes.data()));
    }
  }
  if (answer == Submit::length_differs) return told;
  return fmt::format("{} is {}{}", name(what.kind()), name(answer),
                     told.empty() ? told : " (" + told + ")");
}

}  // namespace

std::string quoted(std::string_view text) {
  return fmt::format("'{}'", text);
}

void refuse_operation(std::string cause, std::string remedy) {
  refuse(Code::invalid_argument, std::move(cause), std::move(remedy));
}

void refuse_answer(Submit answer, std::span<const std::unique_ptr<Operation>> operations) {
  if (answer == Submit::full) {
    refuse(Code::capacity_exceeded, "the queues of the engine are full",
           "wait for a job and submit again");
  }
  if (answer == Submit::closed) {
    refuse(Code::closed, "the engine has been closed", "make a new engine");
  }
  const std::string remedy(explain(answer));
  if (answer == Submit::forked) refuse(Code::closed, std::string(name(answer)), remedy);
  const auto wrong = std::find_if(operations.begin(), operations.end(), [&](const auto& one) {
    return one->what().validate() == answer;
  });
  if (wrong == operations.end()) {
    refuse(Code::invalid_argument, std::string(name(answer)), remedy);
  }
  const std::string place =
      operations.size() == 1 ? "" : fmt::format("operation {}: ", wrong - operations.begin());
  refuse(Code::invalid_argument, place + cause_of(answer, (*wrong)->what()), remedy);
}

Operation::Operation(const OperationTuple& described) {
  const auto& [kind_name, target, source, second, numbers, flags] = described;
  const OperationKind kind = kind_of(kind_name);
  if (!target.is_none()) {
    target_.emplace(target, Buffer::Use::write);
  }
  if (!source.is_none()) {
    source_.emplace(source, Buffer::Use::read);
  }
  if (!second.is_none()) {
    const bool is_written = kind == OperationKind::dualcast;
    second_.emplace(second, is_written ? Buffer::Use::write : Buffer::Use::read);
  }
  what_ = make(kind, writable_bytes_of(target_), bytes_of(source_), second_, Options(numbers));
  if ((flags & kFenced) != 0) what_ = what_.fenced();
  if ((flags & kDurable) != 0) what_ = what_.durable();
  if ((flags & kIntoCache) != 0) what_ = what_.into_cache();
}

CompletionTuple to_tuple(const engine::Completion& completion) {
  const auto text = [](std::string_view from) { return nb::str(from.data(), from.size()); };
  const auto tags = [](const engine::DifTags& from) {
    return nb::make_tuple(from.reference, from.application, from.application_mask);
  };
  const engine::OperationResult& found = completion.result;
  return nb::borrow<CompletionTuple>(nb::make_tuple(
      text(name(completion.state)), text(name(completion.cause)), completion.fell_back,
      completion.late_write_possible, completion.bytes_done, completion.bytes_by_device,
      completion.device_status, completion.fault_address, found.different, found.difference_offset,
      found.crc, completion.page_faults, completion.retries, found.delta_bytes, found.record_full,
      found.dif_errors, tags(found.source_tags), tags(found.target_tags)));
}

}  // namespace headrace::python
