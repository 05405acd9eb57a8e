// SPDX-License-Identifier: Apache-2.0
// Lists DSA devices with libaccel-config, which is loaded at run time and optional. Its functions
// are declared here, so that building needs no header.
#include <fmt/format.h>

#include <array>
#include <memory>
#include <system_error>
#include <type_traits>

#include "facts.hpp"
#include "headrace/platform/library.hpp"

namespace headrace::topo {
namespace {

// Types of libaccel-config's C interface (soname 1), whose structs are opaque.
struct accfg_ctx;
struct accfg_device;
struct accfg_wq;
struct accfg_engine;

/// The functions of the library that are used: name here, type, name there.
#define HEADRACE_ACCFG_FUNCTIONS(each)                                                        \
  each(make, int(accfg_ctx**), "accfg_new");                                                  \
  each(release, accfg_ctx*(accfg_ctx*), "accfg_unref");                                       \
  each(set_log_priority, void(accfg_ctx*, int), "accfg_set_log_priority");                    \
  each(first_device, accfg_device*(accfg_ctx*), "accfg_device_get_first");                    \
  each(next_device, accfg_device*(accfg_device*), "accfg_device_get_next");                   \
  each(device_type, int(accfg_device*), "accfg_device_get_type");                             \
  each(device_id, int(accfg_device*), "accfg_device_get_id");                                 \
  each(device_node, int(accfg_device*), "accfg_device_get_numa_node");                        \
  each(device_state, int(accfg_device*), "accfg_device_get_state");                           \
  each(first_engine, accfg_engine*(accfg_device*), "accfg_engine_get_first");                 \
  each(next_engine, accfg_engine*(accfg_engine*), "accfg_engine_get_next");                   \
  each(first_queue, accfg_wq*(accfg_device*), "accfg_wq_get_first");                          \
  each(next_queue, accfg_wq*(accfg_wq*), "accfg_wq_get_next");                                \
  each(queue_id, int(accfg_wq*), "accfg_wq_get_id");                                          \
  each(queue_mode, int(accfg_wq*), "accfg_wq_get_mode");                                      \
  each(queue_state, int(accfg_wq*), "accfg_wq_get_state");                                    \
  each(queue_type, int(accfg_wq*), "accfg_wq_get_type");                                      \
  each(queue_device_name, const char*(accfg_wq*), "accfg_wq_get_devname");                    \
  each(queue_entry_count, std::uint64_t(accfg_wq*), "accfg_wq_get_size");                     \
  each(queue_transfer_bytes_max, std::uint64_t(accfg_wq*), "accfg_wq_get_max_transfer_size"); \
  each(queue_batch_max, unsigned(accfg_wq*), "accfg_wq_get_max_batch_size");                  \
  each(queue_block_on_fault, int(accfg_wq*), "accfg_wq_get_block_on_fault")

struct Functions {
#define HEADRACE_ACCFG_FIELD(field, type, symbol) std::add_pointer_t<type> field = nullptr
  HEADRACE_ACCFG_FUNCTIONS(HEADRACE_ACCFG_FIELD);
#undef HEADRACE_ACCFG_FIELD
};

/// Name of the first function that the library lacks, or nullptr.
const char* bind(const platform::Library& library, Functions& functions) {
#define HEADRACE_ACCFG_FIND(field, type, symbol)    \
  functions.field = library.function<type>(symbol); \
  if (functions.field == nullptr) return symbol
  HEADRACE_ACCFG_FUNCTIONS(HEADRACE_ACCFG_FIND);
#undef HEADRACE_ACCFG_FIND
  return nullptr;
}

// Enumerators of libaccel-config, in its order.
constexpr int kDeviceTypeDsa = 0;
constexpr std::array kDeviceStates{"disabled", "enabled"};
constexpr std::array kQueueModes{"shared", "dedicated"};
constexpr std::array kQueueStates{"disabled", "enabled", "quiescing", "locked"};
constexpr std::array kQueueTypes{"none", "kernel", "user"};

template <std::size_t kCount>
const char* name_of(int value, const std::array<const char*, kCount>& names) {
  const auto index = static_cast<std::size_t>(value);
  return index < kCount ? names[index] : "unknown";
}

DsaQueue to_queue(const Functions& functions, accfg_wq* handle) {
  DsaQueue queue;
  queue.id = QueueId(static_cast<std::uint32_t>(functions.queue_id(handle)));
  queue.mode = name_of(functions.queue_mode(handle), kQueueModes);
  queue.state = name_of(functions.queue_state(handle), kQueueStates);
  queue.type = name_of(functions.queue_type(handle), kQueueTypes);
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
  device.state = name_of(functions.device_state(handle), kDeviceStates);
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
