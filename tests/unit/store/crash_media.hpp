// SPDX-License-Identifier: Apache-2.0
// What the histories of crash_test.cpp are played on: mapped memory and a device with a volatile
// cache, both with kills, and memory in which every store is durable.
#pragma once

#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "headrace/pmem/recorder.hpp"
#include "store/cached_medium.hpp"
#include "store/layout.hpp"

namespace headrace::store::test_media {

using pmem::Fault;
using pmem::Granularity;

inline constexpr detail::SlotNumber kSlots = 3;
inline constexpr std::uint32_t kDataBytes = 128;
inline constexpr std::size_t kFiles = 2;
inline constexpr std::size_t kLogBytes = 4 * detail::kPageBytes;
inline constexpr std::size_t kLogOffset = detail::kHeadBytes + detail::kPageBytes;
inline constexpr std::size_t kDataOffset = kLogOffset + 2 * kLogBytes;
inline constexpr std::size_t kFileBytes = kDataOffset + kSlots * kDataBytes;

struct Killed {};

/// A checksum for the histories.
inline std::uint32_t checksum(std::span<const std::byte> data) {
  std::uint32_t sum = 1;
  for (const std::byte byte : data) sum = sum * 31 + std::to_integer<std::uint32_t>(byte);
  return sum;
}

inline detail::Slots slots_in(std::span<std::byte> memory, std::size_t file) {
  detail::Head head;
  head.block_bytes = kDataBytes;
  head.slot_count = kSlots;
  head.stride_bytes = kDataBytes;
  head.log_bytes = kLogBytes;
  head.data_offset = kDataOffset;
  head.file_bytes = kFileBytes;
  return {.bytes = memory.subspan(file * kFileBytes, kFileBytes), .head = head};
}

/// The medium of a mapped file: the recorder's memory, with a kill at some access, and a drain that
/// may fail. Flushes take effect when a drain succeeds; a failed one forgets them, as the kernel
/// does.
class Mapped {
 public:
  Mapped(pmem::Recorder& recorder, Granularity granularity, std::size_t& left)
      : recorder_(&recorder), granularity_(granularity), left_(&left) {}

  void store(std::byte* target, std::span<const std::byte> source) {
    access();
    recorder_->store(target, source);
  }
  void store_word(std::uint64_t& target, std::uint64_t value) {
    access();
    recorder_->store_word(target, value);
  }
  void flush(const void* begin, std::size_t byte_count) {
    access();
    if (granularity_ != Granularity::byte) flushed_.emplace_back(begin, byte_count);
  }
  void drain() {
    access();
    if (fails_next_ && granularity_ != Granularity::byte) {
      fault_ = Fault::sync_failed;
    } else if (granularity_ != Granularity::byte) {
      for (const auto& [begin, byte_count] : flushed_) recorder_->flush(begin, byte_count);
      recorder_->drain();
    }
    fails_next_ = false;
    flushed_.clear();
  }
  void persist(const void* begin, std::size_t byte_count) {
    flush(begin, byte_count);
    drain();
  }
  void label(const char* text) { recorder_->label(text); }
  [[nodiscard]] Granularity granularity() const { return granularity_; }
  [[nodiscard]] Fault fault() const { return fault_; }

  void fail_next_drain() { fails_next_ = true; }
  void lose_page() { fault_ = Fault::lost; }

 private:
  void access() {
    if ((*left_)-- == 0) throw Killed();
  }

  pmem::Recorder* recorder_;
  Granularity granularity_;
  std::size_t* left_;
  std::vector<std::pair<const void*, std::size_t>> flushed_;
  bool fails_next_ = false;
  Fault fault_ = Fault::none;
};

/// What a device refuses to write.
enum class Refused : std::uint8_t { nothing, headers, one_half, other_half };

/// What the next flush of a device makes durable, and its bad pages. A flush that fails forgets
/// what the process has written. What the next process finds is still in the device.
struct Drive {
  void restart(std::span<const std::byte> file) {
    fails_next_flush = false;
    written.assign(1, {file.data(), file.size()});
  }

  std::vector<std::pair<const std::byte*, std::size_t>> written;
  [[nodiscard]] bool refuses(std::size_t offset) const {
    if (offset == 0) return false;
    const Refused part = offset < kLogOffset               ? Refused::headers
                         : offset < kLogOffset + kLogBytes ? Refused::one_half
                                                           : Refused::other_half;
    return refused == part;
  }

  Refused refused = Refused::nothing;
  bool tears = false;  ///< Writes the first line of a refused page.
  bool fails_next_flush = false;
};

/// A device with a volatile cache, for CachedMedium. What is written survives a kill. Pages may be
/// refused, some after their first line.
class Device {
 public:
  Device(pmem::Recorder& recorder, std::span<std::byte> file, Drive& drive, std::size_t& left)
      : recorder_(recorder), file_(file), drive_(drive), left_(left) {}

  [[nodiscard]] std::optional<std::vector<std::size_t>> write(
      const std::vector<detail::Page>& pages, const std::vector<std::size_t>& offsets) {
    std::vector<std::size_t> failed;
    for (std::size_t i = 0; i < pages.size(); ++i) {
      const bool is_refused = drive_.refuses(offsets[i]);
      if (is_refused) failed.push_back(offsets[i]);
      if (is_refused && (drive_.tears = !drive_.tears)) continue;
      // Lines that do not change cannot tear.
      for (std::size_t at = 0; at < detail::kPageBytes; at += 64) {
        const std::span<const std::byte> line(&pages[i].bytes[at], 64);
        const std::span<std::byte> place = file_.subspan(offsets[i] + at, 64);
        drive_.written.emplace_back(place.data(), place.size());
        if (std::memcmp(place.data(), line.data(), 64) == 0) continue;
        write_data(place, line);
        if (is_refused) break;
      }
    }
    return failed;
  }
  void write_data(std::span<std::byte> place, std::span<const std::byte> bytes) {
    access();
    recorder_.store(place.data(), bytes);
    drive_.written.emplace_back(place.data(), place.size());
  }
  [[nodiscard]] bool flush() {
    access();
    const auto written = std::exchange(drive_.written, {});
    if (std::exchange(drive_.fails_next_flush, false)) return false;
    for (const auto& [begin, byte_count] : written) recorder_.flush(begin, byte_count);
    recorder_.drain();
    return true;
  }
  void label(const char* text) { recorder_.label(text); }

 private:
  void access() {
    if (left_-- == 0) throw Killed();
  }

  pmem::Recorder& recorder_;
  const std::span<std::byte> file_;
  Drive& drive_;
  std::size_t& left_;
};

/// A file on such a device, as a process has it.
template <typename R = detail::LogRules>
struct OnDevice {
  OnDevice(pmem::Recorder& recorder, std::span<std::byte> file, Drive& drive, std::size_t& left)
      : device(recorder, file, drive, left),
        table(file.begin(), file.begin() + kDataOffset),
        medium(device, {.bytes = table, .head = slots_in(file, 0).head}) {
    medium.replay();
  }
  Device device;
  std::vector<std::byte> table;
  detail::CachedMedium<Device, R> medium;
};

/// Memory in which every store is durable, for recovery after a loss of power.
struct PlainDisk {
  void store(std::byte* target, std::span<const std::byte> source) {
    std::memcpy(target, source.data(), source.size());
  }
  void store_word(std::uint64_t& target, std::uint64_t value) { target = value; }
  void flush(const void* /*begin*/, std::size_t /*byte_count*/) {}
  void drain() {}
  void persist(const void* /*begin*/, std::size_t /*byte_count*/) {}
  void label(const char* /*text*/) {}
  [[nodiscard]] Fault fault() const { return Fault::none; }
};

}  // namespace headrace::store::test_media
