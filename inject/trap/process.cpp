// SPDX-License-Identifier: Apache-2.0
#include "inject/trap/process.hpp"

#include <sys/mman.h>

#include "inject/kernel.hpp"

namespace headrace::emu {
namespace {

// Constant-initialised: other libraries may submit before our constructor runs.
constinit Process the_process;

}  // namespace

Process& process() noexcept {
  return the_process;
}

void wipe_process_at_fork() noexcept {
  kernel::call(__NR_madvise, kernel::as_argument(&the_process), sizeof(the_process),
               MADV_WIPEONFORK);
}

}  // namespace headrace::emu

headrace::inject::Arena& headrace::inject::own_arena() noexcept {
  return emu::process().arena;
}
