// SPDX-License-Identifier: Apache-2.0
#include "ring_layout.hpp"

#include <fmt/format.h>

#include <cstring>

#include "chain.hpp"
#include "headrace/base/units.hpp"

namespace headrace::pmem::detail {

std::uint64_t checksum_of(const Superblock& superblock) {
  Superblock copy = superblock;
  copy.checksum = 0;
  Digest digest;
  digest_lines(std::as_bytes(std::span(&copy, 1)), digest);
  return digest.value(kMagic);
}

void format_ring(std::span<std::byte> head, std::uint64_t file_bytes, std::uint64_t ring_id) {
  const DurableWords durable;
  const ConsumerWords consumer;
  Superblock superblock;
  superblock.file_bytes = file_bytes;
  superblock.capacity_bytes = file_bytes - kDataOffset;
  superblock.block_bytes = kBlockBytes;
  superblock.ring_id = ring_id;
  superblock.checksum = checksum_of(superblock);
  std::memcpy(head.data() + offsetof(Head, durable), &durable, sizeof(durable));
  std::memcpy(head.data() + offsetof(Head, consumer), &consumer, sizeof(consumer));
  std::memcpy(head.data(), &superblock, sizeof(superblock));
}

Result<RingMemory> open_ring(std::span<std::byte> file, const std::string& tried) {
  if (file.size() < kDataOffset + kCapacityMin) {
    return fail(Code::corrupt_data, tried,
                fmt::format("it has {}, too small for a ring", counted(file.size(), "byte")),
                "name a file made by 'headrace pmem ring make' or pmem::make_ring");
  }
  Superblock superblock;
  std::memcpy(&superblock, file.data(), sizeof(superblock));
  if (superblock.magic == __builtin_bswap64(kMagic) ||
      (superblock.magic == kMagic && superblock.byte_order != kByteOrder)) {
    return fail(Code::version_mismatch, tried, "it was made on a machine of the other byte order",
                "use it there");
  }
  if (superblock.magic != kMagic) {
    return fail(Code::corrupt_data, tried, "it is not a ring: wrong magic number",
                "name a file made by 'headrace pmem ring make' or pmem::make_ring");
  }
  if (superblock.version != kVersion) {
    return fail(
        Code::version_mismatch, tried,
        fmt::format("it is of version {}, and this is version {}", superblock.version, kVersion),
        "use the version of Headrace that made it");
  }
  if (superblock.checksum != checksum_of(superblock)) {
    return damaged(tried, "its superblock is damaged: the checksum does not match");
  }
  if (superblock.file_bytes != file.size()) {
    return damaged(tried, fmt::format("it has {} bytes and was made with {}", file.size(),
                                      superblock.file_bytes));
  }
  if (superblock.layout == kPositions) {
    return fail(Code::version_mismatch, tried, "its layout is 'positions', which is no longer read",
                "take its entries out with the version of Headrace that made it, then make a ring");
  }
  if (superblock.layout != kChecksums || superblock.block_bytes != kBlockBytes ||
      superblock.capacity_bytes != superblock.file_bytes - kDataOffset ||
      superblock.capacity_bytes % kBlockBytes != 0 || superblock.capacity_bytes > kCapacityMax) {
    return damaged(
        tried, fmt::format("its geometry is invalid: layout {}, blocks of {}, {} bytes",
                           superblock.layout, superblock.block_bytes, superblock.capacity_bytes));
  }
  return RingMemory{.head = reinterpret_cast<Head*>(file.data()),
                    .data = file.data() + kDataOffset,
                    .capacity_bytes = superblock.capacity_bytes,
                    .ring_id = superblock.ring_id};
}

}  // namespace headrace::pmem::detail
