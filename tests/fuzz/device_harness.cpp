// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "emu/device/client.hpp"
#include "emu/device/device.hpp"
#include "harness.hpp"
#include "support/dsa_reference.hpp"

namespace headrace::test {
namespace {

using dsa::Descriptor;
using dsa::Opcode;
using emu::Address;

// Real memory at fixed addresses, so that an input means the same in every run. A device can reach
// all of this process's memory, so every address of a descriptor is mapped into the arena or to an
// unmappable place; batch lists are read-only for the same reason: an operation must not write
// descriptors. The range is below program addresses, and one of the few that both ThreadSanitizer
// and AddressSanitizer leave to programs.
constexpr Address kArena = 0x5510'0000'0000;
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kHolePage = 5;  // A page in the middle of it is not mapped.
constexpr std::uint64_t kArenaPages = 12;
constexpr std::uint64_t kArenaBytes = kArenaPages * kPageBytes;
constexpr Address kRecords = kArena + 0x100'0000;  // Records of descriptors, a page.
constexpr Address kLists = kArena + 0x200'0000;    // Lists of batches, two pages.
constexpr std::uint64_t kListEntries = 2 * kPageBytes / 64;
// Each submission has a separate record; those of listed descriptors follow.
constexpr std::size_t kSubmissionsMax = 24;
constexpr std::size_t kListedMax = 16;
// All mapped, writable memory: the arena with an unaddressed page before and behind it, and the
// records.
constexpr std::array<std::pair<Address, std::uint64_t>, 3> kWatched{
    {{kArena - kPageBytes, (1 + kHolePage) * kPageBytes},
     {kArena + (kHolePage + 1) * kPageBytes, (kArenaPages - kHolePage) * kPageBytes},
     {kRecords, kPageBytes}}};
// Far more than any input of 2 KiB needs.
constexpr std::uint64_t kStepsMax = 400'000;

std::byte* at(Address address) {
  return reinterpret_cast<std::byte*>(address);
}

void* map_at(Address address, std::uint64_t byte_count) {
  return ::mmap(at(address), byte_count, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

bool map_once() {
  static const bool kMapped = [] {
    return map_at(kArena - kPageBytes, kArenaBytes + 2 * kPageBytes) != MAP_FAILED &&
           ::munmap(at(kArena + kHolePage * kPageBytes), kPageBytes) == 0 &&
           map_at(kRecords, kPageBytes) != MAP_FAILED &&
           map_at(kLists, 2 * kPageBytes) != MAP_FAILED;
  }();
  return kMapped;
}

/// Maps an address into the arena or to an unmapped place: the first page, the kernel's half,
/// non-canonical.
Address placed(Address address, unsigned choice) {
  constexpr std::array<Address, 4> kNowhere{0, 0xFFFF'8000'0000'0000, 0x8000'0000'0000'0000,
                                            kArena + kHolePage * kPageBytes};
  if (choice == 0) return kNowhere[address & 3U] + (address >> 2U) % kPageBytes;
  if (choice == 1) return kArena + address % kArenaBytes / 64 * 64;
  return kArena + address % kArenaBytes;
}

/// A descriptor that may be anything but cannot reach this process's own memory. Its record, if it
/// has one, is number `record_index`.
Descriptor any_descriptor(Input& input, std::size_t record_index) {
  auto descriptor = input.take<Descriptor>();
  const auto choice = input.take<std::uint16_t>();
  const auto opcode = static_cast<Opcode>(descriptor.opcode);
  descriptor.src_addr = placed(descriptor.src_addr, choice & 3U);
  descriptor.dst_addr = placed(descriptor.dst_addr, choice >> 2U & 3U);
  if (opcode == Opcode::create_delta || opcode == Opcode::dualcast) {
    descriptor.dest2 = placed(descriptor.dest2, choice >> 4U & 3U);
  }
  if (opcode == Opcode::crc || opcode == Opcode::copy_crc) {
    descriptor.seed_addr = placed(descriptor.seed_addr, choice >> 4U & 3U);
  }
  if (opcode == Opcode::batch) {
    descriptor.desc_list_addr = kLists + (choice >> 4U) % kListEntries * 64;
    if ((choice & 3U) != 0) descriptor.desc_count = 2 + descriptor.desc_count % 40;
  } else {
    // Operands stay within the arena, or run into the unmapped memory behind it.
    descriptor.xfer_size %= 4 * kPageBytes;
  }
  if (opcode == Opcode::create_delta) descriptor.max_delta_size %= 4 * kPageBytes;
  if (opcode == Opcode::apply_delta) descriptor.delta_rec_size %= 4 * kPageBytes;
  if ((choice >> 8U & 3U) != 0) {
    descriptor.rsvd = 0;
    descriptor.rsvd1 = 0;
    descriptor.priv = 0;
  }
  const bool misaligned = (choice >> 10U & 7U) == 7;
  descriptor.completion_addr =
      (choice >> 13U) == 7
          ? placed(descriptor.completion_addr, 0)
          : kRecords + record_index * 32 + (misaligned ? descriptor.completion_addr % 32 : 0);
  return descriptor;
}

/// Device configuration, from spare bits of the seed.
emu::DeviceConfig any_config(std::uint32_t seed) {
  emu::DeviceConfig config = emu::default_device(1, 1, 1 + (seed >> 8U) % emu::kEngineMax, "fuzz");
  for (emu::QueueConfig& queue : std::span(config.queues).first(2)) {
    if ((seed >> 12U & 1U) != 0) queue.size = 1 + (seed >> 16U) % 8;
    queue.threshold = queue.mode == dsa::QueueMode::shared ? queue.size : 0;
    queue.block_on_fault = (seed >> 13U & 1U) == 0;
  }
  return config;
}

emu::FaultRule any_rule(Input& input) {
  emu::FaultRule rule;
  constexpr std::array kKinds{
      emu::FaultKind::queue_full, emu::FaultKind::page_fault,      emu::FaultKind::status,
      emu::FaultKind::reset,      emu::FaultKind::lost_completion, emu::FaultKind::halt,
      emu::FaultKind::slow,       emu::FaultKind::page_fault};
  const auto choice = input.take<std::uint8_t>();
  rule.kind = kKinds[choice % kKinds.size()];
  rule.every = choice >> 5U;
  rule.at_byte = input.take<std::uint16_t>();
  rule.delay_ns = rule.at_byte;
  rule.raw_status = DSA_COMP_HW_ERR1;
  rule.write = (choice & 16U) != 0;
  return rule;
}

/// A submission through a portal, and its progress according to the trace.
struct Submission {
  Descriptor descriptor{};
  bool started = false;
  bool ended = false;
  bool looked_after = false;  ///< Its writes have been checked after its end.
  std::uint8_t raw_status = 0;
  std::uint32_t fetched_count = 0;
  std::vector<bool> members_ended = {};
};

/// Audits one run: follows the trace, and checks which bytes changed.
class Auditor {
 public:
  Auditor() {
    for (const auto& [first, byte_count] : kWatched) {
      before_.emplace_back(at(first), at(first) + byte_count);
    }
  }

  void told(const emu::TraceEvent& event) {
    if (broken_) return;
    switch (event.kind) {
      case emu::TraceKind::submitted:
        if (!submissions_.try_emplace({event.queue, event.sequence}, Submission{.descriptor = next})
                 .second) {
          broken_ = "two submissions have one number";
        }
        return;
      case emu::TraceKind::started:
      case emu::TraceKind::fetched:
      case emu::TraceKind::faulted:
      case emu::TraceKind::finished:
      case emu::TraceKind::aborted:
        break;
      default:
        return;
    }
    const auto found = submissions_.find({event.queue, event.sequence});
    if (found == submissions_.end()) {
      broken_ =
          fmt::format("wq0.{} runs number {}, which it never took", event.queue, event.sequence);
      return;
    }
    Submission& submission = found->second;
    const bool ends =
        event.kind == emu::TraceKind::finished || event.kind == emu::TraceKind::aborted;
    if (submission.ended) {
      broken_ =
          fmt::format("number {} of wq0.{} goes on after its end", event.sequence, event.queue);
    } else if (event.kind == emu::TraceKind::fetched) {
      submission.fetched_count = event.byte_count;
      submission.members_ended.assign(event.byte_count, false);
      if (event.byte_count > submission.descriptor.desc_count) broken_ = "a batch fetches too many";
    } else if (event.index != 0) {
      member(submission, event, ends);
    } else if (event.kind == emu::TraceKind::started) {
      if (std::exchange(submission.started, true)) broken_ = "a descriptor starts twice";
    } else if (ends) {
      end(submission, event);
    }
  }
  void interrupted() { ++interrupt_count_; }

  /// After a few steps: only bytes that the descriptors which ran meanwhile may write have changed.
  [[nodiscard]] Broken look() {
    if (broken_) return broken_;
    for (std::size_t i = 0; i < kWatched.size(); ++i) {
      const auto [first, byte_count] = kWatched[i];
      std::vector<std::byte>& before = before_[i];
      if (std::memcmp(before.data(), at(first), byte_count) == 0) continue;
      const std::vector<Extent> allowed = writable();
      for (std::uint64_t k = 0; k < byte_count; ++k) {
        if (before[k] == *at(first + k)) continue;
        const auto holds = [&](const Extent& extent) { return extent.holds(first + k); };
        if (std::ranges::none_of(allowed, holds)) {
          return fmt::format("the byte at arena {:+#x} was written, which nobody named",
                             static_cast<std::int64_t>(first + k - kArena));
        }
        before[k] = *at(first + k);
      }
    }
    for (auto& [number, submission] : submissions_) {
      submission.looked_after = submission.ended;
    }
    return std::nullopt;
  }

  /// Every accepted descriptor (of `queue`, if given) has ended.
  [[nodiscard]] Broken check_ended(std::optional<std::uint32_t> queue = std::nullopt) const {
    for (const auto& [number, submission] : submissions_) {
      if (submission.ended || (queue && *queue != number.first)) continue;
      return fmt::format("number {} of wq0.{} (opcode {:#x}) never ended", number.second,
                         number.first, submission.descriptor.opcode);
    }
    return std::nullopt;
  }

  /// Checks the records at rest. `lost`: injected faults may have lost completions.
  [[nodiscard]] Broken check_records(bool lost) const {
    if (!lost && interrupt_count_ != wanted_interrupt_count_) {
      return fmt::format("{} interrupts came of {}", interrupt_count_, wanted_interrupt_count_);
    }
    for (const auto& [number, submission] : submissions_) {
      const auto place = record_of(submission.descriptor);
      if (!place) continue;
      const auto raw = std::to_integer<std::uint8_t>(*at(place->first));
      const bool wanted =
          submission.raw_status != static_cast<std::uint8_t>(dsa::Status::success) ||
          (submission.descriptor.flags & dsa::flag::request_record) != 0;
      if (raw == (wanted ? submission.raw_status : 0) || (lost && raw == 0)) continue;
      return fmt::format("the record of number {} of wq0.{} says {:#x} and not {:#x}",
                         number.second, number.first, raw, wanted ? submission.raw_status : 0);
    }
    for (std::uint64_t i = 0; i < kPageBytes; i += 32) {
      const auto raw = std::to_integer<std::uint8_t>(*at(kRecords + i));
      const bool untouched = std::all_of(at(kRecords + i), at(kRecords + i + 32),
                                         [](std::byte value) { return value == std::byte{0}; });
      if (!untouched && !is_status(raw)) {
        return fmt::format("the record at +{:#x} says {:#x}", i, raw);
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] std::size_t accepted_count() const { return submissions_.size(); }

  Descriptor next{};  ///< The descriptor being submitted.

 private:
  void member(Submission& submission, const emu::TraceEvent& event, bool ends) {
    if (event.index > submission.fetched_count) {
      broken_ =
          fmt::format("a batch of {} runs its number {}", submission.fetched_count, event.index);
      return;
    }
    if (submission.members_ended[event.index - 1]) {
      broken_ = "a descriptor of a batch goes on after its end";
      return;
    }
    if (!ends) return;
    submission.members_ended[event.index - 1] = true;
    count_interrupt(member_of(submission, event.index - 1));
  }

  void end(Submission& submission, const emu::TraceEvent& event) {
    submission.ended = true;
    submission.raw_status = event.raw_status;
    const bool aborted = event.kind == emu::TraceKind::aborted;
    if (!is_status(event.raw_status) || aborted != (event.raw_status == dsa::kStatusAborted)) {
      broken_ = fmt::format("number {} of wq0.{} ends with {:#x}", event.sequence, event.queue,
                            event.raw_status);
    }
    // A batch counts members, all of which have ended.
    const auto ended = std::ranges::count(submission.members_ended, true);
    if (submission.fetched_count != 0 && std::cmp_not_equal(ended, event.byte_count)) {
      broken_ =
          fmt::format("a batch counts {} members, and {} have ended", event.byte_count, ended);
    }
    count_interrupt(submission.descriptor);
  }

  void count_interrupt(const Descriptor& descriptor) {
    if ((descriptor.flags & dsa::flag::request_interrupt) != 0) ++wanted_interrupt_count_;
  }

  [[nodiscard]] static Descriptor member_of(const Submission& submission, std::uint64_t index) {
    Descriptor member{};
    std::memcpy(&member, at(submission.descriptor.desc_list_addr + index * sizeof member),
                sizeof member);
    return member;
  }

  /// Location of the record, if it may be written.
  [[nodiscard]] static std::optional<Extent> record_of(const Descriptor& descriptor) {
    const Address place = descriptor.completion_addr;
    const bool there = place >= kRecords && place < kRecords + kPageBytes && place % 32 == 0 &&
                       (descriptor.flags & dsa::flag::record_address_valid) != 0;
    if (!there) return std::nullopt;
    return Extent{place, 32};
  }

  static void add(std::vector<Extent>& extents, const Descriptor& descriptor) {
    for (const Extent& extent : written_by(descriptor)) extents.push_back(extent);
    if (const auto record = record_of(descriptor)) extents.push_back(*record);
  }

  /// Memory that descriptors that ran since the last look may write.
  [[nodiscard]] std::vector<Extent> writable() const {
    std::vector<Extent> extents;
    for (const auto& [number, submission] : submissions_) {
      if (submission.looked_after || !submission.started) continue;
      add(extents, submission.descriptor);
      for (std::uint64_t i = 0; i < submission.fetched_count; ++i) {
        add(extents, member_of(submission, i));
      }
    }
    return extents;
  }

  std::map<std::pair<std::uint32_t, std::uint64_t>, Submission> submissions_;
  std::vector<std::vector<std::byte>> before_;
  std::size_t interrupt_count_ = 0;
  std::size_t wanted_interrupt_count_ = 0;
  Broken broken_;
};

void set_up(std::uint32_t seed) {
  // Mostly places differ, so that a write shows as a change; sometimes all are equal, so that
  // comparisons reach far.
  const std::uint64_t factor = seed % 4 == 0 ? 0 : 37;
  for (const auto& [first, byte_count] : kWatched) {
    for (std::uint64_t i = 0; i < byte_count; ++i) {
      const std::uint64_t run = (first + i - (kArena - kPageBytes)) >> 6U;
      *at(first + i) = static_cast<std::byte>(first == kRecords ? 0 : run * factor + seed);
    }
  }
}

/// One run: a device, its submissions, and the commands in between.
class Run {
 public:
  Run(std::uint32_t seed, const emu::FaultRule& rule)
      : config_(any_config(seed)), lost_(rule.kind == emu::FaultKind::lost_completion) {
    emu::DeviceOptions options;
    options.schedule = emu::Schedule::deterministic;
    options.seed = seed;
    if (rule.every != 0) {
      options.faults.rules[0] = rule;
      options.faults.rule_count = 1;
    }
    options.trace = [this](const emu::TraceEvent& event) { auditor_.told(event); };
    options.interrupt = [this](std::uint32_t) { auditor_.interrupted(); };
    auto made = emu::Device::create(std::span(&config_, 1), std::move(options));
    if (made) device_ = std::move(*made);
  }

  [[nodiscard]] bool good() const { return device_ != nullptr; }

  [[nodiscard]] Broken submit(const Descriptor& descriptor, std::uint8_t choice) {
    const std::uint32_t queue = choice & 1U;
    const std::size_t before = auditor_.accepted_count();
    auditor_.next = descriptor;
    const bool taken = device_->portal(kDevice, QueueId{queue}).submit(descriptor);
    // A dedicated WQ gives no answer.
    if (queue == 0 && taken != (auditor_.accepted_count() == before + 1)) {
      return "ENQCMD reports another outcome than the device";
    }
    // A few steps, so that queues sometimes fill.
    for (unsigned step = 0; step < (choice >> 1U & 7U) && device_->client().step(); ++step) {
      if (auto broken = auditor_.look()) return broken;
    }
    return command(choice >> 4U, queue);
  }

  [[nodiscard]] Broken finish() {
    if (control().phase(kDevice) == emu::DevicePhase::halted) control().reset(kDevice);
    if (auto broken = rest()) return broken;
    // An injected fault can halt it again, at most once per descriptor.
    for (std::size_t i = 0; i <= kSubmissionsMax * emu::kBatchMax; ++i) {
      if (control().phase(kDevice) != emu::DevicePhase::halted) break;
      control().reset(kDevice);
      if (auto broken = rest()) return broken;
    }
    for (std::uint32_t queue = 0; queue < 2; ++queue) {
      const auto occupancy = control().occupancy(kDevice, QueueId{queue});
      if (occupancy != 0) return fmt::format("{} entries of wq0.{} are lost", occupancy, queue);
    }
    if (auto broken = auditor_.check_ended()) return broken;
    return auditor_.check_records(lost_);
  }

 private:
  static constexpr DeviceId kDevice{0};

  emu::Control& control() { return device_->control(); }

  /// Runs until idle, or until the device is halted.
  [[nodiscard]] Broken rest() {
    std::uint64_t steps = 0;
    while (device_->client().step()) {
      if (++steps > kStepsMax) return "the device does not come to rest";
      if (auto broken = auditor_.look()) return broken;
    }
    return auditor_.look();
  }

  /// Sometimes runs a driver command. Descriptors that it ends have ended on return, unless the
  /// device is halted.
  [[nodiscard]] Broken command(unsigned choice, std::uint32_t queue) {
    constexpr std::chrono::nanoseconds kPatience = std::chrono::milliseconds(1);
    const bool halted = control().phase(kDevice) == emu::DevicePhase::halted;
    Broken broken;
    switch (choice) {
      case 10:
        return rest();
      case 11:
        control().reset(kDevice);
        if (!lasting_halt()) broken = auditor_.check_ended();
        break;
      case 12:
        control().halt(kDevice);
        break;
      case 13:
      case 14: {
        const auto wait_max = choice == 13 ? std::chrono::nanoseconds(0) : kPatience;
        const bool done = control().disable_queue(kDevice, QueueId{queue}, wait_max).has_value();
        if (done && !halted && !lasting_halt()) broken = auditor_.check_ended(queue);
        static_cast<void>(control().enable_queue(kDevice, QueueId{queue}));
        break;
      }
      case 15:
        if (!control().disable_device(kDevice)) break;
        broken = auditor_.check_ended();
        if (!control().configure(kDevice, config_) || !control().enable_device(kDevice)) {
          return "a device that was disabled cannot be set up again";
        }
        for (const std::uint32_t again : {0U, 1U}) {
          if (!control().enable_queue(kDevice, QueueId{again})) return "nor can its WQ";
        }
        break;
      default:
        break;
    }
    if (broken) return broken;
    return auditor_.look();
  }

  /// An injected fault has halted it during a command.
  [[nodiscard]] bool lasting_halt() { return control().phase(kDevice) == emu::DevicePhase::halted; }

  emu::DeviceConfig config_;
  bool lost_;
  Auditor auditor_;
  std::unique_ptr<emu::Device> device_;
};

}  // namespace

Broken throw_at_device(std::span<const std::uint8_t> bytes) {
  if (!map_once()) return "the arena cannot be mapped";
  Input input(bytes);
  const auto seed = input.take<std::uint32_t>();
  const emu::FaultRule rule = any_rule(input);

  if (::mprotect(at(kLists), 2 * kPageBytes, PROT_READ | PROT_WRITE) != 0) return "mprotect";
  const std::size_t listed = input.take<std::uint8_t>() % kListedMax;
  for (std::size_t i = 0; i < kListEntries; ++i) {
    Descriptor descriptor{};
    if (i < listed) descriptor = any_descriptor(input, kSubmissionsMax + i);
    // Refused inside a batch; its addresses are invalid all the same.
    std::memcpy(at(kLists + i * 64), &descriptor, sizeof descriptor);
  }
  if (::mprotect(at(kLists), 2 * kPageBytes, PROT_READ) != 0) return "mprotect";
  set_up(seed);

  Run run(seed, rule);
  if (!run.good()) return "no device";
  for (std::size_t i = 0; i < kSubmissionsMax && !input.empty(); ++i) {
    const auto choice = input.take<std::uint8_t>();
    if (auto broken = run.submit(any_descriptor(input, i), choice)) return broken;
  }
  return run.finish();
}

}  // namespace headrace::test
