// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/driver.hpp"

#include <fmt/format.h>
#include <linux/idxd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include "launch/emulator/values.hpp"

namespace headrace::emu {
namespace {

/// How long unbinding waits for what a WQ has accepted; the driver's own drain has no limit.
constexpr std::chrono::seconds kDrainMax{5};

/// What the driver's probe function returns along with each cmd_status.
int errno_of(const Error& error) {
  switch (static_cast<std::uint32_t>(error.os_errno)) {
    case IDXD_SCMD_WQ_ENABLED:
      return EBUSY;
    case IDXD_SCMD_WQ_NONE_CONFIGURED:
    case IDXD_SCMD_WQ_NO_SIZE:
    case IDXD_SCMD_WQ_NO_SWQ_SUPPORT:
      return EINVAL;
    default:
      return ENXIO;
  }
}

std::string name_of(DeviceId device) {
  return fmt::format("dsa{}", device.value());
}
std::string name_of(DeviceId device, QueueId queue) {
  return fmt::format("wq{}.{}", device.value(), queue.value());
}

struct Named {
  DeviceId device;
  std::optional<QueueId> queue;  ///< Nothing: the device itself.
};

/// What "dsa0" or "wq0.1" names among `device_count` devices.
std::optional<Named> parse_name(std::string_view text, std::uint32_t device_count) {
  text = without_line_end(text);
  for (std::uint32_t d = 0; d < device_count; ++d) {
    const DeviceId device(d);
    if (text == name_of(device)) return Named{device, std::nullopt};
    for (std::uint32_t q = 0; q < kQueueMax; ++q) {
      if (text == name_of(device, QueueId(q))) return Named{device, QueueId(q)};
    }
  }
  return std::nullopt;
}

}  // namespace

std::string device_path(DeviceId device) {
  return fmt::format("{}/d5a0:{:02x}:01.0/dsa{}", kRootPath, device.value(), device.value());
}

Driver::Driver(Control& control, std::vector<DeviceExtras> extras)
    : control_(control), extras_(std::move(extras)) {
  extras_.resize(control.device_count());
}

bool Driver::is_device_on(DeviceId device) const {
  return control_.phase(device) != DevicePhase::disabled;
}

bool Driver::is_queue_on(DeviceId device, QueueId queue) const {
  return control_.phase(device, queue) != QueuePhase::disabled;
}

int Driver::change(DeviceId device, const std::function<int(DeviceConfig&)>& change) {
  const Lock lock(mutex_);
  DeviceConfig config = control_.config(device);
  if (const int error = change(config); error != 0) return error;
  return control_.configure(device, config) ? 0 : EINVAL;
}

int Driver::change_queue(DeviceId device, QueueId queue,
                         const std::function<int(QueueConfig&)>& change_one) {
  return change(device, [&](DeviceConfig& config) {
    if (is_queue_on(device, queue)) return EPERM;
    return change_one(config.queues[queue.value()]);
  });
}

int Driver::bind_device(DeviceId device) {
  const Lock lock(mutex_);
  const auto done = control_.enable_device(device);
  return done ? 0 : errno_of(done.error());
}

int Driver::bind_queue(DeviceId device, QueueId queue, std::string_view driver_name) {
  const Lock lock(mutex_);
  DeviceConfig config = control_.config(device);
  QueueConfig& own = config.queues[queue.value()];
  if (is_queue_on(device, queue)) return EBUSY;
  if (own.driver_name != driver_name) return ENODEV;
  // The driver that takes a WQ says what type it is of.
  own.type = driver_name;
  if (!control_.configure(device, config)) return EINVAL;
  const auto done = control_.enable_queue(device, queue);
  return done ? 0 : errno_of(done.error());
}

int Driver::unbind_queue(DeviceId device, QueueId queue) {
  const Lock lock(mutex_);
  if (!is_queue_on(device, queue)) return ENODEV;
  return control_.disable_queue(device, queue, kDrainMax) ? 0 : ENODEV;
}

int Driver::unbind_device(DeviceId device) {
  const Lock lock(mutex_);
  if (!is_device_on(device)) return ENODEV;
  // As idxd, which releases the drivers of the WQs first.
  for (std::uint32_t q = 0; q < kQueueMax; ++q) {
    if (is_queue_on(device, QueueId(q))) {
      static_cast<void>(control_.disable_queue(device, QueueId(q), kDrainMax));
    }
  }
  if (!control_.disable_device(device)) return ENODEV;
  extras_[device.value()] = {};
  return 0;
}

int Driver::bind(std::string_view driver, std::string_view name) {
  const auto named = parse_name(name, control_.device_count());
  if (!named || (driver == "idxd") == named->queue.has_value()) return ENODEV;
  if (named->queue) return bind_queue(named->device, *named->queue, driver);
  return is_device_on(named->device) ? EBUSY : bind_device(named->device);
}

int Driver::unbind(std::string_view driver, std::string_view name) {
  const auto named = parse_name(name, control_.device_count());
  if (!named || (driver == "idxd") == named->queue.has_value()) return ENODEV;
  if (!named->queue) return unbind_device(named->device);
  const QueueConfig own = control_.config(named->device).queues[named->queue->value()];
  return own.driver_name == driver ? unbind_queue(named->device, *named->queue) : ENODEV;
}

void Driver::add_files(Tree& tree) {
  add_bus(tree);
  add_module(tree);
  tree.add(std::string(kPortalPath), {});
  add_pci(tree);
  for (std::uint32_t d = 0; d < control_.device_count(); ++d) add_device(tree, DeviceId(d));
}

void Driver::add_bus(Tree& tree) {
  const std::string bus(kBusPath);
  const auto swallow = [](std::string_view) { return 0; };
  tree.add(bus + "/devices", {});
  tree.add(bus + "/drivers", {});
  for (const char* driver : {"idxd", "user"}) add_driver(tree, driver);
  tree.add(bus + "/drivers_autoprobe", {.kind = NodeKind::attribute,
                                        .permissions = 0644,
                                        .show = [] { return std::string("0\n"); },
                                        .store = swallow});
  tree.add(bus + "/drivers_probe",
           {.kind = NodeKind::attribute, .permissions = 0200, .store = swallow});
  tree.add(bus + "/uevent", {.kind = NodeKind::attribute, .permissions = 0200, .store = swallow});
}

void Driver::add_driver(Tree& tree, const std::string& name) {
  const std::string path = fmt::format("{}/drivers/{}", kBusPath, name);
  tree.add(path + "/bind",
           {.kind = NodeKind::attribute,
            .permissions = 0200,
            .store = [this, name](std::string_view text) { return bind(name, text); }});
  tree.add(path + "/unbind",
           {.kind = NodeKind::attribute,
            .permissions = 0200,
            .store = [this, name](std::string_view text) { return unbind(name, text); }});
  tree.add(path + "/uevent", {.kind = NodeKind::attribute,
                              .permissions = 0200,
                              .store = [](std::string_view) { return 0; }});
  tree.add(path + "/module",
           {.kind = NodeKind::link, .permissions = 0777, .target = "../../../../module/idxd"});
  const auto link = [&](const std::string& device, const std::string& target,
                        std::function<bool()> present) {
    tree.add(path + "/" + device, {.kind = NodeKind::link,
                                   .permissions = 0777,
                                   .target = "../../../.." + target.substr(4),  // Below /sys.
                                   .present = std::move(present)});
  };
  for (std::uint32_t d = 0; d < control_.device_count(); ++d) {
    const DeviceId device(d);
    if (name == "idxd") {
      link(name_of(device), device_path(device), [this, device] { return is_device_on(device); });
      continue;
    }
    for (std::uint32_t q = 0; q < kQueueMax; ++q) {
      const QueueId queue(q);
      link(name_of(device, queue), device_path(device) + "/" + name_of(device, queue),
           [this, device, queue, name] {
             return is_queue_on(device, queue) &&
                    control_.config(device).queues[queue.value()].driver_name == name;
           });
    }
  }
}

void Driver::add_module(Tree& tree) const {
  const std::string path(kModulePath);
  const auto constant = [](std::string text) {
    return Node{.kind = NodeKind::attribute, .permissions = 0444, .show = [text = std::move(text)] {
                  return text;
                }};
  };
  tree.add(path + "/initstate", constant("live\n"));
  tree.add(path + "/refcnt", constant("0\n"));
  tree.add(path + "/version", constant("1.00\n"));
  tree.add(path + "/taint", constant("\n"));
  tree.add(path + "/parameters/sva", constant("Y\n"));
  tree.add(path + "/parameters/tc_override", constant("N\n"));
  for (const char* driver : {"idxd", "user"}) {
    tree.add(fmt::format("{}/drivers/dsa:{}", path, driver),
             {.kind = NodeKind::link,
              .permissions = 0777,
              .target = fmt::format("../../../bus/dsa/drivers/{}", driver)});
  }
}

}  // namespace headrace::emu
