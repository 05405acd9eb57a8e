// SPDX-License-Identifier: Apache-2.0
// Submissions by write(), both ends: the controller posts a descriptor in the mailbox of the
// writing client and waits; the client submits it as if through a portal.
#include <algorithm>
#include <cstring>

#include "emu/device/client.hpp"
#include "emu/platform/wait.hpp"

namespace headrace::emu {

using std::chrono::nanoseconds;

namespace {
/// How often a waiting write() checks whether its client is alive.
constexpr nanoseconds kMailboxLookEvery = std::chrono::milliseconds(50);
/// How long a write() that a worker has begun may take: with a seed it returns when it has run.
constexpr std::uint64_t kBegunMaxNs = 30'000'000'000;

bool is_dedicated(const QueueRegisters& queue) {
  // Relaxed: constant while the WQ is enabled.
  return queue.mode.load_relaxed() == static_cast<std::uint32_t>(dsa::QueueMode::dedicated);
}
}  // namespace

void Client::serve_mailbox(std::uint32_t device) noexcept {
  MailboxRegisters& mailbox = place().mailbox;
  std::uint32_t state = MailboxRegisters::posted;
  // edge: emu-mailbox (acq_rel)
  if (!mailbox.state.compare_exchange_acq_rel(state, MailboxRegisters::running)) return;
  // Relaxed: published by the state.
  const std::uint32_t queue = mailbox.queue.load_relaxed();
  std::array<std::uint64_t, 8> words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = mailbox.descriptor[i].load_relaxed();
  dsa::Descriptor descriptor;
  std::memcpy(&descriptor, words.data(), sizeof words);
  // It may be for the previous holder of this place, whose addresses are not ours.
  const bool for_us = mailbox.owner.load_relaxed() == owner_ && queue < kQueueMax;
  const Taken taken = for_us ? write(device, queue, descriptor) : Taken::refused;
  // With a seed a submission returns when it has run.
  if (taken == Taken::accepted && run_options().deterministic()) run_left();
  state = MailboxRegisters::running;
  // A store to a dedicated WQ is posted: the writer is not notified of a full WQ.
  const bool posted = for_us && is_dedicated(registers_.devices[device].queues[queue]);
  const std::uint32_t then = taken == Taken::refused              ? MailboxRegisters::refused
                             : taken == Taken::accepted || posted ? MailboxRegisters::taken
                                                                  : MailboxRegisters::full;
  // edge: emu-mailbox (acq_rel)
  if (!mailbox.state.compare_exchange_acq_rel(state, then)) {
    state = MailboxRegisters::left;
    mailbox.state.compare_exchange_acq_rel(state, MailboxRegisters::free);
  }
  platform::wake(mailbox.state, kClientMax);
}

Result<void> Control::submit_for(std::int32_t process_id, DeviceId device, QueueId queue,
                                 const dsa::Descriptor& descriptor, nanoseconds wait_max,
                                 const std::function<bool()>& is_over) {
  const std::string tried = "submit a descriptor by write() for process " +
                            std::to_string(process_id) + " to " + queue_name(device, queue);
  if (descriptor.opcode == static_cast<std::uint8_t>(dsa::Opcode::batch)) {
    return fail(Code::invalid_argument, tried, "a batch cannot be written",
                "map the portal, or submit its descriptors one by one");
  }
  const std::uint64_t limit =
      platform::now_ns() + static_cast<std::uint64_t>(std::max<std::int64_t>(0, wait_max.count()));
  for (std::uint32_t index = 0; index < kClientMax; ++index) {
    ClientRegisters& client = registers_->clients[index];
    // edge: emu-client (acquire)
    const PlaceWord place{client.place.load_acquire()};
    if (place.process_id() != process_id) continue;
    const Owner owner = owner_of(index, place.incarnation());
    const auto is_dead = [&] { return life_of(*registers_, owner) == platform::Life::dead; };
    if (is_dead()) continue;
    MailboxRegisters& mailbox = client.mailbox;
    bool posted = false;
    while (true) {
      std::uint32_t state = MailboxRegisters::free;
      // edge: emu-ready (acquire)
      if (!posted && client.ready.load_acquire() == owner) {
        // edge: emu-mailbox (acq_rel)
        if (mailbox.state.compare_exchange_acq_rel(state, MailboxRegisters::filling)) {
          // Relaxed: published by the state.
          mailbox.owner.store_relaxed(owner);
          mailbox.device.store_relaxed(device.value());
          mailbox.queue.store_relaxed(queue.value());
          std::array<std::uint64_t, 8> words{};
          std::memcpy(words.data(), &descriptor, sizeof words);
          for (std::size_t i = 0; i < words.size(); ++i) {
            mailbox.descriptor[i].store_relaxed(words[i]);
          }
          mailbox.state.store_release(MailboxRegisters::posted);  // edge: emu-mailbox (release)
          posted = true;
          ring(client, device.value());
          continue;
        }
      } else if (posted) {
        state = mailbox.state.load_acquire();  // edge: emu-mailbox (acquire)
        if (state == MailboxRegisters::taken || state == MailboxRegisters::refused ||
            state == MailboxRegisters::full) {
          mailbox.state.store_release(MailboxRegisters::free);  // edge: emu-mailbox (release)
          platform::wake(mailbox.state, kClientMax);
          if (state == MailboxRegisters::taken) return {};
          if (state == MailboxRegisters::full) {
            return fail(Code::capacity_exceeded, tried, "the WQ remained full", "try again later");
          }
          return fail(Code::closed, tried, "the WQ is not enabled", "enable it first");
        }
      }
      const std::uint64_t now = platform::now_ns();
      const bool over = is_dead() || (is_over && is_over());
      if (over || now >= limit) {
        // Before a worker begins it is withdrawn; later only its result can be discarded.
        state = MailboxRegisters::posted;
        // edge: emu-mailbox (acq_rel)
        if (!posted || mailbox.state.compare_exchange_acq_rel(state, MailboxRegisters::free)) {
          if (over) break;
          return fail(Code::capacity_exceeded, tried, "no thread of the process took it in time",
                      "try again later; check whether it is stopped");
        }
        if (over || now >= limit + kBegunMaxNs) {
          state = MailboxRegisters::running;
          // edge: emu-mailbox (acq_rel)
          mailbox.state.compare_exchange_acq_rel(state, MailboxRegisters::left);
          break;
        }
      }
      const nanoseconds left(now < limit ? limit - now : kBegunMaxNs);
      platform::sleep_on(mailbox.state, state, std::min<nanoseconds>(kMailboxLookEvery, left));
    }
  }
  return fail(Code::closed, tried, "the process has no connection to the devices, or is ending",
              "start it with 'headrace emulate'");
}

}  // namespace headrace::emu
