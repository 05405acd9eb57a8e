// SPDX-License-Identifier: Apache-2.0
// Driver: emulates the idxd driver's files below /sys/bus/dsa, /sys/devices, /sys/module/idxd and
// /dev/dsa, and the effect of reads and writes on the devices. Follows idxd's rules: file mode,
// what may be written when, errno, cmd_status. WQs of type kernel (the driver dmaengine) have no
// driver here.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "emu/device/device.hpp"
#include "headrace/base/mutex.hpp"
#include "launch/emulator/pci.hpp"
#include "launch/emulator/tree.hpp"

namespace headrace::emu {

// Paths of the parts of the tree in the command's namespace.
inline constexpr std::string_view kBusPath = "/sys/bus/dsa";
/// A PCI domain that no real machine uses.
inline constexpr std::string_view kRootPath = "/sys/devices/pcid5a0:00";
inline constexpr std::string_view kModulePath = "/sys/module/idxd";
inline constexpr std::string_view kPortalPath = "/dev/dsa";
inline constexpr std::string_view kCharPath = "/dev/char";
inline constexpr std::string_view kPciPath = "/sys/bus/pci";
inline constexpr std::string_view kTracePath = "/dev/dsa-emulator/trace";

/// Settings that sysfs shows and stores but the model does not use.
struct GroupExtras {
  std::uint32_t read_buffers_reserved = 0;
  std::uint32_t read_buffers_allowed = kReadBufferMax;
  std::uint32_t use_read_buffer_limit = 0;
  std::uint32_t traffic_class_a = 1;  // idxd's default for DSA 1.0.
  std::uint32_t traffic_class_b = 1;
  std::uint32_t desc_progress_limit = 0;
  std::uint32_t batch_progress_limit = 0;
};

/// The sysfs files for these settings; the minimum is 0.
struct GroupField {
  const char* name;
  const char* former_name;  ///< In older files of accel-config; null if the name never changed.
  std::uint32_t GroupExtras::* field;
  std::uint32_t most;
  bool needs_version_2;
};
inline constexpr std::array<GroupField, 7> kGroupFields{{
    {"read_buffers_reserved", "tokens_reserved", &GroupExtras::read_buffers_reserved,
     kReadBufferMax, false},
    {"read_buffers_allowed", "tokens_allowed", &GroupExtras::read_buffers_allowed, kReadBufferMax,
     false},
    {"use_read_buffer_limit", "use_token_limit", &GroupExtras::use_read_buffer_limit, 1, false},
    {"traffic_class_a", nullptr, &GroupExtras::traffic_class_a, 7, true},
    {"traffic_class_b", nullptr, &GroupExtras::traffic_class_b, 7, true},
    {"desc_progress_limit", nullptr, &GroupExtras::desc_progress_limit, 3, false},
    {"batch_progress_limit", nullptr, &GroupExtras::batch_progress_limit, 3, false},
}};

struct DeviceExtras {
  std::array<GroupExtras, kGroupMax> groups{};
  std::array<bool, kQueueMax> ats_disable{};
  std::array<bool, kQueueMax> prs_disable{};
};

/// Threading: shared.
class Driver {
 public:
  Driver(Control& control, std::vector<DeviceExtras> extras);

  /// Adds every file. The nodes refer to this object.
  void add_files(Tree& tree);

  /// Enables a device or WQ as a write to `bind` does. Returns 0 or the errno; sets cmd_status.
  int bind_device(DeviceId device);
  int bind_queue(DeviceId device, QueueId queue, std::string_view driver_name = "user");
  int unbind_device(DeviceId device);
  int unbind_queue(DeviceId device, QueueId queue);

 private:
  void add_bus(Tree& tree);
  void add_pci(Tree& tree);
  void add_device(Tree& tree, DeviceId device);
  void add_group(Tree& tree, const std::string& path, DeviceId device, std::uint32_t group);
  void add_queue(Tree& tree, const std::string& path, DeviceId device, QueueId queue);
  void add_queue_settings(Tree& tree, const std::string& path, DeviceId device, QueueId queue);

  [[nodiscard]] bool is_device_on(DeviceId device) const;
  [[nodiscard]] bool is_queue_on(DeviceId device, QueueId queue) const;
  /// Applies `change`, which returns 0 or an errno, to the configuration of a device.
  int change(DeviceId device, const std::function<int(DeviceConfig&)>& change);
  int bind(std::string_view driver, std::string_view name);
  int unbind(std::string_view driver, std::string_view name);

  Control& control_;
  std::vector<std::unique_ptr<PciFunction>> functions_;
  Mutex mutex_;  ///< Serialises writers of the configuration.
  std::vector<DeviceExtras> extras_;
};

/// The directory of a device below kRootPath.
[[nodiscard]] std::string device_path(DeviceId device);

/// Adds the real links of this machine in kCharPath and among the PCI devices, next to the emulated
/// ones.
void add_real_links(Tree& tree);

}  // namespace headrace::emu
