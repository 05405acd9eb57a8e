// SPDX-License-Identifier: Apache-2.0
#include "emu/device/config.hpp"

#include <algorithm>

namespace headrace::emu {
namespace {

Failure wrong(std::size_t queue, const std::string& field, const std::string& cause,
              const std::string& remedy) {
  return fail(Code::invalid_argument, "accept the configuration of a device",
              "WQ " + std::to_string(queue) + ", field '" + field + "': " + cause, remedy);
}

}  // namespace

Capabilities capabilities() {
  // As a 4th generation Xeon shows them (`accel-config list -i`): block on fault, overlapping
  // copies, cache control; transfers to 2^31 bytes, batches to 2^10. op_cap: opcodes 0 to 9, 0x10
  // to 0x15 and 0x20. [S]
  return {.gen_cap = 0x40'915f'0107ULL, .op_cap = {0x1'003f'03ffULL, 0, 0, 0}, .version = 0x100};
}

Result<void> check(const DeviceConfig& config) {
  std::uint32_t entries = 0;
  for (std::size_t i = 0; i < config.queues.size(); ++i) {
    const QueueConfig& queue = config.queues[i];
    if (queue.group != kNoGroup && queue.group >= kGroupMax) {
      return wrong(i, "group_id", std::to_string(queue.group) + " does not exist",
                   "choose 0 to " + std::to_string(kGroupMax - 1) + ", or none");
    }
    entries += queue.size;
    if (queue.size > kEntryMax || entries > kEntryMax) {
      return wrong(i, "size", "the WQs would have " + std::to_string(entries) + " entries together",
                   "share out at most " + std::to_string(kEntryMax));
    }
    if (queue.threshold > queue.size) {
      return wrong(i, "threshold", std::to_string(queue.threshold) + " is more than the size",
                   "choose at most " + std::to_string(queue.size));
    }
    if (queue.priority > 15) {
      return wrong(i, "priority", std::to_string(queue.priority) + " does not exist",
                   "choose 1 to 15");
    }
    if (queue.batch_max == 0 || queue.batch_max > kBatchMax) {
      return wrong(i, "max_batch_size", std::to_string(queue.batch_max) + " is not possible",
                   "choose 1 to " + std::to_string(kBatchMax));
    }
    if (queue.transfer_bytes_max == 0 || queue.transfer_bytes_max > kTransferBytesMax) {
      return wrong(i, "max_transfer_size",
                   std::to_string(queue.transfer_bytes_max) + " is not possible",
                   "choose 1 to " + std::to_string(kTransferBytesMax));
    }
    if (queue.type != "none" && queue.type != "kernel" && queue.type != "user") {
      return wrong(i, "type", "'" + queue.type + "' is unknown", "choose none, kernel or user");
    }
    if (queue.name.size() > 64) {
      return wrong(i, "name", "it has more than 64 letters", "choose a shorter one");
    }
  }
  for (std::size_t i = 0; i < config.engine_groups.size(); ++i) {
    const std::uint32_t group = config.engine_groups[i];
    if (group != kNoGroup && group >= kGroupMax) {
      return fail(Code::invalid_argument, "accept the configuration of a device",
                  "engine " + std::to_string(i) + ", field 'group_id': " + std::to_string(group) +
                      " does not exist",
                  "choose 0 to " + std::to_string(kGroupMax - 1) + ", or none");
    }
  }
  return {};
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
