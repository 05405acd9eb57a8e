// SPDX-License-Identifier: Apache-2.0
// Lists DSA devices and their queues from the files of the kernel's driver.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "facts.hpp"
#include "headrace/platform/attribute.hpp"

namespace headrace::topo {
namespace {

/// The numbers behind `prefix` in `names`, ascending.
std::vector<std::uint32_t> numbers_in(const std::vector<std::string>& names,
                                      const std::string& prefix) {
  std::vector<std::uint32_t> numbers;
  for (const std::string& name : names) {
    if (!name.starts_with(prefix)) continue;
    const auto number =
        platform::parse_number<std::uint32_t>(std::string_view(name).substr(prefix.size()));
    if (number) numbers.push_back(*number);
  }
  std::ranges::sort(numbers);
  return numbers;
}

std::string text_of(const std::string& path) {
  return platform::load_attribute(path).value_or("unknown");
}

DsaQueue queue_at(const std::string& bus, std::uint32_t device, std::uint32_t number) {
  const std::string name = fmt::format("wq{}.{}", device, number);
  const std::string path = fmt::format("{}/{}/", bus, name);
  const auto number_of = [&](const char* file) {
    return platform::load_number(path + file).value_or(0);
  };
  DsaQueue queue{.id = QueueId(number),
                 .mode = text_of(path + "mode"),
                 .state = text_of(path + "state"),
                 .type = text_of(path + "type"),
                 .device_name = name,
                 .entry_count = static_cast<std::uint32_t>(number_of("size")),
                 .transfer_max = {}};
  // Most of the eight queues of a device are not configured; an emulated attribute takes a round
  // trip to the emulator.
  if (queue.entry_count != 0) {
    queue.transfer_max = Bytes(number_of("max_transfer_size"));
    queue.batch_max = static_cast<std::uint32_t>(number_of("max_batch_size"));
    queue.block_on_fault = number_of("block_on_fault") != 0;
  }
  return queue;
}

}  // namespace

Movers find_movers(const std::string& bus) {
  Movers movers{.discovery = MoverDiscovery::done, .dsa_devices = {}, .note = {}};
  std::vector<std::string> names;
  std::error_code ignored;  // Without the driver there is no folder.
  for (std::filesystem::directory_iterator entry(bus, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    names.push_back(entry->path().filename());
  }
  for (const std::uint32_t number : numbers_in(names, "dsa")) {
    const std::string path = fmt::format("{}/dsa{}/", bus, number);
    DsaDevice& device = movers.dsa_devices.emplace_back();
    device.id = DeviceId(number);
    // -1, which is no such number: unknown to the firmware.
    if (const auto node = platform::load_number(path + "numa_node")) {
      device.node = NodeId(static_cast<std::uint32_t>(*node));
    }
    device.state = text_of(path + "state");
    device.engine_count =
        static_cast<std::uint32_t>(numbers_in(names, fmt::format("engine{}.", number)).size());
    for (const std::uint32_t queue : numbers_in(names, fmt::format("wq{}.", number))) {
      device.queues.push_back(queue_at(bus, number, queue));
    }
  }
  return movers;
}

}  // namespace headrace::topo
