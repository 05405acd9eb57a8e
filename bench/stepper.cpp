// SPDX-License-Identifier: Apache-2.0
#include "stepper.hpp"

#include <dlfcn.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <array>
#include <utility>

#include "headrace/base/check.hpp"

namespace headrace::bench {
namespace {

constexpr greg_t kTrapFlag = 0x100;
// Shared with the SIGTRAP handler.
Steps steps;
bool ends = false;
std::uintptr_t last = 0;
std::array<std::uintptr_t, 2> mutex_functions{};

bool is_legacy_prefix(std::uint8_t byte) {
  constexpr std::array<std::uint8_t, 10> kOthers{0x66, 0x67, 0xf2, 0xf3, 0x2e,
                                                 0x36, 0x3e, 0x26, 0x64, 0x65};
  for (const std::uint8_t other : kOthers) {
    if (byte == other) return true;
  }
  return false;
}

bool is_locked(const std::uint8_t* code) {
  for (; is_legacy_prefix(*code) || *code == 0xf0; ++code) {
    if (*code == 0xf0) return true;
  }
  if ((*code & 0xf0U) == 0x40) ++code;  // REX
  const bool exchanges = *code == 0x86 || *code == 0x87;
  return exchanges && code[1] < 0xc0;
}

void step(int, siginfo_t*, void* context) {
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  if (ends) {
    registers[REG_EFL] &= ~kTrapFlag;
    return;
  }
  const auto at = static_cast<std::uintptr_t>(registers[REG_RIP]);
  const auto* const code = reinterpret_cast<const std::uint8_t*>(at);
  if (at == std::exchange(last, at)) return;  // A repeated string instruction traps often.
  ++steps.instructions;
  if (code[0] == 0x0f && code[1] == 0x05) {
    ++steps.system_calls;
    if (registers[REG_RAX] == SYS_membarrier) ++steps.barriers;
  }
  if (is_locked(code)) ++steps.locked;
  for (const std::uintptr_t function : mutex_functions) {
    if (at == function) ++steps.mutexes;
  }
}

}  // namespace

void begin_stepping() {
  mutex_functions = {
      reinterpret_cast<std::uintptr_t>(::dlsym(RTLD_DEFAULT, "pthread_mutex_lock")),
      reinterpret_cast<std::uintptr_t>(::dlsym(RTLD_DEFAULT, "pthread_mutex_trylock"))};
  struct sigaction action{};
  action.sa_sigaction = &step;
  action.sa_flags = SA_SIGINFO;
  HEADRACE_CHECK(::sigaction(SIGTRAP, &action, nullptr) == 0, "SIGTRAP can be handled");
  steps = {};
  ends = false;
  last = 0;
  // Skips the red zone, which the compiler may be using.
  asm volatile(
      "lea -128(%%rsp), %%rsp\n\t"
      "pushfq\n\t"
      "orq $0x100, (%%rsp)\n\t"
      "popfq\n\t"
      "lea 128(%%rsp), %%rsp"
      :
      :
      : "memory", "cc");
}

Steps end_stepping() {
  *const_cast<volatile bool*>(&ends) = true;
  return steps;
}

}  // namespace headrace::bench
