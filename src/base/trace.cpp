// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/trace.hpp"

namespace headrace::trace {

constinit Atomic<Sink> sink{nullptr};

}  // namespace headrace::trace
