// SPDX-License-Identifier: Apache-2.0
#include "disk.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "../engine/software/software.hpp"
#include "headrace/base/clock.hpp"
#include "headrace/platform/memory.hpp"

namespace headrace::store::detail {
namespace {

using platform::BlockRequest;

constexpr std::size_t kBufferBytes = std::size_t{64} << 20U;
constexpr std::size_t kBuffersMin = 4;
constexpr std::size_t kBuffersMax = 256;
constexpr std::size_t kTableReadBytes = std::size_t{1} << 20U;
constexpr std::size_t kWriteBytesMax = std::size_t{1} << 20U;

std::size_t buffer_count(const Head& head) {
  return std::clamp(kBufferBytes / head.stride_bytes, kBuffersMin, kBuffersMax);
}

}  // namespace

/// Requests that a thread waits for.
struct Disk::Batch : std::enable_shared_from_this<Batch> {
  std::shared_ptr<std::vector<Page>> pages;
  std::vector<BlockRequest> requests;
  std::shared_ptr<Atomic<std::uint32_t>> unanswered;
  Mutex mutex;
  Condition ended;
  std::size_t left HEADRACE_GUARDED_BY(mutex) = 0;
  bool is_late HEADRACE_GUARDED_BY(mutex) = false;

  /// Keeps batches that the kernel has not returned in time until it does, if need be for ever:
  /// here leak checkers find them.
  static void keep(const std::shared_ptr<Batch>& batch, bool is_kept) {
    static Mutex late_mutex;
    static auto& late = *new std::set<std::shared_ptr<Batch>>();
    const Lock lock(late_mutex);
    if (is_kept) late.insert(batch);
    if (!is_kept) late.erase(batch);
  }
};

Result<std::unique_ptr<Disk>> Disk::make(const platform::SharedFile& file, const Head& head,
                                         const TierOptions& options) {
  const std::string tried = fmt::format("open the store '{}'", options.path);
  HEADRACE_TAKE_WITHIN(
      tried, pages,
      platform::allocate_pages(head.data_offset + buffer_count(head) * head.stride_bytes,
                               std::nullopt, platform::Pages::huge));
  std::unique_ptr<Disk> disk(new Disk(head, options, *pages));
  HEADRACE_TAKE_WITHIN(
      tried, io,
      platform::BlockIo::make(
          file, {.byte_count = head.file_bytes, .ended = &Disk::on_ended, .context = disk.get()}));
  disk->io_ = std::move(*io);
  HEADRACE_TRY(disk->read_table(tried));
  return disk;
}

Disk::Disk(const Head& head, const TierOptions& options, std::span<std::byte> pages)
    : deadline_(bounded(options.deadline)),
      pages_(pages),
      slots_{.bytes = pages.first(head.data_offset), .head = head},
      medium_(*this, slots_),
      unanswered_(std::make_shared<Atomic<std::uint32_t>>(0)) {
  for (std::size_t i = buffer_count(head); i > 0; --i) {
    buffers_.push_back(pages.data() + head.data_offset + (i - 1) * head.stride_bytes);
  }
  kept_for_gets_ = buffers_.size() / 4;
}

Disk::~Disk() {
  io_.reset();
  // The kernel may still write to the memory of a request that it never answered.
  if (!has_late()) platform::free_pages(pages_);
}

bool Disk::has_late() const {
  return buffers_.size() != buffer_count(slots_.head) || hangs();
}

Result<void> Disk::read_table(const std::string& tried) {
  const auto read = [&](std::size_t offset, std::size_t byte_count) {
    auto batch = std::make_shared<Batch>();
    batch->requests.push_back({.offset = offset, .bytes = pages_.subspan(offset, byte_count)});
    return !run(batch) ? ETIMEDOUT : batch->requests.front().os_errno;
  };
  const std::size_t end = slots_.head.data_offset;
  for (std::size_t at = 0; at < end; at += kTableReadBytes) {
    const std::size_t until = std::min(at + kTableReadBytes, end);
    int os_errno = read(at, until - at);
    for (std::size_t page = at; os_errno == EIO && page < until; page += kPageBytes) {
      // Its slots are not used.
      if (read(page, kPageBytes) != 0) medium_.mark_unread(page);
      if (page + kPageBytes == until) os_errno = 0;
    }
    if (os_errno != 0) {
      return fail(Code::io_failed, tried, "its headers cannot be read", "check the disk", os_errno);
    }
  }
  medium_.replay();
  return {};
}

bool Disk::matches(SlotNumber slot, const SlotHeader& header) {
  const std::size_t byte_count = (header.byte_count + kPageBytes - 1) / kPageBytes * kPageBytes;
  const std::span<std::byte> bytes(buffers_.front(), byte_count);
  auto batch = std::make_shared<Batch>();
  batch->requests.push_back({.offset = slots_.data_offset(slot), .bytes = bytes});
  if (!run(batch)) return true;  // Opening fails: the disk hangs.
  if (batch->requests.front().os_errno != 0) return false;
  const auto crc = engine::Operation::crc(bytes.first(header.byte_count));
  return engine::software::execute(crc).result.crc == header.crc;
}

std::byte* Disk::take_buffer(bool is_put) {
  if (buffers_.size() <= (is_put ? kept_for_gets_ : 0)) return nullptr;
  std::byte* const buffer = buffers_.back();
  buffers_.pop_back();
  return buffer;
}

std::optional<std::vector<std::size_t>> Disk::write(std::vector<Page> pages,
                                                    std::vector<std::size_t> offsets) {
  const auto shared = std::make_shared<std::vector<Page>>(std::move(pages));
  std::vector<std::size_t> left(offsets.size());
  std::iota(left.begin(), left.end(), 0);
  // Neighbours in one request; then each page of those that fail in its own.
  for (const std::size_t bytes_max : {kWriteBytesMax, kPageBytes}) {
    if (left.empty()) break;
    auto batch = std::make_shared<Batch>();
    batch->pages = shared;
    for (const std::size_t i : left) {
      const std::span<std::byte> bytes = (*shared)[i].bytes;
      if (!batch->requests.empty()) {
        BlockRequest& last = batch->requests.back();
        if (last.offset + last.bytes.size() == offsets[i] && last.bytes.size() < bytes_max &&
            last.bytes.data() + last.bytes.size() == bytes.data()) {
          last.bytes = {last.bytes.data(), last.bytes.size() + kPageBytes};
          continue;
        }
      }
      batch->requests.push_back(
          {.action = BlockRequest::Action::write, .offset = offsets[i], .bytes = bytes});
    }
    // A late image of a page must not arrive after a newer one.
    if (hangs() || !run(batch)) return std::nullopt;
    left.clear();
    for (const BlockRequest& request : batch->requests) {
      const auto first = static_cast<std::size_t>(request.bytes.data() -
                                                  reinterpret_cast<std::byte*>(shared->data()));
      for (std::size_t at = 0; request.os_errno != 0 && at < request.bytes.size();
           at += kPageBytes) {
        left.push_back((first + at) / kPageBytes);
      }
    }
  }
  for (std::size_t& each : left) each = offsets[each];
  return left;
}

bool Disk::flush() {
  auto batch = std::make_shared<Batch>();
  batch->requests.emplace_back().action = BlockRequest::Action::sync;
  return run(batch) && batch->requests.front().os_errno == 0;
}

bool Disk::run(const std::shared_ptr<Batch>& batch) {
  std::vector<BlockRequest*> all;
  for (BlockRequest& request : batch->requests) {
    request.owner = batch.get();
    all.push_back(&request);
  }
  batch->unanswered = unanswered_;
  {
    const Lock lock(batch->mutex);
    batch->left = all.size();
  }
  io_->submit(all);
  const auto until = steady_clock().now() + deadline_;
  const Lock lock(batch->mutex);
  while (batch->left != 0) {
    const std::chrono::nanoseconds left = until - steady_clock().now();
    if (left <= std::chrono::nanoseconds(0)) {
      batch->is_late = true;
      Batch::keep(batch, true);
      unanswered_->fetch_add_relaxed(1);
      return false;
    }
    static_cast<void>(batch->ended.wait_for(batch->mutex, left));
  }
  return true;
}

void Disk::on_ended(void* context, std::span<BlockRequest* const> ended) noexcept {
  auto& disk = *static_cast<Disk*>(context);
  std::vector<BlockRequest*> of_slots;
  for (BlockRequest* const request : ended) {
    auto* const batch = static_cast<Batch*>(request->owner);
    if (batch == nullptr) {
      of_slots.push_back(request);
      continue;
    }
    const std::shared_ptr<Batch> self = batch->shared_from_this();
    const Lock lock(batch->mutex);
    if (--batch->left != 0) continue;
    if (batch->is_late) {
      batch->unanswered->fetch_sub_relaxed(1);
      Batch::keep(self, false);
    }
    batch->ended.notify_all();
  }
  if (!of_slots.empty()) disk.ended_(of_slots);
}

}  // namespace headrace::store::detail
