// SPDX-License-Identifier: Apache-2.0
// CachedMedium: pmem's Medium (protocol.hpp) for the headers of a file on a device with a volatile
// cache. The table of headers is a copy in this process; pages of it are written to the device,
// which may reorder and tear them until it is flushed.
//
//   store        changes the copy: lost when the process ends
//   hand_over    writes what was stored to the device: survives the process
//   drain        also flushes the device: what was stored, and whatever else was written to the
//                device before, is durable
//
// A page that cannot be written is bad, and written again with the next ones.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "headrace/base/mutex.hpp"
#include "headrace/pmem/medium.hpp"

namespace headrace::store::detail {

/// A page of the table on its way to the device.
struct alignas(4096) PageImage {
  std::array<std::byte, 4096> bytes;
  std::size_t offset = 0;
};

/// `Device` has `std::optional<std::vector<std::size_t>> write(std::vector<PageImage>)`, which
/// returns the offsets of pages that fail (nothing: the device does not answer), and `bool
/// flush()`.
///
/// Threading: shared; drain() confined.
template <typename Device>
class CachedMedium {
 public:
  static constexpr std::size_t kPage = sizeof(PageImage::bytes);

  /// `copy` is what the file has from its beginning.
  CachedMedium(Device& device, std::span<std::byte> copy) : device_(device), copy_(copy) {}
  /// For Durability::process, once the file says so: drain() only hands over.
  void stop_flushing() { flushes_ = false; }

  void store(std::byte* target, std::span<const std::byte> source) {
    const Lock lock(mutex_);
    std::memcpy(target, source.data(), source.size());
    note(target, source.size());
  }
  void store_word(std::uint64_t& target, std::uint64_t value) {
    store(reinterpret_cast<std::byte*>(&target), std::as_bytes(std::span(&value, 1)));
  }
  /// Everything stored is written by the next hand_over().
  void flush(const void* /*begin*/, std::size_t /*byte_count*/) {}
  /// False if the device does not answer.
  bool hand_over() {
    // Of two images of a page the newer must arrive last.
    const Lock order(order_);
    std::set<std::size_t> pages;
    std::vector<PageImage> images;
    {
      const Lock lock(mutex_);
      pages.swap(dirty_);
      for (const std::size_t page : pages) {
        PageImage& image = images.emplace_back();
        image.offset = page * kPage;
        std::memcpy(image.bytes.data(), copy_.data() + image.offset, kPage);
      }
    }
    if (images.empty()) return true;
    const std::optional<std::vector<std::size_t>> failed = device_.write(std::move(images));
    const Lock lock(mutex_);
    if (!failed) {
      dirty_.merge(pages);
      return false;
    }
    for (const std::size_t page : pages) bad_.erase(page);
    for (const std::size_t offset : *failed) {
      dirty_.insert(offset / kPage);
      bad_.insert(offset / kPage);
    }
    return true;
  }
  void drain() {
    const bool done = hand_over() && (!flushes_ || device_.flush());
    fault_ = done ? pmem::Fault::none : pmem::Fault::sync_failed;
  }
  void persist(const void* /*begin*/, std::size_t /*byte_count*/) { drain(); }
  void label(const char* text) {
    if constexpr (requires { device_.label(text); }) device_.label(text);
  }
  /// Of the last drain.
  [[nodiscard]] pmem::Fault fault() const { return fault_; }
  /// The page could not be read: it is not written either, as it may have headers.
  void mark_unread(std::size_t offset) {
    const Lock lock(mutex_);
    unread_.insert(offset / kPage);
  }
  [[nodiscard]] bool is_bad(const std::byte* place) const {
    const Lock lock(mutex_);
    const std::size_t page = static_cast<std::size_t>(place - copy_.data()) / kPage;
    return bad_.contains(page) || unread_.contains(page);
  }

 private:
  void note(const std::byte* target, std::size_t byte_count) HEADRACE_REQUIRES(mutex_) {
    const auto begin = static_cast<std::size_t>(target - copy_.data());
    for (std::size_t page = begin / kPage; page <= (begin + byte_count - 1) / kPage; ++page) {
      if (!unread_.contains(page)) dirty_.insert(page);
    }
  }

  Device& device_;
  const std::span<std::byte> copy_;
  bool flushes_ = true;
  pmem::Fault fault_ = pmem::Fault::none;
  Mutex order_;
  mutable Mutex mutex_;
  std::set<std::size_t> dirty_ HEADRACE_GUARDED_BY(mutex_);
  std::set<std::size_t> bad_ HEADRACE_GUARDED_BY(mutex_);  ///< The last write failed.
  std::set<std::size_t> unread_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::store::detail
