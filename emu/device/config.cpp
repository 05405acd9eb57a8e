// SPDX-License-Identifier: Apache-2.0
#include "emu/device/config.hpp"

#include <linux/idxd.h>

#include <algorithm>

namespace headrace::emu {
namespace {

/// "choose 1 to 15".
std::string choose(std::uint64_t least, std::uint64_t most) {
  return "choose " + std::to_string(least) + " to " + std::to_string(most);
}

Failure wrong(const std::string& part, std::size_t number, const std::string& field,
              const std::string& cause, const std::string& remedy) {
  return fail(Code::invalid_argument, "accept the configuration of a device",
              part + " " + std::to_string(number) + ", field '" + field + "': " + cause, remedy);
}

}  // namespace

Capabilities capabilities() {
  // As a 4th generation Xeon reports them (`accel-config list -i`): block on fault, overlapping
  // copies, cache control; transfers to 2^31 bytes, batches to 2^10. op_cap: opcodes 0 to 9, 0x10
  // to 0x15 and 0x20. [S]
  return {.gen_cap = 0x40'915f'0107ULL, .op_cap = {0x1'003f'03ffULL, 0, 0, 0}, .version = 0x100};
}

Result<void> check(const DeviceConfig& config) {
  std::uint32_t entries = 0;
  for (std::size_t i = 0; i < config.queues.size(); ++i) {
    const QueueConfig& queue = config.queues[i];
    entries += queue.size;
    const auto text = [](std::uint64_t number) { return std::to_string(number); };
    const std::uint64_t bytes_max = queue.transfer_bytes_max;
    const struct {
      bool holds;
      const char* field;
      std::string cause;
      std::string remedy;
    } faults[] = {
        {queue.group != kNoGroup && queue.group >= kGroupMax, "group_id",
         text(queue.group) + " does not exist", choose(0, kGroupMax - 1) + ", or none"},
        {queue.size > kEntryMax || entries > kEntryMax, "size",
         "the WQs would have " + text(entries) + " entries together",
         "use at most " + text(kEntryMax)},
        {queue.threshold > queue.size, "threshold",
         text(queue.threshold) + " is more than the size", "choose at most " + text(queue.size)},
        {queue.priority > 15, "priority", text(queue.priority) + " does not exist", choose(1, 15)},
        {queue.batch_max == 0 || queue.batch_max > kBatchMax, "max_batch_size",
         text(queue.batch_max) + " is not possible", choose(1, kBatchMax)},
        {bytes_max == 0 || bytes_max > kTransferBytesMax, "max_transfer_size",
         text(bytes_max) + " is not possible", choose(1, kTransferBytesMax)},
        {queue.type != "none" && queue.type != "kernel" && queue.type != "user", "type",
         "'" + queue.type + "' is unknown", "choose none, kernel or user"},
        {queue.name.size() > 64, "name", "it has more than 64 letters", "choose a shorter one"}};
    for (const auto& each : faults) {
      if (each.holds) return wrong("WQ", i, each.field, each.cause, each.remedy);
    }
  }
  for (std::size_t i = 0; i < config.engine_groups.size(); ++i) {
    const std::uint32_t group = config.engine_groups[i];
    if (group != kNoGroup && group >= kGroupMax) {
      return wrong("engine", i, "group_id", std::to_string(group) + " does not exist",
                   choose(0, kGroupMax - 1) + ", or none");
    }
  }
  return {};
}

std::optional<Lack> lack_of(const QueueConfig& queue) {
  const bool is_shared = queue.mode == dsa::QueueMode::shared;
  if (queue.group == kNoGroup) {
    return Lack{IDXD_SCMD_WQ_NO_GRP, "group_id", "it has no group", "give its group_id"};
  }
  if (queue.name.empty())
    return Lack{IDXD_SCMD_WQ_NO_NAME, "name", "it has no name", "give it one"};
  if (queue.size == 0) {
    return Lack{IDXD_SCMD_WQ_NO_SIZE, "size", "it has no entries", "give it a size"};
  }
  if (is_shared && queue.threshold == 0) {
    return Lack{IDXD_SCMD_WQ_NO_THRESH, "threshold", "it is shared and has no threshold",
                "use 1 to " + std::to_string(queue.size)};
  }
  // The driver does not check this; the device does, in its configuration. [I]
  if (queue.priority == 0) {
    return Lack{IDXD_SCMD_DEV_DMA_ERR, "priority", "it has no priority", "use 1 to 15"};
  }
  return std::nullopt;
}

DeviceConfig default_device(std::uint32_t shared_count, std::uint32_t dedicated_count,
                            std::uint32_t engine_count, const std::string& queue_name) {
  DeviceConfig config;
  const std::uint32_t count = std::min(shared_count + dedicated_count, kQueueMax);
  for (std::uint32_t i = 0; i < count; ++i) {
    QueueConfig& queue = config.queues[i];
    queue.group = 0;
    queue.mode = i < shared_count ? dsa::QueueMode::shared : dsa::QueueMode::dedicated;
    queue.size = kEntryMax / count;
    queue.threshold = queue.mode == dsa::QueueMode::shared ? queue.size : 0;
    queue.priority = 10;
    queue.block_on_fault = true;
    queue.batch_max = kBatchMax;
    queue.transfer_bytes_max = kTransferBytesMax;
    queue.op_config = capabilities().op_cap;
    queue.type = "user";
    queue.name = queue_name;
    queue.driver_name = "user";
  }
  for (std::uint32_t i = 0; i < std::min(engine_count, kEngineMax); ++i)
    config.engine_groups[i] = 0;
  return config;
}

}  // namespace headrace::emu
