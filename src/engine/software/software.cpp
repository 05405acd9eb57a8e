// SPDX-License-Identifier: Apache-2.0
// Dispatch, short operations, pieces and batches.
#include "software.hpp"

#include <algorithm>
#include <array>

#include "../completions.hpp"
#include "../memory_access.hpp"
#include "headrace/copy/copy.hpp"
#include "headrace/platform/line_flush.hpp"

namespace headrace::engine::software {
namespace {

/// Copied to both targets while in the L1 cache.
constexpr std::size_t kDualcastBytes = 16384;

/// Not inlined, or every operation would save the registers used here.
[[gnu::noinline]] void dualcast(const Operation& operation) noexcept {
  const std::span<const std::byte> source = operation.source();
  for (std::size_t at = 0; at < source.size(); at += kDualcastBytes) {
    const std::size_t count = std::min(kDualcastBytes, source.size() - at);
    copy::copy_bytes(operation.target().subspan(at, count), source.subspan(at, count));
    copy::copy_bytes(operation.second_target().subspan(at, count), source.subspan(at, count));
  }
}

Completion carry_out(const Operation& operation) noexcept {
  switch (operation.kind()) {
    case OperationKind::no_op:
    case OperationKind::drain:
      break;
    case OperationKind::copy:
      copy::copy_bytes(operation.target(), operation.source());
      break;
    case OperationKind::fill:
      fill(operation);
      break;
    case OperationKind::compare:
      return compare(operation);
    case OperationKind::compare_pattern:
      return compare_pattern(operation);
    case OperationKind::create_delta:
      return create_delta(operation);
    case OperationKind::apply_delta:
      return apply_delta(operation);
    case OperationKind::dualcast:
      dualcast(operation);
      break;
    case OperationKind::crc:
    case OperationKind::copy_crc:
      return crc(operation);
    case OperationKind::dif_check:
    case OperationKind::dif_insert:
    case OperationKind::dif_strip:
    case OperationKind::dif_update:
      return dif(operation);
    case OperationKind::cache_flush:
      platform::drop_lines(operation.target());
      break;
  }
  return {.bytes_done = operation.byte_count()};
}

/// Prefetches the beginning of a copy with a checksum while the operation before it is carried out:
/// out-of-order execution does not look that far. More lines cost copies of cached data 5 to 10 %.
/// Always inlined: GCC 12 drops calls to functions of only prefetches.
[[gnu::always_inline]] inline void ask_for(const Operation& operation) noexcept {
  if (operation.kind() != OperationKind::copy_crc) return;
  const std::size_t byte_count = std::min(operation.byte_count(), std::size_t{1024});
  for (std::size_t at = 0; at < byte_count; at += 64) {
    __builtin_prefetch(operation.source().data() + at);
    if (at < 512) __builtin_prefetch(operation.target().data() + at, 1);
  }
}

/// Copies of a batch that copy_many() makes at once.
constexpr std::size_t kListCountMax = 32;

/// Makes the leading plain copies of a batch from `first` on, at most kListCountMax.
///
/// Returns: their number; 0 if the first is not a plain copy, or large enough that its memory is
/// checked.
std::size_t copy_list(const Batch& batch, std::size_t first, Completion& whole) noexcept {
  std::array<copy::CopyItem, kListCountMax> items;
  const std::size_t count_max = std::min(items.size(), batch.operations.size() - first);
  std::size_t count = 0;
  // A stop is checked between lists.
  for (std::size_t bytes = 0; count < count_max && bytes < kPieceBytes; ++count) {
    const Operation& operation = batch.operations[first + count];
    // Checked by inaccessible() instead: copy_many() would crash on unmapped memory.
    if (!operation.is_plain_copy() || operation.byte_count() >= detail::kAskedBytesMin) break;
    items[count] = {operation.target().data(), operation.source().data(), operation.byte_count()};
    bytes += operation.byte_count();
  }
  copy::copy_many(std::span(items).first(count));
  for (std::size_t i = 0; i < count; ++i) {
    whole.bytes_done += items[i].byte_count;
    detail::note(batch, first + i, {.bytes_done = items[i].byte_count});
  }
  return count;
}

}  // namespace

Completion execute(const Operation& operation) noexcept {
  if (!operation.is_durable()) return carry_out(operation);
  const Completion outcome = carry_out(operation);
  detail::make_durable(operation);
  return outcome;
}

Completion execute_in_pieces(const Operation& operation, const Request& request) noexcept {
  const std::size_t byte_count = operation.byte_count();
  const std::size_t cut = operation.cut_bytes();
  const std::size_t piece_max =
      cut == 0 ? byte_count : std::max(kPieceBytes / cut, std::size_t{1}) * cut;
  Completion whole;
  do {
    if (request.stop_requested()) {
      whole.state = JobState::stopped;
      break;
    }
    const std::size_t offset = whole.bytes_done;
    const std::size_t piece = std::min(piece_max, byte_count - offset);
    detail::append(whole, execute(operation.part(offset, piece, whole.result)), offset);
  } while (whole.bytes_done < byte_count && whole.cause == Cause::none && !whole.result.different);
  return whole;
}

Completion execute_batch(const Request& request, bool check_memory) noexcept {
  const Batch& batch = request.batch();
  Completion whole;
  for (std::size_t i = 0; i < batch.operations.size(); ++i) {
    if (!check_memory && !detail::is_stopped(whole) && !request.stop_requested()) {
      i += copy_list(batch, i, whole);
      if (i == batch.operations.size()) break;
    }
    const Operation& operation = batch.operations[i];
    if (i + 1 < batch.operations.size()) ask_for(batch.operations[i + 1]);
    Completion one;
    if (operation.is_fenced() && whole.cause != Cause::none) {
      // Nothing after the fence starts either.
      detail::note_rest(batch, i, {.cause = Cause::fence_broken});
      break;
    }
    if (detail::is_stopped(whole) || request.stop_requested()) {
      one = detail::kStopped;
      whole.state = JobState::stopped;
    } else if (const auto bad = detail::inaccessible(operation, check_memory)) {
      one = {.cause = Cause::page_fault, .fault_address = *bad};
    } else {
      one = execute(operation);
    }
    whole.bytes_done += one.bytes_done;
    if (one.cause != Cause::none) whole.cause = Cause::batch_failed;
    detail::note(batch, i, one);
  }
  return whole;
}

}  // namespace headrace::engine::software
