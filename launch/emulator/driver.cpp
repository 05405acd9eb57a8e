// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/driver.hpp"

#include <fmt/format.h>
#include <linux/idxd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include "emu/device/registers.hpp"
#include "launch/emulator/values.hpp"

namespace headrace::emu {
namespace {

/// How long unbinding waits for accepted descriptors; the driver's drain is unlimited.
constexpr std::chrono::seconds kDrainMax{5};

/// The errno that the driver's probe function returns with each cmd_status.
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

struct Named {
  DeviceId device;
  std::optional<QueueId> queue;  ///< Nothing: the device itself.
};

/// Resolves "dsa0" or "wq0.1" among `device_count` devices.
std::optional<Named> parse_name(std::string_view text, std::uint32_t device_count) {
  text = without_line_end(text);
  for (std::uint32_t d = 0; d < device_count; ++d) {
    const DeviceId device(d);
    if (text == device_name(device)) return Named{device, std::nullopt};
    for (std::uint32_t q = 0; q < kQueueMax; ++q) {
      if (text == queue_name(device, QueueId(q))) return Named{device, QueueId(q)};
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
  // The bound driver determines the WQ's type.
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
  // As idxd: releases the WQs' drivers first.
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

}  // namespace headrace::emu
