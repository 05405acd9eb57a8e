// SPDX-License-Identifier: Apache-2.0
#include "inject/trap/stacks.hpp"

#include <sys/mman.h>

#include <bit>

#include "inject/kernel.hpp"

namespace headrace::emu {
namespace {

constexpr std::uint64_t kStackBytes = 64 * 1024;
constexpr std::uint64_t kStackCount = 256;

/// Lowest address of all stacks; constant after the start.
constinit std::uint64_t stacks_begin = 0;

}  // namespace

bool reserve_stacks() noexcept {
  stacks_begin =
      kernel::map(kStackBytes * kStackCount, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  return stacks_begin != 0;
}

std::uint64_t StackPool::take(std::uint64_t stack_pointer) noexcept {
  if (stack_pointer - stacks_begin < kStackBytes * kStackCount) return 0;
  for (;; kernel::yield()) {
    for (std::size_t word = 0; word < kWordCount; ++word) {
      std::uint64_t taken = taken_[word].load_relaxed();  // relaxed: a guess, the exchange decides.
      while (taken != ~std::uint64_t{0}) {
        const auto bit = static_cast<unsigned>(std::countr_one(taken));
        // edge: trap-stack (acq_rel): the new owner's writes come after the last reads of the old.
        if (taken_[word].compare_exchange_acq_rel(taken, taken | (std::uint64_t{1} << bit))) {
          return stacks_begin + (word * 64 + bit + 1) * kStackBytes;
        }
      }
    }
  }
}

void StackPool::give_back(std::uint64_t top) noexcept {
  const std::uint64_t number = (top - stacks_begin) / kStackBytes - 1;
  // edge: trap-stack (acq_rel)
  taken_[number / 64].fetch_sub_acq_rel(std::uint64_t{1} << (number % 64));
}

}  // namespace headrace::emu
