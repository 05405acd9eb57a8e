// SPDX-License-Identifier: Apache-2.0
// Drain: how a command of the driver waits until nothing of a WQ is outstanding any more, in
// whichever process it runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "emu/device/registers.hpp"

namespace headrace::emu {

/// Waits until the WQs of `queue_mask` hold nothing and every record is written; reaps meanwhile,
/// for a dead client gives nothing back by itself. Where time is steps (`deterministic`), it takes
/// them by `step`. False if `wait_max` did not do.
[[nodiscard]] bool await_queues(Registers& registers, DeviceRegisters& device, bool deterministic,
                                const std::function<bool()>& step,
                                std::chrono::nanoseconds wait_max, std::uint32_t queue_mask);

}  // namespace headrace::emu
