// SPDX-License-Identifier: Apache-2.0
#include "open.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "codec.hpp"
#include "headrace/platform/attribute.hpp"
#include "headrace/platform/character_device.hpp"
#include "headrace/platform/descriptor.hpp"
#include "headrace/platform/enqueue.hpp"
#include "queue.hpp"

namespace headrace::engine {
namespace {

/// Any multiple of 64 within the page reaches the queue. Different descriptors use different
/// offsets, so that stores do not contend for one write-combining buffer.
std::byte* portal_address(std::byte* page, const dsa::Descriptor& descriptor) noexcept {
  constexpr std::uintptr_t kOffsets = 4096 - sizeof(dsa::Descriptor);
  // Slots are some hundred bytes apart, so all bits above 63 are hashed.
  const auto place = reinterpret_cast<std::uintptr_t>(&descriptor);
  return page + ((place ^ place >> 6U) & kOffsets & ~std::uintptr_t{63});
}

class DevicePortal final : public dsa::Portal {
 public:
  /// `page`: null if descriptors are submitted with write().
  DevicePortal(platform::CharacterDevice device, std::byte* page, dsa::QueueInfo info)
      : device_(std::move(device)), page_(page), info_(std::move(info)) {}
  [[nodiscard]] const dsa::QueueInfo& info() const override { return info_; }
  [[nodiscard]] bool submit(const dsa::Descriptor& descriptor) noexcept override {
    if (page_ == nullptr) return device_.write(std::as_bytes(std::span(&descriptor, 1)));
    if (info_.mode == dsa::QueueMode::shared) {
      return platform::enqueue_command(portal_address(page_, descriptor), &descriptor);
    }
    platform::move_direct(portal_address(page_, descriptor), &descriptor);
    return true;
  }

 private:
  platform::CharacterDevice device_;
  std::byte* const page_;
  const dsa::QueueInfo info_;
};

dsa::QueueInfo queue_info(const topo::DsaDevice& device, const topo::DsaQueue& queue) {
  const auto attribute = [](const std::string& path) {
    return platform::load_attribute("/sys/bus/dsa/devices/" + path).value_or("");
  };
  return {.name = fmt::format("dsa{0}/wq{0}.{1}", device.id.value(), queue.id.value()),
          .mode = queue.mode == "dedicated" ? dsa::QueueMode::dedicated : dsa::QueueMode::shared,
          .entry_count = queue.entry_count,
          .batch_max = queue.batch_max,
          .transfer_bytes_max = queue.transfer_max.count(),
          .block_on_fault = queue.block_on_fault,
          // Kernels before 6.1 do not report it.
          .opcodes = detail::opcodes_from(
              attribute(fmt::format("wq{}.{}/op_config", device.id.value(), queue.id.value()))),
          .capabilities = detail::capabilities_from(
              attribute(fmt::format("dsa{}/gen_cap", device.id.value())))};
}

/// Fails if a queue named by the options is not usable.
Result<void> check_named(const DsaQueues& found, const DeviceOptions& options) {
  for (const std::string& name : options.queues) {
    const bool there = std::any_of(
        found.movers.begin(), found.movers.end(),
        [&](const std::unique_ptr<Mover>& mover) { return mover->info().name == name; });
    if (there) continue;
    std::string cause = "the machine has no such queue, or it is not visible to this process";
    for (const std::string& note : found.notes) {
      if (note.starts_with(name + " ")) cause = note.substr(0, note.size() - 1);
    }
    return fail(Code::hardware_absent, fmt::format("use the queue '{}'", name), std::move(cause),
                "'headrace dsa list' shows the queues, 'headrace doctor' what is wrong with them");
  }
  return {};
}

}  // namespace

Result<OpenPortal> open_portal(const std::string& path, dsa::QueueInfo info) {
  HEADRACE_TAKE(device, platform::CharacterDevice::open(path));
  const auto page = device->map_page();
  std::string note = !page ? fmt::format("write(), because {}", page.error().message())
                     : info.mode == dsa::QueueMode::shared
                         ? "ENQCMD to a mapped portal"
                         : "MOVDIR64B to a mapped portal, with credits";
  return OpenPortal{
      std::make_unique<DevicePortal>(std::move(*device), page ? *page : nullptr, std::move(info)),
      page.has_value(), std::move(note)};
}

Result<DsaQueues> open_dsa_queues(const topo::Machine& machine, const DeviceOptions& options) {
  DsaQueues found;
  if (!options.use) {
    found.notes.emplace_back("Devices are disabled by the options.");
    return found;
  }
  // Inside the emulator's namespace all devices are emulated.
  const bool emulated = platform::is_file("/dev/dsa-emulator/registers");
  for (const topo::DsaDevice& device : machine.dsa_devices) {
    std::uint32_t rank = 0;  // Among the usable queues.
    for (const topo::DsaQueue& queue : device.queues) {
      const dsa::QueueInfo info = queue_info(device, queue);
      const bool named = std::ranges::find(options.queues, info.name) != options.queues.end();
      if (!named && !options.queues.empty()) continue;
      // A device lists eight queues, configured or not; unconfigured ones have no entries and are
      // skipped unless named.
      if (info.entry_count == 0 && !named) continue;
      if (queue.state != "enabled" || queue.type != "user") {
        found.notes.push_back(fmt::format("{} is not used: it is {} and of type {}.", info.name,
                                          queue.state, queue.type));
        continue;
      }
      const std::string path = fmt::format("/dev/dsa/wq{}.{}", device.id.value(), queue.id.value());
      auto portal = open_portal(path, info);
      if (!portal) {
        found.notes.push_back(
            fmt::format("{} is not used: {}.", info.name, portal.error().message()));
        continue;
      }
      // Through write() the kernel accepts no batches.
      auto mover = DsaQueue::make(std::move(portal->portal), {.node = device.node,
                                                              .note = portal->note,
                                                              .queue_rank = rank,
                                                              .emulated = emulated,
                                                              .device = options,
                                                              .batches = portal->mapped});
      if (!mover) {
        found.notes.push_back(
            fmt::format("{} is not used: {}.", info.name, mover.error().message()));
        continue;
      }
      found.movers.push_back(std::move(*mover));
      ++rank;
    }
  }
  HEADRACE_TRY(check_named(found, options));
  if (found.movers.empty() && found.notes.empty()) {
    found.notes.emplace_back(
        "No DSA work queue was found: 'headrace doctor' shows why. Processors do all the work.");
  }
  return found;
}

}  // namespace headrace::engine
