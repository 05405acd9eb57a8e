// SPDX-License-Identifier: Apache-2.0
#include "layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace headrace::message::detail {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

Failure too_large(const std::string& tried) {
  return fail(Code::capacity_exceeded, tried, "it would have more than 64 TiB",
              "ask for a smaller capacity, shorter messages or fewer producers");
}

}  // namespace

Result<Head> head_of(const QueueOptions& options) {
  const std::string tried = "make a message queue";
  const auto refuse = [&](std::string cause, std::string remedy) {
    return fail(Code::invalid_argument, tried, std::move(cause), std::move(remedy));
  };
  if (options.producers_max == 0 || options.producers_max > kProducersMax) {
    return refuse(fmt::format("it has {} producers", options.producers_max),
                  fmt::format("ask for 1 to {}", kProducersMax));
  }
  const std::uint64_t capacity_bytes = options.capacity.count();
  if (capacity_bytes > kSegmentBytesMax / kProducersMax ||
      options.message_bytes > kSegmentBytesMax / kProducersMax) {
    return too_large(tried);
  }
  Head head;
  head.framing = static_cast<std::uint32_t>(options.framing);
  head.lane_count = options.producers_max;
  if (options.framing == Framing::fixed) {
    if (options.message_bytes == 0) {
      return refuse("messages of a fixed length have 0 bytes", "ask for at least 1");
    }
    head.message_bytes_max = options.message_bytes;
    head.unit_bytes = round_up(options.message_bytes, 8);
    head.unit_count = std::bit_ceil(std::max<std::uint64_t>(2, capacity_bytes / head.unit_bytes));
  } else {
    head.unit_bytes = kVariableUnitBytes;
    const std::uint64_t bytes = std::bit_ceil(std::max<std::uint64_t>(kPageBytes, capacity_bytes));
    head.unit_count = bytes / kVariableUnitBytes;
    // Twice a message and its length fits, so that with the skip at the end a message always fits
    // into an empty ring.
    const std::uint64_t longest = std::min(bytes / 2 - kVariableUnitBytes, kVariableBytesMax);
    head.message_bytes_max = options.message_bytes == 0 ? longest : options.message_bytes;
    if (head.message_bytes_max > longest) {
      return refuse(fmt::format("messages may have {} bytes and the capacity is {}",
                                options.message_bytes, capacity_bytes),
                    "ask for a capacity of at least twice the longest message and 16 bytes");
    }
  }
  if (head.unit_bytes * head.unit_count > kSegmentBytesMax / kProducersMax) return too_large(tried);
  head.data_offset = round_up(kHeadBytes + head.lane_count * kLaneBytes, kPageBytes);
  head.lane_data_bytes = round_up(head.unit_bytes * head.unit_count, kPageBytes);
  head.segment_bytes = head.data_offset + head.lane_count * head.lane_data_bytes;
  return head;
}

Result<Head> read_head(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                       const std::string& tried) {
  const auto refuse = [&](std::string cause) {
    return fail(Code::corrupt_data, tried, std::move(cause), "make the queue again");
  };
  if (bytes.size() < sizeof(Head)) return refuse("it is too short to be a message queue");
  Head head;
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (head.magic == __builtin_bswap64(kMagic)) {
    return fail(Code::version_mismatch, tried, "it has the other byte order",
                "attach on a machine of the same kind");
  }
  if (head.magic != kMagic) return refuse("it is not a message queue");
  if (head.version != kVersion) {
    return fail(
        Code::version_mismatch, tried,
        fmt::format("it is of version {}, and this library knows {}", head.version, kVersion),
        "use the same version of Headrace at both ends");
  }
  const auto framing = static_cast<Framing>(head.framing);
  const Result<Head> expected =
      head_of({.framing = framing,
               .message_bytes = head.message_bytes_max,
               .capacity = Bytes(head.unit_bytes * head.unit_count),
               .producers_max = static_cast<std::uint32_t>(head.lane_count)});
  const bool is_known = framing == Framing::fixed || framing == Framing::variable;
  if (!is_known || !expected || !(head == *expected)) return refuse("its head is damaged");
  if (file_bytes != head.segment_bytes) {
    return refuse(
        fmt::format("it has {} bytes and was made with {}", file_bytes, head.segment_bytes));
  }
  return head;
}

}  // namespace headrace::message::detail
