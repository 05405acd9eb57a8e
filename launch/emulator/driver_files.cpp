// SPDX-License-Identifier: Apache-2.0
// The files of the bus, the module and each device, as in idxd's sysfs.c. Numbers in files are the
// driver's, unless a rule gives another source. [S] drivers/dma/idxd/sysfs.c
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "emu/device/registers.hpp"
#include "headrace/base/names.hpp"
#include "launch/emulator/driver.hpp"
#include "launch/emulator/values.hpp"

namespace headrace::emu {
namespace {

constexpr std::uint32_t kReadBuffersLeast = 4;  // For each engine of a group.

/// Files with constant content.
using Constants = std::initializer_list<std::pair<const char*, std::string>>;
void add_constants(Tree& tree, const std::string& directory, Constants constants) {
  for (const auto& [name, text] : constants) tree.add(directory + "/" + name, constant(text));
}

int discard(std::string_view) {
  return 0;
}
Node uevent(std::string text) {
  return attribute([text = std::move(text)] { return line(text); }, discard);
}

}  // namespace

void Driver::add_files(Tree& tree) {
  add_bus(tree);
  tree.add(std::string(kPortalPath), {});
  add_pci(tree);
  for (std::uint32_t d = 0; d < control_.device_count(); ++d) add_device(tree, DeviceId(d));
}

/// The bus, its drivers and their module.
void Driver::add_bus(Tree& tree) {
  const std::string bus(kBusPath);
  const std::string module(kModulePath);
  tree.add(bus + "/devices", {});
  tree.add(bus + "/drivers_autoprobe", attribute([] { return std::string("0\n"); }, discard));
  for (const char* name : {"/drivers_probe", "/uevent"}) {
    tree.add(bus + name, attribute({}, discard));
  }
  for (const char* name : {"idxd", "user"}) {
    const std::string path = bus + "/drivers/" + name;
    tree.add(path + "/bind", attribute({}, [this, name](auto text) { return bind(name, text); }));
    tree.add(path + "/unbind",
             attribute({}, [this, name](auto text) { return unbind(name, text); }));
    tree.add(path + "/uevent", attribute({}, discard));
    tree.add(path + "/module", link("../../../../module/idxd"));
    tree.add(fmt::format("{}/drivers/dsa:{}", module, name),
             link(fmt::format("../../../bus/dsa/drivers/{}", name)));
  }
  add_constants(tree, module,
                {{"initstate", "live"},
                 {"refcnt", "0"},
                 {"version", "1.00"},
                 {"taint", ""},
                 {"parameters/sva", "Y"},
                 {"parameters/tc_override", "N"}});
}

void Driver::add_device(Tree& tree, DeviceId device) {
  const std::string path = device_path(device);
  const Capabilities has = capabilities();
  add_constants(tree, path,
                {{"max_groups", fmt::to_string(kGroupMax)},
                 {"max_work_queues", fmt::to_string(kQueueMax)},
                 {"max_engines", fmt::to_string(kEngineMax)},
                 {"max_work_queues_size", fmt::to_string(kEntryMax)},
                 {"max_batch_size", fmt::to_string(kBatchMax)},
                 {"max_transfer_size", fmt::to_string(kTransferBytesMax)},
                 {"max_read_buffers", fmt::to_string(kReadBufferMax)},
                 {"ims_size", "0"},
                 {"gen_cap", fmt::format("{:#x}", has.gen_cap)},
                 {"op_cap", bitmap_text(has.op_cap)},
                 {"version", fmt::format("{:#x}", has.version)},
                 {"configurable", "1"},
                 {"pasid_enabled", "1"},
                 {"cdev_major", fmt::to_string(kPortalMajor)}});
  // Changing values: `what` returns the current one.
  const auto show = [&](const char* name, auto what, Store store = {}) {
    tree.add(
        path + "/" + name,
        attribute([this, device, what] { return line(what(control_, device)); }, std::move(store)));
  };
  using State = const Control&;
  show("numa_node", [](State state, DeviceId d) { return state.config(d).numa_node; });
  // "unknown" if a client has overwritten the registers.
  show("state", [](State state, DeviceId d) { return headrace::name(state.phase(d)); });
  show("clients", [](State state, DeviceId d) {
    std::uint32_t count = 0;
    for (std::uint32_t q = 0; q < kQueueMax; ++q) count += state.client_count(d, QueueId(q));
    return count;
  });
  show("errors", [](State state, DeviceId d) {
    const auto words = state.error_registers(d);
    return fmt::format("{:#018x} {:#018x} {:#018x} {:#018x}", words[0], words[1], words[2],
                       words[3]);
  });
  show(
      "cmd_status",
      [](State state, DeviceId d) { return fmt::format("{:#x}", state.command_status(d)); },
      [this, device](std::string_view) {
        control_.clear_command_status(device);
        return 0;
      });
  show(
      "read_buffer_limit",
      [](State state, DeviceId d) { return state.config(d).read_buffer_limit; },
      [this, device](std::string_view text) {
        const auto number = parse_number(text);
        if (!number || *number < 0) return EINVAL;
        if (is_device_on(device)) return EPERM;
        if (*number > kReadBufferMax) return EINVAL;
        return change(device, [&](DeviceConfig& config) {
          config.read_buffer_limit = static_cast<std::uint32_t>(*number);
          return 0;
        });
      });
  tree.add(path + "/uevent", uevent("DEVTYPE=dsa"));
  const auto is_on = [this, device] { return is_device_on(device); };
  tree.add(path + "/subsystem", link("../../../../bus/dsa"));
  tree.add(path + "/driver", link("../../../../bus/dsa/drivers/idxd", is_on));
  tree.add(fmt::format("{}/drivers/idxd/{}", kBusPath, device_name(device)),
           link("../../../.." + path.substr(4), is_on));  // Below /sys.

  // The bus links to the device and to each of its parts.
  const auto member = [&](const std::string& name, const std::string& at) {
    tree.add(fmt::format("{}/devices/{}", kBusPath, name), link("../../.." + at.substr(4)));
    if (name != device_name(device)) tree.add(at + "/subsystem", link("../../../../../bus/dsa"));
  };
  member(device_name(device), path);
  const auto part = [&](const char* kind, std::uint32_t number) {
    const std::string name = fmt::format("{}{}.{}", kind, device.value(), number);
    member(name, path + "/" + name);
    return path + "/" + name;
  };
  for (std::uint32_t g = 0; g < kGroupMax; ++g) add_group(tree, part("group", g), device, g);
  for (std::uint32_t e = 0; e < kEngineMax; ++e) {
    tree.add(part("engine", e) + "/group_id",
             attribute(
                 [this, device, e] {
                   return line(static_cast<std::int32_t>(control_.config(device).engine_groups[e]));
                 },
                 [this, device, e](std::string_view text) {
                   const auto group = parse_group(text);
                   if (!group) return EINVAL;
                   if (is_device_on(device)) return EPERM;
                   return change(device, [&](DeviceConfig& config) {
                     config.engine_groups[e] = *group;
                     return 0;
                   });
                 }));
  }
  for (std::uint32_t q = 0; q < kQueueMax; ++q) add_queue(tree, part("wq", q), device, QueueId(q));
}

/// The device on the PCI bus, as lspci and libaccel-config read it.
void Driver::add_pci(Tree& tree) {
  const std::string bus(kPciPath);
  const std::string driver = bus + "/drivers/idxd";
  tree.add(driver + "/module", link("../../../../module/idxd"));
  for (const char* name : {"/bind", "/unbind", "/new_id", "/remove_id"}) {
    // The emulated function cannot be unbound; its WQs are bound on the bus dsa.
    tree.add(driver + name, attribute({}, [](std::string_view) { return ENODEV; }));
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
    add_constants(tree, parent,
                  {{"vendor", "0x8086"},
                   {"device", "0x0b25"},
                   {"subsystem_vendor", "0x8086"},
                   {"subsystem_device", "0x0000"},
                   {"class", "0x088000"},
                   {"revision", "0x00"},
                   {"irq", "0"},
                   {"enable", "1"},
                   {"dma_mask_bits", "64"},
                   {"power_state", "D0"},
                   {"modalias", model},
                   {"uevent", fmt::format("DRIVER=idxd\nPCI_CLASS=88000\nPCI_ID=8086:0B25\n"
                                          "PCI_SUBSYS_ID=8086:0000\nPCI_SLOT_NAME={}\nMODALIAS={}",
                                          address, model)}});
    tree.add(parent + "/resource", attribute([&function] { return function.resources(); }));
    tree.add(parent + "/config",
             {.kind = NodeKind::binary,
              .permissions = 0644,
              .content = [&function](bool root) { return function.read(root); },
              .patch = [&function](std::size_t offset,
                                   std::string_view bytes) { function.write(offset, bytes); }});
    tree.add(parent + "/numa_node",
             attribute([this, device] { return line(control_.config(device).numa_node); }));
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
      // A nested emulation shows only its own devices.
      const bool is_emulated =
          target.find("/pcid5a0:00/") != std::string::npos || target.starts_with("../dsa/wq");
      if (!no_link && !is_emulated) tree.add(entries->path(), link(target));
    }
  }
}

void Driver::add_group(Tree& tree, const std::string& path, DeviceId device, std::uint32_t group) {
  // Names of the `count` members for which `group_of` returns this group; empty, without a line
  // end, if there are none: as idxd.
  const auto members = [&](const char* file, const char* kind, std::uint32_t count, auto group_of) {
    tree.add(path + "/" + file, attribute([this, device, group, kind, count, group_of] {
               std::string names;
               const DeviceConfig config = control_.config(device);
               for (std::uint32_t i = 0; i < count; ++i) {
                 if (group_of(config, i) != group) continue;
                 names += fmt::format("{}{}.{} ", kind, device.value(), i);
               }
               if (!names.empty()) names.back() = '\n';
               return names;
             }));
  };
  members("engines", "engine", kEngineMax,
          [](const DeviceConfig& config, std::uint32_t e) { return config.engine_groups[e]; });
  members("work_queues", "wq", kQueueMax,
          [](const DeviceConfig& config, std::uint32_t q) { return config.queues[q].group; });
  for (const GroupField& each : kGroupFields) {
    const auto show = [this, device, group, &each] {
      const Lock lock(mutex_);
      return line(extras_[device.value()].groups[group].*each.field);
    };
    const auto store = [this, device, group, &each](std::string_view text) {
      const auto number = parse_number(text);
      if (!number) return EINVAL;
      if (is_device_on(device)) return EPERM;
      // DSA 1.0 has one usable traffic class; idxd does not allow changing it.
      if (each.needs_version_2) return EPERM;
      if (*number < 0 || *number > each.most) return EINVAL;
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
    tree.add(path + "/" + each.name, attribute(show, store));
  }
}

void Driver::add_queue(Tree& tree, const std::string& path, DeviceId device, QueueId queue) {
  const std::string name = queue_name(device, queue);
  const std::uint32_t minor = device.value() * kQueueMax + queue.value();
  const auto is_on = [this, device, queue] { return is_queue_on(device, queue); };
  const auto is_user = [this, device, queue] {
    return is_queue_on(device, queue) &&
           control_.config(device).queues[queue.value()].type == "user";
  };
  add_queue_settings(tree, path, device, queue);
  tree.add(path + "/state", attribute([is_on] { return line(is_on() ? "enabled" : "disabled"); }));
  tree.add(path + "/cdev_minor",
           attribute([minor, is_user] { return line(is_user() ? static_cast<int>(minor) : -1); }));
  tree.add(path + "/clients",
           attribute([this, device, queue] { return line(control_.client_count(device, queue)); }));
  tree.add(path + "/occupancy", attribute([this, device, queue] {
             static_cast<void>(control_.reap());
             return line(control_.occupancy(device, queue));
           }));
  tree.add(path + "/uevent", uevent("DEVTYPE=wq"));
  tree.add(path + "/driver", link("../../../../../bus/dsa/drivers/user", is_on));
  tree.add(fmt::format("{}/drivers/user/{}", kBusPath, name),
           link("../../../.." + path.substr(4), [this, device, queue, is_on] {
             return is_on() && control_.config(device).queues[queue.value()].driver_name == "user";
           }));
  tree.add(fmt::format("{}/{}:{}", kCharPath, kPortalMajor, minor),
           link("../dsa/" + name, is_user));
  tree.add(fmt::format("{}/{}", kPortalPath, name), {.kind = NodeKind::portal,
                                                     .permissions = 0600,
                                                     .present = is_user,
                                                     .device = device,
                                                     .queue = queue});
}

}  // namespace headrace::emu
