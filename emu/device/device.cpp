// SPDX-License-Identifier: Apache-2.0
// Devices inside this process: private registers, a controller and a client.
#include "emu/device/device.hpp"

#include "emu/device/client.hpp"
#include "emu/device/registers.hpp"
#include "emu/platform/guarded.hpp"

namespace headrace::emu {
namespace {

class LocalPortal final : public dsa::Portal {
 public:
  LocalPortal(Client& client, DeviceId device, QueueId queue, dsa::QueueInfo info)
      : client_(client), device_(device), queue_(queue), info_(std::move(info)) {}
  [[nodiscard]] const dsa::QueueInfo& info() const override { return info_; }
  [[nodiscard]] bool submit(const dsa::Descriptor& descriptor) noexcept override {
    if (info_.mode == dsa::QueueMode::shared) return client_.enqueue(device_, queue_, descriptor);
    client_.store(device_, queue_, descriptor);
    return true;
  }

 private:
  Client& client_;
  const DeviceId device_;
  const QueueId queue_;
  const dsa::QueueInfo info_;
};

}  // namespace

Device::Device(RegisterMemory memory, Control control, std::unique_ptr<Client> client)
    : memory_(std::move(memory)), control_(std::move(control)), client_(std::move(client)) {
  control_.set_options({.trace = [this](const TraceEvent& event) { client_->tell(event); },
                        .step = [this] { return client_->step(); }});
  for (std::uint32_t d = 0; d < control_.device_count(); ++d) {
    const DeviceConfig config = control_.config(DeviceId(d));
    for (std::uint32_t q = 0; q < kQueueMax; ++q) {
      const QueueConfig& queue = config.queues[q];
      portals_[d][q] = std::make_unique<LocalPortal>(
          *client_, DeviceId(d), QueueId(q),
          dsa::QueueInfo{
              .name = device_name(DeviceId(d)) + "/" + queue_name(DeviceId(d), QueueId(q)),
              .mode = queue.mode,
              .entry_count = queue.size,
              .batch_max = queue.batch_max,
              .transfer_bytes_max = queue.transfer_bytes_max,
              .block_on_fault = queue.block_on_fault,
              .opcodes = queue.op_config[0] & capabilities().op_cap[0],
              .capabilities = capabilities().gen_cap});
    }
  }
}

Device::~Device() = default;

Result<std::unique_ptr<Device>> Device::create(std::span<const DeviceConfig> devices,
                                               DeviceOptions options) {
  const std::string tried = "make emulated devices";
  RegisterMemory memory(
      static_cast<std::byte*>(::operator new[](registers_bytes(), std::align_val_t(64))));
  const std::span<std::byte> bytes(memory.get(), registers_bytes());
  const EmulatorConfig config{options, {devices.begin(), devices.end()}};
  HEADRACE_TAKE_WITHIN(tried, control, Control::create(bytes, config));
  for (std::uint32_t d = 0; d < control->device_count(); ++d) {
    HEADRACE_TRY_WITHIN(tried, control->enable_device(DeviceId(d)));
    for (std::uint32_t q = 0; q < kQueueMax; ++q) {
      if (devices[d].queues[q].size == 0) continue;
      HEADRACE_TRY_WITHIN(tried, control->enable_queue(DeviceId(d), QueueId(q)));
    }
  }
  // A descriptor may name inaccessible memory.
  guarded::install();
  HEADRACE_TAKE_WITHIN(tried, client,
                       Client::attach(bytes, process_memory(),
                                      {std::move(options.trace), std::move(options.interrupt)}));
  HEADRACE_TRY_WITHIN(tried, (*client)->start());
  return std::unique_ptr<Device>(
      new Device(std::move(memory), std::move(*control), std::move(*client)));
}

}  // namespace headrace::emu
