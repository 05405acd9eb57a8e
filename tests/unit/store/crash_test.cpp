// SPDX-License-Identifier: Apache-2.0
// The protocol of a tier's file at every loss of power, after any number of kills and restarts.
//
// A history drives src/store/protocol.hpp on the recorder as the store does: one tier of memory,
// two files; puts, removals, evictions, moves between tiers, rounds of the flusher. At a random
// store, flush or drain the process is killed: what it knew is gone, the memory stays as the
// processor saw it, and the next life recovers from it and goes on. explore() then tries every
// state that a loss of power could leave at any moment of all lives.
//
// After a kill: every block is there that the killed process had made durable or published, and
// none that it had removed. After a loss of power: no block is torn, and no acknowledged one is
// lost or old in a file with Durability::power.
#include <gtest/gtest.h>

#include <array>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "headrace/pmem/recorder.hpp"
#include "store/protocol.hpp"
#include "support/seed.hpp"
#include "support/store_stage.hpp"

namespace headrace::store {
namespace {

using detail::SlotNumber;
using detail::Slots;
using detail::SlotState;
using pmem::Fault;
using pmem::Granularity;
using test::block_bytes;
using test::version_of;

constexpr SlotNumber kSlots = 3;
constexpr std::uint64_t kKeys = 3;
constexpr std::uint32_t kDataBytes = 128;
constexpr std::size_t kFiles = 2;
constexpr std::size_t kMemory = kFiles;  ///< The tier of memory; files are 0 and 1.
constexpr std::size_t kDataOffset = detail::kHeadBytes + kSlots * detail::kSlotHeaderBytes;
constexpr std::size_t kFileBytes = kDataOffset + kSlots * kDataBytes;

/// The rules of the store around its files, which the histories obey.
struct Rules : detail::FileRules {
  static constexpr bool frees_after_flush = true;
};

struct Killed {};

/// The medium of one file: the recorder's memory, with a kill at some access, and a drain that may
/// fail. Flushes take effect when a drain succeeds; a failed one forgets them, as the kernel does.
class Disk {
 public:
  Disk(pmem::Recorder& recorder, Granularity granularity, std::size_t& left)
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

/// A checksum for the histories.
std::uint32_t checksum(std::span<const std::byte> data) {
  std::uint32_t sum = 1;
  for (const std::byte byte : data) sum = sum * 31 + std::to_integer<std::uint32_t>(byte);
  return sum;
}

Slots slots_in(std::span<std::byte> memory, std::size_t file) {
  detail::Head head;
  head.block_bytes = kDataBytes;
  head.slot_count = kSlots;
  head.stride_bytes = kDataBytes;
  head.data_offset = kDataOffset;
  head.file_bytes = kFileBytes;
  return {.bytes = memory.subspan(file * kFileBytes, kFileBytes), .head = head};
}

/// adopt() of one file of the histories.
template <typename R, typename Medium>
void adopt(Medium& medium, const Slots& slots, Durability durability, std::uint64_t boot) {
  static_cast<void>(detail::adopt<R>(
      medium, slots, durability, boot, [&](SlotNumber slot, const detail::SlotHeader& header) {
        return checksum(slots.data(slot, header.byte_count)) == header.crc;
      }));
}

struct Version {
  std::uint64_t key = 0;
  std::uint64_t number = 0;  ///< Of its put.
  std::uint64_t sequence = 0;
  bool has_crc = false;
  bool live = false;
  std::array<SlotNumber, kFiles> slots{};  ///< Published.
  std::array<bool, kFiles> durable{};
  std::array<bool, kFiles> leaving{};  ///< Dropped at the end of the file's next round.
  bool in_memory = false;
  bool moving = false;
};
using VersionPointer = std::shared_ptr<Version>;

struct Report {
  std::uint64_t states = 0;
  std::uint64_t restarts = 0;
  std::string bad;
};

template <typename R>
class History {
 public:
  explicit History(std::uint64_t seed)
      : random_(seed), recorder_(std::vector<std::byte>(kFiles * kFileBytes)) {
    mark();
  }

  [[nodiscard]] Report run(std::size_t lives, std::size_t steps) {
    const std::uint64_t seed = random_();
    for (std::size_t life = 0; life < lives && report_.bad.empty(); ++life) {
      left_ = SIZE_MAX;
      open();
      left_ = random_.below(6 * steps);
      try {
        for (std::size_t i = 0; i < steps; ++i) step();
      } catch (const Killed&) {
      }
      ++report_.restarts;
    }
    if (!report_.bad.empty()) return report_;
    const pmem::Exploration explored = pmem::explore(
        recorder_,
        [this](std::span<std::byte> memory, std::uint64_t at) { return verify(memory, at); },
        {.exhaustive_max = 256, .states_per_moment_max = 256, .seed = seed});
    report_.states = explored.states_tried;
    if (explored.first_bad) report_.bad = explored.first_bad->report();
    return report_;
  }

 private:
  struct Copied {
    VersionPointer version;
    SlotNumber slot = 0;
    std::optional<std::size_t> from = std::nullopt;  ///< Of a move.
    bool published = false;
  };
  struct Retired {
    SlotNumber slot = 0;
    VersionPointer version;  ///< If its copy is leaving.
  };
  struct File {
    Durability durability = Durability::power;
    std::optional<Disk> disk;
    std::vector<SlotNumber> free;
    std::vector<Retired> retired;
    std::vector<Copied> fresh;
  };

  // --- A life ------------------------------------------------------------------------------------

  void open() {
    recorder_.phase("open");
    const std::map<std::uint64_t, VersionPointer> before = std::exchange(index_, {});
    std::map<std::uint64_t, std::set<std::uint64_t>> pending;
    for (File& file : files_) {
      const std::vector<Copied> fresh = std::move(file.fresh);
      file = {};
      file.durability = random_.chance(1, 3) ? Durability::process : Durability::power;
      for (const Copied& copied : fresh) {
        const Version& version = *copied.version;
        pending[version.key].insert(version.number);
        // It may take effect now, without a flush, in place of what was flushed.
        const auto known = before.find(version.key);
        if (known != before.end() && file.durability == Durability::process) {
          known->second->durable = {};
        }
      }
    }
    // A file that is no longer flushed promises nothing.
    for (const auto& [key, version] : before) {
      for (std::size_t i = 0; i < kFiles; ++i) {
        if (files_[i].durability == Durability::process) version->durable[i] = false;
      }
    }
    mark(before);
    for (std::size_t i = 0; i < kFiles; ++i) {
      File& file = files_[i];
      // The granularity of the disk; a process that flushes nothing has that of a byte.
      const Granularity real = random_.chance(1, 2) ? Granularity::line : Granularity::page;
      Disk honest(recorder_, real, left_);
      adopt<R>(honest, slots(i), file.durability, kBoot);
      file.disk.emplace(recorder_,
                        file.durability == Durability::process ? Granularity::byte : real, left_);
    }
    for (std::size_t i = 0; i < kFiles; ++i) recover(i);
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      const auto found = index_.find(key);
      const auto known = before.find(key);
      const bool was_in_file =
          known != before.end() && (known->second->slots[0] != 0 || known->second->slots[1] != 0);
      const bool changes = touched_.contains(key);
      if (found == index_.end()) {
        if (was_in_file && !changes) wrong("a kill lost", key);
      } else if (const std::uint64_t number = found->second->number;
                 !pending[key].contains(number) &&
                 (known == before.end()
                      ? !changes
                      : number != known->second->number || (!was_in_file && !changes))) {
        wrong("a kill brought back an old version of", key);
      }
    }
    touched_.clear();
    mark();
  }

  void recover(std::size_t i) {
    File& file = files_[i];
    for (SlotNumber slot = 1; slot <= kSlots; ++slot) {
      detail::SlotHeader header;
      const SlotState state = slots(i).read(slot, header);
      if (state == SlotState::empty) {
        file.free.push_back(slot);
        continue;
      }
      const auto number = state == SlotState::whole ? number_in(slots(i), slot, header)
                                                    : std::optional<std::uint64_t>();
      if (!number) {
        if (state == SlotState::whole) wrong("a kill tore slot", slot);
        invalidate(i, slot);
        give_up(i, slot);
        continue;
      }
      const std::uint64_t key = std::stoull(std::string(header.key_text()));
      const auto known = index_.find(key);
      if (known != index_.end() && header.sequence <= known->second->sequence &&
          (header.sequence < known->second->sequence || known->second->slots[i] != 0)) {
        invalidate(i, slot);
        give_up(i, slot);
        continue;
      }
      if (known == index_.end() || header.sequence > known->second->sequence) {
        if (known != index_.end()) retire(known->second);
        index_[key] = std::make_shared<Version>(Version{.key = key,
                                                        .number = *number,
                                                        .sequence = header.sequence,
                                                        .has_crc = header.has_crc != 0,
                                                        .live = true});
      }
      index_[key]->slots[i] = slot;
      index_[key]->durable[i] = file.durability == Durability::power;
    }
  }

  void step() {
    const std::uint64_t key = random_.below(kKeys);
    const std::size_t tier = random_.below(kFiles + 1);
    switch (random_.below(8)) {
      case 0:
      case 1:
      case 2:
        return put(key, tier);
      case 3:
        return move(key, random_.below(kFiles + 1), random_.below(kFiles));
      case 4:
        if (const auto found = index_.find(key); found != index_.end() && random_.chance(1, 2)) {
          recorder_.phase("remove");
          begin_change(key);
          retire(found->second);
          index_.erase(key);
          mark();
          touched_.clear();
        }
        return;
      default:
        if (tier != kMemory) round(tier);
    }
  }

  void put(std::uint64_t key, std::size_t tier) {
    auto version = std::make_shared<Version>();
    version->key = key;
    version->number = ++number_;
    version->sequence = sequences_.at_put();
    version->has_crc = random_.chance(1, 2);
    recorder_.phase("put " + std::to_string(version->number));
    if (tier == kMemory) {
      begin_change(key);
      version->in_memory = commit(version);
      mark();
      touched_.clear();
    } else if (const SlotNumber slot = take(tier); slot != 0) {
      copy(tier, slot, block_bytes(key, version->number, kDataBytes));
      files_[tier].fresh.push_back({.version = version, .slot = slot});
    }
  }

  /// A demotion, or a move between files.
  void move(std::uint64_t key, std::size_t from, std::size_t to) {
    const auto found = index_.find(key);
    if (found == index_.end() || from == to || found->second->moving) return;
    Version& version = *found->second;
    if (version.slots[to] != 0 ||
        (from == kMemory ? !version.in_memory
                         : version.slots[from] == 0 || version.leaving[from])) {
      return;
    }
    const SlotNumber slot = take(to);
    if (slot == 0) return;
    recorder_.phase("move " + std::to_string(version.number));
    std::vector<std::byte> bytes = block_bytes(key, version.number, kDataBytes);
    // A page of the source cannot be read: the guard makes it zeros.
    if (from != kMemory && random_.chance(1, 4)) {
      files_[from].disk->lose_page();
      bytes.assign(kDataBytes, std::byte{0});
    }
    copy(to, slot, bytes);
    const Fault source = from == kMemory ? Fault::none : files_[from].disk->fault();
    if (!detail::is_copied<R>(source, files_[to].disk->fault())) {
      files_[to].free.push_back(slot);
      return;
    }
    version.moving = true;
    files_[to].fresh.push_back({.version = found->second, .slot = slot, .from = from});
  }

  /// As the flusher does.
  void round(std::size_t i) {
    File& file = files_[i];
    recorder_.phase("round");
    if (random_.chance(1, 12)) file.disk->fail_next_drain();
    const std::vector<Retired> freed = std::exchange(file.retired, {});
    for (const Retired& each : freed) {
      if (each.version != nullptr) touched_.insert(each.version->key);
    }
    detail::Round<Disk, R> round(*file.disk, slots(i));
    for (const Retired& each : freed) round.retire(each.slot);
    for (const Copied& copied : file.fresh) {
      // What is not flushed replaces what was.
      if (file.durability == Durability::process) begin_change(copied.version->key);
      touched_.insert(copied.version->key);
      round.add(slots(i).data(copied.slot, kDataBytes));
    }
    bool done = round.flush();
    if (done) {
      for (Copied& copied : file.fresh) {
        Version& version = *copied.version;
        if (copied.from && !version.live) continue;
        version.sequence = sequences_.at_publication(version.sequence);
        number_of_[version.sequence] = version.number;
        const auto crc =
            version.has_crc
                ? std::optional(checksum(block_bytes(version.key, version.number, kDataBytes)))
                : std::nullopt;
        round.publish(copied.slot, detail::slot_header(copied.slot, std::to_string(version.key),
                                                       kDataBytes, version.sequence, crc));
        copied.published = true;
        if (copied.from) version.slots[i] = copied.slot;
      }
      done = round.finish();
    }
    for (const Copied& copied : file.fresh) {
      Version& version = *copied.version;
      if (copied.from) {
        version.moving = false;
        if (done && version.live) {
          version.durable[i] = file.durability == Durability::power;
          // The source's copy is dropped after a demotion.
          if (*copied.from == kMemory) {
            version.in_memory = false;
          } else if (random_.chance(1, 2)) {
            drop(copied.version, *copied.from);
          }
        } else if (version.slots[i] == copied.slot) {
          version.slots[i] = 0;
          give_up(i, copied.slot);
        } else if (!copied.published) {
          file.free.push_back(copied.slot);
        }
      } else if (done && commit(copied.version)) {
        version.slots[i] = copied.slot;
        version.durable[i] = file.durability == Durability::power;
      } else {
        // A later put is already acknowledged.
        if (done) invalidate(i, copied.slot);
        give_up(i, copied.slot);
      }
    }
    for (const Retired& each : freed) {
      if (each.version != nullptr && each.version->live) {
        each.version->slots[i] = 0;
        each.version->leaving[i] = false;
        if (!each.version->in_memory && each.version->slots[1 - i] == 0) {
          each.version->live = false;
          index_.erase(each.version->key);
        }
      }
      if (R::frees_after_flush) file.free.push_back(each.slot);
    }
    mark();
    file.fresh.clear();
    touched_.clear();
  }

  /// False if the key has a newer version.
  bool commit(const VersionPointer& version) {
    if (const auto known = index_.find(version->key); known != index_.end()) {
      if (R::orders_by_put && known->second->sequence > version->sequence) return false;
      retire(known->second);
    }
    version->live = true;
    index_[version->key] = version;
    return true;
  }

  void retire(const VersionPointer& version) {
    version->live = false;
    // At once: a removed block must not return if the process is killed.
    for (std::size_t i = 0; i < kFiles; ++i) {
      if (version->slots[i] != 0) invalidate(i, version->slots[i]);
    }
    for (std::size_t i = 0; i < kFiles; ++i) {
      if (version->slots[i] != 0 && !version->leaving[i]) give_up(i, version->slots[i]);
      version->slots[i] = 0;
    }
  }

  void invalidate(std::size_t i, SlotNumber slot) {
    detail::invalidate(*files_[i].disk, slots(i).header(slot));
  }
  void give_up(std::size_t i, SlotNumber slot, const VersionPointer& version = nullptr) {
    files_[i].retired.push_back({.slot = slot, .version = version});
    if (!R::frees_after_flush) files_[i].free.push_back(slot);
  }
  /// A copy that is not needed: its header stays valid until the next round.
  void drop(const VersionPointer& version, std::size_t i) {
    version->durable[i] = false;
    version->leaving[i] = true;
    give_up(i, version->slots[i], version);
  }

  /// 0 if the file is broken or full; then a block is evicted.
  SlotNumber take(std::size_t i) {
    File& file = files_[i];
    if (file.disk->fault() != Fault::none) return 0;
    if (file.free.empty()) {
      for (auto each = index_.begin(); each != index_.end(); ++each) {
        Version& version = *each->second;
        if (version.slots[i] == 0 || version.leaving[i] || version.moving) continue;
        drop(each->second, i);
        mark();
        break;
      }
      return 0;
    }
    const SlotNumber slot = file.free.back();
    file.free.pop_back();
    return slot;
  }

  /// The engine's copy, durable unless the granularity is page.
  void copy(std::size_t i, SlotNumber slot, const std::vector<std::byte>& bytes) {
    Disk& disk = *files_[i].disk;
    const std::span<std::byte> place = slots(i).data(slot, kDataBytes);
    disk.label("data");
    disk.store(place.data(), bytes);
    if (disk.granularity() == Granularity::line) {
      recorder_.flush(place.data(), place.size());
      recorder_.drain();
    }
  }

  [[nodiscard]] Slots slots(std::size_t i) { return slots_in(recorder_.memory(), i); }
  void wrong(const std::string& what, std::uint64_t which) {
    if (report_.bad.empty()) report_.bad = what + " " + std::to_string(which);
  }

  // --- Promises ----------------------------------------------------------------------------------

  /// The key may lose what it has on the disk.
  void begin_change(std::uint64_t key) {
    touched_.insert(key);
    promised_.push_back(promised_.back());
    promised_.back().erase(key);
    recorder_.mark(promised_.size() - 1);
  }
  void mark() { mark(index_); }
  void mark(const std::map<std::uint64_t, VersionPointer>& index) {
    std::map<std::uint64_t, std::uint64_t> promise;
    for (const auto& [key, version] : index) {
      if (version->durable[0] || version->durable[1]) promise[key] = version->number;
    }
    promised_.push_back(std::move(promise));
    recorder_.mark(promised_.size() - 1);
  }

  /// The number of the put whose bytes and header a slot has; none if it is torn.
  [[nodiscard]] std::optional<std::uint64_t> number_in(const Slots& slots, SlotNumber slot,
                                                       const detail::SlotHeader& header) const {
    const std::uint64_t key = std::stoull(std::string(header.key_text()));
    const auto number = version_of(key, slots.data(slot, kDataBytes));
    const auto known = number_of_.find(header.sequence);
    return known != number_of_.end() && number == known->second ? number : std::nullopt;
  }

  /// Recovers from a loss of power.
  [[nodiscard]] std::string verify(std::span<std::byte> memory, std::uint64_t at) const {
    std::map<std::uint64_t, std::uint64_t> found;  // Sequences.
    for (std::size_t i = 0; i < kFiles; ++i) {
      const Slots slots = slots_in(memory, i);
      PlainDisk disk;
      adopt<R>(disk, slots, Durability::power, kBoot + 1);
      for (SlotNumber slot = 1; slot <= kSlots; ++slot) {
        detail::SlotHeader header;
        if (slots.read(slot, header) != SlotState::whole) continue;
        if (!number_in(slots, slot, header)) {
          return "slot " + std::to_string(slot) + " of file " + std::to_string(i) + " is torn";
        }
        std::uint64_t& best = found[std::stoull(std::string(header.key_text()))];
        best = std::max(best, header.sequence);
      }
    }
    for (const auto& [key, number] : promised_[at]) {
      const auto known = found.find(key);
      if (known == found.end()) return "key " + std::to_string(key) + " is lost";
      if (number_of_.at(known->second) < number) return "key " + std::to_string(key) + " is old";
    }
    return {};
  }

  static constexpr std::uint64_t kBoot = 2;

  Random random_;
  pmem::Recorder recorder_;
  std::size_t left_ = SIZE_MAX;  ///< Accesses until the process is killed.
  std::array<File, kFiles> files_;
  std::map<std::uint64_t, VersionPointer> index_;
  detail::Sequences<R> sequences_;
  std::uint64_t number_ = 0;
  std::map<std::uint64_t, std::uint64_t> number_of_;  ///< By sequence.
  std::set<std::uint64_t> touched_;  ///< Keys whose state an unfinished operation changes.
  std::vector<std::map<std::uint64_t, std::uint64_t>> promised_;  ///< By mark.
  Report report_;
};

template <typename R>
Report explore(std::size_t histories, bool stops) {
  Report all;
  for (std::size_t i = 0; i < histories && (!stops || all.bad.empty()); ++i) {
    const Report one = History<R>(test::seed() + i).run(4, 40);
    all.states += one.states;
    all.restarts += one.restarts;
    if (all.bad.empty()) all.bad = one.bad;
  }
  return all;
}

// --- The protocol, and protocols that break one rule each ----------------------------------------

// NOLINTBEGIN(readability-identifier-naming): each is a rule, named by a sentence about the file.
struct FlushesNoData : Rules {
  static constexpr bool flushes_the_data = false;
};
struct FlushesNoHeader : Rules {
  static constexpr bool flushes_the_checks = false;
};
struct FreesTooSoon : Rules {
  static constexpr bool frees_after_flush = false;
};
struct Unmarked : Rules {
  static constexpr bool marks_what_is_not_flushed = false;
};
struct ActsTooSoon : Rules {
  static constexpr bool makes_the_table_durable = false;
};
struct PublishesAfterAFault : Rules {
  static constexpr bool stops_at_a_fault = false;
};
struct IgnoresTheSource : Rules {
  static constexpr bool checks_both_ends = false;
};
struct OrdersByPublication : Rules {
  static constexpr bool orders_by_put = false;
};
// NOLINTEND(readability-identifier-naming)

TEST(StoreCrash, NoKillAndNoLossOfPowerTearsABlockOrLosesAnAcknowledgedOne) {
  const Report report = explore<Rules>(20, true);
  EXPECT_EQ(report.bad, "");
  std::cout << "states " << report.states << "\nrestarts " << report.restarts << '\n';
  EXPECT_GT(report.states, 10'000U);
}

template <typename R>
class BrokenProtocol : public ::testing::Test {};
using Gallery =
    ::testing::Types<FlushesNoData, FlushesNoHeader, FreesTooSoon, Unmarked, ActsTooSoon,
                     PublishesAfterAFault, IgnoresTheSource, OrdersByPublication>;
TYPED_TEST_SUITE(BrokenProtocol, Gallery);

TYPED_TEST(BrokenProtocol, IsFound) {
  const Report report = explore<TypeParam>(200, true);
  EXPECT_NE(report.bad, "");
}

}  // namespace
}  // namespace headrace::store
