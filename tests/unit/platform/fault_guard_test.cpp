// SPDX-License-Identifier: Apache-2.0
// SIGBUS with a guarded mapping: from a page that disappeared, and sent as a signal. Each in a
// separate process, because the handler is installed once and for all.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <deque>

#include "headrace/base/atomic.hpp"
#include "headrace/platform/shared_file.hpp"

namespace headrace::platform::fault_guard_test {
namespace {

constexpr std::uint32_t kLost = 7;
constexpr std::size_t kPage = 4096;

/// A page of an empty file: accessing it raises SIGBUS.
std::span<std::byte> page_without_file() {
  const int descriptor = ::memfd_create("guarded", MFD_CLOEXEC);
  void* const mapped = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (descriptor < 0 || mapped == MAP_FAILED) std::abort();
  return {static_cast<std::byte*>(mapped), kPage};
}

void touch(std::span<std::byte> page) {
  *const_cast<volatile std::byte*>(page.data()) = std::byte{1};
}

// Installs a handler before the guard's: a sanitizer has one.
void prepare(void (*action)(int)) {
  ::signal(SIGBUS, action);
}

[[noreturn]] void fault_under_guard() {
  const std::span<std::byte> page = page_without_file();
  Atomic<std::uint32_t> fault{0};
  const FaultGuard guard(page, fault, kLost);
  touch(page);
  ::_exit(fault.load_relaxed() == kLost ? 0 : 1);  // Relaxed: set by this thread's fault.
}

[[noreturn]] void fault_beside_guard() {
  Atomic<std::uint32_t> fault{0};
  const FaultGuard guard(page_without_file(), fault, kLost);
  touch(page_without_file());
  ::_exit(0);
}

[[noreturn]] void signal_only() {
  Atomic<std::uint32_t> fault{0};
  const FaultGuard guard(page_without_file(), fault, kLost);
  ::raise(SIGBUS);
  ::_exit(0);
}

[[noreturn]] void signal_and_fault() {
  const std::span<std::byte> page = page_without_file();
  Atomic<std::uint32_t> fault{0};
  const FaultGuard guard(page, fault, kLost);
  ::raise(SIGBUS);
  touch(page);
  ::_exit(fault.load_relaxed() == kLost ? 0 : 1);  // Relaxed: set by this thread's fault.
}

volatile std::sig_atomic_t g_signals = 0;
void count_signal(int /*number*/) {
  g_signals = g_signals + 1;
}

[[noreturn]] void count_signals() {
  Atomic<std::uint32_t> fault{0};
  const FaultGuard guard(page_without_file(), fault, kLost);
  ::raise(SIGBUS);
  ::raise(SIGBUS);
  ::_exit(g_signals == 2 ? 0 : 1);
}

[[noreturn]] void fault_under_the_last_of_many() {
  std::deque<FaultGuard> guards;
  std::deque<Atomic<std::uint32_t>> faults(3000);
  const std::span<std::byte> page = page_without_file();
  for (Atomic<std::uint32_t>& fault : faults) {
    // Only the last one guards the page.
    const bool last = guards.size() + 1 == faults.size();
    guards.emplace_back(last ? page : std::span(page).first(0), fault, kLost);
  }
  touch(page);
  ::_exit(faults.back().load_relaxed() == kLost ? 0 : 1);  // Relaxed: set by this thread's fault.
}

class FaultGuards : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};
using FaultGuardsDeathTest = FaultGuards;

TEST_F(FaultGuardsDeathTest, APageThatWentAwayIsToldAndReplaced) {
  for (const auto action : {SIG_DFL, SIG_IGN}) {
    EXPECT_EXIT((prepare(action), fault_under_guard()), ::testing::ExitedWithCode(0), "");
  }
}

TEST_F(FaultGuardsDeathTest, EveryMappingHasAGuardHoweverManyThereAre) {
  EXPECT_EXIT((prepare(SIG_DFL), fault_under_the_last_of_many()), ::testing::ExitedWithCode(0), "");
}

TEST_F(FaultGuardsDeathTest, AFaultElsewhereEndsTheProcessAsWithoutGuards) {
  for (const auto action : {SIG_DFL, SIG_IGN}) {
    EXPECT_EXIT((prepare(action), fault_beside_guard()), ::testing::KilledBySignal(SIGBUS), "");
  }
}

TEST_F(FaultGuardsDeathTest, ASignalThatSomebodySentEndsTheProcessAsWithoutGuards) {
  EXPECT_EXIT((prepare(SIG_DFL), signal_only()), ::testing::KilledBySignal(SIGBUS), "");
}

TEST_F(FaultGuardsDeathTest, ASignalThatTheProgramIgnoresCostsNoGuard) {
  EXPECT_EXIT((prepare(SIG_IGN), signal_and_fault()), ::testing::ExitedWithCode(0), "");
}

TEST_F(FaultGuardsDeathTest, ASignalThatSomebodySentGoesToTheHandlerOfTheProgram) {
  EXPECT_EXIT((prepare(count_signal), count_signals()), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headrace::platform::fault_guard_test
