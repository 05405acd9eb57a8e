// SPDX-License-Identifier: Apache-2.0
// The protocol of a tier's file at every loss of power, after any number of kills and restarts.
//
// A history drives src/store/protocol.hpp on the recorder as the store does: one tier of memory,
// two files; puts, removals, evictions, moves between tiers, rounds of the flusher. At a random
// store, flush or drain the process is killed: what it knew is gone, the memory stays as the
// processor saw it, and the next life recovers from it and goes on. explore() then tries every
// state that a loss of power could leave at any moment of all lives. A file is mapped persistent
// memory, or on a device with a volatile cache, which reorders and tears what is written until it
// is flushed.
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

#include "crash_media.hpp"
#include "headrace/pmem/recorder.hpp"
#include "store/protocol.hpp"
#include "support/seed.hpp"
#include "support/store_stage.hpp"

namespace headrace::store::crash_test {
namespace {

using detail::SlotNumber;
using detail::Slots;
using detail::SlotState;
using detail::Verdict;
using pmem::Fault;
using pmem::Granularity;
using test::block_bytes;
using test::version_of;
using test_media::checksum;
using test_media::Drive;
using test_media::kDataBytes;
using test_media::kFileBytes;
using test_media::kFiles;
using test_media::Killed;
using test_media::kSlots;
using test_media::Mapped;
using test_media::OnDevice;
using test_media::PlainDisk;
using test_media::Refused;
using test_media::slots_in;

constexpr std::uint64_t kKeys = 3;
constexpr std::size_t kMemory = kFiles;  ///< The tier of memory; files are 0 and 1.

/// The rules of the store around its files, which the histories obey.
struct Rules : detail::FileRules, detail::LogRules {
  static constexpr bool frees_after_flush = true;
};

/// adopt() of one file of the histories, whose data is in `whole`.
template <typename R, typename Medium>
std::uint64_t adopt(Medium& medium, const Slots& slots, const Slots& whole, Durability durability,
                    std::uint64_t boot) {
  const detail::Adopted adopted = detail::adopt<R>(
      medium, slots, durability, boot, [&](SlotNumber slot, const detail::SlotHeader& header) {
        return checksum(whole.data(slot, header.byte_count)) == header.crc;
      });
  return adopted.stamp;
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
  bool is_uncertain = false;  ///< It could not be retired: the next process may find it or not.
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
      : random_(seed),
        flushes_fail_(random_.chance(1, 2)),
        recorder_(std::vector<std::byte>(kFiles * kFileBytes)) {
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
        {.states_per_moment_max = 256, .seed = seed});
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
    bool failed = false;
  };
  struct Retired {
    SlotNumber slot = 0;
    VersionPointer version;  ///< If its copy is leaving.
  };
  struct File {
    Durability durability = Durability::power;
    std::optional<Mapped> mapped;
    std::unique_ptr<OnDevice<R>> on_device;
    std::uint64_t stamp = 0;
    std::vector<SlotNumber> free;
    std::vector<Retired> retired;
    std::vector<Copied> fresh;
  };

  // --- A life ------------------------------------------------------------------------------------

  void open() {
    recorder_.phase("open");
    const std::map<std::uint64_t, VersionPointer> before = std::exchange(index_, {});
    std::map<std::uint64_t, std::set<std::uint64_t>> pending;
    for (std::size_t i = 0; i < kFiles; ++i) {
      File& file = files_[i];
      drives_[i].restart(whole(i).bytes);
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
    // A file that is no longer flushed promises nothing, and the change that was being made
    // neither.
    for (const auto& [key, version] : before) {
      if (!promised_.back().contains(key)) version->durable = {};
      for (std::size_t i = 0; i < kFiles; ++i) {
        if (files_[i].durability == Durability::process) version->durable[i] = false;
      }
    }
    mark(before);
    for (std::size_t i = 0; i < kFiles; ++i) {
      File& file = files_[i];
      if (random_.chance(1, 2)) {
        file.on_device =
            std::make_unique<OnDevice<R>>(recorder_, whole(i).bytes, drives_[i], left_);
        file.stamp = adopt<R>(file.on_device->medium, slots(i), whole(i), file.durability, kBoot);
        if (file.durability == Durability::process) file.on_device->medium.stop_flushing();
        continue;
      }
      // A process that flushes nothing has the granularity of a byte.
      Mapped honest(recorder_, Granularity::line, left_);
      detail::leave_log(honest, whole(i));
      file.stamp = adopt<R>(honest, slots(i), whole(i), file.durability, kBoot);
      file.mapped.emplace(
          recorder_, file.durability == Durability::process ? Granularity::byte : Granularity::line,
          left_);
    }
    for (std::size_t i = 0; i < kFiles; ++i) recover(i);
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      const auto found = index_.find(key);
      const auto known = before.find(key);
      const bool was_in_file =
          known != before.end() && (known->second->slots[0] != 0 || known->second->slots[1] != 0);
      const bool changes = touched_.contains(key);
      // A leaving copy has been evicted: no get finds it, and a round may have invalidated its
      // header and failed. So a kill may keep or lose it.
      const auto stays = [&](std::size_t i) {
        return known->second->slots[i] != 0 && !known->second->leaving[i] &&
               !known->second->is_uncertain;
      };
      if (found == index_.end()) {
        if (was_in_file && (stays(0) || stays(1)) && !changes) wrong("a kill lost", key);
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
      const auto number = state == SlotState::whole ? number_in(whole(i), slot, header)
                                                    : std::optional<std::uint64_t>();
      if (state == SlotState::whole && !number) wrong("a kill tore slot", slot);
      const std::uint64_t key = number ? std::stoull(std::string(header.key_text())) : kKeys;
      const auto known = index_.find(key);
      std::optional<detail::Known> about;
      if (known != index_.end()) about = {known->second->sequence, known->second->slots[i] != 0};
      const Verdict verdict = detail::judge(
          state == SlotState::whole && !number ? SlotState::torn : state, header, about);
      if (verdict == Verdict::free) {
        file.free.push_back(slot);
        continue;
      }
      if (verdict == Verdict::drop) {
        static_cast<void>(invalidate(i, slot));
        give_up(i, slot);
        continue;
      }
      if (known == index_.end() || verdict == Verdict::replace) {
        if (known != index_.end()) static_cast<void>(retire(*known->second));
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
    if (random_.chance(1, 16)) {
      drives_[0].refused = static_cast<Refused>(random_.below(4));
      drives_[0].fails_next_flush = flushes_fail_ && random_.chance(1, 2);
    }
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
          if (retire(*found->second)) index_.erase(key);
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
    if (from != kMemory && files_[from].mapped && random_.chance(1, 2)) {
      files_[from].mapped->lose_page();
      bytes.assign(kDataBytes, std::byte{0});
    }
    copy(to, slot, bytes);
    const Fault source = from == kMemory ? Fault::none : fault_of(from);
    if (!detail::is_copied<R>(source, fault_of(to))) {
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
    if (random_.chance(1, 12)) {
      if (file.mapped) file.mapped->fail_next_drain();
      if (file.on_device != nullptr) drives_[i].fails_next_flush = true;
    }
    const std::vector<Retired> freed = std::exchange(file.retired, {});
    for (const Retired& each : freed) {
      if (each.version != nullptr) touched_.insert(each.version->key);
    }
    const bool has_checksums = std::ranges::all_of(
        file.fresh, [](const Copied& copied) { return copied.version->has_crc; });
    const bool shares_a_flush = file.on_device != nullptr && has_checksums && !file.fresh.empty() &&
                                file.durability == Durability::power;
    const std::uint64_t stamp = shares_a_flush ? ++file.stamp : 0;
    const bool done = with_medium(i, [&](auto& medium) { return write(i, medium, freed, stamp); });
    for (Copied& copied : file.fresh) {
      copied.failed = !done;
      // A block that is about to fail must not be there after a kill.
      if (copied.published && copied.failed) static_cast<void>(invalidate(i, copied.slot));
    }
    for (const Copied& copied : file.fresh) {
      Version& version = *copied.version;
      if (copied.from) {
        version.moving = false;
        if (!copied.failed && version.live) {
          version.durable[i] = file.durability == Durability::power && !version.is_uncertain;
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
      } else if (!copied.failed && commit(copied.version, i)) {
        version.slots[i] = copied.slot;
        version.durable[i] = file.durability == Durability::power;
      } else {
        // A later put is already acknowledged, or this one fails.
        if (copied.published) static_cast<void>(invalidate(i, copied.slot));
        give_up(i, copied.slot);
      }
    }
    for (const Retired& each : freed) {
      if (!done && file.on_device != nullptr) {
        file.retired.push_back(each);
        continue;
      }
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

  /// The part of a round that stores.
  template <typename Medium>
  bool write(std::size_t i, Medium& medium, std::span<const Retired> freed, std::uint64_t stamp) {
    File& file = files_[i];
    detail::Round<Medium, R> round(medium, slots(i), stamp);
    for (const Retired& each : freed) round.retire(each.slot);
    for (const Copied& copied : file.fresh) {
      // What is not flushed replaces what was.
      if (file.durability == Durability::process) begin_change(copied.version->key);
      touched_.insert(copied.version->key);
    }
    if (!round.flush()) return false;
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
    return round.finish();
  }

  /// False if the key has a newer version, or an older one that may return.
  bool commit(const VersionPointer& version, std::size_t home = kMemory) {
    if (const auto known = index_.find(version->key); known != index_.end()) {
      if (R::orders_by_put && known->second->sequence > version->sequence) return false;
      if (!retire(*known->second, home)) return false;
    }
    version->live = true;
    index_[version->key] = version;
    return true;
  }

  /// At once: a removed block must not return if the process is killed. False if a file other than
  /// `home`, which has a newer header, may still have the version then; it stays.
  bool retire(Version& version, std::size_t home = kMemory) {
    bool is_certain = true;
    for (std::size_t i = 0; i < kFiles; ++i) {
      if (version.slots[i] == 0) continue;
      is_certain = (invalidate(i, version.slots[i]) || i == home) && is_certain;
    }
    version.is_uncertain = !is_certain;
    if (!is_certain) {
      begin_change(version.key);
      version.durable = {};
      return false;
    }
    version.live = false;
    for (std::size_t i = 0; i < kFiles; ++i) {
      if (version.slots[i] != 0 && !version.leaving[i]) give_up(i, version.slots[i]);
      version.slots[i] = 0;
    }
    return true;
  }

  bool invalidate(std::size_t i, SlotNumber slot) {
    with_medium(i, [&](auto& medium) {
      detail::invalidate(medium, slots(i).header(slot));
      return true;
    });
    return files_[i].on_device == nullptr || files_[i].on_device->medium.hand_over();
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
    if (fault_of(i) != Fault::none) return 0;
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
    const std::span<std::byte> place = whole(i).data(slot, kDataBytes);
    recorder_.label("data");
    if (files_[i].on_device != nullptr) {
      return files_[i].on_device->device.write_data(place, bytes);
    }
    Mapped& mapped = *files_[i].mapped;
    mapped.store(place.data(), bytes);
    if (mapped.granularity() == Granularity::line) {
      recorder_.flush(place.data(), place.size());
      recorder_.drain();
    }
  }

  template <typename Use>
  bool with_medium(std::size_t i, const Use& use) {
    return files_[i].mapped ? use(*files_[i].mapped) : use(files_[i].on_device->medium);
  }
  /// A device answers each request by itself.
  [[nodiscard]] Fault fault_of(std::size_t i) const {
    return files_[i].mapped ? files_[i].mapped->fault() : Fault::none;
  }
  [[nodiscard]] Slots whole(std::size_t i) { return slots_in(recorder_.memory(), i); }
  /// The headers as the process has them.
  [[nodiscard]] Slots slots(std::size_t i) {
    Slots slots = whole(i);
    if (files_[i].on_device != nullptr) slots.bytes = files_[i].on_device->table;
    return slots;
  }
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
      static_cast<void>(detail::replay(slots));
      adopt<R>(disk, slots, slots, Durability::power, kBoot + 1);
      for (SlotNumber slot = 1; slot <= kSlots; ++slot) {
        detail::SlotHeader header;
        if (slots.read(slot, header) != SlotState::whole) continue;
        if (!number_in(slots, slot, header)) {
          return "slot " + std::to_string(slot) + " of file " + std::to_string(i) + " is torn";
        }
        const std::uint64_t key = std::stoull(std::string(header.key_text()));
        std::optional<detail::Known> about;
        if (found.contains(key)) about = {.sequence = found[key]};
        const Verdict verdict = detail::judge(SlotState::whole, header, about);
        if (verdict != Verdict::drop) found[key] = header.sequence;
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
  const bool flushes_fail_;  ///< Also those that do not end a round.
  pmem::Recorder recorder_;
  std::size_t left_ = SIZE_MAX;  ///< Accesses until the process is killed.
  std::array<File, kFiles> files_;
  std::array<Drive, kFiles> drives_;
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
struct ProvesTooSoon : Rules {
  static constexpr bool proves_after_the_flush = false;
};
struct BelievesWithoutProof : Rules {
  static constexpr bool compares_what_is_not_proven = false;
};
struct OrdersByPublication : Rules {
  static constexpr bool orders_by_put = false;
};
struct NamesTooSoon : Rules {
  static constexpr bool flushes_before_it_names = false;
};
struct LogsBehindALostRecord : Rules {
  static constexpr bool leaves_what_a_flush_lost = false;
};
struct ForgetsWhatIsRefused : Rules {
  static constexpr bool carries_what_is_refused = false;
};
struct LogsOverWhatItFound : Rules {
  static constexpr bool begins_with_a_checkpoint = false;
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
                     PublishesAfterAFault, IgnoresTheSource, OrdersByPublication, ProvesTooSoon,
                     BelievesWithoutProof, NamesTooSoon, LogsBehindALostRecord,
                     ForgetsWhatIsRefused, LogsOverWhatItFound>;
TYPED_TEST_SUITE(BrokenProtocol, Gallery);

TYPED_TEST(BrokenProtocol, IsFound) {
  const Report report = explore<TypeParam>(2000, true);  // The rarest takes some forty.
  EXPECT_NE(report.bad, "");
}

}  // namespace
}  // namespace headrace::store::crash_test
