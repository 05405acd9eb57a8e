// SPDX-License-Identifier: Apache-2.0
// PerfCounter: a hardware event of the calling thread, counted by the kernel.
#pragma once

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

namespace headrace::bench {

/// Threading: owned.
class PerfCounter {
 public:
  enum class Where : std::uint8_t { user_mode, everywhere_if_permitted };
  /// `event`: PERF_COUNT_HW_CPU_CYCLES, for example.
  PerfCounter(std::uint64_t event, Where where) {
    perf_event_attr attributes{};
    attributes.size = sizeof(attributes);
    attributes.type = PERF_TYPE_HARDWARE;
    attributes.config = event;
    attributes.exclude_hv = 1;
    if (where == Where::everywhere_if_permitted) descriptor_ = open(attributes);
    attributes.exclude_kernel = 1;
    if (descriptor_ < 0) descriptor_ = open(attributes);
    if (descriptor_ < 0) problem_ = std::strerror(errno);
  }
  PerfCounter& operator=(PerfCounter&&) = delete;
  ~PerfCounter() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  /// nullopt if counting is not permitted.
  [[nodiscard]] std::optional<std::uint64_t> read() const {
    std::uint64_t count = 0;
    if (descriptor_ < 0 || ::read(descriptor_, &count, sizeof(count)) != sizeof(count)) return {};
    return count;
  }
  /// Why it is not; empty if it is.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  static int open(perf_event_attr& attributes) {
    return static_cast<int>(::syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
  }
  int descriptor_ = -1;
  std::string problem_;
};

}  // namespace headrace::bench
