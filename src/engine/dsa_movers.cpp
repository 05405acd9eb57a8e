// SPDX-License-Identifier: Apache-2.0
#include "dsa_movers.hpp"

#include <fmt/format.h>

#include "dsa_mover.hpp"
#include "file_portal.hpp"

namespace headrace::engine {
namespace {

dsa::QueueInfo queue_info(const topo::DsaDevice& device, const topo::DsaQueue& queue) {
  return {.name = fmt::format("dsa{0}/wq{0}.{1}", device.id.value(), queue.id.value()),
          .mode = queue.mode == "dedicated" ? dsa::QueueMode::dedicated : dsa::QueueMode::shared,
          .entry_count = queue.entry_count,
          .batch_max = queue.batch_max,
          .transfer_bytes_max = queue.transfer_max.count(),
          .block_on_fault = queue.block_on_fault};
}

}  // namespace

DsaMovers open_dsa_movers(const topo::Machine& machine, const DeviceOptions& options) {
  DsaMovers found;
  if (!options.use) {
    found.notes.emplace_back("Devices are not used because the options say so.");
    return found;
  }
  for (const topo::DsaDevice& device : machine.dsa_devices) {
    for (const topo::DsaQueue& queue : device.queues) {
      const dsa::QueueInfo info = queue_info(device, queue);
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
      // The kernel takes no batch by write() for the devices whose portals it does not let map.
      auto mover = DsaMover::make(std::move(portal->portal), {.node = device.node,
                                                              .note = portal->access.note,
                                                              .device = options,
                                                              .batches = portal->access.mapped});
      if (!mover) {
        found.notes.push_back(
            fmt::format("{} is not used: {}.", info.name, mover.error().message()));
        continue;
      }
      found.movers.push_back(std::move(*mover));
    }
  }
  if (found.movers.empty() && found.notes.empty()) {
    found.notes.emplace_back(
        "No DSA work queue was found: 'headrace doctor' tells why. Processors do all the work.");
  }
  return found;
}

}  // namespace headrace::engine
