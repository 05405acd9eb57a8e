// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/ticks.hpp"

#include <sys/prctl.h>

namespace headrace::platform {

bool may_read_ticks() noexcept {
  int permitted = 0;
  return ::prctl(PR_GET_TSC, &permitted) == 0 && permitted == PR_TSC_ENABLE;
}

double ticks_per_second() noexcept {
  static const double kRate =
      calibrate(ticks, [] { return std::chrono::steady_clock::now().time_since_epoch(); });
  return kRate;
}

}  // namespace headrace::platform
