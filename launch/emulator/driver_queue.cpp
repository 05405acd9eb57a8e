// SPDX-License-Identifier: Apache-2.0
// The files that configure a WQ: what idxd's sysfs.c shows and accepts, and when. [S]
#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "launch/emulator/driver.hpp"
#include "launch/emulator/values.hpp"

namespace headrace::emu {
namespace {

constexpr std::size_t kWrittenNameMax = 63;       // WQ_NAME_SIZE is 1024.
constexpr std::size_t kDriverNameMax = 31;        // DRIVER_NAME_SIZE is 128.
constexpr std::int64_t kWrittenPriorityMax = 15;  // IDXD_MAX_PRIORITY.

/// Stores a number if it is from `least` to `most`. Returns 0 or EINVAL, as all functions below.
template <typename T>
int set(T& into, std::optional<std::int64_t> number, std::int64_t least, std::uint64_t most) {
  if (!number || *number < least || *number > static_cast<std::int64_t>(most)) return EINVAL;
  into = static_cast<T>(*number);
  return 0;
}

int set(std::string& into, std::string_view text, std::size_t most) {
  if (text.empty() || text.size() > most) return EINVAL;
  into = text;
  return 0;
}

int set(bool& into, std::string_view text) {
  const auto flag = parse_flag(text);
  if (flag) into = *flag;
  return flag ? 0 : EINVAL;
}

/// As __get_sysfs_u64 and its callers: rounds up to a power of two.
std::optional<std::int64_t> parse_size(std::string_view text) {
  const auto number = parse_number(text);
  if (!number || *number <= 0 || *number > std::int64_t{1} << 62U) return std::nullopt;
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(*number)));
}

int set_mode(QueueConfig& queue, std::string_view text) {
  if (text != "dedicated" && text != "shared") return EINVAL;
  queue.mode = text == "shared" ? dsa::QueueMode::shared : dsa::QueueMode::dedicated;
  if (queue.mode == dsa::QueueMode::dedicated) queue.threshold = 0;
  return 0;
}

int set_type(QueueConfig& queue, std::string_view text) {
  if (text != "none" && text != "kernel" && text != "user") return EINVAL;
  if (queue.type != text) queue.name.clear();
  queue.type = text;
  return 0;
}

/// The allowed opcodes that the device supports: ~0 in the model means all of op_cap.
std::string shown_opcodes(const QueueConfig& queue) {
  std::array<std::uint64_t, 4> shown = capabilities().op_cap;
  for (std::size_t i = 0; i < shown.size(); ++i) shown[i] &= queue.op_config[i];
  return bitmap_text(shown);
}

int set_opcodes(QueueConfig& queue, std::string_view text) {
  const auto bits = parse_bitmap(text);
  if (!bits) return EINVAL;
  const auto has = capabilities().op_cap;
  for (std::size_t i = 0; i < has.size(); ++i) {
    if (((*bits)[i] & ~has[i]) != 0) return EINVAL;
  }
  queue.op_config = *bits;
  return 0;
}

/// One file of a WQ: formats its value and applies a new one.
struct Setting {
  const char* name;
  std::string (*show)(const QueueConfig& queue);
  int (*store)(QueueConfig& queue, std::string_view text);
};
using Queue = QueueConfig;
using Text = std::string_view;
constexpr std::array<Setting, 10> kSettings{{
    {"mode",
     [](const Queue& queue) {
       return line(queue.mode == dsa::QueueMode::shared ? "shared" : "dedicated");
     },
     set_mode},
    {"priority", [](const Queue& queue) { return line(queue.priority); },
     [](Queue& queue, Text text) {
       return set(queue.priority, parse_number(text), 0, kWrittenPriorityMax);
     }},
    {"threshold", [](const Queue& queue) { return line(queue.threshold); },
     [](Queue& queue, Text text) {
       return queue.mode == dsa::QueueMode::dedicated
                  ? EINVAL
                  : set(queue.threshold, parse_number(text), 1, queue.size);
     }},
    {"block_on_fault", [](const Queue& queue) { return line(queue.block_on_fault ? 1 : 0); },
     [](Queue& queue, Text text) { return set(queue.block_on_fault, text); }},
    {"type", [](const Queue& queue) { return line(queue.type); }, set_type},
    {"name", [](const Queue& queue) { return line(queue.name); },
     [](Queue& queue, Text text) { return set(queue.name, text, kWrittenNameMax); }},
    {"driver_name", [](const Queue& queue) { return line(queue.driver_name); },
     [](Queue& queue, Text text) { return set(queue.driver_name, text, kDriverNameMax); }},
    {"max_transfer_size", [](const Queue& queue) { return line(queue.transfer_bytes_max); },
     [](Queue& queue, Text text) {
       return set(queue.transfer_bytes_max, parse_size(text), 1, kTransferBytesMax);
     }},
    {"max_batch_size", [](const Queue& queue) { return line(queue.batch_max); },
     [](Queue& queue, Text text) { return set(queue.batch_max, parse_size(text), 1, kBatchMax); }},
    {"op_config", [](const Queue& queue) { return line(shown_opcodes(queue)); }, set_opcodes},
}};

}  // namespace

void Driver::add_queue_settings(Tree& tree, const std::string& path, DeviceId device,
                                QueueId queue) {
  const auto file = [&](const char* name, Show show, Store store) {
    tree.add(path + "/" + name, attribute(std::move(show), std::move(store)));
  };
  const auto current = [this, device, queue] {
    return control_.config(device).queues[queue.value()];
  };
  for (const Setting& setting : kSettings) {
    file(
        setting.name, [current, &setting] { return setting.show(current()); },
        [this, device, queue, &setting](std::string_view text) {
          return change(device, [&](DeviceConfig& config) {
            if (is_queue_on(device, queue)) return EPERM;
            return setting.store(config.queues[queue.value()], without_line_end(text));
          });
        });
  }
  file(
      "group_id", [current] { return line(static_cast<std::int32_t>(current().group)); },
      [this, device, queue](std::string_view text) {
        const auto group = parse_group(text);
        if (!group) return EINVAL;
        return change(device, [&](DeviceConfig& config) {
          if (is_queue_on(device, queue) || is_device_on(device)) return EPERM;
          config.queues[queue.value()].group = *group;
          return 0;
        });
      });
  file(
      "size", [current] { return line(current().size); },
      [this, device, queue](std::string_view text) {
        const auto number = parse_number(text);
        if (!number || *number < 0) return EINVAL;
        return change(device, [&](DeviceConfig& config) {
          if (is_device_on(device)) return EPERM;
          std::uint64_t others = 0;
          for (const QueueConfig& each : config.queues) others += each.size;
          QueueConfig& own = config.queues[queue.value()];
          others -= own.size;
          if (static_cast<std::uint64_t>(*number) > kEntryMax - others) return EINVAL;
          own.size = static_cast<std::uint32_t>(*number);
          // idxd accepts a threshold above the size here; the device checks it when enabled.
          own.threshold = std::min(own.threshold, own.size);
          return 0;
        });
      });
  // For a dedicated WQ idxd fails (EOPNOTSUPP); here the number has no meaning.
  file(
      "enqcmds_retries", [current] { return line(current().write_retries); },
      [this, device, queue, current](std::string_view text) {
        if (current().mode == dsa::QueueMode::dedicated) return EOPNOTSUPP;
        const auto number = parse_number(text);
        if (!number || *number < 0) return EINVAL;
        const auto most = static_cast<std::int64_t>(kWriteRetriesMax);
        control_.set_write_retries(device, queue,
                                   static_cast<std::uint32_t>(std::min(*number, most)));
        return 0;
      });
  const auto flag = [&](const char* name, std::array<bool, kQueueMax> DeviceExtras::* field) {
    file(
        name,
        [this, device, queue, field] {
          const Lock lock(mutex_);
          return line((extras_[device.value()].*field)[queue.value()] ? 1 : 0);
        },
        [this, device, queue, field](std::string_view text) {
          bool wanted = false;
          if (set(wanted, text) != 0) return EINVAL;
          if (is_queue_on(device, queue)) return EPERM;
          const Lock lock(mutex_);
          (extras_[device.value()].*field)[queue.value()] = wanted;
          return 0;
        });
  };
  flag("ats_disable", &DeviceExtras::ats_disable);
  flag("prs_disable", &DeviceExtras::prs_disable);
}

}  // namespace headrace::emu
