// SPDX-License-Identifier: Apache-2.0
// Converts operations from Python and completions to Python. headrace/operation.py has checked the
// ranges of numbers.
#include <fmt/format.h>

#include <array>
#include <cctype>

#include "bindings.hpp"
#include "headrace/base/units.hpp"

namespace headrace::python {
namespace {

using engine::OperationKind;
using engine::Submit;

[[noreturn]] void refuse(Code code, std::string cause, std::string remedy) {
  throw Failed{Error{code, 0, "submit an operation", std::move(cause), std::move(remedy)}};
}

OperationKind kind_of(std::string_view text) {
  if (const auto kind = find_name<OperationKind>(text)) return *kind;
  refuse_operation(fmt::format("'{}' is not an operation", text),
                   "make one with headrace.Operation");
}

engine::DifTags tags_of(nb::handle check) {
  const nb::object tags = check.attr("tags");
  return {.reference = field<std::uint32_t, "reference">(tags),
          .application = field<std::uint16_t, "application">(tags),
          .application_mask = field<std::uint16_t, "application_mask">(tags)};
}

/// The options of an operation: numbers, and headrace.DifFormat, DifSource and DifTarget.
///
/// Threading: confined.
class Options {
 public:
  explicit Options(const nb::dict& options) : options_(options) {}
  [[nodiscard]] std::uint64_t number(const char* name) const {
    return nb::cast<std::uint64_t>(options_[name]);
  }
  [[nodiscard]] engine::CrcOptions crc() const {
    return {.seed = nb::cast<std::uint32_t>(options_["seed"]),
            .raw = nb::cast<bool>(options_["raw"]),
            .reflect_data = nb::cast<bool>(options_["reflect_data"])};
  }
  [[nodiscard]] engine::DifFormat format() const {
    const nb::object said = options_["blocks"];
    engine::DifFormat made{.invert_seed = field<bool, "invert_seed">(said),
                           .invert_guard = field<bool, "invert_guard">(said)};
    const auto wanted = field<std::size_t, "block_bytes">(said);
    for (const auto block : {engine::DifBlock::bytes_512, engine::DifBlock::bytes_520,
                             engine::DifBlock::bytes_4096, engine::DifBlock::bytes_4104}) {
      if (engine::block_bytes(block) == wanted) made.block = block;
    }
    return made;
  }
  [[nodiscard]] engine::DifSource check() const {
    const nb::object said = options_["check"];
    return {.tags = tags_of(said),
            .check_guard = field<bool, "check_guard">(said),
            .check_reference = field<bool, "check_reference">(said),
            .fixed_reference = field<bool, "fixed_reference">(said),
            .increment_application = field<bool, "increment_application">(said),
            .skip_ones_in_application = field<bool, "skip_ones_in_application">(said),
            .skip_ones_in_tags = field<bool, "skip_ones_in_tags">(said),
            .skip_ones_in_field = field<bool, "skip_ones_in_field">(said),
            .ones_in_field_are_an_error = field<bool, "ones_in_field_are_an_error">(said)};
  }
  [[nodiscard]] engine::DifTarget make() const {
    const nb::object said = options_["make"];
    return {.tags = tags_of(said),
            .fixed_reference = field<bool, "fixed_reference">(said),
            .increment_application = field<bool, "increment_application">(said),
            .keep_guard = field<bool, "keep_guard">(said),
            .keep_application = field<bool, "keep_application">(said),
            .keep_reference = field<bool, "keep_reference">(said)};
  }

 private:
  const nb::dict& options_;
};

std::span<const std::byte> bytes_of(const std::optional<Buffer>& buffer) {
  return buffer ? buffer->bytes() : std::span<const std::byte>();
}

std::span<std::byte> writable_bytes_of(const std::optional<Buffer>& buffer) {
  return buffer ? buffer->writable_bytes() : std::span<std::byte>();
}

engine::Operation make(OperationKind kind, std::span<std::byte> target,
                       std::span<const std::byte> source, const std::optional<Buffer>& second,
                       const Options& options) {
  using engine::Operation;
  switch (kind) {
    case OperationKind::no_op:
      return Operation::no_op();
    case OperationKind::drain:
      return Operation::drain();
    case OperationKind::copy:
      return Operation::copy(target, source);
    case OperationKind::fill:
      return Operation::fill(target, options.number("low"), options.number("high"));
    case OperationKind::compare:
      return Operation::compare(source, bytes_of(second));
    case OperationKind::compare_pattern:
      return Operation::compare_pattern(source, options.number("pattern"));
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
    case OperationKind::dif_check:
      return Operation::dif_check(source, options.format(), options.check());
    case OperationKind::dif_insert:
      return Operation::dif_insert(target, source, options.format(), options.make());
    case OperationKind::dif_strip:
      return Operation::dif_strip(target, source, options.format(), options.check());
    case OperationKind::dif_update:
      return Operation::dif_update(target, source, options.format(), options.check(),
                                   options.make());
    case OperationKind::cache_flush:
      return Operation::cache_flush(target);
  }
  return {};
}

struct Operand {
  std::string_view role;
  std::span<const std::byte> bytes;
};

/// In the order used in messages.
std::array<Operand, 3> operands_of(const engine::Operation& what) {
  const bool is_written = what.kind() == OperationKind::dualcast;
  return {{{"source", what.source()},
           {"target", what.target()},
           {is_written ? "second target" : "other source", what.second_source()}}};
}

/// Lengths and, unless the lengths differ, addresses of the operands.
std::string details_of(Submit answer, const engine::Operation& what) {
  std::string told;
  for (const Operand& operand : operands_of(what)) {
    if (operand.bytes.empty()) continue;
    told += fmt::format("{}{} of {}", told.empty() ? "" : ", ", operand.role,
                        counted(operand.bytes.size(), "byte"));
    if (answer != Submit::length_differs) {
      told += fmt::format(" at {:#x}", reinterpret_cast<std::uintptr_t>(operand.bytes.data()));
    }
  }
  return told.empty() ? std::string(name(what.kind()))
                      : fmt::format("{}: {}", name(what.kind()), told);
}

/// Splits "Cause: remedy." of explain() into the parts of an error.
struct Halves {
  std::string cause;
  std::string remedy;
};
Halves halves_of(Submit answer) {
  const std::string_view text = explain(answer);
  const std::size_t colon = text.find(": ");
  Halves halves{.cause = std::string(text.substr(0, colon)),
                .remedy = std::string(text.substr(colon + 2, text.size() - colon - 3))};
  halves.cause.front() = static_cast<char>(std::tolower(halves.cause.front()));
  return halves;
}

}  // namespace

void refuse_operation(std::string cause, std::string remedy) {
  refuse(Code::invalid_argument, std::move(cause), std::move(remedy));
}

void refuse_answer(Submit answer, std::span<const std::unique_ptr<Operation>> operations) {
  auto [cause, remedy] = halves_of(answer);
  if (answer == Submit::full) refuse(Code::capacity_exceeded, cause, remedy);
  if (answer == Submit::closed)
    refuse(Code::closed, "the engine has been closed", "make a new one");
  if (answer == Submit::forked) refuse(Code::closed, cause, remedy);
  const auto wrong = std::find_if(operations.begin(), operations.end(), [&](const auto& one) {
    return one->what().validate() == answer;
  });
  if (wrong != operations.end()) {
    cause += fmt::format(" ({})", details_of(answer, (*wrong)->what()));
    if (operations.size() > 1) {
      cause = fmt::format("operation {}: {}", wrong - operations.begin(), cause);
    }
  }
  refuse(Code::invalid_argument, cause, remedy);
}

Operation::Operation(nb::handle described) {
  const OperationKind kind = kind_of(field<std::string, "kind">(described));
  const auto hold = [&](std::optional<Buffer>& held, nb::handle name, Buffer::Use use) {
    if (const nb::object object = nb::getattr(described, name); !object.is_none())
      held.emplace(object, use);
  };
  hold(target_, interned<"target">(), Buffer::Use::write);
  hold(source_, interned<"source">(), Buffer::Use::read);
  hold(second_, interned<"second">(),
       kind == OperationKind::dualcast ? Buffer::Use::write : Buffer::Use::read);
  const auto options = field<nb::dict, "options">(described);
  what_ = make(kind, writable_bytes_of(target_), bytes_of(source_), second_, Options(options));
  if (field<bool, "is_fenced">(described)) what_ = what_.fenced();
  if (field<bool, "is_durable">(described)) what_ = what_.durable();
  if (field<bool, "is_into_cache">(described)) what_ = what_.into_cache();
}

Fields fields_of(const engine::Completion& completion) {
  using Tags = engine::DifTags;
  const auto fields_of_tags = [](const Tags& from) {
    return members_of<&Tags::reference, &Tags::application, &Tags::application_mask>(from);
  };
  using C = engine::Completion;
  Fields fields = members_of<&C::state, &C::cause, &C::fell_back, &C::late_write_possible,
                             &C::bytes_done, &C::bytes_by_device, &C::device_status,
                             &C::fault_address, &C::page_faults, &C::retries>(completion);
  using R = engine::OperationResult;
  const R& found = completion.result;
  add_members<&R::different, &R::difference_offset, &R::crc, &R::delta_bytes, &R::record_full>(
      fields, found);
  // Left out if zero, which is the default in Python: most operations have no integrity fields.
  if (found.dif_errors != 0) fields[interned<"dif_errors">()] = found.dif_errors;
  if (found.source_tags != Tags{}) {
    fields[interned<"source_tags">()] = fields_of_tags(found.source_tags);
  }
  if (found.target_tags != Tags{}) {
    fields[interned<"target_tags">()] = fields_of_tags(found.target_tags);
  }
  return fields;
}

}  // namespace headrace::python
