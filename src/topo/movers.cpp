// SPDX-License-Identifier: Apache-2.0
// Lists DSA devices with libaccel-config, which is loaded at run time and optional. Its functions
// are declared here, so that building needs no header.
#include <fmt/format.h>

#include <cerrno>
#include <memory>
#include <system_error>

#include "facts.hpp"
#include "headrace/platform/library.hpp"

namespace headrace::topo {
namespace {

// Types of libaccel-config's C interface (soname 1), whose structs are opaque.
struct accfg_ctx;
struct accfg_device;
struct accfg_wq;
struct accfg_engine;

struct Functions {
  int (*make)(accfg_ctx**) = nullptr;
  accfg_ctx* (*release)(accfg_ctx*) = nullptr;
  void (*set_log_priority)(accfg_ctx*, int) = nullptr;
  accfg_device* (*first_device)(accfg_ctx*) = nullptr;
  accfg_device* (*next_device)(accfg_device*) = nullptr;
  int (*device_type)(accfg_device*) = nullptr;
  int (*device_id)(accfg_device*) = nullptr;
  int (*device_node)(accfg_device*) = nullptr;
  int (*device_state)(accfg_device*) = nullptr;
  accfg_engine* (*first_engine)(accfg_device*) = nullptr;
  accfg_engine* (*next_engine)(accfg_engine*) = nullptr;
  accfg_wq* (*first_queue)(accfg_device*) = nullptr;
  accfg_wq* (*next_queue)(accfg_wq*) = nullptr;
  int (*queue_id)(accfg_wq*) = nullptr;
  int (*queue_mode)(accfg_wq*) = nullptr;
  int (*queue_state)(accfg_wq*) = nullptr;
  int (*queue_type)(accfg_wq*) = nullptr;
  const char* (*queue_device_name)(accfg_wq*) = nullptr;
  std::uint64_t (*queue_entry_count)(accfg_wq*) = nullptr;
  std::uint64_t (*queue_transfer_bytes_max)(accfg_wq*) = nullptr;
  unsigned (*queue_batch_max)(accfg_wq*) = nullptr;
  int (*queue_block_on_fault)(accfg_wq*) = nullptr;
};

/// Name of the first function that the library lacks, or nullptr.
const char* bind(const platform::Library& library, Functions& functions) {
  const char* missing = nullptr;
  const auto find = [&]<typename Return, typename... Arguments>(Return (*& slot)(Arguments...),
                                                                const char* name) {
    slot = library.function<Return(Arguments...)>(name);
    if (slot == nullptr && missing == nullptr) missing = name;
  };
  find(functions.make, "accfg_new");
  find(functions.release, "accfg_unref");
  find(functions.set_log_priority, "accfg_set_log_priority");
  find(functions.first_device, "accfg_device_get_first");
  find(functions.next_device, "accfg_device_get_next");
  find(functions.device_type, "accfg_device_get_type");
  find(functions.device_id, "accfg_device_get_id");
  find(functions.device_node, "accfg_device_get_numa_node");
  find(functions.device_state, "accfg_device_get_state");
  find(functions.first_engine, "accfg_engine_get_first");
  find(functions.next_engine, "accfg_engine_get_next");
  find(functions.first_queue, "accfg_wq_get_first");
  find(functions.next_queue, "accfg_wq_get_next");
  find(functions.queue_id, "accfg_wq_get_id");
  find(functions.queue_mode, "accfg_wq_get_mode");
  find(functions.queue_state, "accfg_wq_get_state");
  find(functions.queue_type, "accfg_wq_get_type");
  find(functions.queue_device_name, "accfg_wq_get_devname");
  find(functions.queue_entry_count, "accfg_wq_get_size");
  find(functions.queue_transfer_bytes_max, "accfg_wq_get_max_transfer_size");
  find(functions.queue_batch_max, "accfg_wq_get_max_batch_size");
  find(functions.queue_block_on_fault, "accfg_wq_get_block_on_fault");
  return missing;
}

// Enumerators of libaccel-config, in its order.
constexpr int kDeviceTypeDsa = 0;

const char* device_state_name(int state) {
  switch (state) {
    case 0:
      return "disabled";
    case 1:
      return "enabled";
    default:
      return "unknown";
  }
}

const char* queue_mode_name(int mode) {
  switch (mode) {
    case 0:
      return "shared";
    case 1:
      return "dedicated";
    default:
      return "unknown";
  }
}

const char* queue_state_name(int state) {
  switch (state) {
    case 0:
      return "disabled";
    case 1:
      return "enabled";
    case 2:
      return "quiescing";
    case 3:
      return "locked";
    default:
      return "unknown";
  }
}

const char* queue_type_name(int type) {
  switch (type) {
    case 0:
      return "none";
    case 1:
      return "kernel";
    case 2:
      return "user";
    default:
      return "unknown";
  }
}

DsaQueue to_queue(const Functions& functions, accfg_wq* handle) {
  DsaQueue queue;
  queue.id = QueueId(static_cast<std::uint32_t>(functions.queue_id(handle)));
  queue.mode = queue_mode_name(functions.queue_mode(handle));
  queue.state = queue_state_name(functions.queue_state(handle));
  queue.type = queue_type_name(functions.queue_type(handle));
  const char* device_name = functions.queue_device_name(handle);
  queue.device_name = device_name != nullptr ? device_name : "";
  queue.entry_count = static_cast<std::uint32_t>(functions.queue_entry_count(handle));
  queue.transfer_max = Bytes(functions.queue_transfer_bytes_max(handle));
  queue.batch_max = functions.queue_batch_max(handle);
  queue.block_on_fault = functions.queue_block_on_fault(handle) > 0;
  return queue;
}

DsaDevice to_device(const Functions& functions, accfg_device* handle) {
  DsaDevice device;
  device.id = DeviceId(static_cast<std::uint32_t>(functions.device_id(handle)));
  // -1: unknown to the firmware.
  if (const int node = functions.device_node(handle); node >= 0) {
    device.node = NodeId(static_cast<std::uint32_t>(node));
  }
  device.state = device_state_name(functions.device_state(handle));
  for (accfg_engine* engine = functions.first_engine(handle); engine != nullptr;
       engine = functions.next_engine(engine)) {
    ++device.engine_count;
  }
  for (accfg_wq* queue = functions.first_queue(handle); queue != nullptr;
       queue = functions.next_queue(queue)) {
    device.queues.push_back(to_queue(functions, queue));
  }
  return device;
}

}  // namespace

Movers find_movers(const std::string& library_name) {
  Movers movers;
  const Result<platform::Library> library = platform::Library::load(library_name);
  if (!library.has_value()) {
    movers.discovery = MoverDiscovery::library_absent;
    movers.note = fmt::format("DSA devices are unknown: {} (package libaccel-config1).",
                              library.error().message());
    return movers;
  }
  movers.discovery = MoverDiscovery::library_failed;
  Functions functions;
  if (const char* missing = bind(*library, functions); missing != nullptr) {
    movers.note =
        fmt::format("DSA devices are unknown: '{}' has no function {}.", library_name, missing);
    return movers;
  }
  accfg_ctx* raw = nullptr;
  if (const int status = functions.make(&raw); status != 0 || raw == nullptr) {
    movers.note = fmt::format("DSA devices are unknown: '{}' does not start ({}).", library_name,
                              std::generic_category().message(status < 0 ? -status : EIO));
    return movers;
  }
  const std::unique_ptr<accfg_ctx, accfg_ctx* (*)(accfg_ctx*)> context(raw, functions.release);
  functions.set_log_priority(raw, 0);  // Keep its log off the program's standard error.
  for (accfg_device* device = functions.first_device(raw); device != nullptr;
       device = functions.next_device(device)) {
    if (functions.device_type(device) == kDeviceTypeDsa) {
      movers.dsa_devices.push_back(to_device(functions, device));
    }
  }
  movers.discovery = MoverDiscovery::done;
  return movers;
}

}  // namespace headrace::topo
