// SPDX-License-Identifier: Apache-2.0
// Decides which descriptors get which fault.
#include "emu/device/faults.hpp"

#include "emu/device/runner.hpp"

namespace headrace::emu {
namespace {

/// Chance of a rule's n-th match: a function of seed, rule and n, so that a probability reproduces
/// whatever the thread schedule.
double chance_of(std::uint64_t seed, std::uint32_t rule, std::uint64_t match) {
  Random random(seed ^ (std::uint64_t{rule} << 56U) ^ match * 0x9e37'79b9'7f4a'7c15ULL);
  return static_cast<double>(random() >> 11U) * 0x1.0p-53;
}

bool meets(const RunOptions& run_options, Registers& registers, std::uint32_t index,
           std::uint32_t device, std::uint32_t queue, std::uint8_t opcode) noexcept {
  const FaultRule& rule = run_options.faults.rules[index];
  const auto names = [](std::int32_t wanted, std::uint32_t found) {
    return wanted < 0 || static_cast<std::uint32_t>(wanted) == found;
  };
  if (!names(rule.device, device) || !names(rule.queue, queue) || !names(rule.opcode, opcode)) {
    return false;
  }
  // Relaxed: only a number.
  const std::uint64_t match = registers.fault_match_count[index].fetch_add_relaxed(1) + 1;
  bool met = true;
  if (rule.nth != 0) {
    met = match == rule.nth;
  } else if (rule.every != 0) {
    met = match % rule.every == 0;
  } else if (rule.probability > 0) {
    met = chance_of(run_options.seed, index, match) < rule.probability;
  }
  if (met) registers.devices[device].injected_fault_count.add(1);
  return met;
}

}  // namespace

Injection faults_for(const RunOptions& run_options, Registers& registers, std::uint32_t device,
                     std::uint32_t queue, std::uint8_t opcode, bool submission) noexcept {
  Injection injection;
  for (std::uint32_t i = 0; i < run_options.faults.rule_count; ++i) {
    const FaultRule& rule = run_options.faults.rules[i];
    if ((rule.kind == FaultKind::queue_full) != submission) continue;
    if (!meets(run_options, registers, i, device, queue, opcode)) continue;
    switch (rule.kind) {
      case FaultKind::queue_full:
        injection.queue_full = true;
        break;
      case FaultKind::page_fault:
        injection.page_fault = rule;
        break;
      case FaultKind::status:
        injection.status = rule;
        break;
      case FaultKind::slow:
        injection.delay_ns += rule.delay_ns;
        break;
      case FaultKind::halt:
        injection.halt = true;
        break;
      case FaultKind::reset:
        injection.reset = true;
        break;
      case FaultKind::lost_completion:
        injection.lost_completion = true;
        break;
    }
  }
  return injection;
}

}  // namespace headrace::emu
