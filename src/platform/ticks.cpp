// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/ticks.hpp"

#include <sys/prctl.h>

namespace headrace::platform {
namespace {

double measure() noexcept {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const std::uint64_t first = ticks();
  Clock::time_point end = begin;
  while (end - begin < std::chrono::milliseconds(2)) end = Clock::now();
  const std::uint64_t last = ticks();
  return static_cast<double>(last - first) / std::chrono::duration<double>(end - begin).count();
}

}  // namespace

bool may_read_ticks() noexcept {
#if defined(__x86_64__)
  int permitted = 0;
  return ::prctl(PR_GET_TSC, &permitted) == 0 && permitted == PR_TSC_ENABLE;
#else
  return false;
#endif
}

double ticks_per_second() noexcept {
  static const double kRate = measure();
  return kRate;
}

}  // namespace headrace::platform
