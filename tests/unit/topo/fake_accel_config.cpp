// SPDX-License-Identifier: Apache-2.0
// Stands in for libaccel-config: one DSA device on node 1 with two engines and two queues, one IAA
// device, and a context whose creation fails with HEADRACE_FAKE_ACCEL_CONFIG_ERRNO if that is set.
#include <array>
#include <cstdint>
#include <cstdlib>

struct accfg_ctx {};
struct accfg_wq {
  int id;
  int mode;
  int state;
  int type;
  const char* name;
};
struct accfg_engine {};
struct accfg_device {
  int type;
  int id;
  int node;
  int state;
};

namespace {
accfg_ctx context;
std::array<accfg_device, 2> devices{{{0, 2, 1, 1}, {1, 3, -1, 0}}};
std::array<accfg_wq, 2> queues{{{0, 0, 1, 2, "wq2.0"}, {1, 1, 0, 1, "wq2.1"}}};
std::array<accfg_engine, 2> engines;

template <typename T, std::size_t count>
T* next(std::array<T, count>& all, T* current) {
  return current + 1 == all.data() + count ? nullptr : current + 1;
}
}  // namespace

extern "C" {
int accfg_new(accfg_ctx** made) {
  if (const char* refused = std::getenv("HEADRACE_FAKE_ACCEL_CONFIG_ERRNO"); refused != nullptr) {
    return -std::atoi(refused);
  }
  *made = &context;
  return 0;
}
accfg_ctx* accfg_unref(accfg_ctx* /*ctx*/) {
  return nullptr;
}
void accfg_set_log_priority(accfg_ctx* /*ctx*/, int /*priority*/) {}
accfg_device* accfg_device_get_first(accfg_ctx* /*ctx*/) {
  return devices.data();
}
accfg_device* accfg_device_get_next(accfg_device* device) {
  return next(devices, device);
}
int accfg_device_get_type(accfg_device* device) {
  return device->type;
}
int accfg_device_get_id(accfg_device* device) {
  return device->id;
}
int accfg_device_get_numa_node(accfg_device* device) {
  return device->node;
}
int accfg_device_get_state(accfg_device* device) {
  return device->state;
}
accfg_engine* accfg_engine_get_first(accfg_device* /*device*/) {
  return engines.data();
}
accfg_engine* accfg_engine_get_next(accfg_engine* engine) {
  return next(engines, engine);
}
accfg_wq* accfg_wq_get_first(accfg_device* /*device*/) {
  return queues.data();
}
accfg_wq* accfg_wq_get_next(accfg_wq* queue) {
  return next(queues, queue);
}
int accfg_wq_get_id(accfg_wq* queue) {
  return queue->id;
}
int accfg_wq_get_mode(accfg_wq* queue) {
  return queue->mode;
}
int accfg_wq_get_state(accfg_wq* queue) {
  return queue->state;
}
int accfg_wq_get_type(accfg_wq* queue) {
  return queue->type;
}
const char* accfg_wq_get_devname(accfg_wq* queue) {
  return queue->name;
}
std::uint64_t accfg_wq_get_size(accfg_wq* /*queue*/) {
  return 64;
}
std::uint64_t accfg_wq_get_max_transfer_size(accfg_wq* /*queue*/) {
  return 1U << 21U;
}
unsigned accfg_wq_get_max_batch_size(accfg_wq* /*queue*/) {
  return 32;
}
int accfg_wq_get_block_on_fault(accfg_wq* queue) {
  return queue->id == 1 ? 1 : 0;
}
}
