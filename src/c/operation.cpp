// SPDX-License-Identifier: Apache-2.0
// The operations of headrace.h, made by those of the engine.
#include "operation.hpp"

#include <algorithm>

namespace {

using headrace::engine::CrcOptions;
using headrace::engine::DifBlock;
using headrace::engine::DifFormat;
using headrace::engine::DifSource;
using headrace::engine::DifTags;
using headrace::engine::DifTarget;
using headrace::engine::Operation;
using headrace::engine::detail::bytes;
using headrace::engine::detail::from_c;
using headrace::engine::detail::to_c;

static_assert(HEADRACE_DIF_4104 == static_cast<int>(DifBlock::bytes_4104));
static_assert(offsetof(headrace_dif_tags, reference) == offsetof(DifTags, reference) &&
              offsetof(headrace_dif_tags, application) == offsetof(DifTags, application) &&
              offsetof(headrace_dif_tags, application_mask) == offsetof(DifTags, application_mask));

CrcOptions from_c(const headrace_crc_options* options) {
  if (options == nullptr) return {};
  return {options->seed, options->raw, !options->unreflected};
}

DifFormat from_c(const headrace_dif_format* format) {
  if (format == nullptr) return {};
  // A block that there is not stays one when it is cut to a byte: it is refused at submission.
  const auto block = std::min<unsigned>(format->block, HEADRACE_DIF_4104 + 1U);
  return {static_cast<DifBlock>(block), format->invert_seed, format->invert_guard};
}

DifTags from_c(const headrace_dif_tags& tags) {
  return {tags.reference, tags.application, tags.application_mask};
}

DifSource from_c(const headrace_dif_source* check) {
  if (check == nullptr) return {};
  return {.tags = from_c(check->tags),
          .check_guard = !check->skip_guard,
          .check_reference = !check->skip_reference,
          .fixed_reference = check->fixed_reference,
          .increment_application = check->increment_application,
          .skip_ones_in_application = check->skip_ones_in_application,
          .skip_ones_in_tags = check->skip_ones_in_tags,
          .skip_ones_in_field = check->skip_ones_in_field,
          .ones_in_field_are_an_error = check->ones_in_field_are_an_error};
}

DifTarget from_c(const headrace_dif_target* make) {
  if (make == nullptr) return {};
  return {.tags = from_c(make->tags),
          .fixed_reference = make->fixed_reference,
          .increment_application = make->increment_application,
          .keep_guard = make->keep_guard,
          .keep_application = make->keep_application,
          .keep_reference = make->keep_reference};
}

/// How many blocks with (or without) fields are in `source_bytes`, and what they take with
/// `target_unit` bytes each. What is no whole block is refused at submission.
std::size_t blocks_of(std::size_t source_bytes, std::size_t source_unit, std::size_t target_unit) {
  return source_bytes / source_unit * target_unit;
}

}  // namespace

headrace_operation headrace_copy(void* target, const void* source, size_t byte_count) noexcept {
  return to_c(Operation::copy(bytes(target, byte_count), bytes(source, byte_count)));
}

headrace_operation headrace_fill(void* target, size_t byte_count, uint64_t pattern) noexcept {
  return to_c(Operation::fill(bytes(target, byte_count), pattern));
}

headrace_operation headrace_fill_16(void* target, size_t byte_count, uint64_t low,
                                    uint64_t high) noexcept {
  return to_c(Operation::fill(bytes(target, byte_count), low, high));
}

headrace_operation headrace_compare(const void* one, const void* other,
                                    size_t byte_count) noexcept {
  return to_c(Operation::compare(bytes(one, byte_count), bytes(other, byte_count)));
}

headrace_operation headrace_compare_pattern(const void* source, size_t byte_count,
                                            uint64_t pattern) noexcept {
  return to_c(Operation::compare_pattern(bytes(source, byte_count), pattern));
}

headrace_operation headrace_dualcast(void* target, void* second_target, const void* source,
                                     size_t byte_count) noexcept {
  return to_c(Operation::dualcast(bytes(target, byte_count), bytes(second_target, byte_count),
                                  bytes(source, byte_count)));
}

headrace_operation headrace_create_delta(void* record, size_t record_bytes, const void* before,
                                         const void* after, size_t byte_count) noexcept {
  return to_c(Operation::create_delta(bytes(record, record_bytes), bytes(before, byte_count),
                                      bytes(after, byte_count)));
}

headrace_operation headrace_apply_delta(void* target, size_t byte_count, const void* record,
                                        size_t record_bytes) noexcept {
  return to_c(Operation::apply_delta(bytes(target, byte_count), bytes(record, record_bytes)));
}

headrace_operation headrace_crc(const void* source, size_t byte_count,
                                const headrace_crc_options* options) noexcept {
  return to_c(Operation::crc(bytes(source, byte_count), from_c(options)));
}

headrace_operation headrace_copy_crc(void* target, const void* source, size_t byte_count,
                                     const headrace_crc_options* options) noexcept {
  return to_c(
      Operation::copy_crc(bytes(target, byte_count), bytes(source, byte_count), from_c(options)));
}

headrace_operation headrace_dif_check(const void* source, size_t source_bytes,
                                      const headrace_dif_format* format,
                                      const headrace_dif_source* check) noexcept {
  return to_c(Operation::dif_check(bytes(source, source_bytes), from_c(format), from_c(check)));
}

headrace_operation headrace_dif_insert(void* target, const void* source, size_t source_bytes,
                                       const headrace_dif_format* format,
                                       const headrace_dif_target* make) noexcept {
  const DifFormat made = from_c(format);
  const std::size_t block = block_bytes(made.block);
  const std::size_t target_bytes =
      blocks_of(source_bytes, block, block + headrace::engine::kDifFieldBytes);
  return to_c(Operation::dif_insert(bytes(target, target_bytes), bytes(source, source_bytes), made,
                                    from_c(make)));
}

headrace_operation headrace_dif_strip(void* target, const void* source, size_t source_bytes,
                                      const headrace_dif_format* format,
                                      const headrace_dif_source* check) noexcept {
  const DifFormat made = from_c(format);
  const std::size_t block = block_bytes(made.block);
  const std::size_t target_bytes =
      blocks_of(source_bytes, block + headrace::engine::kDifFieldBytes, block);
  return to_c(Operation::dif_strip(bytes(target, target_bytes), bytes(source, source_bytes), made,
                                   from_c(check)));
}

headrace_operation headrace_dif_update(void* target, const void* source, size_t source_bytes,
                                       const headrace_dif_format* format,
                                       const headrace_dif_source* check,
                                       const headrace_dif_target* make) noexcept {
  return to_c(Operation::dif_update(bytes(target, source_bytes), bytes(source, source_bytes),
                                    from_c(format), from_c(check), from_c(make)));
}

headrace_operation headrace_cache_flush(void* target, size_t byte_count) noexcept {
  return to_c(Operation::cache_flush(bytes(target, byte_count)));
}

headrace_operation headrace_fenced(headrace_operation operation) noexcept {
  return to_c(from_c(operation).fenced());
}

headrace_operation headrace_durable(headrace_operation operation) noexcept {
  return to_c(from_c(operation).durable());
}

headrace_operation headrace_into_cache(headrace_operation operation) noexcept {
  return to_c(from_c(operation).into_cache());
}
