// SPDX-License-Identifier: Apache-2.0
#include "tier.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>

#include "../engine/software/software.hpp"
#include "headrace/base/check.hpp"
#include "headrace/base/clock.hpp"
#include "headrace/platform/descriptor.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/platform/wait.hpp"

namespace headrace::store::detail {
namespace {

constexpr std::size_t kLowWaterMax = 64;
constexpr std::size_t kSlotsMax = cache::detail::Pool::kCountMax - 64;

/// Formats a device whose head is zero (a new one); otherwise reads its head.
Result<Head> format_device(const platform::SharedFile& file, const Head& asked,
                           const std::string& tried) {
  HEADRACE_TAKE_WITHIN(tried, mapping, pmem::Mapping::map(file.path()));
  const std::span<std::byte> bytes = mapping->bytes();
  if (bytes.size() < asked.file_bytes) {
    return fail(
        Code::capacity_exceeded, tried,
        fmt::format("the device has {} bytes, and {} are needed", bytes.size(), asked.file_bytes),
        "ask for a smaller capacity");
  }
  const std::span<std::byte> table = bytes.first(asked.data_offset);
  if (std::ranges::any_of(table.first(kHeadBytes), [](std::byte b) { return b != std::byte{0}; })) {
    return read_head(table, 0, tried);
  }
  pmem::Medium medium = mapping->medium();
  std::ranges::fill(table, std::byte{0});
  medium.persist(table.data(), table.size());
  medium.store(table.data(), std::as_bytes(std::span(&asked, 1)));
  medium.persist(table.data(), sizeof(Head));
  return asked;
}

/// Identifies the file and this run of the machine: differs after a restart, and in a copy. Not 0.
std::uint64_t boot_of(const platform::SharedFile& file) {
  const Result<std::string> boot = platform::load_file("/proc/sys/kernel/random/boot_id", 64);
  const platform::SharedFile::Identity identity = file.identity();
  // Without /proc every run is another.
  const std::string text =
      fmt::format("{} {} {}", boot ? *boot : std::to_string(std::random_device{}()),
                  identity.device, identity.inode);
  std::array<std::byte, 128> lines{};
  std::memcpy(lines.data(), text.data(), std::min(text.size(), lines.size()));
  pmem::Digest digest;
  pmem::digest_lines(lines, digest);
  return digest.value(kMagic) | 1U;
}

/// Takes a lock of the file, which may become free within `time_max`.
Result<bool> lock_soon(const platform::SharedFile& file, std::uint64_t lock,
                       std::chrono::nanoseconds time_max) {
  const std::chrono::nanoseconds until = steady_clock().now() + time_max;
  while (true) {
    Result<bool> locked = file.try_lock(lock);
    if (!locked || *locked || steady_clock().now() >= until) return locked;
    platform::sleep(std::chrono::milliseconds(5));
  }
}

Result<std::unique_ptr<TierFile>> open_file(const TierOptions& options, std::size_t block_bytes,
                                            std::size_t slot_count) {
  const std::string tried = fmt::format("open the store '{}'", options.path);
  HEADRACE_TAKE(asked, head_of(block_bytes, std::max<std::size_t>(slot_count, 1), tried));
  if (!platform::SharedFile::identity_at(options.path)) {
    if (slot_count == 0) {
      return fail(Code::not_found, tried, "it does not exist, and no capacity is given",
                  "give a capacity of at least one block");
    }
    const Result<void> made = platform::make_file(options.path, asked->file_bytes,
                                                  std::as_bytes(std::span(&*asked, 1)), 0600);
    // If another process made the file in between, use that one.
    if (!made && !platform::SharedFile::identity_at(options.path)) return fail(made.error());
  }
  HEADRACE_TAKE_WITHIN(tried, file, platform::SharedFile::open(options.path, true));
  HEADRACE_TAKE_WITHIN(tried, again, platform::SharedFile::open(options.path, true));
  // A process that is being killed closes its files before long.
  HEADRACE_TAKE_WITHIN(tried, is_only, lock_soon(*again, kProcessLock, std::chrono::seconds(1)));
  if (!*is_only) {
    return fail(Code::capacity_exceeded, tried, "another process, or another store, has it open",
                "end that one first, or name another file");
  }
  // The kernel ends the requests of a killed process as slowly as the disk answers.
  HEADRACE_TAKE_WITHIN(tried, locked, lock_soon(*file, kOwnerLock, bounded(options.deadline)));
  if (!*locked) {
    return fail(Code::capacity_exceeded, tried,
                "the disk still has requests of a store that has ended",
                "check the disk, and try again when it answers");
  }
  Result<Head> head = Head{};
  if (file->is_device()) {
    head = format_device(*file, *asked, tried);
  } else {
    std::vector<std::byte> first(sizeof(Head));
    HEADRACE_TAKE_WITHIN(tried, read, file->read_at(0, first));
    head = read_head(std::span(first).first(*read), file->byte_count().value_or(0), tried);
  }
  if (!head) return fail(head.error());
  if (head->block_bytes != block_bytes || (slot_count != 0 && head->slot_count != slot_count)) {
    return fail(
        Code::invalid_argument, tried,
        fmt::format("it was made for {} of {} bytes, and {} of {} are asked for",
                    counted(head->slot_count, "block"), head->block_bytes, slot_count, block_bytes),
        "use its sizes (a capacity of 0 takes that of the file), or name another file");
  }
  const bool flushes = options.durability == Durability::power;
  // Map the locked file, even if the name now refers to another one.
  Result<pmem::Mapping> mapping = pmem::Mapping::map(
      file->is_device() ? options.path : fmt::format("/proc/self/fd/{}", file->descriptor()),
      flushes ? pmem::MapOptions{} : pmem::MapOptions{.granularity = pmem::Granularity::byte});
  if (!mapping && file->is_device()) return fail(mapping.error().within(tried));
  const std::uint64_t boot = boot_of(*file);
  const auto adopt_file = [&](TierFile& made, auto& medium, const auto& matches) {
    const Adopted adopted = adopt(medium, made.slots, options.durability, boot, matches);
    made.dropped = adopted.dropped;
    made.stamp = adopted.stamp;
    return medium.fault() == pmem::Fault::none;
  };
  std::unique_ptr<TierFile> made;
  bool is_adopted = false;
  if (!mapping || mapping->platform_granularity() == pmem::Granularity::page) {
    Result<std::unique_ptr<Disk>> disk = Disk::make(*file, *head, options);
    if (!disk) {
      file->unlock(kOwnerLock);  // The threads of the disk still have the file for a moment.
      return fail(disk.error());
    }
    made = std::make_unique<TierFile>(std::move(*file), std::move(*again), std::nullopt,
                                      std::move(*disk), *head);
    Disk& on_disk = *made->disk;
    is_adopted = adopt_file(
        *made, on_disk.medium(),
        [&](SlotNumber slot, const SlotHeader& header) { return on_disk.matches(slot, header); });
    if (!flushes) on_disk.medium().stop_flushing();
  } else {
    made = std::make_unique<TierFile>(std::move(*file), std::move(*again), std::move(*mapping),
                                      nullptr, *head);
    // Not the mapping's medium, which flushes nothing if the durability is process.
    Atomic<std::uint32_t> fault{0};
    pmem::Medium medium({.granularity = made->mapping->platform_granularity(),
                         .instruction = made->mapping->medium().instruction(),
                         .fault = &fault});
    leave_log(medium, made->slots);
    is_adopted = adopt_file(*made, medium, [&](SlotNumber slot, const SlotHeader& header) {
      const auto data = made->slots.data(slot, header.byte_count);
      return engine::software::execute(engine::Operation::crc(data)).result.crc == header.crc;
    });
  }
  if (!is_adopted) {
    return fail(Code::io_failed, tried, "it could not be written back", "check the disk");
  }
  return made;
}

}  // namespace

Result<std::unique_ptr<Tier>> Tier::make(const TierOptions& options, std::size_t block_bytes,
                                         bool is_last, SharedCells* shared) {
  const std::size_t count = options.capacity.count() / block_bytes;
  const bool is_file = !options.path.empty();
  if (count > kSlotsMax || (count == 0 && (!is_file || options.capacity.count() != 0))) {
    return fail(Code::invalid_argument, "make a tier of a store",
                fmt::format("{} bytes are {} of {} bytes", options.capacity.count(),
                            counted(count, "block"), block_bytes),
                fmt::format("ask for room for 1 to {} blocks", kSlotsMax));
  }
  std::unique_ptr<Tier> tier(new Tier(options));
  if (is_file) {
    HEADRACE_TAKE(file, open_file(options, block_bytes, count));
    tier->file = std::move(*file);
    const Head& head = tier->file->slots.head;
    tier->statistics.dropped_torn = tier->file->dropped;
    tier->start(tier->is_mapped() ? tier->file->slots.data(1, 1).data() : nullptr,
                head.stride_bytes, head.slot_count);
    if (tier->disk() != nullptr) tier->filling_from.resize(head.slot_count + 1);
  } else if (shared != nullptr) {
    tier->shared = shared;
    tier->slot_of_cell.resize(count + 1);
    tier->start(shared->data(), shared->shape.stride_bytes, count);
  } else {
    const std::size_t stride = stride_of(block_bytes);
    const std::size_t byte_count = count * stride;
    const bool huge = byte_count >= platform::huge_page_bytes() && platform::huge_page_bytes() != 0;
    HEADRACE_TAKE(pages,
                  platform::allocate_pages(byte_count, options.node,
                                           huge ? platform::Pages::huge : platform::Pages::plain));
    tier->pages_ = *pages;
    tier->start(pages->data(), stride, count);
  }
  const bool frees_at_once = !is_file && is_last;
  if (!frees_at_once) {
    tier->low_water = std::clamp<std::size_t>(tier->slot_count / 8, 1, kLowWaterMax);
  }
  return tier;
}

Tier::~Tier() {
  if (!pages_.empty()) platform::free_pages(pages_);
}

void Tier::start(std::byte* first, std::size_t stride_bytes, std::size_t count) {
  slot_count = static_cast<std::uint32_t>(count);
  owner.resize(count + 1);
  in_order_.resize(count + 1);
  cache::detail::Pool::Stash stash;
  for (SlotNumber slot = 1; slot <= slot_count; ++slot) {
    HEADRACE_CHECK(pool_.take_entry(stash).number == slot,
                   "a new pool numbers its entries in order", slot);
    if (first != nullptr) pool_[slot].copy = first + std::size_t{slot - 1} * stride_bytes;
  }
  statistics.capacity_blocks = count;
}

void Tier::add(SlotNumber slot, Block& block) {
  owner[slot] = &block;
  cache::detail::EntryState& entry = pool_[slot];
  // relaxed: under the mutex of the store. The order remembers evicted blocks by this value.
  entry.address.store_relaxed(block.hash);
  order_.add(slot, entry, {});
  in_order_[slot] = 1;
  ++statistics.blocks;
  show(slot, block);
}

void Tier::show(SlotNumber slot, const Block& block) {
  if (shared == nullptr) return;
  const Cell cell = cell_of(slot);
  slot_of_cell[cell] = slot;
  shared->show(cell, block.key, block.hash, block.byte_count,
               block.has_crc ? std::optional(block.crc) : std::nullopt);
}

void Tier::remove(SlotNumber slot) {
  hide(slot);
  if (in_order_[slot] != 0) {
    order_.remove(slot);
    in_order_[slot] = 0;
  } else {
    order_.gone(pool_[slot]);
  }
  owner[slot] = nullptr;
  --statistics.blocks;
}

SlotNumber Tier::propose() {
  const SlotNumber slot = order_.propose({}).number;
  if (slot != 0) in_order_[slot] = 0;
  return slot;
}

void Tier::put_back(SlotNumber slot) {
  order_.put_back(slot);
  in_order_[slot] = 1;
}

}  // namespace headrace::store::detail
