// SPDX-License-Identifier: Apache-2.0
// Hook of the call by which a program begins to confine its own system calls: a filter may end the
// process for a file that it does not expect to be opened, so from then on nothing is opened to
// change its code (sites.hpp). It changes nothing else.
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cstdarg>

#include "inject/kernel.hpp"
#include "inject/trap/hook.hpp"
#include "inject/trap/next.hpp"
#include "inject/trap/sites.hpp"

namespace headrace::emu {
namespace {

using Prctl = int(int, ...);
constinit Next<Prctl> next_prctl("prctl");

}  // namespace

void find_next_confinement() noexcept {
  next_prctl.get();
  // A filter that was there before exec.
  if (kernel::call(__NR_prctl, PR_GET_SECCOMP) != SECCOMP_MODE_DISABLED) keep_code();
}

extern "C" {

HEADRACE_HOOK int prctl(int option, ...) noexcept {
  va_list arguments;
  va_start(arguments, option);
  const auto a = va_arg(arguments, unsigned long);
  const auto b = va_arg(arguments, unsigned long);
  const auto c = va_arg(arguments, unsigned long);
  const auto d = va_arg(arguments, unsigned long);
  va_end(arguments);
  // Who sets a filter by a system call of his own gives up new privileges first, as libseccomp.
  if (option == PR_SET_SECCOMP || option == PR_SET_NO_NEW_PRIVS) keep_code();
  return next_prctl(option, a, b, c, d);
}

}  // extern "C"
}  // namespace headrace::emu
