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
inline constexpr std::size_t kDataOffset = detail::kHeadBytes + kSlots * detail::kSlotHeaderBytes;
inline constexpr std::size_t kFileBytes = kDataOffset + kSlots * kDataBytes;

struct Killed {};

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

/// A device with a volatile cache, for CachedMedium. What is written survives a kill.
class Device {
 public:
  Device(pmem::Recorder& recorder, std::span<std::byte> file, std::size_t& left)
      : recorder_(recorder), file_(file), left_(left) {}

  [[nodiscard]] std::optional<std::vector<std::size_t>> write(
      const std::vector<detail::PageImage>& pages) {
    for (const detail::PageImage& page : pages) {
      // Lines that do not change cannot tear. Data begins in the last page of the table.
      for (std::size_t at = page.offset; at < page.offset + 4096 && at < kDataOffset; at += 64) {
        const std::span<const std::byte> line(&page.bytes[at - page.offset], 64);
        if (std::memcmp(file_.data() + at, line.data(), 64) == 0) continue;
        access();
        recorder_.store(file_.data() + at, line);
      }
    }
    return std::vector<std::size_t>();
  }
  void write_data(std::span<std::byte> place, std::span<const std::byte> bytes) {
    access();
    recorder_.store(place.data(), bytes);
  }
  [[nodiscard]] bool flush() {
    access();
    if (std::exchange(fails_next_, false)) return false;
    recorder_.flush(file_.data(), file_.size());
    recorder_.drain();
    return true;
  }
  void label(const char* text) { recorder_.label(text); }
  void fail_next_flush() { fails_next_ = true; }

 private:
  void access() {
    if (left_-- == 0) throw Killed();
  }

  pmem::Recorder& recorder_;
  const std::span<std::byte> file_;
  std::size_t& left_;
  bool fails_next_ = false;
};

/// A file on such a device, as a process has it.
struct OnDevice {
  OnDevice(pmem::Recorder& recorder, std::span<std::byte> file, std::size_t& left)
      : device(recorder, file, left), table(2 * std::size_t{4096}), medium(device, table) {
    std::memcpy(table.data(), file.data(), kDataOffset);
  }
  Device device;
  std::vector<std::byte> table;
  detail::CachedMedium<Device> medium;
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
