// SPDX-License-Identifier: Apache-2.0
#include "inject/trap/process.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <new>

#include "inject/kernel.hpp"

namespace headrace::emu {
namespace {

// Constant-initialised: other libraries may submit before our constructor runs.
constinit Process the_process;

void wipe() {
  new (&the_process) Process();
}

}  // namespace

Process& process() noexcept {
  return the_process;
}

}  // namespace headrace::emu

headrace::inject::Arena& headrace::inject::own_arena() noexcept {
  return emu::process().arena;
}

namespace headrace::emu {

void wipe_process_at_fork() noexcept {
  const long result = kernel::call(__NR_madvise, kernel::as_argument(&the_process),
                                   sizeof(the_process), MADV_WIPEONFORK);
  // Kernels before 4.14: fork alone is covered.
  if (result != 0) ::pthread_atfork(nullptr, nullptr, wipe);
}

}  // namespace headrace::emu
