// SPDX-License-Identifier: Apache-2.0
#include "inject/copy/counters.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "headrace/base/clock.hpp"
#include "headrace/copy/dispatch.hpp"

namespace headrace::preload {
namespace {

/// Shorter calls cost less than reading the clock, so only one in kTimedInterval is timed.
constexpr std::size_t kTimedBytesMin = 4096;
constexpr std::uint64_t kTimedInterval = 64;
/// A sample that took longer was interrupted and is not representative.
constexpr std::uint64_t kSampleNsMax = 20'000;

/// Cost of reading the clock; measured when the counters are mapped.
std::uint64_t clock_cost_ns = 0;

/// Uses the vDSO: no system call, and safe in signal handlers.
std::uint64_t now_ns() noexcept {
  return static_cast<std::uint64_t>(SteadyClock::now().count());
}

std::uint64_t measure_clock_cost_ns() noexcept {
  std::uint64_t least = kSampleNsMax;
  for (int i = 0; i < 32; ++i) {
    const std::uint64_t begin_ns = now_ns();
    least = std::min(least, now_ns() - begin_ns);
  }
  return least;
}

/// Its address identifies the thread. In static TLS: accessing it calls nothing.
[[gnu::tls_model("initial-exec")]] thread_local char own_byte;

std::size_t stripe_index() noexcept {
  const auto place = reinterpret_cast<std::uintptr_t>(&own_byte);
  // Stacks, and with them these bytes, are whole pages apart.
  return ((place >> 12U) ^ (place >> 23U)) % kStripeCount;
}

}  // namespace

void DeviceCells::add(const DeviceTotals& totals) noexcept {
  // relaxed: sums, see Cell.
  descriptors.fetch_add_relaxed(totals.descriptors);
  bytes.fetch_add_relaxed(totals.bytes);
  page_faults.fetch_add_relaxed(totals.page_faults);
  retries.fetch_add_relaxed(totals.retries);
  errors.fetch_add_relaxed(totals.errors);
  lost.fetch_add_relaxed(totals.lost);
}

Counters* map_counters(const char* path) noexcept {
  const int descriptor = ::open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (descriptor < 0) return nullptr;
  struct stat status{};
  void* mapped = MAP_FAILED;
  // A process number may be reused: the path can refer to anything.
  if (::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
      status.st_size == static_cast<off_t>(sizeof(Counters))) {
    mapped = ::mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }
  ::close(descriptor);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const counters = static_cast<Counters*>(mapped);
  if (counters->magic == kCountersMagic && counters->byte_count == sizeof(Counters)) {
    clock_cost_ns = measure_clock_cost_ns();
    return counters;
  }
  ::munmap(mapped, sizeof(Counters));
  return nullptr;
}

CountedCall::CountedCall(Counters& counters, Function function, Path path,
                         std::size_t byte_count) noexcept
    : cells_(&counters.stripes[stripe_index()].cells[static_cast<std::size_t>(function)]),
      cell_(&cell_of(path, byte_count)),
      byte_count_(byte_count) {
  // relaxed: sums, see Cell.
  const std::uint64_t earlier = cell_->call_count.fetch_add_relaxed(1);
  cell_->byte_count.fetch_add_relaxed(byte_count);
  sampled_ = byte_count < kTimedBytesMin;
  if (!sampled_ || earlier % kTimedInterval == 0) begin_ns_ = now_ns();
}

Cell& CountedCall::cell_of(Path path, std::size_t byte_count) const noexcept {
  return (*cells_)[static_cast<std::size_t>(path)][copy::class_of(byte_count)];
}

void CountedCall::become(Path path) noexcept {
  Cell& other = cell_of(path, byte_count_);
  // relaxed: sums, see Cell.
  cell_->call_count.fetch_sub_relaxed(1);
  cell_->byte_count.fetch_sub_relaxed(byte_count_);
  other.call_count.fetch_add_relaxed(1);
  other.byte_count.fetch_add_relaxed(byte_count_);
  cell_ = &other;
}

CountedCall::~CountedCall() {
  if (begin_ns_ == 0) return;
  const std::uint64_t passed_ns = now_ns() - begin_ns_;
  const std::uint64_t taken_ns = passed_ns - std::min(passed_ns, clock_cost_ns);
  if (sampled_ && taken_ns > kSampleNsMax) return;
  cell_->timed_ns.fetch_add_relaxed(taken_ns);  // relaxed: sums, see Cell.
  cell_->timed_count.fetch_add_relaxed(1);
}

}  // namespace headrace::preload
