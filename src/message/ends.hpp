// SPDX-License-Identifier: Apache-2.0
// State common to both ends of a queue: the mapped segment, role, fault, and waiting. Not here:
// messages (producer.cpp, consumer.cpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/atomic.hpp"
#include "headrace/base/result.hpp"
#include "headrace/message/queue.hpp"
#include "headrace/platform/process.hpp"
#include "headrace/platform/shared_file.hpp"
#include "layout.hpp"

namespace headrace::message::detail {

/// The mapped segment, and a copy of its head, which is never read again.
///
/// Threading: immutable, except for the shared memory.
struct Segment {
  platform::SharedFile file;
  platform::SharedMap map;
  Head head;

  /// `mapped` is the same file from another open(): a mapping keeps its open file, and so the
  /// locks, alive, even in children of fork().
  ///
  /// Fails: corrupt_data, version_mismatch; permission_denied if the file does not belong to
  ///        `owner`.
  [[nodiscard]] static Result<Segment> map_file(platform::SharedFile file,
                                                std::optional<std::uint32_t> owner,
                                                const platform::SharedFile* mapped = nullptr);
  [[nodiscard]] Control& control() const {
    return *reinterpret_cast<Control*>(map.bytes().data() + kControlOffset);
  }
  [[nodiscard]] LaneWords& lane(std::uint64_t index) const {
    return *reinterpret_cast<LaneWords*>(map.bytes().data() + kHeadBytes + index * kLaneBytes);
  }
  [[nodiscard]] Geometry geometry(std::uint64_t index) const {
    return {.data = map.bytes().data() + head.data_offset + index * head.lane_data_bytes,
            .unit_bytes = head.unit_bytes,
            .mask = head.unit_count - 1,
            .message_bytes_max = head.message_bytes_max,
            .fixed = head.framing == static_cast<std::uint32_t>(Framing::fixed)};
  }
};

/// A peer, as seen by the end that waits for it.
struct Peer {
  Atomic<std::uint64_t>* state = nullptr;
  std::uint64_t lock = 0;
  std::uint64_t lost_state = 0;  ///< State of the last peer that was reported as lost.
};

/// The result of a check of the peers.
enum class PeerState : std::uint8_t { none, lost, replaced };

/// One end.
///
/// Threading: confined.
class End {
 public:
  static constexpr std::uint32_t kNone = 0;
  static constexpr std::uint32_t kDamaged = 1;
  static constexpr std::uint32_t kForked = 2;

  /// Takes the lock `role` of the file if it is free, and marks the end as attached.
  ///
  /// Returns: null if another end holds the lock.
  [[nodiscard]] static Result<EndPointer> attach(const platform::SharedFile& file,
                                                 const std::string& name, std::uint64_t role);
  End& operator=(End&&) = delete;
  /// Marks the end as detached and releases the role; does neither in a forked child.
  ~End();

  [[nodiscard]] const Segment& segment() const { return segment_; }
  [[nodiscard]] Atomic<std::uint32_t>& fault() { return fault_; }
  [[nodiscard]] const Atomic<std::uint32_t>& fault() const { return fault_; }
  [[nodiscard]] std::uint64_t role() const { return role_; }
  /// The identity of a lane in a trace, the same in all processes.
  [[nodiscard]] std::uint64_t lane_id(std::uint64_t lane) const { return (inode_ << 16U) + lane; }

  void watch(Peer peer) { peers_.push_back(peer); }
  [[nodiscard]] PeerState check_peers();

 private:
  End(Segment segment, std::string name, std::uint64_t role);
  [[nodiscard]] Atomic<std::uint64_t>& own_state() const;

  Segment segment_;
  const std::string name_;  ///< Empty for an unnamed queue.
  const std::uint64_t role_;
  const std::uint64_t inode_ = segment_.file.identity().inode;
  Atomic<std::uint32_t> fault_{kNone};
  const platform::FaultGuard fault_guard_;
  const platform::ForkGuard fork_guard_;
  std::vector<Peer> peers_;
};

/// As memcpy, in pieces: from the size of the L2 cache on, the C library uses another method on AMD
/// processors, which takes 3 times as long for lines of another core.
inline void copy_bytes(std::byte* target, std::span<const std::byte> source) noexcept {
  constexpr std::size_t kPieceBytes = std::size_t{64} * 1024;
  while (!source.empty()) {
    const std::size_t some = std::min(source.size(), kPieceBytes);
    std::memcpy(target, source.data(), some);
    target += some;
    source = source.subspan(some);
  }
}

/// Waits until `look` returns anything but `nothing`. Sleeps on `word`, which the other end sets to
/// 0. `line` is the line that the other end writes, or null if there are several.
Outcome wait_for(End& end, Atomic<std::uint32_t>& word, const void* line, const Wait& wait,
                 Outcome nothing, const std::function<Outcome()>& look);

}  // namespace headrace::message::detail
