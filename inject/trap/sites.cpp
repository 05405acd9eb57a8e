// SPDX-License-Identifier: Apache-2.0
#include "inject/trap/sites.hpp"

#include <cpuid.h>
#include <fcntl.h>
#include <sys/prctl.h>

#include <cstdarg>

#include "inject/kernel.hpp"
#include "inject/trap/next.hpp"
#include "inject/trap/portals.hpp"

namespace headrace::emu {
namespace {

constexpr std::uint8_t kHlt = 0xf4;
/// Programs that submit rarely are not patched.
constexpr std::uint64_t kOftenEnough = 32;
/// In place of the count: the site is patched, or cannot be.
constexpr std::uint64_t kDecided = 0xff;

HEADRACE_NEXT<int(int, ...)> next_prctl("prctl");

constinit Atomic<bool> keeps_code;
constinit SiteTable table;

constexpr std::uint64_t word_of(std::uint64_t address, std::uint64_t count, std::uint8_t byte) {
  return address << 16 | count << 8 | byte;
}
constexpr std::uint64_t count_of(std::uint64_t word) {
  return word >> 8 & 0xff;
}

/// Whether CPUID reports a hypervisor.
bool is_virtual() noexcept {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kHypervisor = 1U << 31;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kHypervisor) != 0;
}

bool write_byte(std::uint64_t address, std::uint8_t byte) noexcept {
  const long file = kernel::call(__NR_openat, AT_FDCWD, kernel::as_argument("/proc/self/mem"),
                                 O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  const long done =
      kernel::call(__NR_pwrite64, file, kernel::as_argument(&byte), 1, static_cast<long>(address));
  kernel::call(__NR_close, file);
  return done == 1;
}

}  // namespace

SiteTable& sites() noexcept {
  return table;
}

void keep_code() noexcept {
  keeps_code.store_relaxed(true);  // advice
}

void SiteTable::count(std::uint64_t address, std::uint8_t first_byte) noexcept {
  if (keeps_code.load_relaxed()) return;  // advice
  for (Atomic<std::uint64_t>& slot : slots_) {
    // relaxed, all of it: a slot is one word, and nothing else is read through it.
    std::uint64_t found = slot.load_relaxed();
    if (found == 0 && slot.compare_exchange_relaxed(found, word_of(address, 1, 0))) return;
    if (found >> 16 != address) continue;
    const std::uint64_t count = count_of(found);
    if (count == kDecided) return;
    // If another thread counted concurrently, one count is lost.
    if (count + 1 < kOftenEnough) {
      slot.compare_exchange_relaxed(found, word_of(address, count + 1, 0));
      return;
    }
    const bool possible = is_virtual() && is_fixed_code(address);
    // Table first: a thread that executes the new byte must find the old one.
    const std::uint64_t then = word_of(address, kDecided, possible ? first_byte : 0);
    if (!slot.compare_exchange_relaxed(found, then) || !possible) return;
    // If it fails, the byte in the table equals the code's and is never used.
    static_cast<void>(write_byte(address, kHlt));
    return;
  }
}

bool SiteTable::restore(std::uint64_t address, std::span<std::uint8_t> code) const noexcept {
  if (code.empty() || code[0] != kHlt) return false;
  for (const Atomic<std::uint64_t>& slot : slots_) {
    const std::uint64_t found = slot.load_relaxed();  // as above
    if (found == 0) return false;
    if (found >> 16 != address || (found & 0xff) == 0) continue;
    code[0] = static_cast<std::uint8_t>(found & 0xff);
    return true;
  }
  return false;
}

/// Hook of prctl, by which a program starts to restrict its system calls: a filter may kill the
/// process for opening an unexpected file, so from then on no code is patched.
extern "C" HEADRACE_HOOK int prctl(int option, ...) noexcept {
  va_list arguments;
  va_start(arguments, option);
  const auto a = va_arg(arguments, unsigned long);
  const auto b = va_arg(arguments, unsigned long);
  const auto c = va_arg(arguments, unsigned long);
  const auto d = va_arg(arguments, unsigned long);
  va_end(arguments);
  // A program that sets a filter by a raw system call sets no_new_privs first, as libseccomp does.
  if (option == PR_SET_SECCOMP || option == PR_SET_NO_NEW_PRIVS) keep_code();
  return next_prctl(option, a, b, c, d);
}

}  // namespace headrace::emu
