// SPDX-License-Identifier: Apache-2.0
// Direct system calls: without errno or the C library's wrappers, which another preload may have
// replaced and which may not be initialised yet. Async-signal-safe. Returns the kernel's result:
// -errno on failure.
#pragma once

#include <asm/unistd.h>
#include <sys/mman.h>

#include <cstdint>

namespace headrace::kernel {

inline long call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
                 long f = 0) noexcept {
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  long result = number;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

template <typename T>
long as_argument(T* pointer) noexcept {
  return reinterpret_cast<long>(pointer);
}

/// Maps private memory, or the file `file`. Returns 0 on failure.
inline std::uint64_t map(std::uint64_t byte_count, int flags = MAP_PRIVATE | MAP_ANONYMOUS,
                         long file = -1) noexcept {
  const long address =
      call(__NR_mmap, 0, static_cast<long>(byte_count), PROT_READ | PROT_WRITE, flags, file, 0);
  return address < 0 && address > -4096 ? 0 : static_cast<std::uint64_t>(address);
}

/// A signal set in the kernel's layout: bit n-1 for signal n.
using SignalSet = std::uint64_t;
constexpr SignalSet signal_bit(int signal) {
  return SignalSet{1} << (signal - 1);
}
constexpr SignalSet kAllSignals = ~SignalSet{0};

/// Sets this thread's mask and returns the previous one.
inline SignalSet set_mask(SignalSet mask) noexcept {
  SignalSet old = 0;
  constexpr long kSetMask = 2;
  call(__NR_rt_sigprocmask, kSetMask, as_argument(&mask), as_argument(&old), sizeof(SignalSet));
  return old;
}
inline SignalSet mask() noexcept {
  SignalSet now = 0;
  call(__NR_rt_sigprocmask, 0, 0, as_argument(&now), sizeof(SignalSet));
  return now;
}

/// Blocks all signals during its lifetime.
///
/// Threading: owned.
class Quiet {
 public:
  Quiet() noexcept : former_(set_mask(kAllSignals)) {}
  Quiet& operator=(Quiet&&) = delete;
  ~Quiet() { set_mask(former_); }

 private:
  SignalSet former_;
};

inline void yield() noexcept {
  call(__NR_sched_yield);
}

}  // namespace headrace::kernel
