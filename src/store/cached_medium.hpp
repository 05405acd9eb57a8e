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
// A page that cannot be written is bad, and written again with the next ones, as is what a failed
// flush may have lost. The device still has the headers whose checks were taken away in a bad page:
// the first page lists them as void.
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
#include "layout.hpp"

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

  /// `slots` is a copy of what the file has before the data.
  CachedMedium(Device& device, const Slots& slots) : device_(device), slots_(slots) {}
  /// For Durability::process, once the file says so: drain() only hands over.
  void stop_flushing() { flushes_ = false; }

  void store(std::byte* target, std::span<const std::byte> source) {
    const Lock lock(mutex_);
    std::memcpy(target, source.data(), source.size());
    for (std::size_t page = page_of(target); page <= page_of(target + source.size() - 1); ++page) {
      if (!unread_.contains(page)) dirty_.insert(page);
    }
  }
  void store_word(std::uint64_t& target, std::uint64_t value) {
    {
      const Lock lock(mutex_);
      if (target == value) return;  // The device has it, or gets it with the next pages.
    }
    auto* const place = reinterpret_cast<std::byte*>(&target);
    store(place, std::as_bytes(std::span(&value, 1)));
    const Lock lock(mutex_);
    if (value == 0 && page_of(place) != 0) taken_.insert(slots_.slot_at(place));
  }
  /// Everything stored is written by the next hand_over().
  void flush(const void* /*begin*/, std::size_t /*byte_count*/) {}
  /// False if what was stored may not survive the process: the device does not answer, or refuses
  /// to list what is void.
  bool hand_over() {
    // Of two images of a page the newer must arrive last.
    const Lock order(order_);
    if (!write_voids()) return false;
    mutex_.lock();
    const std::set<std::size_t> pages = std::exchange(dirty_, {});
    mutex_.unlock();
    return (pages.empty() || write(pages)) && write_voids();
  }
  void drain() {
    bool done = hand_over();
    if (done && flushes_) {
      mutex_.lock();
      std::set<std::size_t> written = std::exchange(written_, {});
      mutex_.unlock();
      done = device_.flush();
      const Lock lock(mutex_);
      if (!done) dirty_.merge(written);
    }
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
  /// Whether some page could not be read, or the last write of it failed.
  [[nodiscard]] bool has_bad() const {
    const Lock lock(mutex_);
    return !bad_.empty() || !unread_.empty();
  }
  /// Whether the page of `place`, or the header there, can take no other header.
  [[nodiscard]] bool is_bad(const std::byte* place) const {
    const Lock lock(mutex_);
    const std::size_t page = page_of(place);
    return bad_.contains(page) || unread_.contains(page) ||
           (page != 0 && slots_.is_void(slots_.slot_at(place)));
  }

 private:
  [[nodiscard]] std::size_t page_of(const std::byte* place) const {
    return static_cast<std::size_t>(place - slots_.bytes.data()) / kPage;
  }
  [[nodiscard]] std::size_t page_of(SlotNumber slot) const { return page_of(slots_.header(slot)); }
  /// False if the device does not answer.
  bool write(std::set<std::size_t> pages) HEADRACE_REQUIRES(order_) {
    std::vector<PageImage> images;
    mutex_.lock();
    const std::set<SlotNumber> taken = std::exchange(taken_, {});
    for (const std::size_t page : pages) {
      PageImage& image = images.emplace_back();
      image.offset = page * kPage;
      std::memcpy(image.bytes.data(), slots_.bytes.data() + image.offset, kPage);
    }
    mutex_.unlock();
    const std::optional<std::vector<std::size_t>> failed = device_.write(std::move(images));
    const Lock lock(mutex_);
    for (const std::size_t page : pages) {
      if (failed) bad_.erase(page);
      (failed ? written_ : dirty_).insert(page);
    }
    for (const std::size_t offset : failed.value_or(std::vector<std::size_t>())) {
      dirty_.insert(offset / kPage);
      bad_.insert(offset / kPage);
    }
    for (const SlotNumber slot : taken) {
      const std::size_t page = page_of(slot);
      if (!failed || !pages.contains(page) || bad_.contains(page)) taken_.insert(slot);
    }
    return failed.has_value();
  }
  /// Lists the headers in bad pages whose checks were taken away. One in a page that could not be
  /// read may be older than one whose check is taken away now: all of these are void then.
  bool write_voids() HEADRACE_REQUIRES(order_) {
    std::vector<SlotNumber> found;
    {
      const Lock lock(mutex_);
      if (taken_.empty()) return true;
      for (const std::size_t page : unread_) {
        SlotNumber slot = slots_.slot_at(slots_.bytes.data() + page * kPage);
        for (std::size_t i = 0; i < kPage / kSlotHeaderBytes; ++i, ++slot) {
          if (!slots_.is_void(slot)) found.push_back(slot);
        }
      }
      for (const SlotNumber slot : taken_) {
        if (bad_.contains(page_of(slot))) found.push_back(slot);
      }
      if (!std::ranges::all_of(found, [&](SlotNumber slot) { return slots_.add_void(slot); })) {
        return false;
      }
    }
    if (found.empty()) return true;
    if (!write({0})) return false;
    const Lock lock(mutex_);
    if (bad_.contains(0)) return false;
    for (const SlotNumber slot : found) taken_.erase(slot);
    return true;
  }

  Device& device_;
  const Slots slots_;
  bool flushes_ = true;
  pmem::Fault fault_ = pmem::Fault::none;
  Mutex order_;
  mutable Mutex mutex_;
  std::set<std::size_t> dirty_ HEADRACE_GUARDED_BY(mutex_);
  std::set<std::size_t> written_ HEADRACE_GUARDED_BY(mutex_);  ///< And not flushed.
  std::set<std::size_t> bad_ HEADRACE_GUARDED_BY(mutex_);      ///< The last write failed.
  std::set<std::size_t> unread_ HEADRACE_GUARDED_BY(mutex_);
  /// Slots whose check was taken away, which the device does not have yet.
  std::set<SlotNumber> taken_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::store::detail
