// SPDX-License-Identifier: Apache-2.0
// The files that set a WQ up: what idxd's sysfs.c shows and accepts, and when. [S]
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "launch/emulator/driver.hpp"
#include "launch/emulator/values.hpp"

namespace headrace::emu {
namespace {

constexpr std::size_t kNameMax = 63;        // WQ_NAME_SIZE is 1024; the registers keep 63.
constexpr std::size_t kDriverNameMax = 31;  // DRIVER_NAME_SIZE is 128; the same.
constexpr std::int64_t kPriorityMax = 15;   // IDXD_MAX_PRIORITY.

/// One file of a WQ: how its value is written, and how a new one is taken over.
struct Setting {
  const char* name;
  std::string (*show)(const QueueConfig& queue);
  int (*store)(QueueConfig& queue, std::string_view text);
};

std::string line(std::string_view text) {
  return fmt::format("{}\n", text);
}
template <typename T>
std::string number_line(T number) {
  return fmt::format("{}\n", number);
}

int store_mode(QueueConfig& queue, std::string_view text) {
  if (text == "dedicated") {
    queue.mode = dsa::QueueMode::dedicated;
    queue.threshold = 0;
    return 0;
  }
  if (text == "shared") {
    queue.mode = dsa::QueueMode::shared;
    return 0;
  }
  return EINVAL;
}

int store_priority(QueueConfig& queue, std::string_view text) {
  const auto number = parse_number(text);
  if (!number || *number < 0 || *number > kPriorityMax) return EINVAL;
  queue.priority = static_cast<std::uint32_t>(*number);
  return 0;
}

int store_threshold(QueueConfig& queue, std::string_view text) {
  const auto number = parse_number(text);
  if (!number || *number <= 0 || *number > static_cast<std::int64_t>(queue.size)) return EINVAL;
  if (queue.mode == dsa::QueueMode::dedicated) return EINVAL;
  queue.threshold = static_cast<std::uint32_t>(*number);
  return 0;
}

int store_block_on_fault(QueueConfig& queue, std::string_view text) {
  const auto flag = parse_flag(text);
  if (!flag) return EINVAL;
  queue.block_on_fault = *flag;
  return 0;
}

int store_type(QueueConfig& queue, std::string_view text) {
  if (text != "none" && text != "kernel" && text != "user") return EINVAL;
  if (queue.type != text) queue.name.clear();
  queue.type = text;
  return 0;
}

int store_name(QueueConfig& queue, std::string_view text) {
  if (text.empty() || text.size() > kNameMax) return EINVAL;
  queue.name = text;
  return 0;
}

int store_driver_name(QueueConfig& queue, std::string_view text) {
  if (text.empty() || text.size() > kDriverNameMax) return EINVAL;
  queue.driver_name = text;
  return 0;
}

/// As __get_sysfs_u64 and what follows it: the next power of two, up to `most`; 0: EINVAL.
std::uint64_t rounded_size(std::string_view text, std::uint64_t most) {
  const auto number = parse_number(text);
  if (!number || *number <= 0) return 0;
  if (static_cast<std::uint64_t>(*number) > most) return 0;
  return std::bit_ceil(static_cast<std::uint64_t>(*number));
}

int store_transfer_max(QueueConfig& queue, std::string_view text) {
  const std::uint64_t byte_count = rounded_size(text, kTransferBytesMax);
  if (byte_count == 0) return EINVAL;
  queue.transfer_bytes_max = byte_count;
  return 0;
}

int store_batch_max(QueueConfig& queue, std::string_view text) {
  const std::uint64_t count = rounded_size(text, kBatchMax);
  if (count == 0) return EINVAL;
  queue.batch_max = static_cast<std::uint32_t>(count);
  return 0;
}

/// What the device does not know at all cannot be allowed: ~0 in the model means "all of op_cap".
std::array<std::uint64_t, 4> shown_opcodes(const QueueConfig& queue) {
  std::array<std::uint64_t, 4> shown = capabilities().op_cap;
  for (std::size_t i = 0; i < shown.size(); ++i) shown[i] &= queue.op_config[i];
  return shown;
}

int store_opcodes(QueueConfig& queue, std::string_view text) {
  const auto bits = parse_bitmap(text);
  if (!bits) return EINVAL;
  const auto has = capabilities().op_cap;
  for (std::size_t i = 0; i < has.size(); ++i) {
    if (((*bits)[i] & ~has[i]) != 0) return EINVAL;
  }
  queue.op_config = *bits;
  return 0;
}

const std::array<Setting, 10> kSettings{{
    {"mode",
     [](const QueueConfig& queue) {
       return line(queue.mode == dsa::QueueMode::shared ? "shared" : "dedicated");
     },
     store_mode},
    {"priority", [](const QueueConfig& queue) { return number_line(queue.priority); },
     store_priority},
    {"threshold", [](const QueueConfig& queue) { return number_line(queue.threshold); },
     store_threshold},
    {"block_on_fault",
     [](const QueueConfig& queue) { return line(queue.block_on_fault ? "1" : "0"); },
     store_block_on_fault},
    {"type", [](const QueueConfig& queue) { return line(queue.type); }, store_type},
    {"name", [](const QueueConfig& queue) { return line(queue.name); }, store_name},
    {"driver_name", [](const QueueConfig& queue) { return line(queue.driver_name); },
     store_driver_name},
    {"max_transfer_size",
     [](const QueueConfig& queue) { return number_line(queue.transfer_bytes_max); },
     store_transfer_max},
    {"max_batch_size", [](const QueueConfig& queue) { return number_line(queue.batch_max); },
     store_batch_max},
    {"op_config", [](const QueueConfig& queue) { return line(bitmap_text(shown_opcodes(queue))); },
     store_opcodes},
}};

}  // namespace

void Driver::add_queue_settings(Tree& tree, const std::string& path, DeviceId device,
                                QueueId queue) {
  const auto file = [&](const std::string& name, std::function<std::string()> show,
                        std::function<int(std::string_view)> store) {
    tree.add(path + "/" + name, {.kind = NodeKind::attribute,
                                 .permissions = 0644,
                                 .show = std::move(show),
                                 .store = std::move(store)});
  };
  const auto current = [this, device, queue] {
    return control_.config(device).queues[queue.value()];
  };
  for (const Setting& setting : kSettings) {
    file(
        setting.name, [current, &setting] { return setting.show(current()); },
        [this, device, queue, &setting](std::string_view text) {
          return change_queue(device, queue, [&](QueueConfig& config) {
            return setting.store(config, without_line_end(text));
          });
        });
  }
  file(
      "group_id",
      [current] {
        const std::uint32_t group = current().group;
        return number_line(group == kNoGroup ? -1 : static_cast<int>(group));
      },
      [this, device, queue](std::string_view text) {
        const auto number = parse_number(text);
        if (!number || *number < -1 || *number >= static_cast<std::int64_t>(kGroupMax)) {
          return EINVAL;
        }
        return change_queue(device, queue, [&](QueueConfig& config) {
          if (is_device_on(device)) return EPERM;
          config.group = *number < 0 ? kNoGroup : static_cast<std::uint32_t>(*number);
          return 0;
        });
      });
  file(
      "size", [current] { return number_line(current().size); },
      [this, device, queue](std::string_view text) {
        const auto number = parse_number(text);
        if (!number || *number < 0) return EINVAL;
        return change(device, [&](DeviceConfig& config) {
          if (is_device_on(device)) return EPERM;
          std::uint64_t total = static_cast<std::uint64_t>(*number);
          for (std::uint32_t q = 0; q < kQueueMax; ++q) {
            if (q != queue.value()) total += config.queues[q].size;
          }
          if (total > kEntryMax) return EINVAL;
          QueueConfig& own = config.queues[queue.value()];
          own.size = static_cast<std::uint32_t>(*number);
          // idxd leaves a threshold above the size to the device's own check at enabling.
          own.threshold = std::min(own.threshold, own.size);
          return 0;
        });
      });
  // idxd does not show that of a dedicated WQ (EOPNOTSUPP); here it is a number without meaning.
  file(
      "enqcmds_retries", [current] { return number_line(current().write_retries); },
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
          return line((extras_[device.value()].*field)[queue.value()] ? "1" : "0");
        },
        [this, device, queue, field](std::string_view text) {
          const auto wanted = parse_flag(text);
          if (!wanted) return EINVAL;
          if (is_queue_on(device, queue)) return EPERM;
          const Lock lock(mutex_);
          (extras_[device.value()].*field)[queue.value()] = *wanted;
          return 0;
        });
  };
  flag("ats_disable", &DeviceExtras::ats_disable);
  flag("prs_disable", &DeviceExtras::prs_disable);
}

}  // namespace headrace::emu
