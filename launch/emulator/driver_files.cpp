// SPDX-License-Identifier: Apache-2.0
// The files of one device: what idxd's sysfs.c shows and accepts. A number in a file is the
// driver's own choice unless a rule says where it comes from. [S] drivers/dma/idxd/sysfs.c
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "launch/emulator/driver.hpp"
#include "launch/emulator/values.hpp"

namespace headrace::emu {
namespace {

constexpr std::uint32_t kReadBuffersLeast = 4;  // Of each engine of a group.

Node value(std::function<std::string()> show) {
  return {.kind = NodeKind::attribute, .permissions = 0444, .show = std::move(show)};
}
Node value(std::function<std::string()> show, std::function<int(std::string_view)> store) {
  return {.kind = NodeKind::attribute,
          .permissions = 0644,
          .show = std::move(show),
          .store = std::move(store)};
}
Node constant(std::string text) {
  return value([text = std::move(text)] { return text + "\n"; });
}
template <typename T>
Node constant_number(T number) {
  return constant(fmt::format("{}", number));
}
Node link(std::string target, std::function<bool()> present = {}) {
  return {.kind = NodeKind::link,
          .permissions = 0777,
          .target = std::move(target),
          .present = std::move(present)};
}

std::int64_t shown_group(std::uint32_t group) {
  return group == kNoGroup ? -1 : static_cast<std::int64_t>(group);
}

/// A group's number as written to group_id: -1 for none; nothing if there is no such group.
std::optional<std::uint32_t> parse_group(std::string_view text) {
  const auto number = parse_number(text);
  if (!number || *number < -1 || *number >= static_cast<std::int64_t>(kGroupMax)) {
    return std::nullopt;
  }
  return *number == -1 ? kNoGroup : static_cast<std::uint32_t>(*number);
}

/// The files of groups: each one number that the model does not use.
struct GroupField {
  const char* name;
  std::uint32_t GroupExtras::* field;
  std::int64_t least;
  std::int64_t most;
  bool needs_version_2;
};
constexpr std::array<GroupField, 7> kGroupFields{{
    {"read_buffers_reserved", &GroupExtras::read_buffers_reserved, 0, kReadBufferMax, false},
    {"read_buffers_allowed", &GroupExtras::read_buffers_allowed, 0, kReadBufferMax, false},
    {"use_read_buffer_limit", &GroupExtras::use_read_buffer_limit, 0, 1, false},
    {"traffic_class_a", &GroupExtras::traffic_class_a, 0, 7, true},
    {"traffic_class_b", &GroupExtras::traffic_class_b, 0, 7, true},
    {"desc_progress_limit", &GroupExtras::desc_progress_limit, 0, 3, false},
    {"batch_progress_limit", &GroupExtras::batch_progress_limit, 0, 3, false},
}};

}  // namespace

void Driver::add_device(Tree& tree, DeviceId device) {
  const std::string path = device_path(device);
  const std::string bus_devices = std::string(kBusPath) + "/devices/";
  const Capabilities has = capabilities();
  tree.add(path + "/max_groups", constant_number(kGroupMax));
  tree.add(path + "/max_work_queues", constant_number(kQueueMax));
  tree.add(path + "/max_engines", constant_number(kEngineMax));
  tree.add(path + "/max_work_queues_size", constant_number(kEntryMax));
  tree.add(path + "/max_batch_size", constant_number(kBatchMax));
  tree.add(path + "/max_transfer_size", constant_number(kTransferBytesMax));
  tree.add(path + "/max_read_buffers", constant_number(kReadBufferMax));
  tree.add(path + "/numa_node", value([this, device] {
             return fmt::format("{}\n", control_.config(device).numa_node);
           }));
  tree.add(path + "/ims_size", constant("0"));
  tree.add(path + "/gen_cap", constant(fmt::format("{:#x}", has.gen_cap)));
  tree.add(path + "/op_cap", constant(bitmap_text(has.op_cap)));
  tree.add(path + "/version", constant(fmt::format("{:#x}", has.version)));
  tree.add(path + "/configurable", constant("1"));
  tree.add(path + "/pasid_enabled", constant("1"));
  tree.add(path + "/cdev_major", constant_number(kPortalMajor));
  tree.add(path + "/state", value([this, device] {
             switch (control_.phase(device)) {
               case DevicePhase::disabled:
                 return std::string("disabled\n");
               case DevicePhase::halted:
                 return std::string("halted\n");
               case DevicePhase::enabled:
                 break;
             }
             return std::string("enabled\n");
           }));
  tree.add(path + "/clients", value([this, device] {
             std::uint32_t count = 0;
             for (std::uint32_t q = 0; q < kQueueMax; ++q) {
               count += control_.client_count(device, QueueId(q));
             }
             return fmt::format("{}\n", count);
           }));
  tree.add(path + "/errors", value([this, device] {
             const auto words = control_.error_registers(device);
             return fmt::format("{:#018x} {:#018x} {:#018x} {:#018x}\n", words[0], words[1],
                                words[2], words[3]);
           }));
  tree.add(path + "/cmd_status",
           value([this, device] { return fmt::format("{:#x}\n", control_.command_status(device)); },
                 [this, device](std::string_view) {
                   control_.clear_command_status(device);
                   return 0;
                 }));
  tree.add(
      path + "/read_buffer_limit",
      value(
          [this, device] { return fmt::format("{}\n", control_.config(device).read_buffer_limit); },
          [this, device](std::string_view text) {
            const auto number = parse_number(text);
            if (!number || *number < 0) return EINVAL;
            if (is_device_on(device)) return EPERM;
            if (*number > kReadBufferMax) return EINVAL;
            return change(device, [&](DeviceConfig& config) {
              config.read_buffer_limit = static_cast<std::uint32_t>(*number);
              return 0;
            });
          }));
  tree.add(path + "/uevent", {.kind = NodeKind::attribute,
                              .permissions = 0644,
                              .show = [] { return std::string("DEVTYPE=dsa\n"); },
                              .store = [](std::string_view) { return 0; }});
  tree.add(path + "/subsystem", link("../../../../bus/dsa"));
  tree.add(path + "/driver", link("../../../../bus/dsa/drivers/idxd",
                                  [this, device] { return is_device_on(device); }));

  // Paths below /sys, from the three directories that the links lie in.
  const std::string below_sys = "../../.." + path.substr(4);
  const std::string name = fmt::format("dsa{}", device.value());
  tree.add(bus_devices + name, link(below_sys));
  const auto member = [&](const std::string& each) {
    tree.add(bus_devices + each, link(below_sys + "/" + each));
  };
  for (std::uint32_t g = 0; g < kGroupMax; ++g) {
    add_group(tree, device, g);
    member(fmt::format("group{}.{}", device.value(), g));
  }
  for (std::uint32_t e = 0; e < kEngineMax; ++e) {
    add_engine(tree, device, e);
    member(fmt::format("engine{}.{}", device.value(), e));
  }
  for (std::uint32_t q = 0; q < kQueueMax; ++q) {
    add_queue(tree, device, QueueId(q));
    member(fmt::format("wq{}.{}", device.value(), q));
  }
}

/// The device on the PCI bus, with what lspci and libaccel-config read.
void Driver::add_pci(Tree& tree) {
  const std::string bus(kPciPath);
  const std::string driver = bus + "/drivers/idxd";
  tree.add(driver + "/module", link("../../../../module/idxd"));
  for (const char* name : {"/bind", "/unbind", "/new_id", "/remove_id"}) {
    // The emulated function stays with its driver; its WQs are bound on the bus dsa.
    tree.add(driver + name, {.kind = NodeKind::attribute,
                             .permissions = 0200,
                             .store = [](std::string_view) { return ENODEV; }});
  }
  for (std::uint32_t d = 0; d < control_.device_count(); ++d) {
    const DeviceId device(d);
    PciFunction& function = *functions_.emplace_back(std::make_unique<PciFunction>(d));
    const std::string path = device_path(device);
    const std::string parent = path.substr(0, path.rfind('/'));
    const std::string address = parent.substr(parent.rfind('/') + 1);
    const std::string target = "/" + parent.substr(5);  // Below /sys.
    tree.add(bus + "/devices/" + address, link("../../.." + target));
    tree.add(driver + "/" + address, link("../../../.." + target));
    const std::string model = "pci:v00008086d00000B25sv00008086sd00000000bc08sc80i00";
    for (const auto& [name, text] :
         std::initializer_list<std::pair<const char*, std::string>>{{"vendor", "0x8086"},
                                                                    {"device", "0x0b25"},
                                                                    {"subsystem_vendor", "0x8086"},
                                                                    {"subsystem_device", "0x0000"},
                                                                    {"class", "0x088000"},
                                                                    {"revision", "0x00"},
                                                                    {"irq", "0"},
                                                                    {"enable", "1"},
                                                                    {"dma_mask_bits", "64"},
                                                                    {"power_state", "D0"},
                                                                    {"modalias", model}}) {
      tree.add(parent + "/" + name, constant(text));
    }
    tree.add(parent + "/uevent",
             constant(fmt::format("DRIVER=idxd\nPCI_CLASS=88000\nPCI_ID=8086:0B25\n"
                                  "PCI_SUBSYS_ID=8086:0000\nPCI_SLOT_NAME={}\nMODALIAS={}",
                                  address, model)));
    tree.add(parent + "/resource", value([&function] { return function.resources(); }));
    tree.add(parent + "/config",
             {.kind = NodeKind::binary,
              .permissions = 0644,
              .content = [&function](bool root) { return function.read(root); },
              .patch = [&function](std::size_t offset,
                                   std::string_view bytes) { function.write(offset, bytes); }});
    tree.add(parent + "/numa_node", value([this, device] {
               return fmt::format("{}\n", control_.config(device).numa_node);
             }));
    tree.add(parent + "/subsystem", link("../../../bus/pci"));
    tree.add(parent + "/driver", link("../../../bus/pci/drivers/idxd"));
  }
}

void add_real_links(Tree& tree) {
  for (const std::string& place : {std::string(kCharPath), std::string(kPciPath) + "/devices"}) {
    std::error_code error;
    for (std::filesystem::directory_iterator entries(place, error), end; !error && entries != end;
         entries.increment(error)) {
      std::error_code no_link;
      const std::string target = std::filesystem::read_symlink(entries->path(), no_link);
      // An emulation inside an emulation shows its own devices only.
      const bool is_emulated =
          target.find("/pcid5a0:00/") != std::string::npos || target.starts_with("../dsa/wq");
      if (!no_link && !is_emulated) tree.add(entries->path(), link(target));
    }
  }
}

void Driver::add_group(Tree& tree, DeviceId device, std::uint32_t group) {
  const std::string path = fmt::format("{}/group{}.{}", device_path(device), device.value(), group);
  const auto joined = [](std::string names) {
    // Nothing at all, not even a line end, where there is nothing to name: as idxd.
    if (!names.empty()) names.back() = '\n';
    return names;
  };
  tree.add(path + "/engines", value([this, device, group, joined] {
             std::string names;
             const DeviceConfig config = control_.config(device);
             for (std::uint32_t e = 0; e < kEngineMax; ++e) {
               if (config.engine_groups[e] != group) continue;
               names += fmt::format("engine{}.{} ", device.value(), e);
             }
             return joined(names);
           }));
  tree.add(path + "/work_queues", value([this, device, group, joined] {
             std::string names;
             const DeviceConfig config = control_.config(device);
             for (std::uint32_t q = 0; q < kQueueMax; ++q) {
               if (config.queues[q].group != group) continue;
               names += fmt::format("wq{}.{} ", device.value(), q);
             }
             return joined(names);
           }));
  for (const GroupField& each : kGroupFields) {
    const auto store = [this, device, group, each](std::string_view text) {
      const auto number = parse_number(text);
      if (!number) return EINVAL;
      if (is_device_on(device)) return EPERM;
      // DSA 1.0 has one traffic class that works; idxd does not let it be changed.
      if (each.needs_version_2) return EPERM;
      if (*number < each.least || *number > each.most) return EINVAL;
      const DeviceConfig config = control_.config(device);
      const auto engine_count =
          std::count(config.engine_groups.begin(), config.engine_groups.end(), group);
      if (each.field == &GroupExtras::read_buffers_allowed &&
          *number < engine_count * kReadBuffersLeast) {
        return EINVAL;
      }
      const Lock lock(mutex_);
      extras_[device.value()].groups[group].*each.field = static_cast<std::uint32_t>(*number);
      return 0;
    };
    tree.add(path + "/" + each.name,
             value(
                 [this, device, group, each] {
                   const Lock lock(mutex_);
                   return fmt::format("{}\n", extras_[device.value()].groups[group].*each.field);
                 },
                 store));
  }
  tree.add(path + "/subsystem", link("../../../../../bus/dsa"));
}

void Driver::add_engine(Tree& tree, DeviceId device, std::uint32_t engine) {
  const std::string path =
      fmt::format("{}/engine{}.{}", device_path(device), device.value(), engine);
  tree.add(path + "/group_id",
           value(
               [this, device, engine] {
                 return fmt::format("{}\n",
                                    shown_group(control_.config(device).engine_groups[engine]));
               },
               [this, device, engine](std::string_view text) {
                 const auto group = parse_group(text);
                 if (!group) return EINVAL;
                 if (is_device_on(device)) return EPERM;
                 return change(device, [&](DeviceConfig& config) {
                   config.engine_groups[engine] = *group;
                   return 0;
                 });
               }));
  tree.add(path + "/subsystem", link("../../../../../bus/dsa"));
}

void Driver::add_queue(Tree& tree, DeviceId device, QueueId queue) {
  const std::string name = fmt::format("wq{}.{}", device.value(), queue.value());
  const std::string path = device_path(device) + "/" + name;
  const auto is_user = [this, device, queue] {
    return is_queue_on(device, queue) &&
           control_.config(device).queues[queue.value()].type == "user";
  };
  add_queue_settings(tree, path, device, queue);
  tree.add(path + "/state", value([this, device, queue] {
             return std::string(is_queue_on(device, queue) ? "enabled\n" : "disabled\n");
           }));
  tree.add(path + "/cdev_minor", value([device, queue, is_user] {
             return fmt::format(
                 "{}\n",
                 is_user() ? static_cast<int>(device.value() * kQueueMax + queue.value()) : -1);
           }));
  tree.add(path + "/clients", value([this, device, queue] {
             return fmt::format("{}\n", control_.client_count(device, queue));
           }));
  tree.add(path + "/occupancy", value([this, device, queue] {
             static_cast<void>(control_.reap());
             return fmt::format("{}\n", control_.occupancy(device, queue));
           }));
  tree.add(path + "/uevent", {.kind = NodeKind::attribute,
                              .permissions = 0644,
                              .show = [] { return std::string("DEVTYPE=wq\n"); },
                              .store = [](std::string_view) { return 0; }});
  tree.add(path + "/subsystem", link("../../../../../bus/dsa"));
  tree.add(path + "/driver", link("../../../../../bus/dsa/drivers/user",
                                  [this, device, queue] { return is_queue_on(device, queue); }));
  tree.add(
      fmt::format("{}/{}:{}", kCharPath, kPortalMajor, device.value() * kQueueMax + queue.value()),
      link("../dsa/" + name, is_user));
  tree.add(fmt::format("{}/{}", kPortalPath, name), {.kind = NodeKind::portal,
                                                     .permissions = 0666,
                                                     .present = is_user,
                                                     .device = device,
                                                     .queue = queue});
}

}  // namespace headrace::emu
